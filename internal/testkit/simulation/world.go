package simulation

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// services is the number of Services that there may be.
const services = 50

// world is the objects and settings that change. Each change depends on a number alone.
type world struct {
	*workload.World
	owners bool
}

func newWorld(seed uint64) *world {
	w := &world{World: workload.NewWorld(seed)}
	w.owners = w.R.IntN(2) == 0
	for i := range services {
		w.replace(seed+uint64(i), i)
	}
	return w
}

// links are the interfaces that may have addresses of Balances.
var links = []string{"eth1", "eth2"}

// Every tenth Service is a Balance whose connections are relayed, and every tenth one whose addresses are
// announced.
const kinds, relayed, announced = 10, 3, 5

// ownAddresses are the addresses that only one Service can have, whose number they lead to.
var ownAddresses = func() map[netip.Addr]int {
	out := make(map[netip.Addr]int)
	for i := range services {
		for _, prefix := range []string{"10.96.0.", "198.51.100.", "2001:db8:1::", "fd00:10:96::"} {
			out[netip.MustParseAddr(fmt.Sprint(prefix, i))] = i
		}
	}
	return out
}()

// serviceNames are the names of all Services, by number.
var serviceNames = func() (out []model.ServiceName) {
	for i := range services {
		out = append(out, workload.ServiceName(i))
	}
	return out
}()

// roll replaces an endpoint or two of a Service by as many others, as updates of Deployments do. All have the same weight
// then: most such changes replace single elements. The one with the address leaving goes, if the Service has it.
func (w *world) roll(seed uint64, i int, leaving netip.Addr) {
	r := rand.New(rand.NewPCG(seed, 6))
	all := w.States(i)[workload.ServiceName(i)].Slices
	for n, slice := range all {
		next := *slice
		next.Hosts = slices.Clone(slice.Hosts)
		for n := range next.Hosts {
			next.Hosts[n].Weight, next.Hosts[n].Ready = 0, true
		}
		for range min(1+r.IntN(2), len(next.Hosts)) {
			at := r.IntN(len(next.Hosts))
			if leaves := slices.IndexFunc(next.Hosts, func(h model.Host) bool { return h.Address == leaving }); leaves >= 0 {
				at = leaves
			}
			next.Hosts[at].Address = netip.AddrFrom4([4]byte{10, 128, byte(i), byte(20 + r.IntN(200))})
			if slice.Family == model.IPv6 {
				next.Hosts[at].Address = netip.MustParseAddr(fmt.Sprintf("fd00:10:128::%x", 0x20+r.IntN(200)))
			}
		}
		all[n] = &next
	}
}

// hasEndpoints reports whether a Service has several endpoints of a family.
func (w *world) hasEndpoints(i int) bool {
	return slices.ContainsFunc(w.States(i)[workload.ServiceName(i)].Slices, func(s *model.EndpointSlice) bool { return len(s.Hosts) > 2 })
}

// replace draws a Service with its endpoints.
func (w *world) replace(seed uint64, i int) {
	w.Reseed(seed)
	w.Replace(i)
	s := w.States(i)[workload.ServiceName(i)].Service
	if i%kinds != relayed && i%kinds != announced {
		return
	}
	s.Balance, s.ExternalPolicy, s.AffinityTimeout = true, model.PolicyCluster, 0
	extras := model.Extras{Relay: model.PlainRelay}
	if s.Scheduler > model.SourceHash {
		s.Scheduler = model.RoundRobin
	}
	s.External = &model.External{LoadBalancerIPs: []netip.Addr{
		netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%d", i))}}
	if i%kinds == announced {
		extras = model.Extras{Announce: links[w.R.IntN(len(links))]}
	}
	s.Extras = &extras
	for n := range s.Ports {
		s.Ports[n].NodePort, s.Ports[n].Protocol = 0, model.TCP
	}
}

// shortPeriod is less than the first pause before a retry, and awhile is more: timers that end in the same moment end in
// any order, and a seed would lead to several sequences of transactions.
const shortPeriod, awhile = 50 * time.Millisecond, 150 * time.Millisecond

// configure draws settings.
func (w *world) configure(seed uint64) settings {
	r := rand.New(rand.NewPCG(seed, 4))
	c := model.Config{
		NodeName: "node-1", ClusterCIDRs: w.Config.ClusterCIDRs, DetectLocal: model.DetectMode(r.IntN(4)), Scheduler: model.Scheduler(r.IntN(4)),
		PodInterface: []string{"", "cali", "cbr0-with-a-very-long-name"}[r.IntN(3)], MasqueradeAll: r.IntN(4) == 0,
		Counters: r.IntN(3) == 0, EndpointCounters: r.IntN(4) == 0, AnswerPing: r.IntN(2) == 0,
	}
	if r.IntN(2) == 0 {
		c.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("::/0")}
	}
	if r.IntN(3) == 0 {
		c.Observe = model.Observe{Level: model.ObserveLevel(1 + r.IntN(3)), Group: 7}
	}
	return settings{Node: c, NoOwner: r.IntN(5) == 0, MinSyncPeriod: time.Duration(r.IntN(2)) * shortPeriod, Upgraded: r.IntN(3) == 0}
}

// move gives the interfaces of the node other addresses, and returns those that came or went.
func (w *world) move(seed uint64, before []netip.Addr) (now, changed []netip.Addr) {
	w.Reseed(seed)
	w.Move()
	now = slices.Clone(w.Config.InterfaceAddresses)
	slices.SortFunc(now, netip.Addr.Compare) // as they are listed
	now = slices.Compact(now)
	seen := make(map[netip.Addr]int)
	for _, a := range before {
		seen[a] |= 1
	}
	for _, a := range now {
		seen[a] |= 2
	}
	for _, list := range [][]netip.Addr{before, now} {
		for _, a := range list {
			if seen[a] == 1 || seen[a] == 2 {
				changed = append(changed, a)
				seen[a] = 0
			}
		}
	}
	return now, changed
}
