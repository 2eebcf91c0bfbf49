package simulation

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// Result is what has happened in a run.
type Result struct {
	Trace   []uint64 // a hash of each transaction
	Crashes int
	At      int   // the event at which something was wrong
	Err     error // what was wrong; nil: nothing
}

type run struct {
	*Machine
	world    *world
	before   *model.Snapshot // the objects before their last change; nil: there are none
	settings settings
	process  *process
	crashes  int
	dirty    map[int]bool // Services that have changed since everything was compared; nil: all of them
	wanted   *wanted      // by the newest objects and settings; nil: they have changed since
	// unchecked means that the kernel may have refused a Service: only a comparison after an hour tries again.
	unchecked bool
}

// Run lets events happen to a machine that starts with the objects of a seed. It must be called in a bubble
// of testing/synctest.
func Run(seed uint64, events []Event, log *slog.Logger, directory string) (out Result) {
	w := newWorld(seed)
	r := &run{world: w, Machine: &Machine{Tables: NewTables(w.owners), Flows: &Flows{}, Links: NewLinks(links...), begun: time.Now(), log: log}}
	r.directory, r.Tables.Seen = directory, r.see
	r.settings = w.configure(seed)
	r.addresses, _ = w.move(seed, nil)
	r.publish()
	r.process = r.start(r.settings)
	synctest.Wait()
	for i, e := range events {
		log.Info("event", "number", i, "kind", e.Kind)
		if out.Err = r.happen(e); out.Err == nil {
			out.Err = r.revive()
		}
		if out.Err == nil {
			out.Err = r.Tables.broken
		}
		if out.At = i; out.Err != nil {
			break
		}
	}
	r.process.kill()
	if err := r.awaitEnd(); out.Err == nil {
		out.Err = err
	}
	out.Trace, out.Crashes = r.Tables.trace, r.crashes
	return out
}

// publish makes the objects of the world those that the source reads.
func (r *run) publish() {
	r.wanted, r.before = nil, r.objects.snapshot
	r.objects.set(func() { r.objects.snapshot = r.world.Snapshot() })
	r.notify()
}

func (r *run) notify() {
	if r.process != nil {
		r.process.feed.notify()
	}
	synctest.Wait()
}

// awaitEnd waits until all goroutines of the process have ended.
func (r *run) awaitEnd() error {
	select {
	case <-r.process.ended:
		synctest.Wait()
		return nil
	case <-time.After(time.Minute):
		return errors.New("goroutines of a process that was ended are left after a minute")
	}
}

// revive starts another process if one has crashed.
func (r *run) revive() error {
	synctest.Wait()
	for r.process.crashed.Load() || r.process.cut.Load() {
		if !r.process.crashed.Load() {
			r.process.kill()
		}
		r.crashes++
		if err := r.restart(); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) restart() error {
	if err := r.awaitEnd(); err != nil {
		return err
	}
	if err := r.process.err; err != nil && !r.process.crashed.Load() {
		return fmt.Errorf("the process has failed: %w", err)
	}
	r.process = r.start(r.settings)
	synctest.Wait()
	return nil
}

// maxSync is how long a sync may take, with all its attempts.
const maxSync = 10 * time.Second

// awaitIdle waits until no sync is under way: between its attempts, it sleeps.
func (r *run) awaitIdle() error {
	for begun := time.Now(); time.Since(begun) < maxSync; pass(time.Millisecond) {
		synctest.Wait()
		if still := r.process.cleaner.Still().(*sync.Mutex); still.TryLock() {
			still.Unlock()
			return nil
		}
	}
	return errors.New("a sync does not end, or does not release its lock")
}

// happen lets an event happen.
func (r *run) happen(e Event) error {
	dice := rand.New(rand.NewPCG(e.Number, 5))
	if err := r.awaitIdle(); err != nil {
		return err
	}
	switch e.Kind {
	case Replace, Remove, Several, Roll, Move:
		r.edit(e, dice)
	case Hide, Unhide, Unreadable, Readable, Late, Again:
		r.blind(e.Kind, dice)
	case Rival:
		r.process.stop()
		r.Tables.rivalize()
		return r.restart()
	case Disturb, Miss:
		return r.disturb(e.Kind == Miss, dice)
	case Fail:
		r.Tables.Fail(drawFault(dice))
	case Refuse:
		r.unchecked = true
		r.Tables.Refuse(workload.ServiceName(dice.IntN(services)))
	case Open, Bind:
		r.meet(e.Kind, dice)
	case Interrupt:
		return r.interrupt(dice)
	case Old:
		r.deliverOld()
	case Full:
		r.fillDirectory()
	case Toggle:
		r.Links.Toggle(links[dice.IntN(len(links))])
	case Relink:
		r.Links.Replace(links[dice.IntN(len(links))])
	case TakeOff:
		if all := r.Links.addresses(); len(all) > 0 {
			r.Links.TakeOff(all[dice.IntN(len(all))])
		}
	case Pass:
		d := []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, 20 * time.Second, 2 * time.Minute, longPeriod}[dice.IntN(6)]
		if r.Tables.isRivalled() {
			d = min(d, 20*time.Second)
		}
		pass(d)
	case Rollout:
		return r.rollOut(dice)
	case Stop:
		r.process.stop()
		r.change(dice)
		return r.restart()
	case Kill:
		r.process.kill()
		r.change(dice)
	case CrashSoon:
		r.Tables.Fail(Fault{CrashBefore: dice.IntN(2) == 0, CrashAfter: true})
	case CrashAt:
		r.Links.mu.Lock()
		r.Links.crashes = true
		r.Links.mu.Unlock()
	case Part:
		return r.startPartly(dice)
	case Settle, Prove:
		return r.settle(e.Kind == Prove)
	}
	synctest.Wait()
	return nil
}

// longPeriod is more than the pause between two comparisons. While another process owns the tables, each second has
// another attempt, and hours would have thousands.
const longPeriod = 70 * time.Minute

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// testDirectory returns an empty directory in memory, if the system has one there.
func testDirectory() (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "simulation"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "simulation")
}
