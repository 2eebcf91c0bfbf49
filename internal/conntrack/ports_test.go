package conntrack

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestPorts: 8.9. The connections of an address to a server are counted, apart from those of other addresses and of
// other protocols, and only while the kernel tracks enough; lists leave at least ten seconds, or twenty times what
// they take, to the next one.
func TestPorts(t *testing.T) {
	var (
		now     = time.Unix(1000, 0)
		entries = CrowdedPorts - 1
		listed  = 0
		takes   = time.Duration(0)
		failure error
		server  = netip.MustParseAddrPort("10.0.0.2:80")
		own     = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
		client  = netip.MustParseAddr("198.51.100.1")
	)
	p := &Ports{
		Now:   func() time.Time { return now },
		Count: func() (int, error) { return entries, nil },
		List: func(f model.Family, each func(Flow)) error {
			if f == model.IPv6 {
				return nil
			}
			listed++
			now = now.Add(takes)
			for i := range CrowdedPorts {
				flow := Flow{Protocol: model.TCP, Client: client, Dialled: netip.MustParseAddrPort("203.0.113.1:80"), Answers: server, Returns: netip.AddrPortFrom(own[0], uint16(i))}
				each(flow)
				flow.Returns = netip.AddrPortFrom(own[1], uint16(i))
				if i > 0 { // one fewer
					each(flow)
				}
				flow.Client = own[1] // a connection of the node itself
				each(flow)
			}
			return failure
		},
	}
	want := []Crowd{{model.TCP, server, own[0], CrowdedPorts}}
	expect := func(what string, crowded []Crowd, lists int) {
		t.Helper()
		got, _ := p.Crowded()
		if !slices.Equal(got, crowded) || listed != lists {
			t.Errorf("%s: %v after %d lists, want %v after %d", what, got, listed, crowded, lists)
		}
	}
	expect("few entries", nil, 0)
	entries = CrowdedPorts
	expect("too soon", nil, 0)
	now = now.Add(time.Second)
	expect("enough entries", want, 1)
	if p.Has(model.UDP, server) || !p.Has(model.TCP, server) {
		t.Error("another protocol, or not the server, is crowded")
	}
	now = now.Add(9 * time.Second)
	expect("nine seconds later", want, 1)
	takes = time.Second
	now = now.Add(time.Second)
	expect("ten seconds later", want, 2)
	now = now.Add(19 * time.Second)
	expect("nineteen times as much", want, 2)
	failure = errors.New("no")
	now = now.Add(time.Second)
	expect("a failure", want, 3)
	entries = 0
	now = now.Add(time.Minute)
	expect("few again", nil, 3)
}
