package conntrack

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
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

// count counts the flows of one family and protocol that include accepts.
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(awaitPause, 4*time.Since(begun))):
		}
	}
}
