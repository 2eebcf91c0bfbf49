package conntrack

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"

	"github.com/nftproxy/nftproxy/internal/model"
)

// 9.24: open connections through a frontend count, by protocol and family.
func TestCount(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	closing := clients(5, model.TCP, "10.96.0.2:80", "10.0.0.1:8083")
	for i := range closing {
		closing[i].Closing = true
	}
	x.add(zone{}, closing...)
	for _, c := range []struct {
		n                int
		p                model.Protocol
		dialled, answers string
	}{
		{3, model.TCP, "10.96.0.1:80", "10.0.0.1:8080"},
		{2, model.TCP, "10.96.0.3:80", "10.0.0.2:8080"},
		{4, model.TCP, "10.0.0.1:8082", "10.0.0.1:8082"}, // not through a frontend
		{6, model.UDP, "10.96.0.1:53", "10.0.0.1:53"},
		{7, model.TCP, "10.96.0.1:81", "10.0.0.1:8081"},
		{8, model.TCP, "[fd00::1]:80", "[fd00::2]:8080"},
	} {
		x.add(zone{}, clients(c.n, c.p, c.dialled, c.answers)...)
	}
	of := func(p model.Protocol, at string) Endpoint { return Endpoint{p, addrPort(at)} }
	one, other := of(model.TCP, "10.0.0.1:8080"), of(model.TCP, "10.0.0.2:8080")
	second, dns, v6 := of(model.TCP, "10.0.0.1:8081"), of(model.UDP, "10.0.0.1:53"), of(model.TCP, "[fd00::2]:8080")
	for _, c := range []struct {
		addresses []netip.Addr
		relays    []netip.Addr
		include   func(*Flow) bool
		want      map[Endpoint]int
	}{
		{nil, nil, nil, map[Endpoint]int{}},
		{[]netip.Addr{addr("10.0.0.1")}, nil, nil, map[Endpoint]int{one: 3, second: 7, dns: 6}},
		{[]netip.Addr{addr("10.0.0.9")}, nil, nil, map[Endpoint]int{}},
		{[]netip.Addr{addr("10.0.0.1"), addr("10.0.0.2"), addr("fd00::2")}, nil, nil, map[Endpoint]int{one: 3, second: 7, other: 2, dns: 6, v6: 8}},
		{[]netip.Addr{addr("10.0.0.1")}, nil, func(f *Flow) bool { return f.Dialled.Port() == 53 }, map[Endpoint]int{dns: 6}},
		// A relay of this machine connects to the endpoint itself.
		{[]netip.Addr{addr("10.0.0.1")}, []netip.Addr{addr("172.16.0.0")}, func(f *Flow) bool { return f.Dialled.Port() == 53 }, map[Endpoint]int{dns: 6, of(model.TCP, "10.0.0.1:8082"): 4}},
	} {
		x.do(func() error {
			got, err := Count(c.addresses, c.relays, c.include)
			if !maps.Equal(got, c.want) {
				t.Errorf("%v: %v, want %v", c.addresses, got, c.want)
			}
			return err
		})
	}
}

// The kernel sends only the flows with answers from an address, so that to count those of
// one endpoint among a million costs no message for each.
func TestKernelFiltersAnswers(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	x.add(zone{}, clients(100, model.TCP, "10.96.0.1:80", "10.0.0.1:8080")...)
	x.add(zone{}, clients(3, model.TCP, "10.96.0.3:80", "10.0.0.2:8080")...)
	x.add(zone{}, clients(4, model.UDP, "10.96.0.1:80", "10.0.0.2:8080")...)
	x.add(zone{}, clients(5, model.TCP, "[fd00::1]:80", "[fd00::2]:8080")...)
	x.add(zone{}, clients(1, model.TCP, "[fd00::3]:80", "[fd00::3]:8080")...)
	for address, want := range map[string]int{"10.0.0.2": 3, "fd00::2": 6} {
		x.do(func() error {
			c, err := dial()
			if err != nil {
				return err
			}
			defer c.Close()
			got, err := c.Execute(netlink.Message{
				Header: netlink.Header{Type: getEntry, Flags: netlink.Request | netlink.Dump},
				Data:   append(messageHeader(model.FamilyOf(addr(address))), encodeFilter(model.TCP, addr(address))...),
			})
			if len(got) != want {
				t.Errorf("%s: %d entries are sent, want %d", address, len(got), want)
			}
			return err
		})
	}
}
