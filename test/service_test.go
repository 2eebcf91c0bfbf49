package test

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	nodeName    = "node" // that the program runs on
	nodeZone    = "zone-a"
	servicePort = 80
	echoPort    = 8080
)

// service is a dual stack Service of type LoadBalancer with one port per
// protocol, and its EndpointSlices. N is the number that its addresses and its
// NodePort end with.
type service struct {
	Name string
	N    int

	Pods        []*netlab.Host // endpoints that are ready
	Terminating []*netlab.Host // endpoints that serve on, but are going away
	Dead        []*netlab.Host // endpoints that do not serve

	Internal, External string // traffic policies; empty: Cluster
	Affinity           int    // to the client address, in seconds; 0: none
	SourceRanges       []string
	ExternalIPs        []string // instead of those of the number
	LoadBalancerIPs    []string // instead of those of the number
	Port               int      // instead of the usual one
	Dialled            uint16   // port that clients dial at its own addresses; 0: that of the service
	OnlyTCP            bool     // endpoints serve no other protocol
	Target             int      // port of the endpoints; 0: the usual one
	HealthPort         int      // node port of health checks; 0: none

	Labels       map[string]string
	Annotations  map[string]string
	In           map[*netlab.Host]string // zones of endpoints
	Zones        map[*netlab.Host]string // that endpoints are meant for
	Nodes        map[*netlab.Host]string // that endpoints are meant for
	Weights      map[*netlab.Host]int    // in one list for all endpoints
	SliceWeights map[*netlab.Host]int    // one slice for each endpoint
	Backups      []*netlab.Host          // endpoints that stand by
}

// slice is an EndpointSlice.
type slice struct {
	Name      string
	Family    model.Family
	Weight    string // annotation; empty: none
	Priority  string // annotation without weights; empty: none
	Endpoints []endpoint
}

type endpoint struct {
	*netlab.Host
	Conditions string
	In         string // its zone; empty: unknown
	Zone, Node string // hints; empty: none
}

func (s service) endpoints() []endpoint {
	var all []endpoint
	for _, group := range []struct {
		hosts      []*netlab.Host
		conditions string
	}{
		{s.Pods, "ready: true, serving: true, terminating: false"},
		{s.Terminating, "ready: false, serving: true, terminating: true"},
		{s.Dead, "ready: false, serving: false, terminating: false"},
	} {
		for _, h := range group.hosts {
			all = append(all, endpoint{h, group.conditions, s.In[h], s.Zones[h], s.Nodes[h]})
		}
	}
	return all
}

// Slices returns one slice per family, or one per family and endpoint where
// the slices carry weights.
func (s service) Slices() []slice {
	var all []slice
	for _, f := range model.Families {
		name := fmt.Sprintf("%s-v%d", s.Name, f)
		if s.SliceWeights == nil {
			all = append(all, slice{name, f, s.weightList(f), s.backupList(f), s.endpoints()})
			continue
		}
		for _, e := range s.endpoints() {
			all = append(all, slice{name + "-" + e.Name, f, strconv.Itoa(s.SliceWeights[e.Host]), "", []endpoint{e}})
		}
	}
	return all
}

// weightList returns a list such as "10.128.0.2=3,10.128.0.3=0".
func (s service) weightList(f model.Family) string {
	var list []string
	for h, weight := range s.Weights {
		list = append(list, fmt.Sprintf("%s=%d", h.Address(f), weight))
	}
	return strings.Join(list, ",")
}

// backupList returns a list such as "10.128.0.2=1".
func (s service) backupList(f model.Family) string {
	var list []string
	for _, h := range s.Backups {
		list = append(list, h.Address(f).String()+"=1")
	}
	return strings.Join(list, ",")
}

// renderInput returns the input of the program for some services.
func renderInput(t testing.TB, node *netlab.Host, services []service) string {
	t.Helper()
	var out strings.Builder
	err := manifest.Execute(&out, map[string]any{"Node": node, "Zone": nodeZone, "Services": services,
		"PodCIDRs": []netip.Prefix{netlab.PodCIDRv4, netlab.PodCIDRv6}})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// VIPs returns the addresses in two formats, for the number of the service,
// unless others are given.
func (s service) VIPs(others []string, formats ...string) []string {
	if others != nil {
		return others
	}
	var all []string
	for _, format := range formats {
		all = append(all, fmt.Sprintf(format, s.N))
	}
	return all
}

// PortNumber returns the port of the service on its own addresses.
func (s service) PortNumber() uint16 {
	if s.Port != 0 {
		return uint16(s.Port)
	}
	return servicePort
}

// NodePort returns the port of the service on the addresses of the node.
func (s service) NodePort() uint16 { return 30000 + uint16(s.N) }

func (s service) clusterIP(f model.Family) netip.AddrPort {
	return s.frontend(f, "10.96.0.%d", "fd00:10:96::%d")
}

func (s service) externalIP(f model.Family) netip.AddrPort {
	return s.frontend(f, "198.51.100.%d", "2001:db8:1::%d")
}

func (s service) loadBalancerIP(f model.Family) netip.AddrPort {
	return s.frontend(f, "203.0.113.%d", "2001:db8:2::%d")
}

func (s service) nodePort(node *netlab.Host, f model.Family) netip.AddrPort {
	return netip.AddrPortFrom(node.Address(f), s.NodePort())
}

// frontends returns everything that can be dialled, by kind.
func (s service) frontends(node *netlab.Host, f model.Family) map[string]netip.AddrPort {
	return map[string]netip.AddrPort{
		"ClusterIP":        s.clusterIP(f),
		"external IP":      s.externalIP(f),
		"load balancer IP": s.loadBalancerIP(f),
		"NodePort":         s.nodePort(node, f),
	}
}

func (s service) frontend(f model.Family, v4, v6 string) netip.AddrPort {
	format := v4
	if f == model.IPv6 {
		format = v6
	}
	return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(format, s.N)), cmp.Or(s.Dialled, s.PortNumber()))
}
