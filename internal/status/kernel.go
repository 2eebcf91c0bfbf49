package status

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/describe"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// FromKernel returns the report for our tables, or nil if there are none. The names
// of Services come from comments of elements, which nft limits to 128 bytes: longer
// ones are cut.
func FromKernel(k *kernel.Conn, filter *Filter) (*Report, error) {
	rs, _, err := k.Read()
	if err != nil || len(rs.Tables) == 0 {
		return nil, err
	}
	r := &Report{From: Kernel, Healthy: true}
	if err := r.addAffinity(k); err != nil {
		return nil, err
	}
	connections, err := kernelConnections(k)
	if err != nil {
		return nil, err
	}
	var all []frontend
	for _, t := range rs.Tables {
		if s := t.Set(nft.NodeAddressesSet); s != nil {
			for i := range s.Elements {
				r.NodePortAddresses = append(r.NodePortAddresses, s.Elements[i].Key.Address)
			}
		}
		for _, name := range nft.ServiceMaps {
			services := t.Set(name)
			if services == nil {
				continue // a foreign table of our name, or no range
			}
			r.Counted = r.Counted || services.Counters
			found := tableFrontends(t, services)
			for i := range found {
				if services.Counters {
					n := connections[found[i].Frontend]
					found[i].connections = &n
				}
			}
			all = append(all, found...)
		}
	}
	for i := range all {
		r.inUse = append(r.inUse, all[i].endpoints...)
	}
	r.fill(all, filter)
	r.addProblems(time.Now())
	return r, nil
}

// kernelConnections returns the connections to each frontend; none if they are not
// counted.
func kernelConnections(k KernelReader) (map[model.Frontend]uint64, error) {
	counts, err := k.FrontendCounts()
	connections := make(map[model.Frontend]uint64)
	for _, c := range counts {
		connections[c.Frontend] += c.Connections
	}
	return connections, err
}

// DescribeKernel describes a Service from our tables, or returns nil if there are none.
func DescribeKernel(k *kernel.Conn, question string) (*describe.Service, error) {
	rs, _, err := k.Read()
	if err != nil || len(rs.Tables) == 0 {
		return nil, err
	}
	name, err := describe.Resolve(question, namesIn(rs))
	if err != nil {
		return nil, err
	}
	d := describe.FromRules(rs, name)
	connections, err := kernelConnections(k)
	if err != nil {
		return nil, err
	}
	if len(connections) > 0 {
		d.AddConnections(connections)
	}
	if err := addEndpointCounts(d, k); err != nil {
		return nil, err
	}
	if err := addLimitDrops(d, k); err != nil {
		return nil, err
	}
	if d.AffinitySeconds > 0 {
		err = addClients(d, k.Bindings)
	}
	return d, err
}

// namesIn returns the Services that the comments of elements name, sorted.
func namesIn(rs *nft.Ruleset) []model.ServiceName {
	found := make(map[model.ServiceName]bool)
	for _, t := range rs.Tables {
		for _, name := range nft.ServiceMaps {
			if s := t.Set(name); s != nil {
				for i := range s.Elements {
					port, _ := nft.ParseComment(s.Elements[i].Comment)
					found[port.Service] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), model.ServiceName.Compare)
}

func (r *Report) addAffinity(k KernelReader) error {
	use, err := k.AffinityUse()
	for _, u := range use {
		r.Affinity = append(r.Affinity, Affinity{u.Family.String(), u.Map, u.Used, u.AtLeast, u.Size})
	}
	return err
}

// tableFrontends returns the frontends of a table.
func tableFrontends(t *nft.Table, services *nft.Set) []frontend {
	lanes, affinity := plan.NewLanes(t), t.AffinityTimeouts()
	decision := func(set string, e *nft.Element, f *frontend) Decision {
		slots, _ := lanes.Of(set, f.Frontend)
		endpoints := distinct(t.Slots(f.Frontend), slots)
		switch {
		case lanes.Drops(e):
			return Decision{Verdict: model.Drop.String()}
		case len(endpoints) == 0:
			return Decision{Verdict: model.Reject.String()}
		}
		f.endpoints = append(f.endpoints, endpoints...)
		return Decision{model.Forward.String(), len(endpoints)}
	}
	var out []frontend
	locals := nft.LocalServiceMaps[slices.Index(nft.ServiceMaps, services.Name)]
	local := t.Set(locals)
	for i := range services.Elements {
		e := &services.Elements[i]
		f := frontend{Frontend: t.FrontendOf(services, e.Key)}
		f.inside = decision(services.Name, e, &f)
		f.port, f.kind = nft.ParseComment(e.Comment)
		f.port.Protocol = f.Protocol
		f.affinity, f.ranges = affinity[f.Frontend], hasSources(t, f.Frontend)
		f.limits = has(t.Set(nft.SetFor(f.Frontend, nft.LimitedSet)), f.Frontend)
		f.local = f.kind == model.ClusterIP && f.inside.Verdict == model.Drop.String()
		if local != nil {
			if o, ok := local.Find(f.Frontend); ok {
				outside := decision(locals, o, &f)
				f.outside, f.local = &outside, true
			}
		}
		out = append(out, f)
	}
	return out
}

// distinct returns the endpoints in some slots. A weighted endpoint has several slots.
func distinct(elements []nft.Element, slots nft.Slots) []netip.AddrPort {
	var out []netip.AddrPort
	seen := make(map[netip.AddrPort]bool, len(elements))
	for _, e := range elements {
		if slots.Has(e.Key.Slot) && !seen[e.Value.Endpoint] {
			seen[e.Value.Endpoint] = true
			out = append(out, e.Value.Endpoint)
		}
	}
	return out
}

// hasSources reports whether only some clients may connect to a frontend.
func hasSources(t *nft.Table, f model.Frontend) bool {
	return slices.ContainsFunc([]string{nft.FirewalledSet, nft.AllowFrontendsSet, nft.DenyFrontendsSet}, func(set string) bool { return has(t.Set(nft.SetFor(f, set)), f) })
}

func has(s *nft.Set, f model.Frontend) bool {
	if s == nil {
		return false
	}
	_, ok := s.Find(f)
	return ok
}
