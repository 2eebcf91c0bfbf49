package apply

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// past has the rules and the record of an ended process, which has replaced endpoints.
type past struct {
	*sandbox // of another program
	router   *model.Router
	record   *Record
}

// newPast lets a process apply Services and end.
func newPast(t *testing.T) *past {
	t.Helper()
	p := &past{sandbox: newSandbox(t), router: model.NewRouter()}
	first := p.another(t).owning(t)
	p.router.Configure(model.Config{NodeName: "node-1"}, nil, nil)
	all := workload.Services(30, 4)
	p.router.SetServices(all)
	rules, delta := render.Start(p.router.Routing())
	change := func(d nft.Delta) {
		t.Helper()
		if _, err := first.applier.Apply(d); err != nil {
			t.Fatal(err)
		}
	}
	change(delta)
	for i := range 10 { // their slots now differ from the proposed ones
		name := workload.ServiceName(i)
		other := workload.ReplaceEndpoint(all[name])[0]
		change(rules.Change(p.router.SetServices(map[model.ServiceName]model.ServiceState{name: other}), nil))
	}
	p.record = first.applier.Record(render.Render(p.router.Routing()))
	if p.record == nil || len(p.record.Slots) == 0 {
		t.Fatalf("record %+v", p.record)
	}
	var identityErr, generationErr error
	p.record.Kernel, identityErr = first.Identity()
	p.record.Generation, generationErr = first.Generation()
	if identityErr != nil || generationErr != nil {
		t.Fatal(identityErr, generationErr)
	}
	first.release(t)
	return p
}

// next returns the process that comes next, and whether it could claim tables without any
// change since.
func (p *past) next(t *testing.T) (next *sandbox, unchanged bool) {
	t.Helper()
	next = p.another(t).owning(t)
	t.Cleanup(func() { next.Close() })
	unchanged, err := next.Reclaim(p.record.Generation)
	if err != nil {
		t.Fatal(err)
	}
	return next, unchanged
}

// TestResume: 13.30. The next process goes on where the one before has ended, without reading
// the rules; a change finds the endpoints in their slots.
func TestResume(t *testing.T) {
	p := newPast(t)
	text, err := json.Marshal(p.record)
	if err != nil {
		t.Fatal(err)
	}
	record := new(Record)
	if err := json.Unmarshal(text, record); err != nil {
		t.Fatal(err)
	}
	next, unchanged := p.next(t)
	if here, err := next.Identity(); err != nil || !unchanged || here != record.Kernel {
		t.Fatalf("unchanged %t, identity %v, %v; want %v", unchanged, here, err, record.Kernel)
	}
	rules, delta := render.Start(p.router.Routing())
	if !next.applier.Resume(delta.After, record) {
		t.Fatal("the record is not used")
	}
	name := workload.ServiceName(3)
	state := workload.ReplaceEndpoint(workload.Services(30, 4)[name])[1]
	done, err := next.applier.Apply(rules.Change(p.router.SetServices(map[model.ServiceName]model.ServiceState{name: state}), nil))
	if err != nil || len(done.Changes) != 1 {
		t.Fatalf("%v, %v; want one change", done, err)
	}
	held, _, err := next.Read()
	if err != nil {
		t.Fatal(err)
	}
	want := render.Render(p.router.Routing())
	if diff := cmp.Diff(workload.Sorted(plan.Settle(held, want)), workload.Sorted(held)); diff != "" {
		t.Errorf("the kernel differs from what is wanted (-want +got):\n%s", diff)
	}
}

// TestChangedSince: 13.30. Any transaction of any program since makes the next process read
// the rules, also one that changed something back.
func TestChangedSince(t *testing.T) {
	for name, change := range map[string]func(*past){
		"a rule of ours":        func(p *past) { p.nft(t, "insert rule ip nftproxy dispatch counter drop") },
		"there and back":        func(p *past) { p.nft(t, "add chain ip nftproxy x; delete chain ip nftproxy x") },
		"in two transactions":   func(p *past) { p.nft(t, "add chain ip nftproxy x"); p.nft(t, "delete chain ip nftproxy x") },
		"a table of another":    func(p *past) { p.nft(t, "add table ip other") },
		"our table is gone":     func(p *past) { p.nft(t, "delete table ip nftproxy") },
		"a table with our name": func(p *past) { p.nft(t, "delete table ip nftproxy; add table ip nftproxy") },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t)
			change(p)
			if _, unchanged := p.next(t); unchanged {
				t.Error("the rules count as unchanged")
			}
		})
	}
	t.Run("the counter was there before", func(t *testing.T) { // and counts from 1 elsewhere
		p, elsewhere := newPast(t), newSandbox(t)
		here, err := elsewhere.Identity()
		if err != nil || here == p.record.Kernel || here.Boot != p.record.Kernel.Boot {
			t.Errorf("identity %v, %v; the other namespace has %v", here, err, p.record.Kernel)
		}
	})
	t.Run("another process owns them", func(t *testing.T) {
		p := newPast(t)
		owner, _ := p.next(t)
		if _, unchanged := p.next(t); unchanged {
			t.Error("the rules count as unchanged")
		}
		owner.release(t)
	})
	t.Run("nothing is known", func(t *testing.T) {
		p := newPast(t)
		p.record.Generation = 0
		if _, unchanged := p.next(t); unchanged {
			t.Error("the rules count as unchanged")
		}
	})
}

// TestOtherRules: 13.30. A record of other rules is not used: of other Services, in other
// slots, or on a node with other settings.
func TestOtherRules(t *testing.T) {
	for name, change := range map[string]func(*past){
		"another endpoint": func(p *past) {
			name := workload.ServiceName(20)
			p.router.SetServices(map[model.ServiceName]model.ServiceState{name: workload.ReplaceEndpoint(workload.Services(30, 4)[name])[0]})
		},
		"a Service less": func(p *past) {
			p.router.SetServices(map[model.ServiceName]model.ServiceState{workload.ServiceName(20): {}})
		},
		"a setting": func(p *past) {
			p.router.Configure(model.Config{NodeName: "node-1", MasqueradeAll: true}, nil, nil)
		},
		"counters": func(p *past) { p.router.Configure(model.Config{NodeName: "node-1", Counters: true}, nil, nil) },
		"other slots": func(p *past) {
			order := p.record.Slots[0].Order
			order[0], order[1] = order[1], order[0]
		},
		"no slots":       func(p *past) { p.record.Slots = nil },
		"too many slots": func(p *past) { p.record.Slots[0].Order = append(p.record.Slots[0].Order, 4) },
		"a wrong slot":   func(p *past) { p.record.Slots[0].Order[0] = 1 << 30 },
		"a wrong hash":   func(p *past) { p.record.Rules[7] ^= 1 },
		"no hash":        func(p *past) { p.record.Rules = nil },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t)
			change(p)
			next, _ := p.next(t)
			_, delta := render.Start(p.router.Routing())
			before := render.Render(p.router.Routing())
			if next.applier.Resume(delta.After, p.record) || next.applier.Known() {
				t.Error("the record is used")
			}
			if diff := cmp.Diff(workload.Sorted(before), workload.Sorted(delta.After)); diff != "" {
				t.Errorf("the rules are not as rendered any more (-before +after):\n%s", diff)
			}
			next.apply(t, delta.After)
		})
	}
}

// TestNoRecord: 13.30. A process that does not know what the kernel holds leaves no record.
func TestNoRecord(t *testing.T) {
	s := newSandbox(t).owning(t)
	rules := workload.Sample()
	s.apply(t, rules)
	if s.applier.Record(rules) == nil {
		t.Error("there is no record")
	}
	s.applier.Forget()
	if r := s.applier.Record(rules); r != nil {
		t.Errorf("a record of what is not known: %+v", r)
	}
}
