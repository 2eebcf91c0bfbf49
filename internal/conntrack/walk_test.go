package conntrack

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nftproxy/nftproxy/internal/model"
	"golang.org/x/sys/unix"
)

// flaky is a kernel that at times fails, after part of the work. Two of the same
// seed that are asked the same do the same.
type flaky struct {
	*rand.Rand
	flows    []Flow
	lists    int
	failures int
	deleted  []Flow
}

func newFlaky(seed uint64) *flaky { return &flaky{Rand: rand.New(rand.NewPCG(seed, 1))} }

// some is how many of n are done, and the error if that is not all.
func (k *flaky) some(n int, errs ...error) (int, error) {
	if k.IntN(5) > 0 {
		return n, nil
	}
	k.failures++
	return k.IntN(n + 1), errs[k.IntN(len(errs))]
}

func (k *flaky) List(family model.Family, p model.Protocol, each func(Flow)) error {
	k.lists++
	n, err := k.some(len(k.flows), unix.EINTR, unix.EPERM)
	for _, f := range k.flows[:n] {
		if f.Protocol == p && model.FamilyOf(f.Dialled.Addr()) == family {
			each(f)
		}
	}
	return err
}

func (k *flaky) ListUnanswered(model.Family, func(Flow)) error { return nil }

func (k *flaky) Delete(flows []Flow) (int, error) {
	n, err := k.some(len(flows), unix.EBUSY)
	for _, f := range flows[:n] {
		i := slices.Index(k.flows, f)
		k.flows = slices.Delete(k.flows, i, i+1)
		k.deleted = append(k.deleted, f)
	}
	return n, err
}

// town is a set of frontends, with the endpoints that serve them, that come, go
// and change.
type town struct {
	*rand.Rand
	serving   map[model.Frontend][]netip.AddrPort
	onFailure map[model.Frontend]model.OnFailure
	nodePorts []netip.Addr // that serve the frontends with the unspecified address
	flows     uint32       // made so far
}

// address returns a random one of a few.
func (x *town) address(family model.Family, network byte) netip.Addr {
	if family == model.IPv6 {
		return netip.AddrFrom16([16]byte{0xfd, 1: network, 15: byte(x.IntN(3))})
	}
	return netip.AddrFrom4([4]byte{10, network, 0, byte(x.IntN(3))})
}

func (x *town) frontend(family model.Family) model.Frontend {
	f := model.Frontend{Address: x.address(family, 96), Protocol: model.Protocols[x.IntN(3)], Port: uint16(80 + x.IntN(2))}
	switch x.IntN(5) {
	case 0, 1:
		return f.OnNode()
	case 2:
		f.Port = uint16(78 + x.IntN(4))
		f.Last = f.Port + 1 + uint16(x.IntN(2))
	}
	return f
}

// put replaces the endpoints of a frontend, and of ranges that it overlaps.
func (x *town) put(f model.Frontend, serving []netip.AddrPort, touched map[model.Frontend]bool) {
	maps.DeleteFunc(x.serving, func(o model.Frontend, _ []netip.AddrPort) bool {
		overlaps := o.IsRange() && f.IsRange() && o.Address == f.Address && o.Protocol == f.Protocol && o.Port <= f.Last && f.Port <= o.Last
		touched[o] = touched[o] || overlaps
		return overlaps
	})
	if f.IsRange() && x.IntN(2) == 0 { // kept ports
		serving = slices.Clone(serving)
		for i, a := range serving {
			serving[i] = netip.AddrPortFrom(a.Addr(), 0)
		}
		slices.SortFunc(serving, netip.AddrPort.Compare)
	}
	x.serving[f] = serving
	x.onFailure[f] = model.OnFailure(x.IntN(3))
}

// owner returns the frontend that serves an address and port.
func (x *town) owner(f Flow) (model.Frontend, bool) {
	for _, rank := range []func(model.Frontend) bool{
		func(o model.Frontend) bool { return !o.IsRange() && o.Address == f.Dialled.Addr() },
		func(o model.Frontend) bool { return slices.Contains(x.nodePorts, f.Dialled.Addr()) && o == o.OnNode() },
		func(o model.Frontend) bool { return o.IsRange() && o.Address == f.Dialled.Addr() },
	} {
		for o := range x.serving {
			if rank(o) && o.Protocol == f.Protocol && model.FamilyOf(o.Address) == model.FamilyOf(f.Dialled.Addr()) && o.Port <= f.Dialled.Port() && f.Dialled.Port() <= max(o.Port, o.Last) {
				return o, true
			}
		}
	}
	return model.Frontend{}, false
}

// stale is what the documentation says of a flow. It also reports whether the flow is
// through a frontend.
func (x *town) stale(f Flow, tcp bool) (stale, ours bool) {
	o, ours := x.owner(f)
	if !ours || f.Protocol == model.TCP && !f.Opening && !x.onFailure[o].Closes(tcp) {
		return false, ours
	}
	for _, a := range x.serving[o] {
		if a.Addr() == f.Answers.Addr() && (a.Port() == f.Answers.Port() || a.Port() == 0 && f.Answers.Port() == f.Dialled.Port()) {
			return false, true
		}
	}
	return f.Answers != f.Dialled || f.Protocol == model.UDP && len(x.serving[o]) > 0, true
}

// check finds flows that a sweep has left or deleted wrongly. A TCP connection that is
// deleted before it is open does no harm, and ranges of TCP may be unknown to it.
func (x *town) check(left, deleted []Flow, swept map[scope]bool, tcp bool) error {
	for _, f := range left {
		opening := f.Protocol == model.TCP && f.Opening
		if stale, _ := x.stale(f, tcp); stale && swept[scope{model.FamilyOf(f.Dialled.Addr()), f.Protocol}] && !opening {
			return fmt.Errorf("%+v is stale and left", f)
		}
	}
	for _, f := range deleted {
		if stale, ours := x.stale(f, tcp); ours && !stale && !f.Opening {
			return fmt.Errorf("%+v is served, or kept, and deleted", f)
		}
	}
	return nil
}

// move makes other addresses those that serve NodePorts, now and then.
func (x *town) move() {
	if x.IntN(10) > 0 {
		return
	}
	x.nodePorts = nil
	for range x.IntN(5) {
		x.nodePorts = append(x.nodePorts, x.address(model.Families[x.IntN(2)], 96))
	}
}

func (x *town) endpoint(family model.Family) netip.AddrPort {
	return netip.AddrPortFrom(x.address(family, 128), uint16(8080+x.IntN(2)))
}

// change changes up to three frontends, which share their endpoints, or leaves
// them as they are.
func (x *town) change() []model.RouteChange {
	before := x.routes()
	family := model.Families[x.IntN(2)]
	var serving []netip.AddrPort
	for range x.IntN(4) {
		serving = append(serving, x.endpoint(family))
	}
	slices.SortFunc(serving, netip.AddrPort.Compare)
	touched := make(map[model.Frontend]bool)
	for range x.IntN(4) {
		f := x.frontend(family)
		touched[f] = true
		if delete(x.serving, f); x.IntN(3) > 0 {
			x.put(f, serving, touched)
		}
	}
	return slices.DeleteFunc(changes(before, x.routes()), func(c model.RouteChange) bool { return !touched[c.Frontend] })
}

// flow is one to a frontend, which may be of the past or of the future.
func (x *town) flow() Flow {
	family := model.Families[x.IntN(2)]
	f := x.frontend(family)
	f.Address = x.address(family, 96)
	x.flows++
	out := Flow{Protocol: f.Protocol, Dialled: netip.AddrPortFrom(f.Address, f.Port), Answers: x.endpoint(family), ID: x.flows}
	if x.IntN(3) == 0 { // kept
		out.Answers = netip.AddrPortFrom(out.Answers.Addr(), f.Port)
	}
	if x.IntN(4) == 0 {
		out.Answers = out.Dialled
	}
	out.Opening = f.Protocol == model.TCP && x.IntN(2) == 0
	return out
}

// routes returns all routes, made for the caller.
func (x *town) routes() (all []model.Route) {
	made := make(map[*netip.AddrPort]*model.Choice)
	for f, serving := range x.serving {
		route := model.Route{Frontend: f, Service: &model.Service{Extras: &model.Extras{OnFailure: x.onFailure[f]}}, Choice: &model.Choice{}}
		if isChecked(f) {
			route.Service.Check = &model.Check{}
		}
		if len(serving) > 0 {
			if made[&serving[0]] == nil {
				made[&serving[0]] = &model.Choice{}
				for _, a := range serving {
					made[&serving[0]].Serving = append(made[&serving[0]].Serving, endpoint(a))
				}
			}
			route.Choice = made[&serving[0]]
		}
		all = append(all, route)
	}
	return all
}

func isChecked(f model.Frontend) bool { return f.Port%2 == 0 }

// in returns what is to be known of a scope; of TCP, only frontends whose connections may be
// deleted.
func (x *town) in(s scope, tcp bool) map[netip.AddrPort][]netip.AddrPort {
	out := make(map[netip.AddrPort][]netip.AddrPort)
	for f, serving := range x.serving {
		if (scope{model.FamilyOf(f.Address), f.Protocol}) == s && !f.IsRange() &&
			(tcp || f.Protocol != model.TCP || isChecked(f) || x.onFailure[f] == model.CloseOnFailure) {
			out[netip.AddrPortFrom(f.Address, f.Port)] = serving
		}
	}
	return out
}

// rangesIn returns what is to be known of the ranges of a scope; those of TCP only if
// established connections are deleted.
func (x *town) rangesIn(s scope, tcp bool) map[netip.Addr]portRanges {
	out := make(map[netip.Addr]portRanges)
	for f, serving := range x.serving {
		if (scope{model.FamilyOf(f.Address), f.Protocol}) == s && f.IsRange() && (tcp || f.Protocol != model.TCP || x.onFailure[f] == model.CloseOnFailure) {
			if len(serving) == 0 {
				serving = nil
			}
			out[f.Address] = append(out[f.Address], portRange{f.Port, f.Last, kept{serving: serving, differs: f.Protocol == model.TCP && x.onFailure[f].Closes(tcp) != tcp}})
			slices.SortFunc(out[f.Address], portRange.compare)
		}
	}
	return out
}

// spoil makes changes useless for who has kept any of them.
func spoil(changes []model.RouteChange) {
	for _, c := range changes {
		if c.New != nil {
			clear(c.New.Choice.Serving)
			*c.New = model.Route{}
		}
	}
}

// TestWalk walks through random changes, beside random flows and failures of the
// kernel. One cleaner gets the changes, another one all routes: both know the
// same, and that is what there is, and ask the same of the kernel.
func TestWalk(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		for seed := range uint64(10) {
			t.Run(fmt.Sprint("TCP-", tcp, "-", seed), func(t *testing.T) {
				// Pauses before repeated listings take no time.
				synctest.Test(t, func(t *testing.T) { walk(t, seed, Config{TCP: tcp}) })
			})
		}
	}
}

func walk(t *testing.T, seed uint64, config Config) {
	town := &town{Rand: rand.New(rand.NewPCG(seed, 0)), serving: make(map[model.Frontend][]netip.AddrPort), onFailure: make(map[model.Frontend]model.OnFailure)}
	config.Rules = owners(func(f model.Frontend) (model.Frontend, bool) {
		return town.owner(Flow{Protocol: f.Protocol, Dialled: netip.AddrPortFrom(f.Address, f.Port)})
	})
	small, whole := newFlaky(seed), newFlaky(seed)
	change, reset := newCleaner(small, &bytes.Buffer{}, config), newCleaner(whole, &bytes.Buffer{}, config)
	for step := range 400 {
		for range town.IntN(3) {
			f := town.flow()
			small.flows, whole.flows = append(small.flows, f), append(whole.flows, f)
		}
		changes := town.change()
		if town.move(); town.IntN(20) == 0 {
			everything(change, town.routes(), town.nodePorts)
		} else {
			change.Change(changes, town.nodePorts)
			spoil(changes)
		}
		everything(reset, town.routes(), town.nodePorts)
		swept, deleted := make(map[scope]bool), len(small.deleted)
		for _, fs := range change.known {
			swept[fs.scope] = fs.changed
		}
		change.Clean()
		reset.Clean()
		if !reflect.DeepEqual(small, whole) {
			t.Fatalf("step %d: after changes the kernel has %+v, after all routes %+v", step, small, whole)
		}
		for _, fs := range change.known {
			swept[fs.scope] = swept[fs.scope] && !fs.changed
		}
		if err := town.check(small.flows, small.deleted[deleted:], swept, config.TCP); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		for i := range change.known { // one has looked more often
			change.known[i].version, reset.known[i].version = 0, 0
		}
		if !reflect.DeepEqual(change.known, reset.known) {
			t.Fatalf("step %d: with changes and with all routes, cleaners know different frontends", step)
		}
		for _, fs := range change.known {
			present := make(map[netip.AddrPort][]netip.AddrPort)
			for f, k := range fs.known {
				if _, gone := fs.gone[f]; !gone {
					present[f] = k.serving
				}
			}
			if want := town.rangesIn(fs.scope, config.TCP); !reflect.DeepEqual(fs.ranges, want) {
				t.Fatalf("step %d: %+v: known ranges are %v, want %v", step, fs.scope, fs.ranges, want)
			}
			if want := town.in(fs.scope, config.TCP); !reflect.DeepEqual(present, want) {
				t.Fatalf("step %d: %+v: frontends are %v, want %v", step, fs.scope, present, want)
			}
		}
	}
	if len(small.deleted) < 30 || small.failures < 30 {
		t.Errorf("%d deletions, %d failures: too little happens", len(small.deleted), small.failures)
	}
}

// everything passes all routes to a cleaner, changed or not.
func everything(c *Cleaner, routes []model.Route, nodePorts []netip.Addr) {
	all := changes(nil, routes)
	for _, fs := range c.known {
		for at := range fs.known {
			f := model.Frontend{Address: at.Addr(), Protocol: fs.protocol, Port: at.Port()}
			if !slices.ContainsFunc(routes, func(r model.Route) bool { return r.Frontend == f }) {
				all = append(all, model.RouteChange{Frontend: f})
			}
		}
		for a, ranges := range fs.ranges {
			for _, r := range ranges {
				f := model.Frontend{Address: a, Protocol: fs.protocol, Port: r.first, Last: r.last}
				if !slices.ContainsFunc(routes, func(r model.Route) bool { return r.Frontend == f }) {
					all = append(all, model.RouteChange{Frontend: f})
				}
			}
		}
	}
	c.Change(all, nodePorts)
}
