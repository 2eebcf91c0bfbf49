package golden

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestRender compares the rules, the notices and the plans of each case, and what
// changes by Service.
func TestRender(t *testing.T) {
	skeleton := readSkeleton(t)
	forEachGolden(t, func(t *testing.T, c *testCase) {
		current := c.phases[0].rules
		for i, p := range c.phases {
			p.check(t, "notices", p.notices())
			if i == 0 {
				p.check(t, "rules.nft", skeleton.show(t, c))
				continue
			}
			next := plan.Settle(current, p.rules)
			change := plan.Diff(current, next)
			p.check(t, "services", summed(t, changes.Count(changes.Objects(c.phases[i-1].side(), p.side()), change)))
			p.check(t, "plan", printed(t, change))
			current = next
		}
	})
}

// TestReading: what is read from the rules of each case is what its routes say.
func TestReading(t *testing.T) {
	forEachGolden(t, func(t *testing.T, c *testCase) {
		for i, p := range c.phases {
			if err := workload.CheckReading(p.routing, p.rules); err != nil {
				t.Errorf("phase %d: %v", i, err)
			}
		}
	})
}

// side returns the phase as one side of a comparison.
func (p *phase) side() changes.Side {
	return changes.Side{Snapshot: p.input.Snapshot, Routing: p.routing}
}

func summed(t *testing.T, services []changes.Service) string {
	t.Helper()
	var b strings.Builder
	changes.Print(&b, services, 0, false)
	return b.String()
}

func printed(t *testing.T, p *plan.Plan) string {
	t.Helper()
	var b strings.Builder
	if err := p.Print(&b, false); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestOrder proves that the order of objects and of what they list does not
// show in the rules.
func TestOrder(t *testing.T) {
	forEachGolden(t, func(t *testing.T, c *testCase) {
		for _, p := range c.phases {
			want := text(t, p.rules)
			for range 5 {
				shuffle(p.input.Snapshot)
				rs := render.Render(model.Resolve(p.input.Snapshot, p.flags.Config))
				if diff := cmp.Diff(want, text(t, rs)); diff != "" {
					t.Fatalf("shuffled input gives other rules (-want +got):\n%s", diff)
				}
			}
		}
	})
}

// shuffle changes the order of everything in which order means nothing.
func shuffle(s *model.Snapshot) {
	mix := func(n int, swap func(i, j int)) { rand.Shuffle(n, swap) }
	mix(len(s.Services), func(i, j int) { s.Services[i], s.Services[j] = s.Services[j], s.Services[i] })
	mix(len(s.Slices), func(i, j int) { s.Slices[i], s.Slices[j] = s.Slices[j], s.Slices[i] })
	mix(len(s.ServiceCIDRs), func(i, j int) { s.ServiceCIDRs[i], s.ServiceCIDRs[j] = s.ServiceCIDRs[j], s.ServiceCIDRs[i] })
	for _, svc := range s.Services {
		mix(len(svc.Ports), func(i, j int) { svc.Ports[i], svc.Ports[j] = svc.Ports[j], svc.Ports[i] })
	}
	for _, sl := range s.Slices {
		mix(len(sl.Hosts), func(i, j int) { sl.Hosts[i], sl.Hosts[j] = sl.Hosts[j], sl.Hosts[i] })
		mix(len(sl.Ports), func(i, j int) { sl.Ports[i], sl.Ports[j] = sl.Ports[j], sl.Ports[i] })
	}
}
