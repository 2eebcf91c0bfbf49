package conntrack

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// 12.89: a flow that IPVS translates, and connection tracking does not, is translated by
// connection tracking after that, to the same endpoint and from the same source. Others
// stay as they are.
func TestAdopt(t *testing.T) {
	for _, f := range model.Families {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlab.TestLab(t, 1)
			if err := lab.EchoOnPods(echoPort); err != nil {
				t.Fatal(err)
			}
			w := service{number: 10}
			dialled, pod := w.clusterIP(f), netip.AddrPortFrom(lab.Pods[0].Address(f), echoPort)
			client := netip.AddrPortFrom(lab.Client.Address(f), 20001)
			masqueraded := netip.AddrPortFrom(lab.Node.Address(f), 30001)
			other := netip.AddrPortFrom(dialled.Addr(), dialled.Port()+1)
			for _, e := range []struct{ to, answers netip.AddrPort }{{dialled, pod}, {other, pod}} {
				if err := lab.Node.Do(func() error {
					return netlink.ConntrackCreate(netlink.ConntrackTable, family(f), entryOfIPVS(client, e.to, e.answers, masqueraded))
				}); err != nil {
					t.Fatal(err)
				}
				masqueraded = netip.AddrPortFrom(masqueraded.Addr(), masqueraded.Port()+1)
			}
			// Connection tracking works, and translates, only where there are such rules.
			lab.Node.NFT(t, "add table inet nat; add chain inet nat pre { type nat hook prerouting priority dstnat; }; "+
				"add chain inet nat post { type nat hook postrouting priority srcnat; }; add rule inet nat pre ct state new counter")
			adopt := func(forget func() error) (n int) {
				if err := lab.Node.Do(func() error {
					takes := func(p model.Protocol, to netip.AddrPort) bool { return p == model.UDP && to == dialled }
					a, err := ListAdoption(takes)
					err = errors.Join(err, a.Restore())
					if pending := a.Pending(); a.Adopted > 0 {
						t.Errorf("%d adopted and %d pending before the old entry is gone", a.Adopted, pending)
					}
					err = errors.Join(err, forget(), a.Restore(), a.Finish(takes))
					n = a.Adopted
					return err
				}); err != nil {
					t.Fatal(err)
				}
				return n
			}
			forget := func() error { return nil }
			if f == model.IPv6 { // as IPVS does; the other family has it replaced
				forget = func() error {
					return Netlink{}.List(f, model.UDP, func(flow Flow) {
						if flow.Dialled == dialled {
							if _, err := (Netlink{}).Delete([]Flow{flow}); err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			if n := adopt(forget); n != 1 {
				t.Fatalf("%d flows adopted, want 1", n)
			}
			a, err := lab.Client.At(client.Port()).Ask("udp", dialled, 0)
			if err != nil || a.Name != lab.Pods[0].Name || a.Client != lab.Node.Address(f) {
				t.Errorf("got %v, %v, want an answer of %s to the node", a, err, lab.Pods[0].Name)
			}
			if n := adopt(func() error { return nil }); n != 0 {
				t.Errorf("once more: %d flows adopted, want 0", n)
			}
			if _, err := lab.Client.At(client.Port()).Ask("udp", other, 1); err == nil {
				t.Error("another flow of IPVS is translated, too")
			}
		})
	}
}

func family(f model.Family) netlink.InetFamily {
	if f == model.IPv6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// entryOfIPVS returns an entry as IPVS leaves it: its answers come from somewhere else than
// what was dialled, and no translation is recorded.
func entryOfIPVS(client, dialled, answers, returns netip.AddrPort) *netlink.ConntrackFlow {
	return &netlink.ConntrackFlow{
		FamilyType: uint8(family(model.FamilyOf(client.Addr()))),
		Forward: netlink.IPTuple{SrcIP: net.IP(client.Addr().AsSlice()), DstIP: net.IP(dialled.Addr().AsSlice()),
			SrcPort: client.Port(), DstPort: dialled.Port(), Protocol: uint8(model.UDP)},
		Reverse: netlink.IPTuple{SrcIP: net.IP(answers.Addr().AsSlice()), DstIP: net.IP(returns.Addr().AsSlice()),
			SrcPort: answers.Port(), DstPort: returns.Port(), Protocol: uint8(model.UDP)},
		TimeOut: 100,
	}
}
