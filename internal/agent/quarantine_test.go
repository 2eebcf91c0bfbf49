package agent

import (
	stdcmp "cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

const badNumber = 4

// occasion is when the kernel refuses something of a Service.
type occasion struct {
	name string
	// prepare, if set, fills the kernel with the Services before.
	prepare func(t *testing.T, w *workshop, before states)
	cause   Cause // of the sync that the kernel refuses
	like    func(part) part
	kinds   int // of parts, at least
}

var occasions = []occasion{
	{"start of an empty kernel", nil, Start, part.ofClass, 10},
	{"change", func(t *testing.T, w *workshop, before states) { w.try(t, Start, before) }, Change, part.ofName, 70},
	{"restart", func(t *testing.T, w *workshop, before states) {
		old, _ := newPicky(t, w.ns)
		old.try(t, Start, before)
	}, Start, part.ofClass, 8},
}

// TestQuarantine: 13.29. The kernel refuses one part of the rules for one Service: an element
// of each kind of set, a rule of each kind of chain, such a set and such a chain that only this
// Service needs, when the Service changes; and one of each class of them when an empty kernel is filled, and when the
// kernel has the rules of an earlier run. The others are served in the same sync. That Service
// stays as the kernel has it, and is served as soon as the kernel takes it.
func TestQuarantine(t *testing.T) {
	for _, o := range occasions {
		t.Run(o.name, func(t *testing.T) {
			tried := make(map[part]bool)
			for variant := range workload.FullVariants {
				before, after, bad := neighbours(variant)
				from := &nothing
				if o.prepare != nil {
					from = before.rules()
				}
				alone, others := partsIn(&nothing, states{}.with(bad).rules()), partsIn(&nothing, after.rules())
				parts := partsIn(from, after.with(bad).rules())
				for _, p := range slices.SortedFunc(maps.Keys(parts), part.compare) {
					if like := o.like(p); !tried[like] && p.family == like.family && alone[p] && !others[p] {
						tried[like] = true
						t.Run(fmt.Sprintf("%s %s of %s", like.family, p.kind, p.name), func(t *testing.T) {
							t.Parallel()
							refuse(t, o, p, before, after, bad)
						})
					}
				}
			}
			if len(tried) < o.kinds {
				t.Errorf("only %d kinds of parts", len(tried))
			}
		})
	}
}

// neighbours returns Services before and after a change, and the one that the kernel refuses
// after it.
func neighbours(variant int) (before, after states, bad model.ServiceState) {
	version := func(name string, number byte, later int) model.ServiceState {
		return workload.Full(name, number, (variant+later)%workload.FullVariants)
	}
	before = states{}.with(version("good", 40, 1), version("bad", badNumber, 3))
	return before, states{}.with(version("good", 40, 2)), version("bad", badNumber, 0)
}

// partsIn returns what a change adds.
func partsIn(before, after *nft.Ruleset) map[part]bool {
	out := make(map[part]bool)
	p := plan.Diff(before, plan.Settle(before, after))
	for i := range p.Changes {
		partsOf(&p.Changes[i], func(p part) bool { out[p] = true; return true })
	}
	return out
}

func refuse(t *testing.T, o occasion, p part, before, after states, bad model.ServiceState) {
	w, k := newPicky(t, netlab.TestNamespace(t))
	had, served := make(map[string]string), after
	if o.prepare != nil {
		o.prepare(t, w, before)
		// The kernel may refuse a rule again that it has of the Service, if the chain changes for others.
		// Then nothing of the Service stays.
		old := after.with(before[bad.Service.Name])
		if !partsIn(before.rules(), old.rules())[p] {
			served, had = old, elementsAbout(w.held(t), bad.Service, badNumber)
		}
	}
	k.spoils = p.adds
	name := bad.Service.Name
	s := w.try(t, o.cause, after.with(bad))
	if !slices.Equal(s.Quarantined, []model.ServiceName{name}) {
		t.Fatalf("%s: in quarantine: %v\n%s", p, s.Quarantined, w.log)
	}
	held := w.held(t)
	if diff := cmp.Diff(had, elementsAbout(held, bad.Service, badNumber)); diff != "" {
		t.Errorf("%s: the Service is not as before:\n%s", p, diff)
	}
	workload.CheckReferences(t, held)
	for _, c := range left(held, served.rules()).Changes {
		t.Errorf("%s: left to do: %s", p, c.Text())
	}
	if s := w.try(t, Check, nil); !slices.Equal(s.Quarantined, []model.ServiceName{name}) || !s.Plan.Empty() {
		t.Errorf("%s: a check later, in quarantine: %v; changes %d", p, s.Quarantined, len(s.Plan.Changes))
	}
	k.spoils = nil
	if s := w.try(t, Check, nil); len(s.Quarantined) > 0 {
		t.Errorf("%s: taken, and still in quarantine: %v", p, s.Quarantined)
	}
	for _, c := range left(w.held(t), after.with(bad).rules()).Changes {
		t.Errorf("%s: taken, and left to do: %s", p, c.Text())
	}
}

// TestQuarantineAcrossSettings: 13.29. The kernel refuses what has changed of a Service at a start that
// also changes the structure of the rules. What it had of the Service is there in the new structure.
func TestQuarantineAcrossSettings(t *testing.T) {
	w, k := newPicky(t, netlab.TestNamespace(t))
	before, _ := newPicky(t, w.ns)
	good, bad, changed := workload.Full("good", 40, 0), workload.Full("bad", badNumber, 1), workload.Full("bad", badNumber, 1)
	changed.Service.Ports[0].Port = 81
	before.try(t, Start, states{}.with(good, bad))
	w.Node.Counters, w.Node.EndpointCounters, w.Node.Observe = true, true, model.Observe{}
	k.spoils = func(c *plan.Change) bool { return ofBad(c) && c.New.Key.Port == 81 }
	if s := w.try(t, Start, states{}.with(good, changed)); len(s.Quarantined) != 1 {
		t.Fatalf("quarantine %v", s.Quarantined)
	}
	r := model.NewRouter()
	r.Configure(w.Node, workload.FullNodes(), workload.FullCIDRs())
	r.SetServices(states{}.with(good, bad))
	for _, c := range left(w.held(t), render.Render(r.Routing())).Changes {
		t.Errorf("left to do: %s", c.Text())
	}
}

// TestQuarantinedNodePort: 13.29. NodePorts of a quarantined Service stay at the addresses that they had under
// settings of an earlier run, also when another Service changes.
func TestQuarantinedNodePort(t *testing.T) {
	w, k := newPicky(t, netlab.TestNamespace(t))
	before, _ := newPicky(t, w.ns)
	bad, changed := workload.Full("bad", badNumber, 1), workload.Full("bad", badNumber, 1)
	changed.Service.Ports[0].Port = 81
	before.try(t, Start, states{}.with(workload.Full("good", 40, 0), bad))
	addresses := func() (n int) {
		for _, table := range w.held(t).Tables {
			if s := table.Set(nft.NodeAddressesSet); s != nil {
				n += len(s.Elements)
			}
		}
		return n
	}
	had := addresses()
	w.Node.NodePortAddresses = nil
	k.spoils = func(c *plan.Change) bool { return ofBad(c) && c.New.Key.Port == 81 }
	for i, cause := range []Cause{Start, Change, Check} {
		if s := w.try(t, cause, states{}.with(workload.Full("good", 40, i), changed)); len(s.Quarantined) != 1 {
			t.Fatalf("%s: quarantine %v", cause, s.Quarantined)
		}
		if n := addresses(); n != had || n == 0 {
			t.Errorf("%s: NodePorts are at %d addresses, were at %d", cause, n, had)
		}
	}
}

// ofBad reports whether a change adds something that names the Service in its comment.
func ofBad(c *plan.Change) bool {
	return c.New != nil && strings.HasPrefix(c.New.Comment, "default/bad:") && len(c.New.Comment) < 100
}

// TestQuarantineIsTriedAgain: 13.29. A quarantined Service is tried again when it changes, by
// itself, and not when others do. It costs these no comparison. The log says once
// that it is quarantined, and observers get a notice.
func TestQuarantineIsTriedAgain(t *testing.T) {
	w, k := newPicky(t, netlab.TestNamespace(t))
	good := func(variant int) model.ServiceState { return workload.Full("good", 40, variant) }
	bad := func(variant int) model.ServiceState { return workload.Full("bad", badNumber, variant) }
	k.spoils = ofBad
	all := states{}.with(good(0), bad(0))
	s := w.try(t, Start, all)
	if n := s.Notices(); len(s.Quarantined) != 1 || !s.NewNotices || len(n) != 1 || n[0].Reason != model.Quarantined || n[0].Object.String() != "Service default/bad" {
		t.Fatalf("%v, notices %v", s.Quarantined, n)
	}
	if r := w.Routing(); len(r.Notices) != 1 {
		t.Errorf("the routing has the notices %v", r.Notices)
	}
	trials := k.trials
	s = w.try(t, Change, states{}.with(good(1)))
	if s.NewNotices || k.trials != trials || s.Plan.Empty() {
		t.Errorf("another one changes: new notices %t, %d trials, %d changes", s.NewNotices, k.trials-trials, len(s.Plan.Changes))
	}
	s = w.try(t, Change, states{}.with(good(0), bad(1)))
	if s.NewNotices || s.Compared || k.trials == trials || s.Plan.Empty() || len(s.Quarantined) != 1 || k.refused != 1 {
		t.Errorf("both change: new notices %t, compared %t, %d trials, %d changes, quarantine %v, %d refusals",
			s.NewNotices, s.Compared, k.trials-trials, len(s.Plan.Changes), s.Quarantined, k.refused)
	}
	for _, c := range s.Routes {
		if r := stdcmp.Or(c.New, c.Old); r.Service.Name.Name != "good" {
			t.Errorf("observers get a change of %s", r.Service.Name)
		}
	}
	if n := strings.Count(w.log.String(), "the kernel refuses its rules"); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, w.log)
	}
	k.spoils = nil
	s = w.try(t, Change, states{}.with(bad(2)))
	if len(s.Quarantined) > 0 || !s.NewNotices || len(s.Notices()) > 0 || len(s.Routes) == 0 {
		t.Errorf("taken: quarantine %v, notices %v, %d routes", s.Quarantined, s.Notices(), len(s.Routes))
	}
	for _, c := range left(w.held(t), states{}.with(good(0), bad(2)).rules()).Changes {
		t.Errorf("left to do: %s", c.Text())
	}
}

// TestQuarantinedServiceGoes: 13.29. A quarantined Service is deleted: so is what the kernel
// had of it. One of its addresses goes to another Service before that.
func TestQuarantinedServiceGoes(t *testing.T) {
	w, k := newPicky(t, netlab.TestNamespace(t))
	bad := workload.Full("bad", badNumber, 0)
	w.try(t, Start, states{}.with(bad))
	k.spoils = ofBad
	changed := workload.Full("bad", badNumber, 1)
	changed.Service.Ports[0].Port = 81 // another frontend
	heir := workload.Full("heir", badNumber, 2)
	heir.Service.Created = 1 // the older one has the addresses
	if s := w.try(t, Change, states{}.with(changed)); len(s.Quarantined) != 1 {
		t.Fatalf("quarantine %v", s.Quarantined)
	}
	w.try(t, Change, states{}.with(heir))
	for _, c := range left(w.held(t), states{}.with(heir, bad).rules()).Changes {
		t.Errorf("left to do: %s", c.Text())
	}
	if s := w.try(t, Change, states{bad.Service.Name: {}}); len(s.Quarantined) > 0 {
		t.Errorf("deleted, and in quarantine: %v", s.Quarantined)
	}
	for _, c := range left(w.held(t), states{}.with(heir).rules()).Changes {
		t.Errorf("deleted, and left to do: %s", c.Text())
	}
}

// TestNoQuarantine: 13.18. Nothing is quarantined, and the sync fails, if the kernel refuses
// what all share, a binding of a client, or anything because of the moment.
func TestNoQuarantine(t *testing.T) {
	binding := &nft.Set{Name: nft.AffinityMap, Dynamic: true}
	for name, c := range map[string]struct {
		fails  error
		spoils func(*plan.Change) bool
	}{
		"what all share": {spoils: func(c *plan.Change) bool {
			return c.Chain != nil && c.Chain.Hook != nft.NoHook && len(c.Chain.Rules) > 0
		}},
		"a binding": {fails: &kernel.CommitError{Object: "binding", Set: binding, Err: unix.ENOENT}},
		"no memory": {fails: unix.ENOMEM}, "busy": {fails: unix.EBUSY}, "lost": {fails: unix.ENOBUFS}, "interrupted": {fails: unix.EINTR},
		"others write": {fails: unix.ERESTART}, "not permitted": {fails: unix.EPERM},
		"content that a trial takes": {fails: unix.EEXIST}, // another program's doing
	} {
		t.Run(name, func(t *testing.T) {
			w, k := newPicky(t, netlab.TestNamespace(t))
			before := states{}.with(workload.Full("one", 40, 0), workload.Full("two", 41, 1))
			for i, cause := range []Cause{Start, Change, Check} {
				k.spoils, k.fails = c.spoils, c.fails
				w.pending.update = before.with(workload.Full("bad", badNumber, i)).update()
				w.syncs = nil
				w.sync(cause)
				if s := w.syncs[0]; len(s.Quarantined) > 0 || s.Err == nil {
					t.Errorf("%s: quarantine %v, error %v", cause, s.Quarantined, s.Err)
				}
				k.spoils, k.fails = nil, nil
				w.try(t, Retry, nil)
				if c.spoils != nil {
					break // the chains stay
				}
			}
		})
	}
}

// TestQuarantineAtCheck: 13.29. Another program has deleted elements. A check repairs those that
// the kernel takes.
func TestQuarantineAtCheck(t *testing.T) {
	w, k := newPicky(t, netlab.TestNamespace(t))
	good, bad := workload.Full("good", 40, 2), workload.Full("bad", badNumber, 2)
	all := states{}.with(good, bad)
	w.try(t, Start, all)
	before := w.held(t)
	fewer := workload.Clone(before)
	for _, table := range fewer.Tables {
		s := table.Set(nft.MasqFrontendsSet)
		s.Elements = nil
	}
	damage := plan.Diff(before, fewer)
	if _, err := k.Conn.Commit(kernel.Prepared{Plan: damage}, kernel.AnyGeneration); err != nil || damage.Empty() {
		t.Fatal(damage, err)
	}
	of := func(s *model.Service, c *plan.Change) bool { return slices.Contains(s.ClusterIPs, c.New.Key.Address) }
	k.spoils = func(c *plan.Change) bool {
		return c.New != nil && c.Set.Name == nft.MasqFrontendsSet && of(bad.Service, c)
	}
	s := w.try(t, Check, nil)
	if !slices.Equal(s.Quarantined, []model.ServiceName{bad.Service.Name}) || s.Plan.Empty() || len(s.Routes) > 0 {
		t.Errorf("quarantine %v, %d changes, %d routes", s.Quarantined, len(s.Plan.Changes), len(s.Routes))
	}
	for _, c := range left(w.held(t), all.rules()).Changes {
		if c.New == nil || c.Set.Name != nft.MasqFrontendsSet || of(good.Service, &c) {
			t.Errorf("left to do: %s", c.Text())
		}
	}
	k.spoils = nil
	w.try(t, Check, nil)
	for _, c := range left(w.held(t), all.rules()).Changes {
		t.Errorf("taken, and left to do: %s", c.Text())
	}
}

// TestQuarantinedServiceIsServed: 13.29. What the kernel has of a quarantined Service goes on
// to serve it: the optional sets and rules that only its former routes need stay, and so do
// elements and limits that it shares with a Service that goes. They go when the kernel takes it.
func TestQuarantinedServiceIsServed(t *testing.T) {
	for variant := range 2 {
		for _, o := range occasions[1:] {
			t.Run(fmt.Sprintf("variant %d, %s", variant, o.name), func(t *testing.T) {
				t.Parallel()
				serveQuarantined(t, o, workload.Full("bad", badNumber, variant))
			})
		}
	}
}

func serveQuarantined(t *testing.T, o occasion, old model.ServiceState) {
	w, k := newPicky(t, netlab.TestNamespace(t))
	bad := workload.Full("bad", badNumber, 2) // without affinity, limits and lists of clients
	good, later, twin := workload.Full("good", 40, 2), workload.Full("good", 40, 2), workload.Full("twin", 50, 2)
	later.Service.Ports[0].Port = 81
	twin.Slices = workload.Full("twin", badNumber, 2).Slices // the same endpoints
	twin.Service.Extras = &model.Extras{Limits: old.Service.Extras.Limits}
	o.prepare(t, w, states{}.with(old, twin, good))
	k.spoils = ofBad
	gone := states{twin.Service.Name: {}}
	for _, step := range []struct {
		cause   Cause
		changes states
		want    states
	}{
		{o.cause, states{}.with(bad, later, twin), states{}.with(old, later, twin)},
		{Change, gone, states{}.with(old, later)},
		{Change, states{}.with(twin), states{}.with(old, later, twin)},
		{Check, nil, states{}.with(old, later, twin)},
		{Change, gone, states{}.with(old, later)},
		{Check, nil, states{}.with(old, later)},
	} {
		s := w.try(t, step.cause, step.changes)
		if len(s.Quarantined) != 1 {
			t.Fatalf("%s: quarantine %v\n%s", step.cause, s.Quarantined, w.log)
		}
		if len(step.want) == 2 && step.cause == Change && s.Compared {
			t.Errorf("%s: the kernel refused what another has changed:\n%s", step.cause, w.log)
		}
		for _, c := range left(w.held(t), step.want.rules()).Changes {
			t.Errorf("%s, %d Services: left to do: %s", step.cause, len(step.want), c.Text())
		}
	}
	k.spoils = nil
	w.try(t, Check, nil)
	for _, c := range left(w.held(t), states{}.with(bad, later).rules()).Changes {
		t.Errorf("taken, and left to do: %s", c.Text())
	}
}
