package model

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
)

// BindsTogether reports whether session affinity binds a client to one server for all ports of
// the Service (5.16), as for a Balance with several. Services of Kubernetes bind it at each port
// by itself, as kube-proxy does (5.2).
func (s *Service) BindsTogether() bool {
	return s.Balance && s.AffinityTimeout > 0 && len(s.Ports) > 1 && !s.hashesAll()
}

// hashesAll reports whether all ports of a Balance with affinity have the scheduler source-hash,
// because one of them is a range, in which no client is bound (1.56).
func (s *Service) hashesAll() bool {
	return s.Balance && s.AffinityTimeout > 0 &&
		slices.ContainsFunc(s.Extra().Ranges, func(p PortRange) bool { return p.Last != 0 })
}

// MaxServerNumber is the highest number of a server, which fits into 14 bits: see [NumberServers].
const MaxServerNumber = 1<<14 - 1

// NumberServers numbers the servers behind one port of a Service, from 1 on. A server has the same
// number at all ports, as long as the servers stay: the number is a hash of its address, or the
// next free one. Servers with the same address are told apart by the order of their ports. Those
// above [MaxServerNumber] have no number.
func NumberServers(endpoints []netip.AddrPort) map[netip.AddrPort]uint16 {
	sorted := slices.SortedFunc(slices.Values(endpoints), netip.AddrPort.Compare)
	sorted = slices.Compact(sorted)
	out, taken := make(map[netip.AddrPort]uint16, len(sorted)), make(map[uint16]bool, len(sorted))
	nth := uint16(0)
	for i, e := range sorted[:min(len(sorted), MaxServerNumber)] {
		if nth++; i == 0 || sorted[i-1].Addr() != e.Addr() {
			nth = 0
		}
		n := hashServer(e.Addr(), nth)
		for taken[n] {
			n = n%MaxServerNumber + 1
		}
		out[e], taken[n] = n, true
	}
	return out
}

// hashServer returns a number from 1 to MaxServerNumber.
func hashServer(a netip.Addr, nth uint16) uint16 {
	h := fnv.New32a()
	h.Write(binary.BigEndian.AppendUint16(a.AsSlice(), nth)) // returns no error
	return uint16(h.Sum32()%MaxServerNumber) + 1
}

// numberServers numbers all servers of a port of a Service that binds clients together, also those
// that take no connections, so that no number changes when they do.
func (s *Service) numberServers(endpoints []Endpoint) map[netip.AddrPort]uint16 {
	if !s.BindsTogether() {
		return nil
	}
	all := make([]netip.AddrPort, len(endpoints))
	for i, e := range endpoints {
		all[i] = e.Address()
	}
	return NumberServers(all)
}
