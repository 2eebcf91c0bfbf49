package simulation

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// edit changes the objects, or the addresses of the machine.
func (r *run) edit(e Event, dice *rand.Rand) {
	switch e.Kind {
	case Remove:
		r.remove(dice.IntN(services))
	case Several:
		r.replaceSeveral(dice)
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

// replaceSeveral replaces Services together, or removes all relayed or announced ones.
func (r *run) replaceSeveral(dice *rand.Rand) {
	if dice.IntN(3) > 0 {
		for range 2 + dice.IntN(6) {
			r.replace(dice.Uint64(), dice.IntN(services))
		}
		return
	}
	for i := []int{relayed, announced}[dice.IntN(2)]; i < services; i += kinds {
		r.remove(i)
	}
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
