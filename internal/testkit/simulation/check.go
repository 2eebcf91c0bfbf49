package simulation

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/prove"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/served"
)

// compareRules returns how rules of the kernel differ from those that are wanted: endpoints may be in other
// slots of their frontend, and lanes without a frontend may be left.
func compareRules(held, wanted *nft.Ruleset) (out []string) {
	for _, f := range model.Families {
		has, wants := held.Table(f), wanted.Table(f)
		if has == nil || wants == nil {
			if (has == nil) != (wants == nil) {
				out = append(out, fmt.Sprintf("table of %s: there is %t, wanted %t", f, has != nil, wants != nil))
			}
			continue
		}
		compareChains(has, wants, func(format string, args ...any) {
			out = append(out, f.String()+": "+fmt.Sprintf(format, args...))
		})
		compareSets(has, wants, func(format string, args ...any) {
			out = append(out, f.String()+": "+fmt.Sprintf(format, args...))
		})
	}
	return out
}

func compareChains(has, wants *nft.Table, differ func(string, ...any)) {
	for _, c := range wants.Chains {
		switch is := has.Chain(c.Name); {
		case is == nil:
			differ("chain %s is missing", c.Name)
		case !is.Same(c) || !slices.EqualFunc(is.Rules, c.Rules, func(a, b nft.Rule) bool { return reflect.DeepEqual(a, b) }):
			differ("chain %s differs", c.Name)
		}
	}
	for _, c := range has.Chains {
		if wants.Chain(c.Name) == nil && !nft.IsLane(c.Rules) {
			differ("chain %s is left", c.Name)
		}
	}
}

func compareSets(has, wants *nft.Table, differ func(string, ...any)) {
	for _, s := range wants.Sets {
		is := has.Set(s.Name)
		switch {
		case is == nil:
			differ("set %s is missing", s.Name)
		case !is.Same(s):
			differ("set %s has another declaration", s.Name)
		case !s.Dynamic:
			compareElements(is, s, differ)
		}
	}
	for _, s := range has.Sets {
		if wants.Set(s.Name) == nil {
			differ("set %s is left", s.Name)
		}
	}
}

func compareElements(has, wants *nft.Set, differ func(string, ...any)) {
	if slices.Equal(has.Elements, wants.Elements) {
		return
	}
	got, want := countElements(has), countElements(wants)
	for e, n := range want {
		if got[e] != n {
			differ("%s has %d times { %s }, wanted %d", has.Name, got[e], has.ElementText(&e), n)
		}
	}
	for e, n := range got {
		if want[e] == 0 && !slices.Contains(nft.LaneMaps, has.Name) {
			differ("%s has %d times { %s }, wanted none", has.Name, n, has.ElementText(&e))
		}
	}
}

// clusterIPs are the addresses that one Service alone can have.
var clusterIPs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/64")}

// compareClusterIPs returns which elements about frontends of ClusterIPs, and their endpoints, the kernel lacks.
func compareClusterIPs(held, wanted *nft.Ruleset) (out []string) {
	for _, t := range wanted.Tables {
		for _, name := range append(slices.Clone(nft.SlotMaps), nft.ServicesMap) {
			wants, has := t.Set(name), (*nft.Set)(nil)
			if there := held.Table(t.Family); there != nil {
				has = there.Set(name)
			}
			if wants == nil {
				continue
			}
			got := make(map[nft.Element]int)
			if has != nil {
				got = countElements(has)
			}
			for e, n := range countElements(wants) {
				if inClusterIPs(e.Key.Address) && got[e] != n {
					out = append(out, fmt.Sprintf("%s has %d times { %s }, wanted %d", name, got[e], wants.ElementText(&e), n))
				}
			}
		}
	}
	return out
}

func inClusterIPs(a netip.Addr) bool {
	return slices.ContainsFunc(clusterIPs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// countElements counts the elements of a set, whatever the slots of endpoints are.
func countElements(s *nft.Set) map[nft.Element]int {
	out := make(map[nft.Element]int, len(s.Elements))
	for _, e := range s.Elements {
		if s.HasSlots() {
			e.Key.Slot = nft.FirstSlot
		}
		out[e]++
	}
	return out
}

// wanted is what the objects and settings ask for.
type wanted struct {
	snapshot *model.Snapshot
	config   model.Config
	router   *model.Router
	rendered *nft.Ruleset // nil: not yet
}

func want(s *model.Snapshot, c model.Config) *wanted {
	w := &wanted{snapshot: s, config: c, router: model.NewRouter()}
	u := s.Update()
	w.router.Configure(c, u.Nodes, u.ServiceCIDRs)
	w.router.SetServices(u.Services)
	return w
}

func (w *wanted) rules() *nft.Ruleset {
	if w.rendered == nil {
		w.rendered = render.Render(w.router.Routing())
	}
	return w.rendered
}

// compare returns how the tables differ from what is wanted.
func (t *Tables) compare(w *wanted) []string {
	wanted := w.rules()
	t.mu.Lock()
	defer t.mu.Unlock()
	return compareRules(&t.current, wanted)
}

// addresses returns the addresses that Balances want on interfaces.
func (w *wanted) addresses() map[model.InterfaceAddress]bool {
	out := make(map[model.InterfaceAddress]bool)
	for _, s := range w.snapshot.Services {
		if link := s.Extra().Announce; link != "" && served.ServingOf(w.router.View(s.Name)).Usable > 0 {
			for _, a := range s.External.LoadBalancerIPs {
				out[model.InterfaceAddress{Interface: link, Address: a}] = true
			}
		}
	}
	return out
}

// checkLinks compares the addresses on interfaces with those that are wanted.
func checkLinks(l *Links, w *wanted) error {
	wants := w.addresses()
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := range wants {
		if _, there := l.on[at]; !there {
			return fmt.Errorf("address %s is not on interface %s, and wanted there", at.Address, at.Interface)
		}
		if l.links[at.Interface].Up && !l.heard[at] {
			return fmt.Errorf("address %s on interface %s was not announced since that is up", at.Address, at.Interface)
		}
	}
	for at, is := range l.on {
		if is.Marked && !wants[at] {
			return fmt.Errorf("address %s is left on interface %s", at.Address, at.Interface)
		}
	}
	return nil
}

// checkFlows looks for UDP flows through frontends to endpoints that their Services no longer have.
func checkFlows(f *Flows, w *wanted) error {
	hosts := make(map[model.ServiceName]map[netip.Addr]bool)
	for _, s := range w.snapshot.Slices {
		if hosts[s.ServiceName()] == nil {
			hosts[s.ServiceName()] = make(map[netip.Addr]bool)
		}
		for i := range s.Hosts {
			hosts[s.ServiceName()][s.Hosts[i].Address] = true
		}
	}
	for _, flow := range f.list() {
		route := w.router.Serves(model.Frontend{Address: flow.Dialled.Addr(), Protocol: flow.Protocol, Port: flow.Dialled.Port()})
		if route != nil && flow.Answers != flow.Dialled && !hosts[route.Service.Name][flow.Answers.Addr()] {
			return fmt.Errorf("the flow from %s to %s of %s still leads to %s", flow.Client, flow.Dialled, route.Service.Name, flow.Answers)
		}
	}
	return nil
}

// prove derives from the objects what packets must experience, and follows them through the bytecode of the
// messages that the kernel got.
func (w *wanted) prove(t *Tables) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := prove.NewWorld(w.snapshot, w.config).Prove(&t.rules)
	if r.Wrong == 0 {
		return nil
	}
	var text strings.Builder
	if err := r.Print(&text); err != nil {
		return err
	}
	return fmt.Errorf("packets go elsewhere:\n%s", text.String())
}
