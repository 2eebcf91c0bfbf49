package apply

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/workload"
)

// follower keeps a kernel at a world by patches.
type follower struct {
	*workload.World
	router   *model.Router
	composer *render.Composer
	applier  *Applier
	patches  int
}

func newFollower(w *workload.World, a *Applier) *follower {
	return &follower{World: w, router: model.NewRouter(), applier: a}
}

// apply brings the kernel to the world as a whole.
func (f *follower) apply(t *testing.T) {
	t.Helper()
	f.router.Configure(f.Config, f.Nodes(), f.Cidrs)
	f.router.SetServices(f.States(f.All()...))
	routing := f.router.Routing()
	if _, err := f.applier.Apply(render.Render(routing)); err != nil {
		t.Fatal(err)
	}
	f.composer = render.NewComposer(routing)
}

// patch brings the kernel to the world after Services have changed, if that can
// be done without looking at all of them.
func (f *follower) patch(t *testing.T, changed ...int) {
	t.Helper()
	changes, all := f.router.Configure(f.Config, f.Nodes(), f.Cidrs)
	changes = model.JoinChanges(changes, f.router.SetServices(f.States(changed...)))
	before, after, ok := f.composer.Change(changes, f.router.NodePortAddresses())
	if !ok || all {
		f.apply(t)
		return
	}
	if _, err := f.applier.Patch(before, after); err != nil {
		t.Fatal(err)
	}
	f.patches++
}

// bind binds a client to an endpoint of each frontend with affinity, and returns
// how many are new.
func (k *fake) bind(r *rand.Rand) (n int) {
	for _, t := range k.ruleset.Tables {
		for _, affinity := range t.Sets {
			if !affinity.Dynamic {
				continue
			}
			for _, e := range t.Set(nft.EndpointsMap).Elements {
				b := nft.Element{Key: e.Key, Value: e.Value}
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

// checkBindings reports bindings to endpoints that the frontend does not have.
func (k *fake) checkBindings(t *testing.T) {
	t.Helper()
	for _, table := range k.ruleset.Tables {
		for _, s := range table.Sets {
			if !s.Dynamic {
				continue
			}
			for i := range s.Elements {
				e := s.Elements[i]
				e.Key.Source, e.Key.Slot = e.Value.Endpoint.Addr(), uint32(e.Value.Endpoint.Port())
				if !hasKey(table.Set(nft.AffinityEndpointsSet), e.Key) {
					t.Fatalf("a client is bound to an endpoint that the frontend does not have: %s", s.ElementText(&s.Elements[i]))
				}
			}
		}
	}
}

// TestPatches: 13.13, 13.15. It walks through random changes of one to three Services at a time.
// After each step the kernel is where a comparison of everything finds nothing
// to do, and no client is bound to an endpoint that it may not reach: any sequence of changes ends where a fresh render of the final state
// ends.
func TestPatches(t *testing.T) {
	for name, ranges := range map[string][]netip.Prefix{
		"primary": nil, "ranges": {netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("::/0")},
	} {
		t.Run(name, func(t *testing.T) { patches(t, ranges) })
	}
}

func patches(t *testing.T, ranges []netip.Prefix) {
	w := workload.NewWorld(7)
	w.Config.NodePortAddresses = ranges
	k := newFake()
	f := newFollower(w, New(k, slog.New(slog.DiscardHandler)))
	f.apply(t)
	tidied, bound := 0, 0
	for step := range steps {
		bound += k.bind(w.R)
		var changed []int
		for range 1 + w.R.IntN(3) {
			i := w.R.IntN(workload.WorldSize)
			if w.R.IntN(5) == 0 {
				w.Remove(i)
			} else {
				w.Replace(i)
			}
			changed = append(changed, i)
		}
		if w.R.IntN(10) == 0 && ranges != nil {
			w.Move()
		}
		f.patch(t, changed...)
		if step%10 > 0 {
			continue // lanes without frontends pile up
		}
		p, err := f.applier.Patch(f.composer.Idle())
		if err != nil {
			t.Fatal(err)
		}
		tidied += len(p.Changes)
		if err := f.applier.Sweep(); err != nil {
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
			t.Fatalf("step %d: the kernel differs from a fresh render (-fresh +patched):\n%s", step, diff)
		}
	}
	if f.patches < steps/2 || tidied == 0 || bound < steps {
		t.Errorf("only %d of %d steps were patches, %d idle lanes were removed, %d clients were bound", f.patches, steps, tidied, bound)
	}
}

// TestFlakyPatches walks through random changes on a kernel that fails in a tenth
// of all calls, as it does and as the agent goes on then: everything is compared
// after a patch that failed.
func TestFlakyPatches(t *testing.T) {
	w := workload.NewWorld(9)
	k := newFake()
	k.fails = flaky(w.R)
	f := newFollower(w, New(k, slog.New(slog.DiscardHandler)))
	f.apply(t)
	failures := 0
	for step := range steps {
		k.bind(w.R)
		i := w.R.IntN(workload.WorldSize)
		if w.R.IntN(5) == 0 {
			w.Remove(i)
		} else {
			w.Replace(i)
		}
		before, after, ok := f.composer.Change(f.router.SetServices(f.States(i)), f.router.NodePortAddresses())
		if ok {
			_, err := f.applier.Patch(before, after)
			if ok = err == nil; !ok {
				failures++
			}
		}
		if !ok {
			f.apply(t)
		}
		fresh := w.Render()
		rest := plan.Diff(&k.ruleset, plan.Settle(&k.ruleset, fresh)).WithoutRemovals()
		if !rest.Empty() && ok || !ok && !plan.Diff(&k.ruleset, plan.Settle(&k.ruleset, fresh)).Empty() {
			t.Fatalf("step %d, failed %t: a comparison of everything finds %s", step, !ok, rest.Summary())
		}
	}
	if failures < steps/20 {
		t.Errorf("only %d of %d patches failed", failures, steps)
	}
}

// TestFaultsOfPatches: whichever transaction of a patch fails, and in whatever
// way, the patch is an error, and so is the next one; a comparison of everything
// then ends where a fresh render ends.
func TestFaultsOfPatches(t *testing.T) {
	for _, fault := range []error{
		unix.EINTR, unix.EBUSY, unix.EMSGSIZE, unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, unix.EPERM, kernel.ErrNoAnswer,
		errAfter{unix.EINTR}, errAfter{unix.ENOBUFS}, errAfter{kernel.ErrNoAnswer},
	} {
		failed := 0
		for nth := range 3 {
			w := workload.NewWorld(10)
			k := newFake()
			f := newFollower(w, New(k, slog.New(slog.DiscardHandler)))
			for _, i := range w.All() {
				w.Replace(i)
			}
			f.apply(t)
			var before, after *nft.Ruleset
			for ok := false; !ok; {
				w.Replace(0)
				if before, after, ok = f.composer.Change(f.router.SetServices(f.States(0)), f.router.NodePortAddresses()); !ok {
					f.apply(t)
				}
			}
			left := nth
			k.fails = func(*plan.Plan) error {
				if left--; left == -1 {
					return fault
				}
				return nil
			}
			if _, err := f.applier.Patch(before, after); err == nil {
				continue // it has fewer transactions
			}
			failed++
			if _, err := f.applier.Patch(&nft.Ruleset{}, &nft.Ruleset{}); err != errUnknown {
				t.Errorf("%v: a patch then: %v", fault, err)
			}
			f.apply(t)
			if p := plan.Diff(&k.ruleset, plan.Settle(&k.ruleset, w.Render())); !p.Empty() {
				t.Errorf("%v in transaction %d: a comparison of everything finds %s", fault, nth, p.Summary())
			}
		}
		if failed < 2 {
			t.Errorf("%v: %d transactions failed, want two at least", fault, failed)
		}
	}
}

// TestPatchAfterFailure: what the kernel holds is not known then.
func TestPatchAfterFailure(t *testing.T) {
	w := workload.NewWorld(11)
	k := newFake()
	f := newFollower(w, New(k, slog.New(slog.DiscardHandler)))
	empty := &nft.Ruleset{}
	if _, err := f.applier.Patch(empty, empty); err != errUnknown {
		t.Errorf("a patch before anything was applied: %v", err)
	}
	for _, i := range w.All() {
		w.Replace(i)
	}
	f.apply(t)
	k.fails = func(*plan.Plan) error { return errAfter{unix.ENOBUFS} } // done, and nobody was told
	w.Remove(0)
	before, after, _ := f.composer.Change(f.router.SetServices(f.States(0)), f.router.NodePortAddresses())
	if _, err := f.applier.Patch(before, after); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("a patch whose answer is lost: %v", err)
	}
	if _, err := f.applier.Patch(empty, empty); err != errUnknown {
		t.Errorf("a patch after a failure: %v", err)
	}
	k.fails = func(*plan.Plan) error { return nil }
	f.apply(t)
	w.Remove(1)
	f.patch(t, 1)
	if _, err := f.applier.Patch(f.composer.Idle()); err != nil {
		t.Fatal(err)
	}
	current, _, _ := k.Read()
	if p := plan.Diff(current, plan.Settle(current, w.Render())); !p.Empty() || f.patches != 1 {
		t.Errorf("%d patches, then a comparison of everything finds %s", f.patches, p.Summary())
	}
}
