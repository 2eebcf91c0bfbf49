package host

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestServingAddresses: 6.7, addresses of IPVS interfaces are those of Services,
// and a link-local one means nothing without its link.
func TestServingAddresses(t *testing.T) {
	ns := netlab.TestNamespace(t)
	var all, serving []netip.Addr
	err := ns.Do(func() (err error) {
		for _, pair := range [][2]string{{"kube-ipvs0", "kube-dummy-if"}, {"eth0", "cni0"}} {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = pair[0]
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: pair[1]}); err != nil {
				return err
			}
		}
		for _, a := range [][2]string{
			{"kube-ipvs0", "10.96.0.1/32"}, {"kube-ipvs0", "fd00:96::1/128"}, {"kube-dummy-if", "10.96.0.2/32"},
			{"eth0", "192.0.2.1/24"}, {"eth0", "2001:db8::1/64"}, {"eth0", "fe80::1/64"}, {"cni0", "169.254.1.1/32"}, {"eth0", "169.254.1.1/32"},
			{"lo", "127.0.0.1/8"},
		} {
			link, err := netlink.LinkByName(a[0])
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(a[1])
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return fmt.Errorf("%v: %w", a, err)
			}
		}
		if all, err = InterfaceAddresses(); err != nil {
			return err
		}
		serving, err = ServingAddresses()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(serving), "[127.0.0.1 169.254.1.1 192.0.2.1 2001:db8::1]"; got != want {
		t.Errorf("addresses that may serve: %s, want %s", got, want)
	}
	for _, a := range []string{"10.96.0.1", "fd00:96::1", "fe80::1", "192.0.2.1"} {
		if !slices.Contains(all, netip.MustParseAddr(a)) {
			t.Errorf("no %s among the addresses of all interfaces: %v", a, all)
		}
	}
}
