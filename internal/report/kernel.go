package report

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/served"
)

// FromKernel returns the report for our tables, or nil if there are none, and the addresses of
// all endpoints that take connections, with any filter. The names
// of Services come from comments of elements, which nft limits to 128 bytes: longer
// ones are cut.
func FromKernel(conn *kernel.Conn, filter *api.Filter) (_ *api.Status, addresses iter.Seq[netip.Addr], err error) {
	k := counters.Reader{Conn: conn}
	rs, _, err := k.Read()
	if err != nil || len(rs.Tables) == 0 {
		return nil, nil, err
	}
	r := &report{origins: onlyBalances(served.OnlyLoadBalancers(rs)), Status: api.Status{From: api.FromKernel, Words: served.Words(rs), Healthy: true}}
	if err := r.addAffinity(k); err != nil {
		return nil, nil, err
	}
	connections, err := kernelConnections(k)
	if err != nil {
		return nil, nil, err
	}
	var all []frontend
	var inUse []netip.Addr
	for _, t := range rs.Tables {
		if s := t.Set(nft.NodeAddressesSet); s != nil {
			for i := range s.Elements {
				r.NodePortAddresses = append(r.NodePortAddresses, s.Elements[i].Key.Address)
			}
		}
		services := t.Set(nft.ServicesMap)
		counted := services != nil && services.Counters
		r.Counted = r.Counted || counted
		for f := range served.Read(t).All() {
			one := frontend{Frontend: f}
			if counted {
				n := connections[f.ID()]
				one.connections = &n
			}
			all = append(all, one)
		}
	}
	for i := range all {
		for _, d := range []served.Decision{all[i].Inside, all[i].Outside} {
			for _, e := range d.Endpoints {
				inUse = append(inUse, e.Address.Addr())
			}
		}
	}
	if r.Refused, err = refusedInKernel(k, rs); err != nil {
		return nil, nil, err
	}
	r.fill(all, filter)
	r.addProblems(time.Now())
	for _, f := range model.Families {
		if !slices.ContainsFunc(all, func(o frontend) bool { return o.Relayed && model.FamilyOf(o.Address) == f }) {
			continue
		}
		switch failure, err := relayFailure(conn, f); {
		case err != nil:
			return nil, nil, err
		case failure != "":
			r.AddProblem(model.Notice{Object: model.Machine(), Reason: model.UnusableRelayPort, Message: failure})
		}
	}
	return &r.Status, slices.Values(inUse), nil
}

// onlyBalances has the Services that come from Balances, as far as rules show.
type onlyBalances map[model.ServiceName]bool

func (b onlyBalances) IsBalance(name model.ServiceName) bool { return b[name] }

// relayFailure returns why connections of a family are not relayed; empty: they are.
func relayFailure(conn *kernel.Conn, f model.Family) (string, error) {
	admits, err := conn.RelayAdmits(f)
	if err != nil || admits {
		return "", err
	}
	return fmt.Sprintf("over %s: no process relays, and the rules reject what they redirect to port %d: start nftproxy run", f, model.RelayPort), nil
}

// AddRelayFailures adds why frontends of a relayed Balance refuse connections, and their verdict.
// failure returns the reason for a family; empty: there is none.
func AddRelayFailures(d *api.Description, failure func(model.Family) string) {
	for _, f := range model.Families {
		text, found := failure(f), false
		if text == "" {
			continue
		}
		for i := range d.Ports {
			p := &d.Ports[i]
			for j := range p.Frontends {
				if at := &p.Frontends[j]; model.FamilyOf(p.Frontend(at).Address) == f {
					at.Inside, at.Outside, found = model.Reject.String(), model.Reject.String(), true
				}
			}
		}
		if found {
			d.RelayFailures = append(d.RelayFailures, text)
		}
	}
}

// kernelConnections returns the connections to each frontend; none if they are not
// counted.
func kernelConnections(k KernelReader) (map[model.FrontendID]uint64, error) {
	counts, err := k.FrontendCounts()
	connections := make(map[model.FrontendID]uint64)
	for _, c := range counts {
		connections[c.Frontend] += c.Connections
	}
	return connections, err
}

func countsRefusals(rs *nft.Ruleset) bool {
	return slices.ContainsFunc(rs.Tables, func(t *nft.Table) bool { return t.Set(nft.RefusalOf(model.NoEndpoints, nft.OfPort)) != nil })
}

// refusedInKernel returns the refused connections by reason; nil: they are not counted.
func refusedInKernel(k KernelReader, rs *nft.Ruleset) (map[string]uint64, error) {
	if !countsRefusals(rs) {
		return nil, nil
	}
	all, err := k.Refusals()
	out := make(map[string]uint64)
	for _, n := range all {
		out[n.Reason.String()] += n.Packets
	}
	return out, err
}

// DescribeKernel describes a Service from our tables, or returns nil if there are none.
func DescribeKernel(conn *kernel.Conn, question string) (*api.Description, error) {
	k := counters.Reader{Conn: conn}
	rs, _, err := k.Read()
	if err != nil || len(rs.Tables) == 0 {
		return nil, err
	}
	name, err := api.Resolve(question, api.NameList(namesIn(rs)), served.Words(rs))
	if err != nil {
		return nil, err
	}
	d, relayed := fromRules(rs, name)
	if relayed {
		failures := make(map[model.Family]string)
		for _, f := range model.Families {
			if failures[f], err = relayFailure(conn, f); err != nil {
				return nil, err
			}
		}
		AddRelayFailures(d, func(f model.Family) string { return failures[f] })
	}
	d.Balance = served.OnlyLoadBalancers(rs)[name]
	for i, text := range d.Unknown {
		d.Unknown[i] = d.Words().Text(text)
	}
	connections, err := kernelConnections(k)
	if err != nil {
		return nil, err
	}
	if len(connections) > 0 {
		addConnections(d, connections)
	}
	err = errors.Join(addEndpointCounts(d, k.EndpointCounts), addPackets(d, k, countsRefusals(rs), d.AffinitySeconds > 0))
	return d, err
}

func namesIn(rs *nft.Ruleset) []model.ServiceName {
	found := make(map[model.ServiceName]bool)
	for _, t := range rs.Tables {
		for of := range served.Read(t).Names() {
			found[of.Port.Service] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), model.ServiceName.Compare)
}

func (r *report) addAffinity(k KernelReader) error {
	use, err := k.AffinityUse()
	for _, u := range use {
		r.Affinity = append(r.Affinity, api.Affinity{Family: u.Family.String(), Map: u.Map, Clients: u.Used, AtLeast: u.AtLeast, Size: u.Size})
	}
	return err
}
