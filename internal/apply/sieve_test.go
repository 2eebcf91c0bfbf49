package apply

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// forEachBlame runs a test with a kernel that names the element that it refuses,
// and with one that does not.
func forEachBlame(t *testing.T, f func(t *testing.T, k *fake)) {
	for _, blames := range []bool{true, false} {
		t.Run(fmt.Sprintf("blames %t", blames), func(t *testing.T) {
			k := newFake()
			k.blames = blames
			f(t, k)
		})
	}
}

// refuse makes the fake refuse what is added about some Services, as they are in
// a routing: all, or what is in one set.
func (k *fake) refuse(r *model.Routing, bad map[model.ServiceName]bool, set string) {
	frontends := make(map[model.Frontend]bool)
	for _, route := range r.Routes {
		frontends[route.Frontend] = bad[route.Port.Service]
	}
	k.refuses = func(c *Change) error {
		if frontends[c.New.Key.Frontend()] && (set == "" || set == c.Set.Name) {
			return unix.EINVAL
		}
		return nil
	}
}

// TestRefused: 13.25. It walks through random changes, and the kernel refuses
// random Services. Each time all others are in the kernel as they should be; what
// was refused is there as before; the error names the Services; and once nothing
// is refused any more the kernel is where a fresh render is.
func TestRefused(t *testing.T) {
	forEachBlame(t, func(t *testing.T, k *fake) {
		w := newWorld(23)
		a := New(k, slog.New(slog.DiscardHandler))
		refusals := 0
		var routes []model.Route // that the kernel may hold
		for step := range steps {
			desired := w.step()
			routing := w.resolve()
			bad := make(map[model.ServiceName]bool)
			for i := range worldSize {
				bad[serviceName(i)] = w.r.IntN(3) == 0
			}
			k.refuse(routing, bad, []string{"", render.ServicesMap, render.EndpointsMap}[w.r.IntN(3)])
			before, _, _ := k.Read()
			_, err := a.ApplyMost(desired, slices.Concat(routing.Routes, routes))
			var refused *RefusedError
			if err != nil && !errors.As(err, &refused) {
				t.Fatalf("step %d: %v", step, err)
			}
			named := make(map[model.ServiceName]bool)
			if refused != nil {
				for _, r := range refused.Refusals {
					named[r.Service] = true
					if !bad[r.Service] || !errors.Is(r.Err, unix.EINVAL) {
						t.Errorf("step %d: refused %s", step, r)
					}
				}
			}
			refusals += len(named)
			after, _, _ := k.Read()
			compareBut(t, step, named, slices.Concat(routing.Routes, routes), before, Settle(after, desired), after)
			routes = routing.Routes
		}
		if refusals < steps/4 {
			t.Errorf("only %d refusals", refusals)
		}
		k.refuses = nil
		desired := w.render()
		if _, err := a.ApplyMost(desired, nil); err != nil {
			t.Fatal(err)
		}
		current, _, _ := k.Read()
		if plan := Diff(current, Settle(current, desired)); !plan.Empty() {
			t.Errorf("when nothing is refused any more, a comparison finds %s", plan.Summary())
		}
	})
}

// compareBut compares the frontends in the kernel with what is wanted, and those
// of the Services that were refused with what was there before.
func compareBut(t *testing.T, step int, refused map[model.ServiceName]bool, routes []model.Route, before, want, got *render.Ruleset) {
	t.Helper()
	owner := make(map[model.Frontend]model.ServiceName)
	for _, r := range slices.Backward(routes) {
		owner[r.Frontend] = r.Port.Service
	}
	elements := func(r *render.Ruleset, refusedOnes bool) map[string]bool {
		out := make(map[string]bool)
		for _, table := range r.Tables {
			for _, s := range table.Sets {
				shared := !slices.Contains(s.Key, render.Port) || s.Name == render.HairpinSet
				if shared || s.Dynamic || !refusedOnes && want.Table(table.Family).Set(s.Name) == nil {
					continue // sets that nothing needs any more are left, too
				}
				for i := range s.Elements {
					if refused[owner[s.Elements[i].Key.Frontend()]] == refusedOnes {
						out[s.Name+" "+s.ElementText(&s.Elements[i])] = true
					}
				}
			}
		}
		return out
	}
	if diff := cmp.Diff(elements(want, false), elements(got, false)); diff != "" {
		t.Fatalf("step %d: others are not as they should be (-want +got):\n%s", step, diff)
	}
	if len(got.Tables) < len(want.Tables) {
		t.Fatalf("step %d: %d tables, want %d", step, len(got.Tables), len(want.Tables))
	}
	if !slices.EqualFunc(before.Tables, got.Tables, sameSets) {
		return // what was refused went with the set that had it
	}
	if diff := cmp.Diff(elements(before, true), elements(got, true)); diff != "" {
		t.Fatalf("step %d: what was refused is not as before (-before +after):\n%s", step, diff)
	}
}

// sameSets tells whether the maps of frontends are declared alike.
func sameSets(a, b *render.Table) bool {
	return a.Family == b.Family && a.Set(render.ServicesMap).Same(b.Set(render.ServicesMap))
}

func (w *world) resolve() *model.Routing {
	s := &model.Snapshot{ServiceCIDRs: w.cidrs, Nodes: w.nodes()}
	for i, svc := range w.services {
		s.Services = append(s.Services, svc)
		s.Slices = append(s.Slices, w.slices[i]...)
	}
	return model.Resolve(s, w.config)
}

// many returns what asks for n Services with one endpoint each.
func many(n int) *model.Routing {
	s := &model.Snapshot{}
	for i := range n {
		name := serviceName(i)
		s.Services = append(s.Services, &model.Service{
			Name: name, ClusterIPs: []netip.Addr{addr(fmt.Sprintf("10.96.%d.%d", i/250, i%250+1))},
			Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}, {Name: "more", Protocol: model.TCP, Port: 81}},
		})
		s.Slices = append(s.Slices, &model.EndpointSlice{
			Namespace: name.Namespace, Name: name.Name, Service: name.Name, Family: model.IPv4,
			Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}, {Name: "more", Protocol: model.TCP, Port: 8081}},
			Hosts: []model.Host{{Address: addr(fmt.Sprintf("10.128.%d.%d", i/250, i%250+1)), Ready: true}},
		})
	}
	return model.Resolve(s, model.Config{NodeName: "node-1"})
}

// TestTrials: how many trials it takes to find refused Services grows with their
// number, and with the logarithm of the number of all.
func TestTrials(t *testing.T) {
	forEachBlame(t, func(t *testing.T, k *fake) {
		for _, n := range []int{1, 10, 100, 500} {
			for _, culprits := range []int{1, 2, 16, 40} {
				if culprits > max(n/2, 1) {
					continue
				}
				k.ruleset, k.trials, k.commits = render.Ruleset{}, 0, 0
				bad := make(map[model.ServiceName]bool)
				for i := range culprits {
					bad[serviceName(i*n/culprits)] = true
				}
				routing := many(n)
				k.refuse(routing, bad, "")
				_, err := New(k, slog.New(slog.DiscardHandler)).ApplyMost(render.Render(routing), routing.Routes)
				var refused *RefusedError
				if !errors.As(err, &refused) || len(refused.Refusals) != culprits {
					t.Fatalf("%d of %d Services: %v", culprits, n, err)
				}
				limit := 2 + culprits*2*(1+bits.Len(uint(n)))
				if k.blames {
					limit = 3 + culprits*5
				}
				if k.trials > limit || k.commits != 1 {
					t.Errorf("%d of %d Services: %d trials, want at most %d; %d commits", culprits, n, k.trials, limit, k.commits)
				}
				t.Logf("%d of %d Services: %d trials", culprits, n, k.trials)
			}
		}
	})
}

// TestNotAboutOneObject: where no single Service is to blame, nothing is left
// out and the error is the kernel's.
func TestNotAboutOneObject(t *testing.T) {
	routing := many(100)
	for name, c := range map[string]struct {
		err   error
		fails func(*Plan) bool // whether a transaction fails
	}{
		"no permission":         {unix.EPERM, func(*Plan) bool { return true }},
		"no memory for so much": {unix.ENOMEM, func(p *Plan) bool { return len(p.Changes) > 100 }},
		"too much at once":      {unix.EMSGSIZE, func(p *Plan) bool { return len(p.Changes) > 100 }},
		"a rule": {unix.EOPNOTSUPP, func(p *Plan) bool {
			return slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Chain != nil })
		}},
		"every element": {unix.EOPNOTSUPP, func(p *Plan) bool { return slices.ContainsFunc(p.Changes, func(c Change) bool { return c.New != nil }) }},
		"two elements, together": {unix.EEXIST, func(p *Plan) bool {
			found := make(map[string]bool)
			for _, c := range p.Changes {
				if c.New != nil {
					found[c.New.Key.Address.String()] = true
				}
			}
			return found["10.96.0.3"] && found["10.96.0.90"]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFake()
			k.fails = func(p *Plan) error {
				if c.fails(p) {
					return &CommitError{Object: "something", Err: c.err}
				}
				return nil
			}
			_, err := New(k, slog.New(slog.DiscardHandler)).ApplyMost(render.Render(routing), routing.Routes)
			var refused *RefusedError
			if errors.As(err, &refused) || !errors.Is(err, c.err) || k.commits != 0 || k.trials > maxTrials {
				t.Errorf("%d commits, %d trials, error %v", k.commits, k.trials, err)
			}
		})
	}
}

// TestRefusedWithoutService: an element that no Service needs is left out all
// the same, and named.
func TestRefusedWithoutService(t *testing.T) {
	k := newFake()
	k.blames = true
	w := newWorld(3)
	for i := range 4 {
		w.replace(i)
	}
	w.services[0].ClusterIPs = []netip.Addr{addr("10.96.0.99")}
	w.cidrs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	k.refuses = func(c *Change) error {
		if c.New.Key.Frontend() == (model.Frontend{Address: addr("10.96.0.0")}) {
			return unix.EINVAL
		}
		return nil
	}
	routing := w.resolve()
	_, err := New(k, slog.New(slog.DiscardHandler)).ApplyMost(render.Render(routing), routing.Routes)
	var refused *RefusedError
	if !errors.As(err, &refused) || len(refused.Refusals) != 1 || refused.Refusals[0].Service != (model.ServiceName{}) {
		t.Fatal(err)
	}
	current, _, _ := k.Read()
	plan := Diff(current, Settle(current, w.render()))
	if len(plan.Changes) != 1 || plan.Changes[0].Set.Name != render.ServiceCIDRsSet {
		t.Errorf("missing are %s", plan.Summary())
	}
}

// TestRefusedAmongFaults: others may write, and answers be lost, while the search
// is on.
func TestRefusedAmongFaults(t *testing.T) {
	forEachBlame(t, func(t *testing.T, k *fake) {
		w := newWorld(29)
		a := New(k, slog.New(slog.DiscardHandler))
		for step := range steps {
			desired, routing := w.step(), w.resolve()
			bad := map[model.ServiceName]bool{serviceName(w.r.IntN(worldSize)): true}
			k.refuse(routing, bad, render.ServicesMap)
			k.fails = flaky(w.r)
			_, err := a.ApplyMost(desired, routing.Routes)
			var refused *RefusedError
			if err != nil && !errors.As(err, &refused) {
				t.Fatalf("step %d: %v", step, err)
			}
			if refused != nil && (len(refused.Refusals) != 1 || !bad[refused.Refusals[0].Service]) {
				t.Fatalf("step %d: wants %v refused: %v", step, slices.Collect(maps.Keys(bad)), err)
			}
		}
	})
}
