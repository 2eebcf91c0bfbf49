package conntrack

import (
	"cmp"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

const (
	// MasqueradePorts is how many connections an address has source ports for, to each server:
	// the kernel gives masqueraded connections those from 1024 on (nf_nat_l4proto_unique_tuple;
	// TestMasqueradePorts counts them).
	MasqueradePorts = 1<<16 - 1024
	// CrowdedPorts is how many of them are in use when single connections begin to fail: the
	// kernel looks for a free port at random, and gives up after some attempts.
	CrowdedPorts = MasqueradePorts * 9 / 10
)

// Crowd is a number of masqueraded connections from one address to one server.
type Crowd struct {
	Protocol    model.Protocol
	Server      netip.AddrPort
	From        netip.Addr
	Connections int
}

// Ports follows which servers have nearly as many masqueraded connections as an address has
// ports for. It is safe for concurrent use.
type Ports struct {
	// Count returns the number of entries of the kernel, of all kinds.
	Count func() (int, error)
	// List calls f for masqueraded connections of a family.
	List func(f model.Family, each func(Flow)) error
	// Now is [time.Now].
	Now func() time.Time

	mu     sync.Mutex
	next   time.Time // not before
	crowds []Crowd
	failed error
}

// NewPorts returns what follows the calling thread's network namespace.
func NewPorts() *Ports {
	return &Ports{Count: countEntries, List: Netlink{}.ListMasqueraded, Now: time.Now}
}

// countEntries reads the number of entries of the kernel; without connection tracking, there is none.
func countEntries() (int, error) {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

const (
	// portsPause is the time between two looks at the number of entries, and listPause at least
	// that between two lists.
	portsPause = time.Second
	listPause  = 10 * time.Second
	// listShare is the part of the time that listing takes at most.
	listShare = 20
)

// Crowded returns the servers with at least [CrowdedPorts] connections from an address, sorted. While
// the kernel tracks fewer in all, it lists none. The last answer stays for a while, and after an
// error.
func (p *Ports) Crowded() ([]Crowd, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := p.Now()
	if begun.Before(p.next) {
		return p.crowds, p.failed
	}
	p.next = begun.Add(portsPause)
	n, err := p.Count()
	switch p.failed = err; {
	case err != nil:
		return p.crowds, err
	case n < CrowdedPorts:
		p.crowds = nil
		return nil, nil
	}
	crowds, err := p.count()
	if p.failed = err; err == nil {
		p.crowds = crowds
	}
	ended := p.Now()
	p.next = ended.Add(max(listPause, listShare*ended.Sub(begun)))
	return p.crowds, err
}

// Has reports whether a server is crowded.
func (p *Ports) Has(of model.Protocol, server netip.AddrPort) bool {
	all, _ := p.Crowded()
	return slices.ContainsFunc(all, func(c Crowd) bool { return c.Protocol == of && c.Server == server })
}

func (p *Ports) count() (out []Crowd, err error) {
	for _, f := range model.Families {
		var counts map[Crowd]int // without their number
		err := netlinkio.Retry(netlinkio.Fades, func() error {
			counts = make(map[Crowd]int)
			return p.List(f, func(f Flow) {
				if f.Client != f.Returns.Addr() && f.Dialled != f.Answers {
					counts[Crowd{Protocol: f.Protocol, Server: f.Answers, From: f.Returns.Addr()}]++
				}
			})
		})
		if err != nil {
			return nil, err
		}
		for c, n := range counts {
			if c.Connections = n; n >= CrowdedPorts {
				out = append(out, c)
			}
		}
	}
	slices.SortFunc(out, func(a, b Crowd) int {
		return cmp.Or(a.Server.Compare(b.Server), cmp.Compare(a.Protocol, b.Protocol), a.From.Compare(b.From))
	})
	return out, nil
}
