package localhost

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Result is the outcome of a connection.
type Result uint8

const (
	Forwarded    Result = iota // to an endpoint
	Limited                    // refused: too many connections
	Unserved                   // refused: no frontend leads to an endpoint
	DialFailed                 // refused: no endpoint answered
	AcceptFailed               // none: the kernel had no connection to give
	results
)

// String returns the value of a label.
func (r Result) String() string {
	return [...]string{"forwarded", "limit", "no_endpoint", "dial_failed", "accept_failed"}[r]
}

// counts are the numbers since the start.
type counts struct {
	open     atomic.Int64
	total    [results]atomic.Uint64
	failures [len(model.Families)]atomic.Uint64
}

func (c *counts) add(r Result) { c.total[r].Add(1) }

func familyIndex(f model.Frontend) int {
	return slices.Index(model.Families[:], model.FamilyOf(f.Address))
}

// Counts is the state of a server, for metrics.
type Counts struct {
	Listeners   map[model.Family]int    // open ports
	Closed      map[model.Family]int    // ports that could not be opened
	Failures    map[model.Family]uint64 // attempts to open a port that failed, since the start
	Connections int64                   // at present
	Total       map[Result]uint64       // since the start
}

// Counts returns the state.
func (s *Server) Counts() Counts {
	c := Counts{
		Listeners: make(map[model.Family]int), Closed: make(map[model.Family]int), Failures: make(map[model.Family]uint64),
		Connections: s.counts.open.Load(), Total: make(map[Result]uint64),
	}
	for i, f := range model.Families {
		c.Listeners[f], c.Closed[f], c.Failures[f] = 0, 0, s.counts.failures[i].Load()
	}
	for r := range results {
		c.Total[r] = s.counts.total[r].Load()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, p := range s.ports {
		if p.listener != nil {
			c.Listeners[model.FamilyOf(f.Address)]++
		} else {
			c.Closed[model.FamilyOf(f.Address)]++
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
