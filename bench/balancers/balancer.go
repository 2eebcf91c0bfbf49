package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/fastpath"
)

// service is what a balancer is to serve.
type service struct {
	to        netip.AddrPort
	endpoints []netip.AddrPort
}

// setting is what all balancers are configured with.
type setting struct {
	services []service
	// checked asks for health checks, where the balancer has them: TCP connect,
	// every second, down after 2 failures, up after 2 successes, each with a second
	// of patience.
	checked bool
}

// Of a health check.
const (
	checkInterval = "1s"
	checkRise     = 2
	checkFall     = 2
)

// balancer is a program, or several, that balance connections by turns and
// masquerade them: servers see the address of the balancer.
type balancer interface {
	name() string
	// program is the command that must be there.
	program() string
	version() string
	// measures are those that it is part of.
	measures() []string
	// start starts it. It may return before services are served.
	start(*room, setting) (running, error)
}

// running is a balancer at work.
type running interface {
	// daemons are its processes.
	daemons() []*child
	// ways are those in which a service is changed, the usual one first.
	ways() []way
}

// way is how an endpoint of a service is replaced.
type way struct {
	name string
	// replace replaces an endpoint of a service. The setting has the new one already.
	replace func(s setting, service, endpoint int, old netip.AddrPort) error
}

// allBalancers are in the order of the tables.
func allBalancers() []balancer {
	return []balancer{direct{}, byHand{}, nftproxy{}, nftproxy{directory: true}, nftproxy{fast: true}, nftproxy{relay: true}, nftlb{},
		haproxy{}, haproxy{redispatch: true}, haproxy{splice: true}, ipvs{}, ipvs{keepalived: true}}
}

// selectBalancers returns those with some names, or all for which the programs and
// the kernel are there.
func selectBalancers(names string) ([]balancer, error) {
	all := allBalancers()
	if names == "" {
		return slices.DeleteFunc(all, func(b balancer) bool { return missing(b) != nil }), nil
	}
	var selected []balancer
	for n := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(b balancer) bool { return b.name() == n })
		if i < 0 {
			var known []string
			for _, b := range all {
				known = append(known, b.name())
			}
			return nil, fmt.Errorf("no balancer %q: use %s", n, strings.Join(known, ", "))
		}
		if err := missing(all[i]); err != nil {
			return nil, err
		}
		selected = append(selected, all[i])
	}
	return selected, nil
}

// missing returns what a balancer lacks on this machine.
func missing(b balancer) error {
	if p := b.program(); p != "" {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s: %w", b.name(), err)
		}
	}
	if n, ok := b.(nftproxy); ok && n.fast {
		if err := fastpath.SelfTest(context.Background()); err != nil {
			return fmt.Errorf("%s: %w", b.name(), err)
		}
	}
	if _, ok := b.(ipvs); ok {
		_ = exec.Command("modprobe", "ip_vs_rr").Run() // where it is a module
		if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
			return fmt.Errorf("%s: this kernel has no IPVS: %w", b.name(), err)
		}
	}
	return nil
}

// few is the setting of a few services, one for each port of the servers.
func few(r *room, endpoints int, checked bool) setting {
	return setting{checked: checked, services: []service{
		{netip.AddrPortFrom(virtualAddress(0), 80), r.endpoints(endpoints, echoPort)},
		{netip.AddrPortFrom(virtualAddress(0), 81), r.endpoints(endpoints, bulkPort)},
	}}
}

// many is a setting of n services. The endpoints of all but the middle one and the
// last one do not exist.
func many(r *room, n int) setting {
	var s setting
	for i := range n {
		own := service{to: netip.AddrPortFrom(virtualAddress(i), 80)}
		for j := range servers - 1 {
			own.endpoints = append(own.endpoints, netip.AddrPortFrom(address(10, 200, 4*i+j), echoPort))
		}
		if i == n/2 || i == n-1 {
			own.endpoints = r.endpoints(servers-1, echoPort)
		}
		s.services = append(s.services, own)
	}
	return s
}

func virtualAddress(i int) netip.Addr { return address(10, 96, i) }

// address returns an address in a network of 65,536 that starts with a.b.1.
func address(a, b byte, n int) netip.Addr {
	n += 256
	return netip.AddrFrom4([4]byte{a, b + byte(n>>16), byte(n >> 8), byte(n)})
}

// direct is no balancer: the clients dial the servers by turns, through the same
// router.
type direct struct{}

func (direct) name() string                          { return "none" }
func (direct) program() string                       { return "" }
func (direct) version() string                       { return "" }
func (direct) measures() []string                    { return []string{"traffic"} }
func (direct) start(*room, setting) (running, error) { return idle{}, nil }

// idle is a balancer without processes.
type idle struct{ changes []way }

func (idle) daemons() []*child { return nil }
func (i idle) ways() []way     { return i.changes }
