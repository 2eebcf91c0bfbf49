package conntrack

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// 4.82: UDP flows of a client that may no longer connect end, at every kind of frontend,
// and those of other clients continue. TCP connections end only with the option for them.
func TestClientThatMayNoLongerConnect(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		ranges bool // for NodePorts
	}{"default": {}, "TCP, and NodePorts on all addresses": {Config{TCP: true}, true}} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, test.config)
			if test.ranges {
				x.serving = []netip.Addr{x.Node.IPv4, x.Node.IPv6}
			}
			web := &service{number: 1, pods: x.Pods[:1], balancers: balancers(1)}
			x.sync(web)
			var udp, tcp, others []*netlab.Flow
			for _, to := range x.frontends(web) {
				udp, tcp = append(udp, x.from(x.Client, "udp", to)), append(tcp, x.from(x.Client, "tcp", to))
				others = append(others, x.from(x.Pods[1], "udp", to), x.from(x.Pods[1], "tcp", to))
			}
			host := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
			web.sources = model.NewSources(false, nil, []netip.Prefix{host(x.Client.IPv4), host(x.Client.IPv6)})
			x.sync(web)
			want := len(udp)
			if test.config.TCP {
				want += len(tcp)
			}
			if x.deleted != want {
				t.Errorf("%d entries deleted, want %d", x.deleted, want)
			}
			var all sync.WaitGroup
			for i, to := range x.frontends(web) {
				udp[i].Within(denied)
				if test.config.TCP {
					tcp[i].Within(denied)
				}
				all.Go(func() {
					if got, err := udp[i].Ask(); err == nil {
						t.Errorf("udp %s: an answer of %s", to, got.Name)
					}
					if got, err := tcp[i].Ask(); (err == nil) == test.config.TCP {
						t.Errorf("tcp %s: %v, %v", to, got, err)
					}
				})
				x.answersFrom(others[2*i], x.Pods[0], to)
				x.answersFrom(others[2*i+1], x.Pods[0], to)
			}
			all.Wait()
			x.sync(web)
			if x.lists != 0 {
				t.Errorf("%d listings though nothing has changed", x.lists)
			}
		})
	}
}

// denied is how long a client is waited for that must get no answer.
const denied = 300 * time.Millisecond

// from opens a flow from a host, and checks that it gets an answer.
func (x *fixture) from(h *netlab.Host, network string, to netip.AddrPort) *netlab.Flow {
	x.t.Helper()
	f, err := h.Open(network, to, 0)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { f.Close() })
	if _, err := f.Ask(); err != nil {
		x.t.Fatalf("%s %s: %v", network, to, err)
	}
	return f
}

// Source ranges of the API alone end no flow, as with kube-proxy.
func TestSourceRangesEndNoFlow(t *testing.T) {
	sources := model.NewSources(true, nil, nil)
	for _, extras := range []*model.Extras{nil, {}, {Sources: model.NewSources(true, nil, nil)}} {
		r := &model.Route{Service: &model.Service{Extras: extras}, Sources: sources}
		if got := clientsOf(r); (got != nil) != (extras != nil && extras.Sources != nil) {
			t.Errorf("extras %+v: %+v", extras, got)
		}
	}
}
