package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// witness counts the first packets of all connections, behind connection tracking and
// before nftproxy's chains.
const witness = `table ip witness {
	set seen { type ipv4_addr . inet_proto . inet_service; size 65536; flags dynamic; }
	chain arrived { type filter hook prerouting priority -150; ct state new update @seen { ip daddr . meta l4proto . th dport counter }; }
	chain sent { type filter hook output priority -150; ct state new update @seen { ip daddr . meta l4proto . th dport counter }; }
}
table ip6 witness {
	set seen { type ipv6_addr . inet_proto . inet_service; size 65536; flags dynamic; }
	chain arrived { type filter hook prerouting priority -150; ct state new update @seen { ip6 daddr . meta l4proto . th dport counter }; }
	chain sent { type filter hook output priority -150; ct state new update @seen { ip6 daddr . meta l4proto . th dport counter }; }
}
`

// seen returns the first packets to an address, protocol and port that the witness saw.
func (c *cluster) seen(t *testing.T, network string, to netip.AddrPort) (n uint64) {
	t.Helper()
	listing := c.nft("-j", "list", "set", nft.FamilyKeyword(model.FamilyOf(to.Addr())), "witness", "seen")
	var out struct {
		Nftables []struct {
			Set struct {
				Elem []struct {
					Elem struct {
						Val     struct{ Concat []any }
						Counter struct{ Packets uint64 }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(listing), &out); err != nil {
		t.Fatalf("%v in %s", err, listing)
	}
	for _, o := range out.Nftables {
		for _, e := range o.Set.Elem {
			if fmt.Sprint(e.Elem.Val.Concat) == fmt.Sprint([]any{to.Addr(), network, to.Port()}) {
				n += e.Elem.Counter.Packets
			}
		}
	}
	return n
}

// refusals returns the counters of refused connections on the node.
func (c *cluster) refusals(t *testing.T) (out []counters.Refusal) {
	t.Helper()
	err := c.Node.Do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		out, err = counters.Reader{Conn: conn}.Refusals()
		return errors.Join(err, conn.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// countOf returns the counter of a reason and a frontend, or range of ports, or what stands for
// it.
func (c *cluster) countOf(t *testing.T, r model.RefusalReason, dialled model.Frontend) (n uint64) {
	t.Helper()
	for _, o := range c.refusals(t) {
		if o.Reason == r && o.Dialled == dialled.ID() {
			n += o.Packets
		}
	}
	return n
}

var protocolOf = map[string]model.Protocol{"tcp": model.TCP, "udp": model.UDP}

// counterFor returns what connections to a frontend are counted by.
func counterFor(r model.RefusalReason, protocol model.Protocol, to netip.AddrPort) model.Frontend {
	switch model.Refusals[r].CountedBy {
	case model.ByAddress:
		return model.Frontend{Address: to.Addr()}
	case model.ByProtocol:
		return model.Frontend{Address: model.Wildcard(model.FamilyOf(to.Addr())), Protocol: protocol}
	}
	return model.Frontend{Address: to.Addr(), Protocol: protocol, Port: to.Port()}
}

// refusable are Services whose connections are refused, each for a reason of its own, and one
// whose connections are served.
type refusable struct{ empty, local, inner, ranged, closed, denied, web, media service }

func (c *cluster) refusable() refusable {
	everyone := listed(nil, []string{"0.0.0.0/0", "::/0"})
	media := service{Name: "media", N: 10, Annotations: map[string]string{"nftproxy.dev/ports": "8000-8099"}, Dialled: 8050}
	return refusable{
		empty:  service{Name: "empty", N: 1},
		local:  service{Name: "local", N: 2, Pods: c.Remote, External: "Local"},
		inner:  service{Name: "inner", N: 3, Pods: c.Remote, Internal: "Local"},
		ranged: service{Name: "ranged", N: 4, Pods: c.Pods, SourceRanges: otherRanges},
		closed: service{Name: "closed", N: 5, Pods: c.Pods, Annotations: listed([]string{}, nil)},
		denied: service{Name: "denied", N: 6, Pods: c.Pods, Annotations: everyone},
		web:    service{Name: "web", N: 7, Pods: c.Pods},
		media:  media,
	}
}

func (r *refusable) all() []service {
	return []service{r.empty, r.local, r.inner, r.ranged, r.closed, r.denied, r.web, r.media}
}

// TestRefusals: 16.2, 16.3, with the witness of another table. Each reason has exactly the
// connections that were refused for it, over both families and protocols and from clients
// outside, on the node and in pods, and a log message with the packet.
func TestRefusals(t *testing.T) {
	c := newWideCluster(t, 1, 1)
	c.flags = slices.Concat(clusterCIDR, []string{"--observe=refusals", "--observe-group=7", "--answer-ping"})
	s := c.refusable()
	c.nftLoad(witness)
	log := c.listen(7)
	c.apply(s.all()...)
	inside := []*netlab.Host{c.Node, c.Pods[0]}
	all := append(inside, c.Client)
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		check := func(r model.RefusalReason, clients []*netlab.Host, to netip.AddrPort) {
			c.checkRefusal(t, r, network, to, clients)
			log.has(t, r.String(), protocolOf[network], to, clients...)
		}
		check(model.NoEndpoints, all, s.empty.clusterIP(family))
		check(model.NoEndpoints, all, s.empty.loadBalancerIP(family))
		check(model.NoEndpoints, all, s.empty.nodePort(c.Node, family))
		check(model.NoLocalEndpoints, []*netlab.Host{c.Client}, s.local.externalIP(family))
		check(model.NoLocalEndpoints, all, s.inner.clusterIP(family))
		check(model.SourceRanges, all, s.ranged.loadBalancerIP(family))
		check(model.NotAllowed, all, s.closed.externalIP(family))
		check(model.NotAllowed, all, s.closed.nodePort(c.Node, family))
		check(model.Denied, all, s.denied.clusterIP(family))
		check(model.UnusedAddress, inside, service{N: 99}.clusterIP(family))
	})
	c.checkUnknownPorts(t, s.web, all)
	c.checkRanges(t, s.media, all)
	c.checkPings(t, s.denied, log)
	served := s.web.loadBalancerIP(model.IPv4)
	ask(t, c.Client, "tcp", served)
	for _, n := range c.refusals(t) {
		if n.Dialled.Address == served.Addr() {
			t.Errorf("a connection to %s that was served is counted: %+v", served, n)
		}
	}
}

// checkRefusal has clients dial a frontend until the packets of all have arrived: on a busy
// machine one may be late, or lost in the laboratory.
func (c *cluster) checkRefusal(t *testing.T, r model.RefusalReason, network string, to netip.AddrPort, clients []*netlab.Host) {
	t.Helper()
	eventually(t, func() error {
		for _, from := range clients {
			want := wantSilence
			if model.Refusals[r].Rejected {
				want = wantRefused
			}
			if err := want(from, network, to); err != nil {
				return err
			}
		}
		// Late packets may arrive between the two readings.
		got, want := c.countOf(t, r, counterFor(r, protocolOf[network], to)), c.seen(t, network, to)
		if got != want || got < uint64(len(clients)) {
			return fmt.Errorf("%s: %d connections to %s are counted, and %d arrived of %d clients", r, got, to, want, len(clients))
		}
		return nil
	})
}

// checkUnknownPorts has clients dial ports that a ClusterIP does not have. Both protocols
// count together.
func (c *cluster) checkUnknownPorts(t *testing.T, s service, clients []*netlab.Host) {
	t.Helper()
	for _, family := range model.Families {
		a := s.clusterIP(family).Addr()
		var dialled []dialled
		for network := range protocolOf {
			for port := uint16(servicePort + 1); port < servicePort+4; port++ {
				dialled = append(dialled, c.dialRefused(t, network, netip.AddrPortFrom(a, port), clients))
			}
		}
		c.checkSum(t, model.UnknownPort, model.Frontend{Address: a}, dialled)
	}
}

// dialled is where clients were refused.
type dialled struct {
	network string
	to      netip.AddrPort
}

// dialRefused has clients dial until each was refused.
func (c *cluster) dialRefused(t *testing.T, network string, to netip.AddrPort, clients []*netlab.Host) dialled {
	t.Helper()
	for _, from := range clients {
		eventually(t, func() error { return wantRefused(from, network, to) })
	}
	return dialled{network, to}
}

// checkSum compares a counter with the packets that arrived at several ports.
func (c *cluster) checkSum(t *testing.T, r model.RefusalReason, counter model.Frontend, all []dialled) {
	t.Helper()
	eventually(t, func() error { // packets may be late
		var want uint64
		got := c.countOf(t, r, counter)
		for _, d := range all {
			want += c.seen(t, d.network, d.to)
		}
		if got != want || want == 0 {
			return fmt.Errorf("%s: %d connections to %s are counted, %d arrived", r, got, counter, want)
		}
		return nil
	})
}

// checkRanges has clients dial several ports of a range without endpoints, which count
// together.
func (c *cluster) checkRanges(t *testing.T, s service, clients []*netlab.Host) {
	t.Helper()
	for _, family := range model.Families {
		for network, protocol := range protocolOf {
			f := model.Frontend{Address: s.clusterIP(family).Addr(), Protocol: protocol, Port: 8000, Last: 8099}
			var dialled []dialled
			for _, port := range []uint16{8000, 8050, 8099} {
				dialled = append(dialled, c.dialRefused(t, network, netip.AddrPortFrom(f.Address, port), clients))
			}
			r := model.NoEndpoints
			if network == "udp" { // no frontend: the range is of TCP
				r, f = model.UnknownPort, model.Frontend{Address: f.Address}
			}
			c.checkSum(t, r, f, dialled)
		}
	}
}

// checkPings has a denied client ping.
func (c *cluster) checkPings(t *testing.T, s service, log *packetLog) {
	t.Helper()
	for _, family := range model.Families {
		a := s.clusterIP(family).Addr()
		for range 3 {
			if err := c.Client.Ping(a, silence); !isSilence(err) {
				t.Errorf("ping %s: %v, want silence", a, err)
			}
		}
		eventually(t, func() error {
			if got := c.countOf(t, model.PingRefused, model.Frontend{Address: a}); got != 3 {
				return fmt.Errorf("%d echo requests to %s are counted, want 3", got, a)
			}
			return nil
		})
		log.has(t, model.PingRefused.String(), model.EchoProtocol(family), netip.AddrPortFrom(a, 0), c.Client)
	}
}

// TestRefusalsOfLimits: 16.2. What limits drop is counted for their reasons, as their own counters
// do.
func TestRefusalsOfLimits(t *testing.T) {
	c := newCluster(t, 2)
	c.flags = slices.Concat(allAddresses, []string{"--observe=refusals"})
	var all []service
	kinds := make(map[string]model.LimitKind)
	for i, l := range []struct {
		annotation, value string
		kind              model.LimitKind
	}{
		{"connection-rate", "1/hour burst 1", model.LimitRate}, {"connection-rate-per-client", "1/hour burst 1", model.LimitClientRate},
		{"max-connections", "1", model.LimitConnections}, {"max-connections-per-client", "1", model.LimitClientConnections},
	} {
		s := limited(l.annotation, i+1, c.Pods[:1], map[string]string{l.annotation: l.value})
		all, kinds[s.Name] = append(all, s), l.kind
	}
	c.apply(all...)
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			forEachLimited(t, c, s, func(t *testing.T, network string, to netip.AddrPort) {
				open(t, c.Client, network, to)
				silent(t, []*netlab.Host{c.Client}, network, to)
				silent(t, []*netlab.Host{c.Client}, network, to)
				r := model.OverReason(kinds[s.Name])
				want, _ := c.drops(t, kinds[s.Name], network, to)
				if got := c.countOf(t, r, counterFor(r, protocolOf[network], to)); got != want || got < 2 {
					t.Errorf("%s: %d connections to %s are counted, and %d dropped", r, got, to, want)
				}
			})
		})
	}
}

// TestRefusalOfReleasedClient: 16.2, 16.3. The packet that releases a client whose endpoint has left is
// counted and logged by the frontend that the client dialled, over NodePorts on several addresses,
// too. No daemon runs: its sweep would release the client before.
func TestRefusalOfReleasedClient(t *testing.T) {
	w := newWard(t, 1)
	w.flags = slices.Concat(allAddresses, []string{"--observe=refusals", "--observe-group=9"})
	sticky := service{Name: "sticky", N: 1, Pods: w.Pods, Affinity: long}
	w.silence(w.Pods...)
	w.apply(sticky)
	tracks, port := w.tracks(), uint16(20000)
	log := w.cluster.listen(9)
	for _, family := range model.Families {
		endpoint := endpointOf(w.Pods[0], family)
		for _, p := range model.Protocols {
			for _, f := range []struct{ to, key netip.AddrPort }{
				{sticky.clusterIP(family), sticky.clusterIP(family)},
				{sticky.nodePort(w.Node, family), netip.AddrPortFrom(model.Wildcard(family), sticky.NodePort())},
			} {
				dial := func() {
					port++
					w.sendFrame(firstPacket(p, netip.AddrPortFrom(w.Client.Address(family), port), f.to))
				}
				frontend := fmt.Sprintf("%s . %s . %d . ", f.key.Addr(), p, f.key.Port())
				dial()
				eventually(t, func() error {
					client := frontend + w.Client.Address(family).String()
					if bound := w.nft("list", "map", nft.FamilyKeyword(family), nft.TableName, "affinity"); !strings.Contains(bound, client) {
						return fmt.Errorf("%s is not bound: %s", client, bound)
					}
					return nil
				})
				element := fmt.Sprintf("{ %s%s . %d }", frontend, endpoint.Addr(), endpoint.Port())
				w.nft("delete", "element", nft.FamilyKeyword(family), nft.TableName, nft.AffinityEndpointsSet, element)
				dial()
				logged := f.to
				if !tracks {
					logged = endpoint
				}
				log.has(t, model.AffinityReleased.String(), p, logged, w.Client)
				dialled := model.Frontend{Address: f.to.Addr(), Protocol: p, Port: f.to.Port()}
				if n := w.countOf(t, model.AffinityReleased, dialled); n != 1 {
					t.Errorf("%d connections to %s %s are counted, want 1", n, p, f.to)
				}
				w.nft("add", "element", nft.FamilyKeyword(family), nft.TableName, nft.AffinityEndpointsSet, element)
			}
		}
	}
}

// TestRefusalsInViews: 16.4, 16.6. A daemon that begins to observe refusals under traffic loses
// no connection, and neither does one that ends it. What it counts, it shows, and a restart
// keeps it.
func TestRefusalsInViews(t *testing.T) {
	c := newCluster(t, 2)
	web, empty := service{Name: "web", N: 1, Pods: c.Pods[:1]}, service{Name: "empty", N: 2}
	c.write(web, empty)
	plain := c.flags
	observing := slices.Concat(plain, []string{"--observe=refusals", "--metrics-bind-address", "0.0.0.0"})
	d := c.start()
	c.answersFrom(web, "pod-0")
	flood := c.startFlood(c.Pods[1], web)
	flood.wait(t, 100)
	restart := func(flags []string) {
		d.stop(t)
		flood.wait(t, 100)
		c.flags = flags
		d = c.start()
		eventually(t, func() error {
			if a, err := get(c.Node, "GET", metricsAddress, "/status", ""); err != nil || !strings.Contains(a.body, `"lastSync"`) {
				return fmt.Errorf("it has not synced yet: %v", err) // status fails before
			}
			chain := strings.Contains(c.nft("list", "tables"), "nftproxy") && strings.Contains(c.nft("list", "chains"), "chain refused-no-endpoints")
			if want := len(flags) > len(plain); chain != want {
				return fmt.Errorf("refusals are observed: %t, want %t", chain, want)
			}
			return nil
		})
		flood.wait(t, 100)
	}
	restart(observing)
	for _, family := range model.Families {
		refused(t, []*netlab.Host{c.Client}, "udp", empty.clusterIP(family))
		refused(t, []*netlab.Host{c.Client}, "udp", netip.AddrPortFrom(empty.clusterIP(family).Addr(), 9))
	}
	for range 2 {
		c.has([]string{"describe", "empty"}, "refused           2 no-endpoints, 2 unknown-port\n")
		c.has([]string{"status"}, "2 no-endpoints, 2 unknown-port\n")
		c.page("/metrics", `nftproxy_refused_connections_total{namespace="default",reason="no-endpoints",service="empty"} 2`)
		restart(observing)
	}
	restart(plain)
	flood.check(t)
	d.stop(t)
}

// TestForgetRefusals: 16.6. Counters of frontends that are gone are removed, and no others.
func TestForgetRefusals(t *testing.T) {
	c := newCluster(t, 1)
	c.flags = slices.Concat(clusterCIDR, []string{"--observe=refusals"})
	gone, stays := service{Name: "gone", N: 1, Annotations: map[string]string{"nftproxy.dev/ports": "8000-8099"}}, service{Name: "stays", N: 2}
	c.apply(gone, stays)
	for _, family := range model.Families {
		c.dialRefused(t, "tcp", gone.clusterIP(family), c.Pods)
		c.dialRefused(t, "tcp", netip.AddrPortFrom(gone.clusterIP(family).Addr(), 8050), c.Pods)
		c.dialRefused(t, "udp", stays.clusterIP(family), c.Pods)
	}
	isGone := func(n *counters.Refusal) bool {
		return slices.ContainsFunc(model.Families[:], func(f model.Family) bool { return n.Dialled.Address == gone.clusterIP(f).Addr() })
	}
	var before []counters.Refusal
	for _, n := range c.refusals(t) {
		if !isGone(&n) {
			before = append(before, n)
		}
	}
	err := c.Node.Do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		return errors.Join(counters.Reader{Conn: conn}.ForgetRefusals(isGone), conn.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := c.refusals(t); !slices.Equal(after, before) || len(before) != 2 {
		t.Errorf("counters %+v, want %+v", after, before)
	}
}
