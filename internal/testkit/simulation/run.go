package simulation

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// Event is something that happens to a machine. What it does depends on its number, and on what has
// happened before.
type Event struct {
	Kind   Kind
	Number uint64
}

// Kind is a kind of event.
type Kind uint8

// Kinds of events.
const (
	Replace    Kind = iota // a Service gets other settings and endpoints
	Remove                 // a Service
	Several                // Services are replaced together
	Roll                   // endpoints of a Service are replaced
	Move                   // addresses of the machine come and go
	Hide                   // a part of the source cannot be read
	Unhide                 // it can be read again
	Unreadable             // the whole source cannot be read
	Readable               // it can be read again
	Late                   // endpoints arrive later than their Services
	Again                  // all objects arrive once more, as with a list
	Old                    // objects arrive as they were before, and then as they are
	Rival                  // the process ends, and another one owns the tables when the next one starts
	Disturb                // another program changes the rules
	Miss                   // likewise, and the message about it is lost
	Fail                   // the next transaction has a fault
	Refuse                 // the kernel refuses the elements of a Service
	Open                   // UDP clients open connections
	Bind                   // a client is bound to an endpoint
	Interrupt              // an endpoint of a client leaves, and the listing of connection tracking is interrupted
	Full                   // the runtime directory takes no file, until faults end
	Toggle                 // an interface goes down or comes up
	Relink                 // an interface is deleted and made again
	TakeOff                // an address is taken off an interface
	Pass                   // time passes
	Rollout                // the process restarts, or not, and endpoints of one Service are replaced, one after the other
	Stop                   // the process ends in order, and another one starts
	Kill                   // the process is killed, and another one starts
	CrashSoon              // the process ends in the middle of its next transaction
	CrashAt                // the process ends in the middle of its next change of an address
	Part                   // a process starts and cannot read a part of the source
	Settle                 // all faults end, and everything is compared
	Prove                  // likewise, and packets are followed
	numKinds
)

func (k Kind) String() string {
	return [numKinds]string{"replace", "remove", "several", "roll", "move", "hide", "unhide", "unreadable", "readable", "late", "again", "old", "rival", "disturb", "miss", "fail", "refuse",
		"open", "bind", "interrupt", "full", "toggle", "relink", "take off", "pass", "rollout", "stop", "kill", "crash soon", "crash at", "part", "settle", "prove"}[k]
}

// weights are how often kinds of events are drawn.
var weights = [numKinds]int{
	Replace: 40, Remove: 10, Several: 6, Roll: 20, Move: 4, Hide: 2, Unhide: 6, Unreadable: 2, Readable: 4, Late: 6, Again: 3, Old: 3, Full: 2, Rival: 1, Disturb: 6, Miss: 2, Fail: 10, Refuse: 1,
	Open: 14, Bind: 8, Interrupt: 6, Toggle: 4, Relink: 2, TakeOff: 2, Pass: 12, Rollout: 4, Stop: 3, Kill: 1, CrashSoon: 2, CrashAt: 1, Part: 2, Settle: 6,
}

// proofs is how many seeds there are for each one with a proof at its end: it takes as long as the rest.
const proofs = 32

// Draw returns the events of a seed: three crashes at least, and at the end a comparison.
func Draw(seed uint64, n int) []Event {
	r := rand.New(rand.NewPCG(seed, 3))
	sum := 0
	for _, w := range weights {
		sum += w
	}
	out := make([]Event, 0, n)
	for len(out) < n {
		x := r.IntN(sum)
		k := Kind(0)
		for ; x >= weights[k]; k++ {
			x -= weights[k]
		}
		out = append(out, Event{k, r.Uint64()})
	}
	for i := range 3 {
		out[n/4*(i+1)] = Event{[]Kind{Kill, CrashSoon, CrashAt}[r.IntN(3)], r.Uint64()}
	}
	end := Settle
	if seed%proofs == 0 {
		end = Prove
	}
	return append(out, Event{end, r.Uint64()})
}

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

// edit changes the objects, or the addresses of the machine.
func (r *run) edit(e Event, dice *rand.Rand) {
	switch e.Kind {
	case Remove:
		r.remove(dice.IntN(services))
	case Several:
		for range 2 + dice.IntN(6) {
			r.replace(dice.Uint64(), dice.IntN(services))
		}
	case Roll:
		i := dice.IntN(services)
		r.world.roll(dice.Uint64(), i, netip.Addr{})
		r.note(i)
	case Move:
		pass(awhile)
		now, changed := r.world.move(e.Number, r.addresses)
		r.addresses, r.wanted = now, nil
		for _, a := range changed {
			r.process.interfaces.Event(a, r.settings.Node)
		}
		return
	default:
		r.replace(dice.Uint64(), dice.IntN(services))
	}
	r.publish()
}

func (r *run) replace(seed uint64, i int) {
	r.world.replace(seed, i)
	r.note(i)
}

func (r *run) remove(i int) {
	r.world.Remove(i)
	r.note(i)
}

func (r *run) note(i int) {
	r.Tables.mu.Lock()
	defer r.Tables.mu.Unlock()
	if r.dirty != nil {
		r.dirty[i] = true
	}
}

// see looks for changes of frontends that no object asks for, in a transaction. The lock of the tables is held.
func (r *run) see(p *plan.Plan) {
	if r.dirty == nil || r.Tables.vandalized || r.Tables.broken != nil || r.unchecked {
		return
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Set == nil || c.Kind() != "element" || c.Set.Name != nft.ServicesMap && !c.Set.HasSlots() {
			continue
		}
		for _, e := range []*nft.Element{c.Old, c.New} {
			if e == nil {
				continue
			}
			if n, own := ownAddresses[e.Key.Address]; own && !r.dirty[n] {
				r.Tables.broken = fmt.Errorf("a transaction changes a frontend of Service %d, which has not changed: %s", n, c.Text())
			}
		}
	}
}

// blind changes what can be read of the source.
func (r *run) blind(k Kind, dice *rand.Rand) {
	r.objects.set(func() {
		switch k {
		case Hide:
			r.objects.hidden = make(map[model.ServiceName]bool)
			for range 1 + dice.IntN(5) {
				r.objects.hidden[workload.ServiceName(dice.IntN(services))] = true
			}
		case Late:
			r.objects.late = make(map[model.ServiceName]bool)
			for range 1 + dice.IntN(10) {
				i := dice.IntN(services)
				r.objects.late[workload.ServiceName(i)] = true
				r.note(i)
			}
		case Again:
			r.objects.again = true
		case Unhide:
			r.objects.hidden = nil
		case Unreadable:
			r.objects.unreadable = unix.EIO
		case Readable:
			r.objects.unreadable = nil
		}
	})
	r.notify()
}

// deliverOld has the source deliver the objects as they were before their last change, and then as they are.
func (r *run) deliverOld() {
	if r.before == nil {
		return
	}
	u, _ := r.before.Since(r.objects.snapshot.Update().Services)
	for i, name := range serviceNames {
		if _, differs := u.Services[name]; differs {
			r.note(i)
		}
	}
	r.objects.set(func() { r.objects.snapshot = r.before })
	r.notify()
	r.publish()
}

// change changes what may change while no process runs: often nothing, and the next process may resume.
func (r *run) change(dice *rand.Rand) {
	switch dice.IntN(6) {
	case 0, 1:
		return
	case 2:
		r.spoilRecord(dice)
		return
	}
	if dice.IntN(3) == 0 {
		r.settings, r.dirty = r.world.configure(dice.Uint64()), nil
	}
	r.changeObjects(dice)
	if dice.IntN(4) == 0 {
		r.Tables.Disturb(false, func(rules *nft.Ruleset) bool { return vandalize(rules, dice) })
	}
	if dice.IntN(3) == 0 {
		pass(time.Duration(dice.IntN(100)) * time.Minute)
	}
}

// changeObjects changes up to three Services while no process runs.
func (r *run) changeObjects(dice *rand.Rand) {
	for range dice.IntN(4) {
		if i := dice.IntN(services); dice.IntN(3) == 0 {
			r.remove(i)
		} else {
			r.replace(dice.Uint64(), i)
		}
	}
	r.wanted = nil
	r.objects.set(func() { r.objects.snapshot = r.world.Snapshot() })
}

// drawFault draws a fault of a transaction.
func drawFault(dice *rand.Rand) Fault {
	before := []error{unix.EINTR, unix.ENOBUFS, unix.ENOMEM, unix.ERESTART, unix.EAGAIN, kernel.ErrNoAnswer}
	after := []error{unix.ENOBUFS, unix.EINTR, kernel.ErrNoAnswer}
	switch dice.IntN(5) {
	case 0:
		return Fault{Removal: unix.EBUSY}
	case 1, 2:
		return Fault{After: after[dice.IntN(len(after))]}
	}
	return Fault{Before: before[dice.IntN(len(before))]}
}

// rollOut has a process, often a new one that resumes what the one before it has left, follow several changes of the
// same endpoints. All faults are over: what the kernel holds is what the process knows.
func (r *run) rollOut(dice *rand.Rand) error {
	if err := r.settle(false); err != nil {
		return err
	}
	if dice.IntN(3) > 0 {
		r.settings.Upgraded = false
		r.process.stop()
		if err := r.restart(); err != nil {
			return err
		}
	}
	i := dice.IntN(services)
	for n := 0; n < services && !r.world.hasEndpoints(i); n++ {
		i = (i + 1) % services
	}
	r.note(i)
	for range 5 {
		r.world.roll(dice.Uint64(), i, netip.Addr{})
		r.publish()
		pass(awhile)
	}
	return nil
}

// disturb has another program change the rules. If connections fail, they are there again within a second, unless there
// are other faults.
func (r *run) disturb(missed bool, dice *rand.Rand) error {
	calm := r.isCalm()
	if !r.Tables.Disturb(missed, func(rules *nft.Ruleset) bool { return vandalize(rules, dice) }) || !calm {
		synctest.Wait()
		return nil
	}
	pass(time.Second)
	if wrong := r.Tables.compare(r.newest()); len(wrong) > 0 {
		return fmt.Errorf("rules are not repaired a second after another program has changed them: %s", wrong[0])
	}
	return nil
}

// isCalm reports whether the process has no work, and nothing keeps it from its next.
func (r *run) isCalm() bool {
	blind := false
	r.objects.set(func() { blind = len(r.objects.hidden)+len(r.objects.late) > 0 || r.objects.unreadable != nil })
	r.Tables.mu.Lock()
	defer r.Tables.mu.Unlock()
	return !blind && len(r.Tables.faults) == 0 && !r.Tables.vandalized && r.Tables.refused == (model.ServiceName{}) && !r.unchecked &&
		r.process.failure == nil && r.process.agent.State().Pending.IsZero()
}

// vandalize changes our rules as another program may, and reports whether connections fail then.
func vandalize(rules *nft.Ruleset, dice *rand.Rand) (urgent bool) {
	if len(rules.Tables) == 0 {
		return false
	}
	t := rules.Tables[dice.IntN(len(rules.Tables))]
	switch dice.IntN(5) {
	case 0:
		rules.Tables = nil
	case 1:
		rules.Tables = slices.DeleteFunc(rules.Tables, func(o *nft.Table) bool { return o == t })
	case 2:
		for _, s := range t.Sets {
			if s.Name == nft.ServicesMap {
				s.Elements = nil
			}
		}
	case 3:
		addForeign(t, dice)
		return false
	default:
		for _, s := range t.Sets {
			if n := len(s.Elements); s.Name == nft.ServicesMap && n > 0 {
				i := dice.IntN(n)
				s.Elements = slices.Delete(s.Elements, i, i+1)
			}
		}
		return false
	}
	return true
}

// addForeign adds an element with the key of a frontend that may come.
func addForeign(t *nft.Table, dice *rand.Rand) {
	s := t.Set(nft.ServicesMap)
	if s == nil || len(s.Elements) == 0 {
		return
	}
	e := s.Elements[dice.IntN(len(s.Elements))]
	e.Key.Address = netip.AddrFrom4([4]byte{10, 96, 0, byte(dice.IntN(services))})
	if t.Family == model.IPv6 {
		e.Key.Address = netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%d", dice.IntN(services)))
	}
	if find(s, &e) == nil {
		s.Elements = append(s.Elements, e)
		s.Sort()
	}
}

// meet lets packets of clients arrive.
func (r *run) meet(k Kind, dice *rand.Rand) {
	if k == Bind {
		r.bind(dice)
		return
	}
	w := r.newest()
	var frontends []model.Frontend
	for route := range w.router.Each {
		if f := route.Frontend; f.Protocol == model.UDP && f.Address.IsValid() && !f.IsRange() && !f.Address.IsUnspecified() {
			frontends = append(frontends, f)
		}
	}
	slices.SortFunc(frontends, func(a, b model.Frontend) int { return strings.Compare(a.String(), b.String()) })
	for range min(3, len(frontends)) {
		f := frontends[dice.IntN(len(frontends))]
		client := netip.AddrFrom4([4]byte{203, 0, 113, byte(100 + dice.IntN(100))})
		if f.Address.Is6() {
			client = netip.MustParseAddr(fmt.Sprintf("2001:db8:9::%x", 1+dice.IntN(100)))
		}
		r.send(f, client, dice)
	}
}

// send follows a packet of UDP through the rules, and notes the flow that it leaves.
func (r *run) send(f model.Frontend, client netip.Addr, dice *rand.Rand) {
	r.Tables.mu.Lock()
	m := bytecode.Machine{Rules: &r.Tables.rules, Local: r.addresses, Out: "eth0"}
	results := m.Follow(bytecode.Packet{Protocol: uint8(model.UDP), Source: client, SourcePort: 40000, Destination: f.Address, Port: f.Port, In: "eth0"})
	r.Tables.mu.Unlock()
	bytecode.Sort(results)
	if got := results[dice.IntN(len(results))]; got.Verdict == bytecode.Pass && !got.Redirected {
		r.Flows.Open(client, netip.AddrPortFrom(f.Address, f.Port), got.To)
	}
}

// bind binds a client to an endpoint that a frontend with affinity has, as packets do.
func (r *run) bind(dice *rand.Rand) {
	r.Tables.mu.Lock()
	defer r.Tables.mu.Unlock()
	for _, t := range r.Tables.current.Tables {
		for s := range bindingsOf(t) {
			endpoints := t.Set(nft.EndpointsOf(s.Name))
			if s.Name == nft.SharedAffinityMap || endpoints == nil || len(endpoints.Elements) == 0 {
				continue
			}
			e := endpoints.Elements[dice.IntN(len(endpoints.Elements))]
			value := nft.Value{Endpoint: netip.AddrPortFrom(e.Key.Source, uint16(e.Key.Slot))}
			e.Key.Source, e.Key.Slot = netip.AddrFrom4([4]byte{203, 0, 113, byte(dice.IntN(100))}), 0
			if e.Key.Address.Is6() {
				e.Key.Source = netip.MustParseAddr(fmt.Sprintf("2001:db8:9::%x", 1+dice.IntN(100)))
			}
			if !slices.ContainsFunc(s.Elements, func(o nft.Element) bool { return o.Key == e.Key }) {
				s.Elements = append(s.Elements, nft.Element{Key: e.Key, Value: value})
				s.Sort()
			}
		}
	}
}

// interrupt interrupts the next listing of connection tracking, while the endpoint of a client leaves. The listing is
// repeated: the client need not wait for the next change.
func (r *run) interrupt(dice *rand.Rand) error {
	client, service := r.drawFlow(dice)
	if service < 0 {
		return nil
	}
	calm := r.isCalm()
	r.Flows.interrupt()
	r.world.roll(dice.Uint64(), service, client.Answers.Addr())
	r.note(service)
	if r.publish(); !calm {
		return nil
	}
	pass(time.Second)
	return checkFlows(r.Flows, r.newest())
}

// drawFlow returns a flow that an interrupted listing leaves out, with the number of its Service; -1: there is none.
func (r *run) drawFlow(dice *rand.Rand) (conntrack.Flow, int) {
	all := r.Flows.list()
	if all = all[len(all)/2:]; len(all) == 0 {
		return conntrack.Flow{}, -1
	}
	f := all[dice.IntN(len(all))]
	route := r.newest().router.Serves(model.Frontend{Address: f.Dialled.Addr(), Protocol: f.Protocol, Port: f.Dialled.Port()})
	if route == nil {
		return f, -1
	}
	return f, slices.IndexFunc(serviceNames, func(n model.ServiceName) bool { return n == route.Service.Name })
}

// newest is what the newest objects ask for.
func (r *run) newest() *wanted {
	if r.wanted == nil {
		c := r.settings.Node
		c.InterfaceAddresses = r.addresses
		r.wanted = want(r.objects.snapshot, c)
	}
	return r.wanted
}

// rest is how long all faults are over before everything is compared: longer than any pause.
const rest = 3 * time.Minute

// settle ends all faults, and compares everything at rest.
func (r *run) settle(prove bool) error {
	r.Tables.Heal()
	r.Links.raise()
	r.emptyDirectory()
	r.objects.set(func() { r.objects.hidden, r.objects.unreadable, r.objects.late = nil, nil, nil })
	r.notify()
	for pause := rest; ; {
		if r.unchecked {
			pause += longPeriod
		}
		pass(pause)
		if !r.process.crashed.Load() && !r.process.cut.Load() {
			break
		}
		if err := r.revive(); err != nil {
			return err
		}
	}
	r.unchecked = false
	return r.check(prove)
}

// startPartly starts a process, perhaps with other settings, that cannot read a part of the source. Services of
// that part, and those that have gone meanwhile, stay as they are until it can; all others are served.
func (r *run) startPartly(dice *rand.Rand) error {
	if err := r.settle(false); err != nil {
		return err
	}
	before := r.objects.snapshot
	if dice.IntN(2) == 0 {
		r.process.stop()
	} else {
		r.process.kill()
		r.crashes++
	}
	other := r.world.configure(dice.Uint64()).Node
	r.settings.Node.Observe, r.settings.Node.Counters, r.settings.Node.EndpointCounters = other.Observe, other.Counters, other.EndpointCounters
	r.dirty = nil
	r.changeObjects(dice)
	hidden := make(map[model.ServiceName]bool)
	for range 1 + dice.IntN(5) {
		hidden[workload.ServiceName(dice.IntN(services))] = true
	}
	r.objects.set(func() { r.objects.hidden = hidden })
	if err := r.restart(); err != nil {
		return err
	}
	pass(rest)
	if err := r.process.failure; err != nil {
		return fmt.Errorf("the source is read in part, and the last sync has failed: %w", err)
	}
	return r.checkPart(before, hidden)
}

// checkPart looks for frontends of the Services that the process can read, at addresses that no other Service can
// have. The rest may have what it had before, and the rules no other parts than all of them need together.
func (r *run) checkPart(before *model.Snapshot, hidden map[model.ServiceName]bool) error {
	now := r.objects.snapshot.Update().Services
	maps.DeleteFunc(now, func(name model.ServiceName, _ model.ServiceState) bool { return hidden[name] })
	all := before.Update().Services
	maps.Copy(all, now)
	c := r.settings.Node
	c.InterfaceAddresses = r.addresses
	read, most, held := want(snapshotOf(r.objects.snapshot, now), c).rules(), want(snapshotOf(r.objects.snapshot, all), c).rules(), r.Tables.Held()
	wrong := compareClusterIPs(held, read)
	for _, t := range held.Tables {
		if might := most.Table(t.Family); might != nil {
			for _, c := range t.Chains {
				ofService := strings.Contains(c.Name, "/") // which may have kept what another one would get otherwise
				if might.Chain(c.Name) == nil && !nft.IsLane(c.Rules) && !ofService {
					wrong = append(wrong, fmt.Sprintf("%s: chain %s is left", t.Family, c.Name))
				}
			}
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("a part of the source cannot be read, and rules differ:\n%s", strings.Join(wrong[:min(len(wrong), 10)], "\n"))
	}
	return nil
}

// snapshotOf returns a snapshot with other Services.
func snapshotOf(s *model.Snapshot, states map[model.ServiceName]model.ServiceState) *model.Snapshot {
	out := *s
	out.Services, out.Slices = nil, nil
	for _, state := range states {
		out.Services, out.Slices = append(out.Services, state.Service), append(out.Slices, state.Slices...)
	}
	return &out
}

// check compares everything with what the newest objects ask for.
func (r *run) check(prove bool) error {
	p := r.process
	if p.failure != nil {
		return fmt.Errorf("the last sync has failed: %w", p.failure)
	}
	if s := p.agent.State(); !s.Pending.IsZero() {
		return fmt.Errorf("no sync since %s", s.Pending)
	}
	if err := r.awaitIdle(); err != nil {
		return err
	}
	w := r.newest()
	if wrong := r.Tables.compare(w); len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("the rules are not what the newest objects ask for:\n%s", strings.Join(wrong[:min(len(wrong), 10)], "\n"))
	}
	if err := errors.Join(checkLinks(r.Links, w), checkFlows(r.Flows, w), r.Tables.checkBindings()); err != nil {
		return err
	}
	if prove {
		if err := w.prove(r.Tables); err != nil {
			return err
		}
	}
	r.Tables.expectNothing()
	r.dirty = make(map[int]bool)
	return nil
}

// testDirectory returns an empty directory in memory, if the system has one there.
func testDirectory() (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "simulation"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "simulation")
}
