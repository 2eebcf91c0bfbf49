package takeover

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// vip is the Service that both proxies serve: kube-proxy sends its connections
// to the first pod, and we send them to the second one, to distinguish them.
var vip = map[model.Family]netip.AddrPort{
	model.IPv4: netip.MustParseAddrPort("10.96.0.10:80"),
	model.IPv6: netip.MustParseAddrPort("[fd00:10:96::10]:80"),
}

// site is a laboratory with a node that kube-proxy ran on.
type site struct {
	node
	lab *netlab.Lab
}

func newSite(t *testing.T) site {
	t.Helper()
	lab := netlab.TestLab(t, 2)
	if err := lab.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	return site{node{lab.Node.Namespace, t}, lab}
}

// apply commits our rules.
func (s site) apply() {
	s.t.Helper()
	name := model.ServiceName{Namespace: "default", Name: "web"}
	service := &model.Service{Name: name, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}}
	snapshot := &model.Snapshot{Services: []*model.Service{service}}
	for _, f := range model.Families {
		service.ClusterIPs = append(service.ClusterIPs, vip[f].Addr())
		snapshot.Slices = append(snapshot.Slices, &model.EndpointSlice{
			Namespace: name.Namespace, Name: f.String(), Service: name.Name, Family: f,
			Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}},
			Hosts: []model.Host{{Address: s.lab.Pods[1].Address(f), Ready: true, Serving: true, Place: model.OnNode(s.lab.Node.Name)}},
		})
	}
	rules := render.Render(model.Resolve(snapshot, model.Config{NodeName: s.lab.Node.Name,
		ClusterCIDRs: []netip.Prefix{netlab.ClusterCIDRv4, netlab.ClusterCIDRv6}}))
	s.do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = apply.New(conn, slog.New(slog.DiscardHandler)).Apply(nft.FromNothing(rules))
		return err
	})
}

// open opens a connection per client and family, and checks which pod answers.
func (s site) open(pod *netlab.Host) []*netlab.Flow {
	s.t.Helper()
	var flows []*netlab.Flow
	for _, client := range []*netlab.Host{s.lab.Client, s.lab.Node, s.lab.Pods[1]} {
		for _, f := range model.Families {
			flow, err := client.Open("tcp", vip[f], 0)
			if err != nil {
				s.t.Fatalf("%s, %s: %v", client.Name, f, err)
			}
			s.t.Cleanup(func() { flow.Close() })
			flows = append(flows, flow)
		}
	}
	s.answers(flows, pod)
	return flows
}

// answers checks that connections are with a pod.
func (s site) answers(flows []*netlab.Flow, pod *netlab.Host) {
	s.t.Helper()
	for i, flow := range flows {
		if got, err := flow.Ask(); err != nil || got.Name != pod.Name {
			s.t.Errorf("connection %d: %v, %v, want %s", i, got, err, pod.Name)
		}
	}
}

// keepDialling dials until stop is called, which returns how many connections
// were made. Each must be answered.
func (s site) keepDialling(f model.Family) (stop func() int64) {
	var made atomic.Int64
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
			}
			if got, err := s.lab.Client.Ask("tcp", vip[f], 0); err != nil || got.Name != s.lab.Pods[1].Name {
				s.t.Errorf("new connection: %v, %v, want %s", got, err, s.lab.Pods[1].Name)
				return
			}
			made.Add(1)
		}
	}()
	await.Until(s.t, func() error {
		if n := made.Load(); n < 5 && !s.t.Failed() {
			return fmt.Errorf("%d connections were made", n)
		}
		return nil
	})
	return func() int64 {
		close(end)
		<-ended
		return made.Load()
	}
}

// 12.61: while the rules of kube-proxy are there with ours, a connection is
// translated once, by us. Connections that kube-proxy translated go on when its
// rules are gone, and no new one fails in the meantime.
func TestTakeOverUnderTraffic(t *testing.T) {
	for _, c := range []struct {
		mode string
		load func(site)
	}{
		{"nftables", func(s site) { s.run(kubeProxyTables, "nft", "-f", "-") }},
		{"iptables-nft", func(s site) { s.load(variants[0], "kube-proxy.rules"); s.load(variants[1], "kube-proxy.rules") }},
		{"iptables-legacy", func(s site) { s.load(variants[2], "kube-proxy.rules"); s.load(variants[3], "kube-proxy.rules") }},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			theirs, ours := s.lab.Pods[0], s.lab.Pods[1]
			c.load(s)
			before := s.open(theirs)
			s.apply()
			both := s.open(ours)
			s.answers(before, theirs)

			var stops []func() int64
			for _, f := range model.Families {
				stops = append(stops, s.keepDialling(f))
			}
			removed, err := s.remove()
			for _, stop := range stops {
				if n := stop(); n < 5 {
					t.Errorf("%d connections under way, want more", n)
				}
			}
			legacy := c.mode == "iptables-legacy" // is reported only
			if (err != nil) != legacy || (len(removed) == 0) != legacy {
				t.Errorf("removed %q, %v", removed, err)
			}
			s.answers(before, theirs)
			s.answers(both, ours)
			s.open(ours)
			if !legacy {
				s.nothing()
			}
		})
	}
}

// hostPort are rules of a container runtime for a host port, which use
// kube-proxy's chain for masquerading.
const hostPort = `*nat
:KUBE-HP-WEB - [0:0]
-A PREROUTING -p tcp -m tcp --dport 8443 -j KUBE-HP-WEB
-A KUBE-HP-WEB -j KUBE-MARK-MASQ
-A KUBE-HP-WEB -p tcp -m tcp -j DNAT --to-destination ENDPOINT
COMMIT
`

// 12.59: what others mark for masquerading is masqueraded as before: the chain
// that acts on the mark stays as long as the one that sets it.
func TestKeepsMasquerading(t *testing.T) {
	for i, v := range variants[:2] {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.load(v, "kube-proxy.rules")
			s.run(addresses[v.command].Replace(hostPort), v.String()+"-restore", "--noflush")
			f := model.Families[i%2]
			masqueraded := func(when string) {
				t.Helper()
				got, err := s.lab.Client.Ask("tcp", netip.AddrPortFrom(s.lab.Node.Address(f), 8443), 0)
				if err != nil || got.Name != s.lab.Pods[0].Name || got.Client == s.lab.Client.Address(f) {
					t.Errorf("%s: %+v, %v, want an answer of %s to an address of the node", when, got, err, s.lab.Pods[0].Name)
				}
			}
			masqueraded("before")
			if _, err := s.remove(); err == nil || !strings.Contains(err.Error(), "KUBE-MARK-MASQ from KUBE-HP-WEB") {
				t.Errorf("error %v", err)
			}
			masqueraded("after")

			s.run("*nat\n-F KUBE-HP-WEB\nCOMMIT\n", v.String()+"-restore", "--noflush")
			if _, err := s.remove(); err != nil {
				t.Error(err)
			}
			if left := s.save(v); strings.Contains(left, "KUBE-POSTROUTING") || strings.Contains(left, "KUBE-MARK-MASQ") {
				t.Errorf("left when no other rule needs it:\n%s", left)
			}
		})
	}
}

// kubeProxyTables are rules in the manner of kube-proxy's nftables mode.
const kubeProxyTables = `
table ip kube-proxy {
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.10 . tcp . 80 : goto service-web }
	}
	chain endpoint-web { meta l4proto tcp dnat to 10.128.0.2:8080 ; }
	chain mark-for-masquerade { meta mark set meta mark or 0x4000 ; }
	chain service-web { ip saddr != 10.128.0.0/16 jump mark-for-masquerade ; numgen random mod 1 vmap { 0 : goto endpoint-web } ; }
	chain services { ip daddr . meta l4proto . th dport vmap @service-ips ; }
	chain nat-prerouting { type nat hook prerouting priority dstnat ; jump services ; }
	chain nat-output { type nat hook output priority -100 ; jump services ; }
	chain nat-postrouting {
		type nat hook postrouting priority srcnat
		meta mark & 0x4000 == 0x4000 meta mark set meta mark xor 0x4000 masquerade fully-random
	}
	chain filter-forward { type filter hook forward priority 0 ; ct state new ip daddr 10.96.0.0/16 reject ; }
}
table ip6 kube-proxy {
	map service-ips {
		type ipv6_addr . inet_proto . inet_service : verdict
		elements = { fd00:10:96::10 . tcp . 80 : goto service-web }
	}
	chain endpoint-web { meta l4proto tcp dnat to [fd00:10:128::2]:8080 ; }
	chain mark-for-masquerade { meta mark set meta mark or 0x4000 ; }
	chain service-web { ip6 saddr != fd00:10:128::/48 jump mark-for-masquerade ; numgen random mod 1 vmap { 0 : goto endpoint-web } ; }
	chain services { ip6 daddr . meta l4proto . th dport vmap @service-ips ; }
	chain nat-prerouting { type nat hook prerouting priority dstnat ; jump services ; }
	chain nat-output { type nat hook output priority -100 ; jump services ; }
	chain nat-postrouting {
		type nat hook postrouting priority srcnat
		meta mark & 0x4000 == 0x4000 meta mark set meta mark xor 0x4000 masquerade fully-random
	}
	chain filter-forward { type filter hook forward priority 0 ; ct state new ip6 daddr fd00:10:96::/112 reject ; }
}
`
