package status

import (
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// FromKernel returns the report for our tables, or nil if there are none. The names
// of Services come from comments of elements, which nft limits to 128 bytes: longer
// ones are cut.
func FromKernel(k *kernel.Conn) (*Report, error) {
	rs, _, err := k.Read()
	if err != nil || len(rs.Tables) == 0 {
		return nil, err
	}
	r := &Report{From: Kernel, Healthy: true}
	if err := r.addAffinity(k); err != nil {
		return nil, err
	}
	counts, err := k.FrontendCounts()
	if err != nil {
		return nil, err
	}
	connections := make(map[model.Frontend]uint64)
	for _, c := range counts {
		connections[c.Frontend] += c.Connections
	}
	var all []frontend
	endpoints := make(map[answer]bool)
	for _, t := range rs.Tables {
		services := t.Set(nft.ServicesMap)
		if services == nil {
			continue // a foreign table of our name
		}
		if s := t.Set(nft.NodeAddressesSet); s != nil {
			for i := range s.Elements {
				r.NodePortAddresses = append(r.NodePortAddresses, s.Elements[i].Key.Address)
			}
		}
		r.Counted = r.Counted || services.Counters
		found := tableFrontends(t, services, endpoints)
		for i := range found {
			if services.Counters {
				n := connections[found[i].Frontend]
				found[i].connections = &n
			}
		}
		all = append(all, found...)
	}
	r.fill(all, endpoints)
	return r, nil
}

func (r *Report) addAffinity(k KernelReader) error {
	use, err := k.AffinityUse()
	for _, u := range use {
		r.Affinity = append(r.Affinity, Affinity{u.Family.String(), u.Map, u.Used, u.AtLeast, u.Size})
	}
	return err
}

// tableFrontends returns the frontends of a table, and adds its endpoints to
// endpoints.
func tableFrontends(t *nft.Table, services *nft.Set, endpoints map[answer]bool) []frontend {
	byFrontend := make(map[model.Frontend][]nft.Element)
	if s := t.Set(nft.EndpointsMap); s != nil {
		for _, e := range s.Elements {
			f := e.Key.Frontend()
			byFrontend[f] = append(byFrontend[f], e)
			endpoints[answer{f.Protocol, e.Value.Endpoint}] = true
		}
	}
	lanes := plan.NewLanes(t)
	decision := func(set string, class nft.Class, f model.Frontend) Decision {
		slots, _ := lanes.Of(set, f)
		n := distinct(byFrontend[f], slots)
		switch {
		case lanes.Verdict(class).Action == nft.Drop:
			return Decision{Verdict: model.Drop.String()}
		case n == 0:
			return Decision{Verdict: model.Reject.String()}
		}
		return Decision{model.Forward.String(), n}
	}
	var out []frontend
	local := t.Set(nft.LocalServicesMap)
	for i := range services.Elements {
		e := &services.Elements[i]
		f := frontend{Frontend: e.Key.Frontend(), inside: decision(nft.ServicesMap, e.Value.Class, e.Key.Frontend())}
		f.port, f.kind = nft.ParseComment(e.Comment)
		f.port.Protocol = f.Protocol
		if local != nil {
			if o, ok := local.Find(f.Frontend); ok {
				outside := decision(nft.LocalServicesMap, o.Value.Class, f.Frontend)
				f.outside = &outside
			}
		}
		out = append(out, f)
	}
	return out
}

// distinct counts the endpoints in some slots. A weighted endpoint has several slots.
func distinct(elements []nft.Element, slots nft.Slots) int {
	seen := make(map[nft.Value]bool, len(elements))
	for _, e := range elements {
		if slots.Has(e.Key.Slot) {
			seen[e.Value] = true
		}
	}
	return len(seen)
}
