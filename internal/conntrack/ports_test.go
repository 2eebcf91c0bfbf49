package conntrack

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestPorts: 8.9. The connections of an address to a server are counted, apart from those of other addresses and of
// other protocols, and only while the kernel tracks enough; lists leave at least ten seconds, or twenty times what
// they take, to the next one.
func TestPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &crowdedKernel{entries: CrowdedPorts - 1}
		p := &Ports{kernel: k}
		want := []Crowd{{model.TCP, crowdedServer, crowdedFrom[0], CrowdedPorts}}
		expect := func(what string, crowded []Crowd, lists int) {
			t.Helper()
			got, _ := p.Crowded()
			if !slices.Equal(got, crowded) || k.listed != lists {
				t.Errorf("%s: %v after %d lists, want %v after %d", what, got, k.listed, crowded, lists)
			}
		}
		expect("few entries", nil, 0)
		k.entries = CrowdedPorts
		expect("too soon", nil, 0)
		time.Sleep(time.Second)
		expect("enough entries", want, 1)
		if p.Has(model.UDP, crowdedServer) || !p.Has(model.TCP, crowdedServer) {
			t.Error("another protocol, or not the server, is crowded")
		}
		time.Sleep(9 * time.Second)
		expect("nine seconds later", want, 1)
		k.takes = time.Second
		time.Sleep(time.Second)
		expect("ten seconds later", want, 2)
		time.Sleep(19 * time.Second)
		expect("nineteen times as much", want, 2)
		k.failure = errors.New("no")
		time.Sleep(time.Second)
		expect("a failure", want, 3)
		k.entries = 0
		time.Sleep(time.Minute)
		expect("few again", nil, 3)
	})
}

var (
	crowdedServer = netip.MustParseAddrPort("10.0.0.2:80")
	crowdedFrom   = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
)

// crowdedKernel has a crowded server of IPv4.
type crowdedKernel struct {
	entries, listed int
	takes           time.Duration
	failure         error
}

func (k *crowdedKernel) CountEntries() (int, error) { return k.entries, nil }

func (k *crowdedKernel) ListMasqueraded(f model.Family, each func(Flow)) error {
	if f == model.IPv6 {
		return nil
	}
	k.listed++
	time.Sleep(k.takes)
	synctest.Wait()
	for i := range CrowdedPorts {
		flow := Flow{Protocol: model.TCP, Client: netip.MustParseAddr("198.51.100.1"), Dialled: netip.MustParseAddrPort("203.0.113.1:80"), Answers: crowdedServer,
			Returns: netip.AddrPortFrom(crowdedFrom[0], uint16(i))}
		each(flow)
		flow.Returns = netip.AddrPortFrom(crowdedFrom[1], uint16(i))
		if i > 0 { // one fewer
			each(flow)
		}
		flow.Client = crowdedFrom[1] // a connection of the node itself
		each(flow)
	}
	return k.failure
}
