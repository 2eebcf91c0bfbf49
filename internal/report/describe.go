package report

import (
	"errors"
	"iter"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// maxBindings is how many clients are read to count the clients of a Service.
const maxBindings = 1 << 16

func (s *Server) answerDescription(query url.Values) (any, error) {
	return s.describe(query.Get("service"), query.Get("counts") != "false")
}

// describe describes a Service, with the bindings and counters that packets have left in the
// kernel if counts is true.
func (s *Server) describe(question string, counts bool) (*api.Description, error) {
	name, err := s.resolve(question)
	if err != nil {
		return nil, s.notSynced(err)
	}
	v := s.config.Agent.View(name)
	if v == nil { // deleted in between
		return nil, &api.UnknownError{Words: s.config.Facts.Words(), Name: question}
	}
	if c := s.config.Checks; c != nil {
		v.Checks = c
	}
	d := FromView(v)
	d.From = api.FromDaemon
	addWarnings(d, s.config.Facts.SourceState().Warnings)
	now := time.Now()
	d.Changed = s.history.of(name, now)
	s.config.Facts.AddToDescription(d, v, now)
	switch last, good := s.history.state(); {
	case last != nil && last.Error != "":
		d.Unsynced = "the last sync failed, so that the kernel may serve an earlier state: nftproxy status"
	case !good:
		d.Unsynced = "there was no sync yet, so that the kernel may serve the state of an earlier run"
	}
	if d.Unsynced != "" {
		d.Notices = append(d.Notices, d.Unsynced)
	}
	if !counts {
		return d, nil
	}
	return d, s.addCounts(d, v)
}

func (s *Server) resolve(name string) (model.ServiceName, error) {
	return api.Resolve(name, s.config.Agent, s.config.Facts.Words())
}

// notSynced returns the error about a name that no Service has: before the first sync, it may
// have one.
func (s *Server) notSynced(err error) error {
	var unknown *api.UnknownError
	if _, synced := s.history.state(); synced || !errors.As(err, &unknown) || unknown.Message != "" {
		return err
	}
	return &api.UnknownError{Message: unknown.Words.Sprintf("not synced yet: Service %q is not known so far", unknown.Name)}
}

func (s *Server) addCounts(d *api.Description, v *model.View) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.config.Counted {
		if routing := s.routing(); routing != nil {
			if err := s.count(routing); err != nil {
				return err
			}
			addConnections(d, s.counts.frontends)
		}
		if err := addEndpointCounts(d, s.endpointCounts); err != nil {
			return err
		}
	}
	return addPackets(d, s.config.Kernel, s.countsRefusals, v.Service.AffinityTimeout > 0)
}

// addPackets adds what packets have left in sets of the kernel: at limits, and if rules have these, refusals and bindings
// of clients.
func addPackets(d *api.Description, k KernelReader, refusals, bindings bool) error {
	err := addLimitCounts(d, k)
	if refusals {
		err = errors.Join(err, addRefusals(d, k.Refusals))
	}
	if bindings {
		err = errors.Join(err, addClients(d, k.Bindings))
	}
	return err
}

func addWarnings(s *api.Description, all []string) {
	names := []string{s.ServiceName().String(), s.Object().String()}
	for _, slice := range s.Slices {
		names = append(names, s.Namespace+"/"+slice)
	}
	for _, w := range all {
		for _, name := range names {
			if hasName(w, name) {
				s.Warnings = append(s.Warnings, w)
				break
			}
		}
	}
}

// hasName reports whether a text has a name that is not part of a longer one.
func hasName(text, name string) bool {
	inside := func(c byte) bool {
		return c == '-' || c == '/' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	for {
		i := strings.Index(text, name)
		if i < 0 {
			return false
		}
		rest := text[i+len(name):]
		if (i == 0 || !inside(text[i-1])) && (rest == "" || !inside(rest[0])) {
			return true
		}
		text = rest
	}
}

// own iterates over the frontends that a Service has itself, with their ports.
func own(s *api.Description) iter.Seq2[*api.DescribedPort, *api.DescribedFrontend] {
	return func(yield func(*api.DescribedPort, *api.DescribedFrontend) bool) {
		for i := range s.Ports {
			p := &s.Ports[i]
			for j := range p.Frontends {
				if f := &p.Frontends[j]; f.ServedBy == "" && !yield(p, f) {
					return
				}
			}
		}
	}
}

func addConnections(s *api.Description, counts map[model.FrontendID]uint64) {
	for p, f := range own(s) {
		if key := p.Frontend(f); !key.OnLocalhost() { // these are counted behind the listener
			n := counts[key.ID()]
			f.Connections = &n
		}
	}
}

func addEndpointCounts(s *api.Description, read func([]model.Frontend) ([]counters.Endpoint, error)) error {
	ports := endpointsBehind(s)
	counts, err := read(slices.SortedFunc(maps.Keys(ports), model.Frontend.Compare))
	for _, c := range counts {
		if e := ports[c.Frontend][c.Endpoint]; e != nil {
			if e.Connections == nil {
				e.Connections = new(uint64)
			}
			*e.Connections += c.Connections
		}
	}
	return err
}

// endpointsBehind returns the endpoints of each frontend that a Service has itself, by their address.
func endpointsBehind(s *api.Description) map[model.Frontend]map[netip.AddrPort]*api.DescribedEndpoint {
	out := make(map[model.Frontend]map[netip.AddrPort]*api.DescribedEndpoint)
	for p, f := range own(s) {
		out[p.Frontend(f)] = endpointsAt(p)
	}
	return out
}

// endpointsAt returns the endpoints of a port by their address. Only endpoints of a range, which
// keep the port that the client dials, have port 0.
func endpointsAt(p *api.DescribedPort) map[netip.AddrPort]*api.DescribedEndpoint {
	out := make(map[netip.AddrPort]*api.DescribedEndpoint)
	for i := range p.Endpoints {
		if at := p.Endpoints[i].AddrPort(); at.Port() != 0 || p.LastPort != 0 {
			out[at] = &p.Endpoints[i]
		}
	}
	return out
}

// addLimitCounts adds the packets that limits of each frontend have dropped, by their kind, and those that they had no
// room for.
func addLimitCounts(s *api.Description, k KernelReader) error {
	if len(s.Limits) == 0 {
		return nil
	}
	drops, err := k.LimitDrops()
	if err != nil {
		return err
	}
	unlimited, err := k.Unlimited()
	if err != nil {
		return err
	}
	dropped, passed := byFrontend(drops), byFrontend(unlimited)
	allDropped, allPassed := make(map[string]uint64), make(map[string]uint64)
	for p, f := range own(s) {
		id := p.Frontend(f).ID()
		f.Dropped = dropped[id]
		for kind, n := range dropped[id] {
			allDropped[kind] += n
		}
		for kind, n := range passed[id] {
			allPassed[kind] += n
		}
	}
	for i := range s.Limits {
		l := &s.Limits[i]
		n := allDropped[l.Kind]
		l.Dropped, l.Passed = &n, allPassed[l.Kind]
	}
	return nil
}

func byFrontend(all []counters.Limit) map[model.FrontendID]map[string]uint64 {
	out := make(map[model.FrontendID]map[string]uint64)
	for _, l := range all {
		if out[l.Frontend] == nil {
			out[l.Frontend] = make(map[string]uint64)
		}
		out[l.Frontend][l.Kind.String()] = l.Packets
	}
	return out
}

// addClients counts the clients that the affinity maps of both families bind to the
// endpoints.
func addClients(s *api.Description, read func(model.Family, int) ([]*nft.Set, error)) error {
	s.Clients = &api.Clients{}
	ports := endpointsBehind(s)
	for i := range s.Ports {
		for j := range s.Ports[i].Endpoints {
			if e := &s.Ports[i].Endpoints[j]; e.State != "" || e.Inside.Slots > 0 || e.Outside != nil {
				e.Clients = new(int)
			}
		}
	}
	for _, f := range model.Families {
		found, err := read(f, maxBindings)
		if err != nil {
			return err
		}
		for _, set := range found {
			s.Clients.AtLeast = s.Clients.AtLeast || len(set.Elements) >= maxBindings // there may be more
			if set.Name == nft.SharedAffinityMap {
				countTogether(s, ports, set)
				continue
			}
			for i := range set.Elements {
				endpoints, ok := ports[set.Elements[i].Key.Frontend()]
				if !ok {
					continue
				}
				s.Clients.Bound++
				if e := endpoints[set.Elements[i].Value.Endpoint]; e != nil && e.Clients != nil {
					*e.Clients++
				}
			}
		}
	}
	return nil
}

// countTogether counts the clients that a map binds to one server for all ports: at each endpoint
// of the server, and once in all.
func countTogether(s *api.Description, ports map[model.Frontend]map[netip.AddrPort]*api.DescribedEndpoint, set *nft.Set) {
	clients := make(map[netip.Addr]map[uint16]int) // by the address of the frontend and the number of the server
	for i := range set.Elements {
		f, number := nft.BoundServer(&set.Elements[i])
		if _, ok := ports[f]; !ok {
			continue
		}
		s.Clients.Bound++
		if clients[f.Address] == nil {
			clients[f.Address] = make(map[uint16]int)
		}
		clients[f.Address][number]++
	}
	for f, endpoints := range ports {
		inFamily := slices.DeleteFunc(slices.Collect(maps.Keys(endpoints)), func(e netip.AddrPort) bool {
			return model.FamilyOf(e.Addr()) != model.FamilyOf(f.Address)
		})
		for at, number := range model.NumberServers(inFamily) {
			if e := endpoints[at]; e.Clients != nil {
				*e.Clients += clients[f.Address][number]
			}
		}
	}
}
