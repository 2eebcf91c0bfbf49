package test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const portsAnnotation = "nftproxy.dev/ports"

// ports returns the annotation for ranges of TCP and UDP ports.
func ports(ranges ...string) map[string]string {
	var all []string
	for _, r := range ranges {
		first, target, shifted := strings.Cut(r, ":")
		if shifted {
			target = ":" + target
		}
		all = append(all, first+"/tcp"+target, first+"/udp"+target)
	}
	return map[string]string{portsAnnotation: strings.Join(all, ", ")}
}

// ranged returns the addresses of a service that have its ranges, at a port.
func (s service) ranged(f model.Family, port uint16) map[string]netip.AddrPort {
	s.Dialled = port
	return map[string]netip.AddrPort{"ClusterIP": s.clusterIP(f), "external IP": s.externalIP(f), "load balancer IP": s.loadBalancerIP(f)}
}

// Tables 4-A and 4-B apply to ranges of ports as to single ones (1.53).
func TestPoliciesOfPortRanges(t *testing.T) {
	c := newWideCluster(t, 3, 2)
	situations := c.situations()
	for i := range situations {
		situations[i].service.Annotations, situations[i].service.Dialled = ports("8000-8999"), echoPort
	}
	c.verify(t, tableA, situations, model.Families[:]...)
}

// 1.51, 1.55: the endpoint gets the port that the client dialled, or the one of the
// range. A port that is defined by itself wins, and the ports around a range are not
// served.
func TestPortRanges(t *testing.T) {
	c := newCluster(t, 3)
	for _, pod := range c.Pods[:2] {
		for _, port := range []uint16{10000, 12345, 19999} {
			echo, err := pod.Echo(port)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { echo.Close() })
		}
	}
	media := service{Name: "media", N: 1, Pods: c.Pods[:2], Port: 15000, Annotations: ports("10000-19999", "30500-30599:8080")}
	c.apply(media)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for dialled, want := range map[uint16]uint16{
			10000: 10000, 12345: 12345, 19999: 19999, 15000: echoPort, 30500: echoPort, 30599: echoPort,
		} {
			for kind, to := range media.ranged(family, dialled) {
				for _, from := range c.allClients() {
					got := ask(t, from, network, to)
					kept := kind == "ClusterIP" && slices.Contains(c.Pods, from) && from.Name != got.Name
					if got.Port != want || kept != (got.Client == from.Address(family)) {
						t.Errorf("from %s to %s %s: port %d of %s answers to %s, want port %d, and the client's address: %v",
							from.Name, kind, to, got.Port, got.Name, got.Client, want, kept)
					}
				}
			}
		}
		for _, port := range []uint16{9999, 20000, 30499, 30600} {
			refused(t, c.allClients(), network, media.ranged(family, port)["ClusterIP"])
		}
		refused(t, []*netlab.Host{c.Client}, network, netip.AddrPortFrom(c.Node.Address(family), 12345))
	})
}

// 1.50: a range is of one protocol.
func TestPortRangeOfOtherProtocol(t *testing.T) {
	c := newCluster(t, 1)
	media := service{Name: "media", N: 1, Pods: c.Pods, Annotations: map[string]string{portsAnnotation: "8000-8999/udp"}, Dialled: echoPort}
	c.apply(media)
	for _, family := range model.Families {
		for _, from := range c.allClients() {
			ask(t, from, "udp", media.clusterIP(family))
		}
		refused(t, c.allClients(), "tcp", media.clusterIP(family))
	}
}

// 1.50: all ports of an address. Those of other addresses pass.
func TestWholeAddress(t *testing.T) {
	c := newCluster(t, 2)
	vm := service{Name: "vm", N: 1, Pods: c.Pods[:1], Annotations: map[string]string{portsAnnotation: "all"}}
	c.apply(vm)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for _, from := range c.allClients() {
			for kind, to := range vm.ranged(family, echoPort) {
				if got := ask(t, from, network, to); got.Port != echoPort {
					t.Errorf("from %s to %s: port %d answers", from.Name, kind, got.Port)
				}
			}
			refused(t, []*netlab.Host{from}, network, vm.ranged(family, 1)["ClusterIP"], vm.ranged(family, 65535)["load balancer IP"]) // by the pod
			if got := ask(t, from, network, endpointOf(c.Pods[1], family)); got.Name != c.Pods[1].Name {
				t.Errorf("from %s to %s: %s answers", from.Name, c.Pods[1].Name, got.Name)
			}
		}
	})
}

// 1.53: source ranges and denied sources apply to ranges of ports.
func TestSourcesOfPortRanges(t *testing.T) {
	c := newCluster(t, 2)
	limited := service{Name: "limited", N: 1, Pods: c.Pods[1:], SourceRanges: clientRanges, Annotations: ports("8000-8999"), Dialled: echoPort}
	denied := service{Name: "denied", N: 2, Pods: c.Pods[1:], Annotations: ports("8000-8999"), Dialled: echoPort}
	denied.Annotations[model.DeniedSourcesAnnotation] = strings.Join(addressesOf(c.Client, c.Node), ",")
	c.apply(limited, denied)
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		ask(t, c.Client, network, limited.loadBalancerIP(family))
		silent(t, append(c.Pods, c.Node), network, limited.loadBalancerIP(family))
		ask(t, c.Node, network, limited.clusterIP(family))
		ask(t, c.Pods[0], network, denied.externalIP(family))
		silent(t, []*netlab.Host{c.Client, c.Node}, network, denied.clusterIP(family), denied.externalIP(family))
	})
}

// 4.60: masqueraded clients with the same source port reach the same port of an endpoint.
func TestPortRangeSourcePorts(t *testing.T) {
	c := newCluster(t, 3)
	media := service{Name: "media", N: 1, Pods: c.Pods[:1], Annotations: ports("8000-8999")}
	c.apply(media)
	port := uint16(40000)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		port++
		to := media.ranged(family, echoPort)["external IP"]
		var flows []*netlab.Flow
		for _, client := range []*netlab.Host{c.Client, c.Node, c.Pods[1], c.Pods[2]} {
			f, err := client.At(port).Open(network, to, 0)
			if err != nil {
				t.Fatalf("from %s: %v", client.Name, err)
			}
			defer f.Close()
			flows = append(flows, f)
		}
		for range 2 {
			for i, f := range flows {
				if got, err := f.Ask(); err != nil || got.Port != echoPort {
					t.Errorf("flow %d: %v, %v", i, got, err)
				}
			}
		}
	})
}

// 4.60: a client that keeps its address reaches the same port of an endpoint by two
// addresses, from one socket.
func TestPortRangeOneSocket(t *testing.T) {
	c := newCluster(t, 2)
	media := service{Name: "media", N: 1, Pods: c.Pods[:1], External: "Local", Annotations: ports("8000-8999")}
	c.apply(media)
	for _, family := range model.Families {
		socket, err := c.Client.ListenPacket("udp", netip.AddrPortFrom(c.Client.Address(family), 41000).String())
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		addresses := media.ranged(family, echoPort)
		for _, kind := range []string{"external IP", "load balancer IP", "external IP", "load balancer IP"} {
			to := addresses[kind]
			if _, err := socket.WriteTo([]byte("?\n"), net.UDPAddrFromAddrPort(to)); err != nil {
				t.Fatal(err)
			}
			if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, 100)
			n, from, err := socket.ReadFrom(answer)
			if err != nil || from.String() != to.String() {
				t.Errorf("%s: %q from %v, %v", to, answer[:n], from, err)
			}
		}
	}
}

// 4.61: a range that gets more ports, and one that loses them, leaves the connections of
// the others alone.
func TestPortRangeChanges(t *testing.T) {
	c := newCluster(t, 1)
	media := service{Name: "media", N: 1, Pods: c.Pods}
	with := func(text string) service {
		s := media
		s.Annotations = ports(text)
		return s
	}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		c := c.in(t)
		to := media.ranged(family, echoPort)["ClusterIP"]
		c.apply(with("8000-8999"))
		f, err := c.Client.Open(network, to, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, text := range []string{"8000-8999", "8000-9999", "7000-8080", "8080", "8080-8090"} {
			c.apply(with(text))
			if _, err := f.Ask(); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			ask(t, c.Pods[0], network, to)
		}
		c.apply(with("8081-8999"))
		refused(t, c.allClients(), network, to)
		c.apply(media)
		refused(t, c.allClients(), network, media.ranged(family, 8500)["ClusterIP"])
	})
}
