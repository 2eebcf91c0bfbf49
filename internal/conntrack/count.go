package conntrack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// Endpoint is where connections end.
type Endpoint struct {
	Protocol model.Protocol
	Address  netip.AddrPort
}

// Count returns how many open connections lead to each endpoint at these addresses through
// another address: those to the endpoint's own address do not count, except from relays. A connection is open
// until both sides have ended it; one of UDP is open until the kernel forgets it, seconds
// after its last packet. Only those that include accepts count; nil accepts all.
func Count(addresses, relays []netip.Addr, include func(*Flow) bool) (map[Endpoint]int, error) {
	wanted := make(map[netip.Addr]bool)
	var families []model.Family
	for _, a := range addresses {
		wanted[a] = true
		if f := model.FamilyOf(a); !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	var k Netlink
	if len(wanted) == 1 {
		k.From = addresses[0] // the kernel compares with one address only
	}
	all := make(map[Endpoint]int)
	for _, family := range families {
		for _, p := range model.Protocols {
			counts, err := count(k, scope{family, p}, func(f *Flow) bool {
				switch {
				case !wanted[f.Answers.Addr()] || f.Closing:
					return false
				case f.Dialled == f.Answers:
					return slices.Contains(relays, f.Client)
				}
				return include == nil || include(f)
			})
			if err != nil {
				return nil, fmt.Errorf("count connections: %w", err)
			}
			for at, n := range counts {
				all[Endpoint{p, at}] = n
			}
		}
	}
	return all, nil
}

func count(k Kernel, s scope, include func(*Flow) bool) (counts map[netip.AddrPort]int, err error) {
	err = netlinkio.Retry(netlinkio.Fades, func() error {
		counts = make(map[netip.AddrPort]int)
		return k.List(s.family, s.protocol, func(f Flow) {
			if include(&f) {
				counts[f.Answers]++
			}
		})
	})
	return counts, err
}

// Target is an endpoint whose open connections are counted.
type Target struct {
	Address   netip.Addr
	Port      uint16           // zero: any
	Frontends []model.Frontend // that clients dialled; none: any
	// Relays are addresses of this machine, if it relays connections: the ones that it has to the
	// target itself count, too.
	Relays []netip.Addr
}

// Open are numbers of open connections by protocol.
type Open map[model.Protocol]int

// CountTargets returns the open connections to each target. Those of the same frontends are
// counted together.
func CountTargets(targets []Target) ([]Open, error) {
	out := make([]Open, len(targets))
	for i := range targets {
		if out[i] != nil {
			continue
		}
		like, at := &targets[i], make(map[netip.Addr][]int)
		for j := i; j < len(targets); j++ {
			if t := &targets[j]; slices.Equal(t.Frontends, like.Frontends) && slices.Equal(t.Relays, like.Relays) {
				out[j], at[t.Address] = make(Open), append(at[t.Address], j)
			}
		}
		counts, err := Count(slices.Collect(maps.Keys(at)), like.Relays, passesThrough(like.Frontends))
		if err != nil {
			return nil, err
		}
		for e, n := range counts {
			for _, j := range at[e.Address.Addr()] {
				if port := targets[j].Port; port == 0 || port == e.Address.Port() {
					out[j][e.Protocol] += n
				}
			}
		}
	}
	return out, nil
}

// passesThrough reports whether clients dialled one of these frontends; nil, for all, without any.
func passesThrough(frontends []model.Frontend) func(*Flow) bool {
	if len(frontends) == 0 {
		return nil
	}
	known := make(map[model.Frontend]bool)
	var ranges []model.Frontend
	for _, f := range frontends {
		if f.IsRange() {
			ranges = append(ranges, f)
		} else {
			known[f] = true
		}
	}
	return func(f *Flow) bool {
		dialled := model.Frontend{Address: f.Dialled.Addr(), Protocol: f.Protocol, Port: f.Dialled.Port()}
		return known[dialled] || known[dialled.OnNode()] ||
			slices.ContainsFunc(ranges, func(r model.Frontend) bool { return r.Contains(dialled) })
	}
}

// awaitPause is the time between two counts, and longer if a count takes long.
const awaitPause = time.Second

// Await returns nil when no connection to a target is open, or the error of ctx once that
// ends. counted is called with each count.
func Await(ctx context.Context, targets []Target, counted func([]Open)) error {
	for {
		begun := time.Now()
		counts, err := CountTargets(targets)
		if err != nil {
			return err
		}
		counted(counts)
		if !slices.ContainsFunc(counts, func(o Open) bool { return len(o) > 0 }) {
			return nil
		}
		if !parallel.Wait(ctx, max(awaitPause, 4*time.Since(begun))) {
			return ctx.Err()
		}
	}
}

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
	kernel masquerading

	mu     sync.Mutex
	next   time.Time // not before
	crowds []Crowd
	failed error
}

// masquerading is the part of connection tracking that [Ports] need.
type masquerading interface {
	// CountEntries returns the number of entries of all kinds.
	CountEntries() (int, error)
	// ListMasqueraded calls f for masqueraded connections of a family, and perhaps others.
	ListMasqueraded(family model.Family, f func(Flow)) error
}

// NewPorts returns what follows the calling thread's network namespace.
func NewPorts() *Ports { return &Ports{kernel: Netlink{}} }

// CountEntries reads the number of entries of the kernel; without connection tracking, there is none.
func (Netlink) CountEntries() (int, error) {
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
	begun := time.Now()
	if begun.Before(p.next) {
		return p.crowds, p.failed
	}
	p.next = begun.Add(portsPause)
	n, err := p.kernel.CountEntries()
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
	ended := time.Now()
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
			return p.kernel.ListMasqueraded(f, func(f Flow) {
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
