package neighbours

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// path is a way to the Service.
type path struct {
	name string
	from *netlab.Host
	to   func(model.Family) netip.AddrPort
}

// paths returns all ways to the Service.
func (h *host) paths() []path {
	return []path{
		{"outside to NodePort", h.Client, h.nodePort},
		{"outside to ClusterIP", h.Client, clusterIP},
		{"pod to ClusterIP", h.Pods[1], clusterIP},
		{"pod to NodePort", h.Pods[1], h.nodePort},
		{"node to ClusterIP", h.Node, clusterIP},
		{"node to NodePort", h.Node, h.nodePort},
	}
}

// fromNode reports whether packets of the path are not forwarded.
func (p path) fromNode() bool { return p.from.Name == testbed.NodeName }

// eachFlow runs f for each path, family and protocol.
func eachFlow(paths []path, f func(p path, network string, to netip.AddrPort)) {
	for _, p := range paths {
		for _, family := range model.Families {
			for _, network := range []string{"tcp", "udp"} {
				f(p, network, p.to(family))
			}
		}
	}
}

// served checks that paths lead to both endpoints and to nothing else. One
// connection in eight uses another counter, so two in a row may go to one.
func (h *host) served(when string, paths ...path) {
	h.t.Helper()
	eachFlow(paths, func(p path, network string, to netip.AddrPort) {
		h.t.Helper()
		got := map[string]bool{}
		for range 32 {
			answer, err := p.from.Ask(network, to, testbed.Strict)
			if err != nil {
				h.t.Errorf("%s: %s, %s %s: %v", when, p.name, network, to, err)
				return
			}
			if got[answer.Name] = true; got[h.Pods[0].Name] && got[h.Remote[0].Name] {
				break
			}
		}
		if len(got) != 2 || !got[h.Pods[0].Name] || !got[h.Remote[0].Name] {
			h.t.Errorf("%s: %s, %s %s: answers of %v, want both endpoints", when, p.name, network, to, got)
		}
	})
}

// answers checks that a host answers on paths.
func (h *host) answers(when, name string, paths ...path) {
	h.t.Helper()
	eachFlow(paths, func(p path, network string, to netip.AddrPort) {
		h.t.Helper()
		netlab.Eventually(h.t, patience, func() error { // the server may begin
			answer, err := p.from.Ask(network, to, testbed.Silence)
			if err != nil || answer.Name != name {
				return fmt.Errorf("%s: %s, %s %s: got %v, %v, want an answer of %s", when, p.name, network, to, answer, err, name)
			}
			return nil
		})
	})
}

// unserved checks that no path gets an answer: it is refused or dropped.
func (h *host) unserved(when string, paths ...path) {
	h.t.Helper()
	eachFlow(paths, func(p path, network string, to netip.AddrPort) {
		h.t.Helper()
		answer, err := p.from.Ask(network, to, testbed.Silence)
		var problem net.Error
		if !errors.As(err, &problem) {
			h.t.Errorf("%s: %s, %s %s: got %v, %v, want no answer", when, p.name, network, to, answer, err)
		}
	})
}

// flow is a connection under way.
type flow struct {
	*netlab.Flow
	path
	network, peer string
}

// open opens a flow of each kind.
func (h *host) open(paths ...path) []flow {
	h.t.Helper()
	var flows []flow
	eachFlow(paths, func(p path, network string, to netip.AddrPort) {
		h.t.Helper()
		f, err := p.from.Open(network, to, testbed.Strict)
		if err != nil {
			h.t.Fatalf("%s, %s %s: %v", p.name, network, to, err)
		}
		h.t.Cleanup(func() { f.Close() })
		answer, err := f.Ask()
		if err != nil {
			h.t.Fatalf("%s, %s %s: %v", p.name, network, to, err)
		}
		flows = append(flows, flow{f, p, network, answer.Name})
	})
	return flows
}

// goOn checks that flows are still with the endpoints that they began with.
func (h *host) goOn(when string, flows []flow) {
	h.t.Helper()
	for _, f := range flows {
		if answer, err := f.Ask(); err != nil || answer.Name != f.peer {
			h.t.Errorf("%s: %s flow under way, %s: got %v, %v, want an answer of %s", when, f.network, f.name, answer, err, f.peer)
		}
	}
}

// broken checks that flows get no answer any more.
func (h *host) broken(when string, flows []flow) {
	h.t.Helper()
	for _, f := range flows {
		if answer, err := f.Ask(); err == nil {
			h.t.Errorf("%s: %s flow under way, %s: got %v, want no answer", when, f.network, f.name, answer)
		}
	}
}

// undisturbed checks that a change by a neighbour leaves nftproxy's tables, flows
// under way and new ones alone.
func (h *host) undisturbed(what string, change func(), paths ...path) {
	h.t.Helper()
	rules, flows := h.ownRules(), h.open(paths...)
	change()
	h.goOn(what, flows)
	h.served(what, paths...)
	h.kept(what, rules)
}

// without returns the paths that f does not select.
func without(paths []path, f func(path) bool) []path {
	return slices.DeleteFunc(slices.Clone(paths), f)
}

// healthPath is the way to nftproxy's health check.
func (h *host) healthPath() path {
	return path{"outside to the health check", h.Client, func(f model.Family) netip.AddrPort {
		return netip.AddrPortFrom(h.Node.Address(f), 10256)
	}}
}

// connects reports whether TCP connections on a path are accepted in both families
// in time.
func (p path) connects(wait time.Duration) bool {
	for _, family := range model.Families {
		f, err := p.from.Open("tcp", p.to(family), wait)
		if err != nil {
			return false
		}
		f.Close()
	}
	return true
}
