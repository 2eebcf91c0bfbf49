package agent

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// relay is a process that applies the changes of Services, and the next one that goes on from
// there.
type relay struct {
	*workload.Rivals
	*rand.Rand
	ns *netlab.Namespace
}

// process returns a process with a record. It reads nothing yet.
func (r *relay) process(t *testing.T, record *Record) (w *workshop, read func() bool) {
	t.Helper()
	w = newWorkshop(t, r.ns)
	w.Node, w.Resume = r.Config, record
	var seen apply.Comparison
	w.Applier.Observer = &seen
	return w, func() bool { return seen.Current != nil }
}

func (r *relay) sync(t *testing.T, w *workshop, cause Cause, of ...int) *Sync {
	t.Helper()
	w.pending.update = &model.Update{Services: r.States(of...), Nodes: r.Nodes(), ServiceCIDRs: r.Cidrs}
	if !w.Agent.sync(cause) {
		t.Fatalf("%s: %v\n%s", cause, w.syncs[len(w.syncs)-1].Err, w.log)
	}
	return w.syncs[len(w.syncs)-1]
}

// walk makes some changes. After each one the kernel has the rules of a fresh start.
func (r *relay) walk(t *testing.T, w *workshop) {
	t.Helper()
	for range 10 {
		r.sync(t, w, Change, r.Change(r.Rand))
		for _, c := range left(w.held(t), r.Render()).Changes {
			t.Fatalf("a fresh start does: %s", c.Text())
		}
	}
}

// record returns what a process leaves, through its file.
func (w *workshop) record(t *testing.T) *Record {
	t.Helper()
	text, err := json.Marshal(w.Record())
	if err != nil {
		t.Fatal(err)
	}
	r := new(Record)
	if err := json.Unmarshal(text, r); err != nil || len(r.Objects) == 0 || len(r.Rules) == 0 {
		t.Fatalf("%s, %v", text, err)
	}
	return r
}

func newRelay(t *testing.T, seed uint64) (*relay, *workshop) {
	t.Helper()
	r := &relay{workload.NewRivals(), rand.New(rand.NewPCG(seed, 0)), netlab.TestNamespace(t)}
	r.Configure(r.Rand)
	for range 30 {
		r.Change(r.Rand)
	}
	w, _ := r.process(t, nil)
	r.sync(t, w, Start, r.All()...)
	r.walk(t, w)
	return r, w
}

// TestResumeObjects: 13.30. With the same objects the next process neither reads the rules
// nor renders them, and goes on where the one before has ended.
func TestResumeObjects(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r, first := newRelay(t, seed)
			record := first.record(t)
			record.Rules = nil // so that they cannot be compared
			next, read := r.process(t, record)
			s := r.sync(t, next, Start, r.All()...)
			if !strings.Contains(next.log.String(), "still holds these rules") || read() || !s.Compared || !s.Plan.Empty() {
				t.Fatalf("read: %t, compared: %t, %d changes\n%s", read(), s.Compared, len(s.Plan.Changes), next.log)
			}
			sorted := func(sizes []render.SetSize) string {
				sizes = slices.Clone(sizes)
				slices.SortFunc(sizes, func(a, b render.SetSize) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
				return fmt.Sprint(sizes)
			}
			if !s.NewSizes || sorted(s.Sizes) != sorted(next.rules.Sizes()) || sorted(s.Sizes) != sorted(first.rules.Sizes()) {
				t.Errorf("sizes are %s, want %s", sorted(s.Sizes), sorted(next.rules.Sizes()))
			}
			r.walk(t, next)
			if read() {
				t.Error("a change has read the rules")
			}
			again, read := r.process(t, next.record(t))
			if r.sync(t, again, Start, r.All()...); read() {
				t.Error("the record of the second process is not used")
			}
		})
	}
}

// TestResumeOtherObjects: 13.30. If the objects differ, the rules decide; with neither the same,
// and with a record that was changed, the kernel is read.
func TestResumeOtherObjects(t *testing.T) {
	name := workload.ServiceName(20)
	for what, c := range map[string]struct {
		change func(*Config, states, *Record)
		read   bool
	}{
		"nothing":         {func(*Config, states, *Record) {}, false},
		"without objects": {func(_ *Config, _ states, r *Record) { r.Objects = nil }, false},
		"objects that make the same rules": {func(_ *Config, s states, _ *Record) {
			service := *s[name].Service
			service.Created = 7
			s[name] = model.ServiceState{Service: &service, Slices: s[name].Slices}
		}, false},
		"another endpoint": {func(_ *Config, s states, _ *Record) { s[name] = workload.ReplaceEndpoint(s[name])[0] }, true},
		"a Service less":   {func(_ *Config, s states, _ *Record) { delete(s, workload.ServiceName(25)) }, true},
		"another setting":  {func(c *Config, _ states, _ *Record) { c.Node.Counters = true }, true},
		"another key":      {func(_ *Config, _ states, r *Record) { r.Key[3] ^= 1; r.Rules = nil }, true},
		"another size":     {func(_ *Config, _ states, r *Record) { r.Sizes[0].Elements++; r.Rules = nil }, true},
		"other slots": {func(_ *Config, _ states, r *Record) {
			order := r.Slots[0].Order
			order[0], order[1] = order[1], order[0]
		}, true},
		"no slots":  {func(_ *Config, _ states, r *Record) { r.Slots = nil }, true},
		"no record": {func(_ *Config, _ states, r *Record) { *r = Record{} }, true},
	} {
		t.Run(what, func(t *testing.T) {
			all := states(workload.Services(30, 4))
			r := &relay{workload.NewRivals(), nil, netlab.TestNamespace(t)}
			first, _ := r.process(t, nil)
			first.try(t, Start, all)
			for i := range 10 { // their slots now differ from the proposed ones
				name := workload.ServiceName(i)
				all[name] = workload.ReplaceEndpoint(all[name])[0]
			}
			first.try(t, Change, all)
			record := first.record(t)
			if len(record.Slots) == 0 {
				t.Fatal("all endpoints are in the order of the renderer")
			}
			next, read := r.process(t, record)
			c.change(&next.Config, all, record)
			next.try(t, Start, all)
			if read() != c.read {
				t.Errorf("the kernel is read: %t, want %t\n%s", read(), c.read, next.log)
			}
			for i := range 3 {
				name := workload.ServiceName(10 * i)
				all[name] = workload.ReplaceEndpoint(all[name])[0]
				next.try(t, Change, states{name: all[name]})
			}
			last, read := r.process(t, nil)
			last.Node = next.Node
			if s := last.try(t, Start, all); !read() || len(s.Plan.WithoutIdleLanes().Changes) > 0 {
				t.Errorf("a fresh start changes %d", len(s.Plan.Changes))
			}
		})
	}
}
