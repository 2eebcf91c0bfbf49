package describe

import (
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// AddWarnings adds the warnings that name the Service or one of its slices.
func (s *Service) AddWarnings(all []string) {
	names := []string{s.name(), s.object().String()}
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
func (s *Service) AddConnections(counts map[model.FrontendID]uint64) {
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Frontends {
			f := &p.Frontends[j]
			if key := p.frontend(f); f.ServedBy == "" && !key.OnLocalhost() { // these are counted behind the listener
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

// Frontends returns the frontends that the Service has.
func (s *Service) Frontends() (out []model.Frontend) {
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Frontends {
			if f := &p.Frontends[j]; f.ServedBy == "" {
				out = append(out, p.frontend(f))
			}
		}
	}
	return out
}

// AddEndpointConnections adds the numbers of connections to the endpoints that have
// any counter.
func (s *Service) AddEndpointConnections(counts map[EndpointUse]uint64) {
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
				n, ok := counts[EndpointUse{p.frontend(&p.Frontends[k]), address}]
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

// frontend returns the key of a frontend.
func (p *Port) frontend(f *Frontend) model.Frontend {
	key, _ := model.ParseFrontend(p.Protocol, f.Address)
	return key
}

// AddClients counts the clients that the affinity maps bind to the endpoints. limited
// means that the maps may have more than these elements.
func (s *Service) AddClients(maps []*nft.Set, limited bool) {
	ports := make(map[model.Frontend]*Port)
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Frontends {
			if f := &p.Frontends[j]; f.ServedBy == "" {
				ports[p.frontend(f)] = p
			}
		}
		for j := range p.Endpoints {
			if e := &p.Endpoints[j]; e.State != "" || e.Inside.Slots > 0 || e.Outside != nil {
				e.Clients = new(int)
			}
		}
	}
	s.Clients = &Clients{AtLeast: limited}
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
