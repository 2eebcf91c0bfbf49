package apply

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// follower keeps a kernel at some routes, as the agent does.
type follower struct {
	router   *model.Router
	rules    *render.State
	applier  *Applier
	changes  int // applied without a comparison
	compared int
}

func newFollower(k Kernel) *follower {
	return &follower{router: model.NewRouter(), applier: New(k, slog.New(slog.DiscardHandler))}
}

// compare brings the kernel to all that the router says.
func (f *follower) compare(t *testing.T) {
	t.Helper()
	rules, delta := render.Start(f.router.Routing())
	_, err := f.applier.Apply(delta)
	for attempt := 0; kernel.OutcomeOf(err) == kernel.Short && attempt < 3; attempt++ {
		_, err = f.applier.Apply(delta)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.rules = rules
	f.compared++
}

// follow applies changes of routes. Where the kernel is where it was after a
// failure, it tries again.
func (f *follower) follow(t *testing.T, changes []model.RouteChange, base bool) {
	t.Helper()
	for range 3 {
		if base || !f.applier.Known() {
			f.compare(t)
			return
		}
		_, err := f.applier.Apply(f.rules.Change(changes, f.router.NodePortAddresses()))
		if err == nil {
			f.changes++
			return
		}
		fmt.Fprintf(t.Output(), "a change failed: %v\n", err)
		f.rules.Undo()
	}
	t.Fatal("a change fails again and again")
}

// tidy removes idle lanes, and returns how many.
func (f *follower) tidy(t *testing.T) int {
	t.Helper()
	p, err := f.applier.Apply(f.rules.DropIdle())
	if err != nil {
		f.compare(t)
		return 0
	}
	return len(p.Changes)
}

// walker keeps a kernel at a world.
type walker struct {
	*workload.World
	*follower
}

func newWalker(seed uint64, k Kernel) *walker {
	w := &walker{workload.NewWorld(seed), newFollower(k)}
	return w
}

// serveWorld applies a random world of some steps to a new kernel.
func serveWorld(t *testing.T, seed uint64) (*walker, *fake) {
	t.Helper()
	k := newFake()
	w := newWalker(seed, k)
	for range 15 {
		w.World.Step()
	}
	w.step(t, w.All()...)
	return w, k
}

// step brings the kernel to the world after Services have changed.
func (w *walker) step(t *testing.T, changed ...int) {
	t.Helper()
	changes, base := w.router.Configure(w.Config, w.Nodes(), w.Cidrs)
	w.follow(t, model.JoinChanges(changes, w.router.SetServices(w.States(changed...))), base)
}

// bind binds a client to an endpoint of each frontend with affinity, and returns
// how many are new.
func (k *fake) bind(r *rand.Rand) (n int) {
	for _, t := range k.ruleset.Tables {
		for _, affinity := range t.Sets {
			if !slices.Contains(nft.AffinityMaps, affinity.Name) {
				continue
			}
			for _, e := range t.Set(nft.EndpointsOf(affinity.Name)).Elements {
				b := nft.Element{Key: e.Key, Value: nft.Value{Endpoint: netip.AddrPortFrom(e.Key.Source, uint16(e.Key.Slot))}}
				b.Key.Slot, b.Key.Source = 0, netip.AddrFrom4([4]byte{198, 51, 100, byte(r.IntN(4))})
				if _, ok := t.AffinityTimeout(affinity.Name, e.Key.Frontend()); ok && !hasKey(affinity, b.Key) {
					affinity.Elements = append(affinity.Elements, b)
					affinity.Sort()
					n++
				}
			}
		}
	}
	return n
}

// checkBindings reports bindings to endpoints that the clients in the map do not have.
func (k *fake) checkBindings(t *testing.T) {
	t.Helper()
	for _, table := range k.ruleset.Tables {
		for _, s := range table.Sets {
			if !slices.Contains(nft.AffinityMaps, s.Name) {
				continue
			}
			for i := range s.Elements {
				e := s.Elements[i]
				e.Key.Source, e.Key.Slot = e.Value.Endpoint.Addr(), uint32(e.Value.Endpoint.Port())
				if !hasKey(table.Set(nft.EndpointsOf(s.Name)), e.Key) {
					t.Fatalf("a client is bound to an endpoint that the frontend does not have: %s", s.ElementText(&s.Elements[i]))
				}
			}
		}
	}
}

// TestChanges: 13.13, 13.15. It walks through random changes of one to three Services at a time.
// After each step the kernel is where a comparison of everything finds nothing
// to do, and no client is bound to an endpoint that it may not reach: any sequence of changes ends where a fresh render of the final state
// ends.
func TestChanges(t *testing.T) {
	for name, ranges := range map[string][]netip.Prefix{
		"primary": nil, "ranges": {netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("::/0")},
	} {
		t.Run(name, func(t *testing.T) { patches(t, ranges) })
	}
}

func patches(t *testing.T, ranges []netip.Prefix) {
	k := newFake()
	w := newWalker(7, k)
	w.Config.NodePortAddresses = ranges
	w.step(t, w.All()...)
	tidied, bound := 0, 0
	for step := range steps {
		bound += k.bind(w.R)
		var changed []int
		for range 1 + w.R.IntN(3) {
			changed = append(changed, w.one())
		}
		if w.R.IntN(10) == 0 && ranges != nil {
			w.Move()
		}
		w.step(t, changed...)
		if step%10 > 0 {
			continue // lanes without frontends pile up
		}
		tidied += w.tidy(t)
		if err := w.applier.Sweep(); err != nil {
			t.Fatal(err)
		}
		k.checkBindings(t)
		current, _, _ := k.Read()
		fresh := w.Render()
		if p := plan.Diff(current, plan.Settle(current, fresh)); !p.Empty() {
			t.Fatalf("step %d: a comparison of everything finds %s", step, p.Summary())
		}
		workload.ForgetBindings(current)
		if diff := cmp.Diff(workload.Sorted(plan.Settle(current, fresh)), workload.Sorted(current)); diff != "" {
			t.Fatalf("step %d: the kernel differs from a fresh render (-fresh +changed):\n%s", step, diff)
		}
	}
	if w.compared != 1 || tidied == 0 || bound < steps {
		t.Errorf("%d comparisons in %d steps, %d idle lanes were removed, %d clients were bound", w.compared, steps, tidied, bound)
	}
}

// one changes a random Service.
func (w *walker) one() int {
	i := w.R.IntN(workload.WorldSize)
	if w.R.IntN(5) == 0 {
		w.Remove(i)
	} else {
		w.Replace(i)
	}
	return i
}

// TestFlakyChanges walks through random changes on a kernel that fails in a tenth
// of all calls.
func TestFlakyChanges(t *testing.T) {
	k := newFake()
	w := newWalker(9, k)
	k.fails = flaky(w.R, unix.ENOMEM)
	w.step(t, w.All()...)
	for step := range steps {
		k.bind(w.R)
		w.step(t, w.one())
		fresh := w.Render()
		if rest := plan.Diff(&k.ruleset, plan.Settle(&k.ruleset, fresh)).WithoutIdleLanes(); !rest.Empty() {
			t.Fatalf("step %d: a comparison of everything finds %s", step, rest.Summary())
		}
	}
	if w.compared < 2 || w.changes < steps/2 {
		t.Errorf("%d comparisons and %d changes in %d steps", w.compared, w.changes, steps)
	}
}

// TestFaultsOfChanges: one transaction of a change fails. The change goes on where
// that left the kernel as it was, and where an answer was lost, and what the
// kernel holds counts as unknown only where its answer says so.
func TestFaultsOfChanges(t *testing.T) {
	for _, c := range []struct {
		fault  error
		fails  bool
		always bool // not once
		known  bool // afterwards, if it was the first transaction
	}{
		{unix.EAGAIN, false, false, true},
		{unix.ERESTART, false, false, true},
		{unix.EINTR, false, false, true},
		{unix.ENOBUFS, false, false, true},
		{kernel.ErrNoAnswer, false, false, true},
		{unix.ENOMEM, true, false, true},
		{kernel.ErrNoAnswer, true, true, false},
		{unix.EMSGSIZE, true, false, false},
		{unix.EPERM, true, false, false},
		{unix.ENOENT, true, false, false},
		{errAfter{unix.EINTR}, true, false, false}, // what took place is refused when it comes again
		{errAfter{unix.ENOBUFS}, true, false, false},
		{errAfter{kernel.ErrNoAnswer}, true, false, false},
	} {
		failed := 0
		for nth := range 3 {
			k := newFake()
			w := newWalker(10, k)
			for _, i := range w.All() {
				w.Replace(i)
			}
			w.step(t, w.All()...)
			w.Replace(0)
			changes := w.router.SetServices(w.States(0))
			left := nth
			k.fails = func(*plan.Plan) error {
				if left--; left == -1 || left < 0 && c.always {
					return c.fault
				}
				return nil
			}
			_, err := w.applier.Apply(w.rules.Change(changes, nil))
			if left >= 0 {
				continue // it has fewer transactions
			}
			if (err != nil) != c.fails {
				t.Errorf("%v in transaction %d: %v", c.fault, nth, err)
			}
			if known := w.applier.Known(); known != (c.known && (nth == 0 || !c.fails)) {
				t.Errorf("%v in transaction %d: what the kernel holds is known: %t", c.fault, nth, known)
			}
			k.fails = func(*plan.Plan) error { return nil }
			if err != nil {
				failed++
				w.rules.Undo()
				w.follow(t, changes, false)
			}
			if p := plan.Diff(&k.ruleset, plan.Settle(&k.ruleset, w.Render())).WithoutIdleLanes(); !p.Empty() {
				t.Errorf("%v in transaction %d: a comparison of everything finds %s", c.fault, nth, p.Summary())
			}
		}
		if c.fails && failed < 2 {
			t.Errorf("%v: %d transactions failed, want two at least", c.fault, failed)
		}
	}
}

// TestChangeOfTheUnknown: only a complete change can start from a kernel of which
// nothing is known.
func TestChangeOfTheUnknown(t *testing.T) {
	k := newFake()
	w := newWalker(11, k)
	some := nft.Delta{Before: &nft.Ruleset{}, After: &nft.Ruleset{}}
	if _, err := w.applier.Apply(some); err != errUnknown {
		t.Errorf("before anything was applied: %v", err)
	}
	w.step(t, w.All()...)
	if _, err := w.applier.Apply(some); err != nil {
		t.Error(err)
	}
	w.applier.Forget()
	if _, err := w.applier.Apply(some); err != errUnknown {
		t.Errorf("after it was forgotten: %v", err)
	}
}
