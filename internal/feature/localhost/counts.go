package localhost

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

func familyIndex(f model.Frontend) int {
	return slices.Index(model.Families[:], model.FamilyOf(f.Address))
}

// Counts is the state of a server, for metrics.
type Counts struct {
	tcpproxy.Counts
	Listeners map[model.Family]int    // open ports
	Unserved  map[model.Family]int    // ports that could not be opened
	Failures  map[model.Family]uint64 // attempts to open a port that failed, since the start
}

// Counts returns the state.
func (s *Server) Counts() Counts {
	c := Counts{
		Counts:    s.proxy.Counts(tcpproxy.Forwarded, tcpproxy.Limited, tcpproxy.NoEndpoint, tcpproxy.DialFailed, tcpproxy.AcceptFailed),
		Listeners: make(map[model.Family]int), Unserved: make(map[model.Family]int), Failures: make(map[model.Family]uint64),
	}
	for i, f := range model.Families {
		c.Listeners[f], c.Unserved[f], c.Failures[f] = 0, 0, s.failures[i].Load()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, p := range s.ports {
		if p.listener != nil {
			c.Listeners[model.FamilyOf(f.Address)]++
		} else {
			c.Unserved[model.FamilyOf(f.Address)]++
		}
	}
	return c
}

// Problems describes the ports that cannot be opened: a line for each cause and address.
func (s *Server) Problems() []string {
	type problem struct {
		address netip.Addr
		failure string
	}
	first, more := make(map[problem]*port), make(map[problem]int)
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, p := range s.closed {
		if p.failure == nil {
			continue
		}
		k := problem{f.Address, p.failure.Error()}
		if more[k]++; first[k] == nil || f.Port < first[k].frontend.Port {
			first[k] = p
		}
	}
	var out []string
	for k, p := range first {
		text := fmt.Sprintf("NodePort %d of %s", p.frontend.Port, p.name)
		if n := more[k] - 1; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		out = append(out, fmt.Sprintf("%s: not served on %s: %s", text, k.address, k.failure))
	}
	slices.Sort(out)
	return out
}
