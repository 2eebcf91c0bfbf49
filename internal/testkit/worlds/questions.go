package worlds

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Question is a first packet and its sender.
type Question struct {
	From     Host
	Protocol string // tcp, udp, icmp or icmpv6
	To       netip.AddrPort
}

func (q Question) String() string {
	return fmt.Sprintf("%s %s from %s", q.Protocol, q.Target(), q.From.Name)
}

// IsPing reports whether the packet is an echo request.
func (q Question) IsPing() bool { return strings.HasPrefix(q.Protocol, "icmp") }

// Target is the destination as explain reads it.
func (q Question) Target() string {
	if q.IsPing() {
		return q.To.Addr().String()
	}
	return q.To.String()
}

// Source returns the address of the sender.
func (q Question) Source() netip.Addr { return q.From.Address(q.To.Addr()) }

// Questions draws questions about the world: mostly about what it serves.
func (w *World) Questions(n int) (out []Question) {
	all := w.destinations()
	for range n {
		q := drawOne(w.dice, all...)
		q.From = drawOne(w.dice, slices.Concat([]Host{Client, Client, Node}, Pods)...)
		out = append(out, q)
	}
	return out
}

func (w *World) destinations() (out []Question) {
	add := func(protocol, address string, port int) {
		out = append(out, Question{Protocol: protocol, To: netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port))})
	}
	for _, s := range sorted(w.Services) {
		w.addService(s, add)
	}
	for _, b := range sorted(w.Balances) {
		w.addBalance(b, add)
	}
	for _, a := range slices.Concat(outside4, outside6) {
		add(w.transport(), a, drawOne(w.dice, 80, 82))
	}
	return out
}

func (w *World) transport() string { return drawOne(w.dice, "tcp", "udp") }

// rangePorts are ports inside and beside the ranges that a Service may have.
var rangePorts = []int{9000, 9007, 9012, 9019, 1000, 1300, 7003, 8081, 8080, 5000, 79, 81}

func (w *World) addService(s *Service, add func(protocol, address string, port int)) {
	addresses := slices.Concat(s.Spec.ClusterIPs, s.Spec.ExternalIPs)
	for _, i := range s.Status.LoadBalancer.Ingress {
		addresses = append(addresses, i.IP)
	}
	for _, p := range s.Spec.Ports {
		protocol := strings.ToLower(string(p.Protocol))
		for _, a := range addresses {
			add(protocol, a, int(p.Port))
		}
		if p.NodePort != 0 {
			for _, a := range slices.Concat(Node.addresses(), gateway.addresses()) {
				add(protocol, a.String(), int(p.NodePort))
			}
		}
	}
	for _, a := range addresses {
		if s.Annotations[prefix+"ports"] != "" {
			for _, p := range rangePorts {
				add(w.transport(), a, p)
			}
		}
		add(w.transport(), a, drawOne(w.dice, 82, 1, 65535))
		if strings.Contains(a, ":") {
			add("icmpv6", a, 0)
		} else {
			add("icmp", a, 0)
		}
	}
}

func (w *World) addBalance(b *Balance, add func(protocol, address string, port int)) {
	for _, l := range b.Listen {
		at := strings.LastIndex(l, ":")
		host, text := strings.Trim(l[:at], "[]"), l[at+1:]
		port, ok := map[string]int{"9000-9019": 9003, "9005-9010": 9007, "all": drawOne(w.dice, 9001, 5000)}[text]
		if !ok {
			port, _ = strconv.Atoi(text) // else it is a range
		}
		addresses := []netip.Addr{}
		switch host {
		case "":
			addresses = slices.Concat(Node.addresses(), gateway.addresses())
		case Client.Device:
			addresses = Node.addresses()
		default:
			addresses = append(addresses, netip.MustParseAddr(host))
		}
		for _, a := range addresses {
			for _, p := range b.Protocols {
				for range 3 { // as often as Services with their many addresses
					add(p, a.String(), port)
				}
			}
			add(w.transport(), a.String(), port)
		}
	}
}
