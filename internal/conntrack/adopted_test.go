package conntrack

import (
	"github.com/mdlayher/netlink"

	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// 12.89: an open TCP connection, masqueraded, goes on over its new entry.
func TestAdoptedConnection(t *testing.T) {
	for _, f := range model.Families {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlab.TestLab(t, 2)
			if err := lab.EchoOnPods(echoPort); err != nil {
				t.Fatal(err)
			}
			w := service{number: 10}
			dialled := w.clusterIP(f)
			ip, left, right := "ip", "", ""
			if f == model.IPv6 {
				ip, left, right = "ip6", "[", "]"
			}
			rule := func(pod *netlab.Host) {
				lab.Node.NFT(t, fmt.Sprintf("add table inet nat; add chain inet nat pre { type nat hook prerouting priority dstnat; }; flush chain inet nat pre; "+
					"add chain inet nat post { type nat hook postrouting priority srcnat; }; flush chain inet nat post; "+
					"add rule inet nat pre %s daddr %s meta l4proto {tcp, udp} dnat %s to %s%s%s:8080; add rule inet nat post masquerade", ip, dialled.Addr(), ip, left, pod.Address(f), right))
			}
			rule(lab.Pods[0])
			for _, network := range []string{"tcp", "udp"} {
				flow, err := lab.Client.Open(network, dialled, 0)
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if a, err := flow.Ask(); err != nil || a.Name != lab.Pods[0].Name {
						t.Fatal(a, err)
					}
				}
				p := model.TCP
				if network == "udp" {
					p = model.UDP
				}
				rule(lab.Pods[1])
				if err := lab.Node.Do(func() error { return replaceAll(f, p, dialled) }); err != nil {
					t.Fatal(err)
				}
				if a, err := flow.Ask(); err != nil || a.Name != lab.Pods[0].Name {
					t.Errorf("%s: %v %v", network, a, err)
				}
				rule(lab.Pods[0])
			}
		})
	}
}

// replaceAll replaces the entries of the flows to an address, although connection tracking
// translates them.
func replaceAll(f model.Family, p model.Protocol, dialled netip.AddrPort) error {
	var found []adoption
	if err := withSocket("list", func(c *netlink.Conn) error {
		return receiveDump(c, append(messageHeader(f), encodeFilter(p, netip.Addr{})...), func(message []byte) {
			if a, _ := decodeAdoption(message); a.Dialled == dialled {
				found = append(found, a)
			}
		})
	}); err != nil {
		return err
	}
	made, _, err := replaceFlows(found, true)
	if err == nil && made != 1 {
		err = fmt.Errorf("%d entries made, want 1", made)
	}
	return err
}
