package report

import (
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// AddWarnings adds the warnings that name the Service or one of its slices.
func AddWarnings(s *api.Description, all []string) {
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

// AddConnections adds the numbers of connections to the frontends that the Service has.
func AddConnections(s *api.Description, counts map[model.FrontendID]uint64) {
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Frontends {
			f := &p.Frontends[j]
			if key := p.Frontend(f); f.ServedBy == "" && !key.OnLocalhost() { // these are counted behind the listener
				n := counts[key.ID()]
				f.Connections = &n
			}
		}
	}
}

// EndpointUse is a frontend and an endpoint that it sends connections to.
type EndpointUse struct {
	Frontend model.Frontend
	Endpoint netip.AddrPort
}

// FrontendsOf returns the frontends that the Service has.
func FrontendsOf(s *api.Description) (out []model.Frontend) {
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Frontends {
			if f := &p.Frontends[j]; f.ServedBy == "" {
				out = append(out, p.Frontend(f))
			}
		}
	}
	return out
}

// AddEndpointConnections adds the numbers of connections to the endpoints that have
// any counter.
func AddEndpointConnections(s *api.Description, counts map[EndpointUse]uint64) {
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Endpoints {
			e := &p.Endpoints[j]
			address, err := netip.ParseAddrPort(e.Address)
			if host, hostErr := netip.ParseAddr(e.Address); hostErr == nil && p.LastPort != 0 { // keeps the port
				address, err = netip.AddrPortFrom(host, 0), nil
			}
			if err != nil {
				continue // it has no port
			}
			for k := range p.Frontends {
				n, ok := counts[EndpointUse{p.Frontend(&p.Frontends[k]), address}]
				if ok && p.Frontends[k].ServedBy == "" {
					if e.Connections == nil {
						e.Connections = new(uint64)
					}
					*e.Connections += n
				}
			}
		}
	}
}

// AddClients counts the clients that the affinity maps bind to the endpoints. limited
// means that the maps may have more than these elements.
func AddClients(s *api.Description, maps []*nft.Set, limited bool) {
	ports := make(map[model.Frontend]*api.DescribedPort)
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Frontends {
			if f := &p.Frontends[j]; f.ServedBy == "" {
				ports[p.Frontend(f)] = p
			}
		}
		for j := range p.Endpoints {
			if e := &p.Endpoints[j]; e.State != "" || e.Inside.Slots > 0 || e.Outside != nil {
				e.Clients = new(int)
			}
		}
	}
	s.Clients = &api.Clients{AtLeast: limited}
	for _, m := range maps {
		for i := range m.Elements {
			p := ports[m.Elements[i].Key.Frontend()]
			if p == nil {
				continue
			}
			s.Clients.Bound++
			for j := range p.Endpoints {
				if e := &p.Endpoints[j]; e.Clients != nil && e.Address == m.Elements[i].Value.Endpoint.String() {
					*e.Clients++
				}
			}
		}
	}
}
