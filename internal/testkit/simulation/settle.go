package simulation

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

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
// have. The others may have what they had before, also where a Service that can be read asks for the same. The rules have
// no other parts than these need.
func (r *run) checkPart(before *model.Snapshot, hidden map[model.ServiceName]bool) error {
	now := r.objects.snapshot.Update().Services
	maps.DeleteFunc(now, func(name model.ServiceName, _ model.ServiceState) bool { return hidden[name] })
	all := before.Update().Services
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(name model.ServiceName, _ model.ServiceState) bool { return !hidden[name] })
	maps.Copy(all, now)
	c := r.settings.Node
	c.InterfaceAddresses = r.addresses
	rules := func(states map[model.ServiceName]model.ServiceState) *nft.Ruleset {
		return want(snapshotOf(r.objects.snapshot, states), c).rules()
	}
	held := r.Tables.Held()
	wrong := append(compareClusterIPs(held, rules(now)), chainsLeft(held, rules(all), rules(kept))...)
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("a part of the source cannot be read, and rules differ:\n%s", strings.Join(wrong[:min(len(wrong), 10)], "\n"))
	}
	return nil
}

// chainsLeft returns the chains that none of some rules need.
func chainsLeft(held *nft.Ruleset, needed ...*nft.Ruleset) (wrong []string) {
	for _, t := range held.Tables {
		for _, c := range t.Chains {
			needs := func(r *nft.Ruleset) bool { n := r.Table(t.Family); return n != nil && n.Chain(c.Name) != nil }
			if !nft.IsLane(c.Rules) && !slices.ContainsFunc(needed, needs) {
				wrong = append(wrong, fmt.Sprintf("%s: chain %s is left", t.Family, c.Name))
			}
		}
	}
	return wrong
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
