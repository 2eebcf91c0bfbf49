package report_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/show"
)

// TestNodePortsOnSeveralAddresses: the daemon and the kernel say which addresses
// serve NodePorts, and count the connections to all of them as those of one
// frontend.
func TestNodePortsOnSeveralAddresses(t *testing.T) {
	n := newNode(t, 3)
	server, address := n.serve(t, true)
	config := model.Config{Counters: true, NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		InterfaceAddresses: []netip.Addr{n.Node.IPv4, n.Node.IPv6}}
	for i := range 9 {
		config.InterfaceAddresses = append(config.InterfaceAddresses, netip.AddrFrom4([4]byte{198, 18, 7, byte(i)}))
	}
	if err := n.Node.AddAddress(addr("198.18.7.1")); err != nil {
		t.Fatal(err)
	}
	server.Observe(n.sync(t, n.snapshot(), config))
	n.dial(t, n.Client, fmt.Sprint(n.Node.IPv4, ":30080"), 2)
	n.dial(t, n.Client, "198.18.7.1:30080", 1)

	daemon := fetch(t, address)
	kernel, _, err := report.FromKernel(n.kernel, &api.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	same := cmpopts.EquateComparable(netip.Addr{})
	if diff := cmp.Diff(daemon.NodePortAddresses, kernel.NodePortAddresses, same); diff != "" || len(kernel.NodePortAddresses) != 11 {
		t.Errorf("addresses (-daemon +kernel):\n%s", diff)
	}
	if diff := cmp.Diff(daemon.ServicePorts, kernel.ServicePorts, cmpopts.IgnoreFields(api.Frontend{}, "Known")); diff != "" {
		t.Errorf("service ports (-daemon +kernel):\n%s", diff)
	}
	var text strings.Builder
	if err := show.Status(&text, kernel, show.View{Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"NodePorts  on 192.0.2.1, 198.18.7.0, 198.18.7.1, 198.18.7.2, 198.18.7.3, 198.18.7.4, 198.18.7.5, 198.18.7.6 and 3 more\n",
		"tcp 0.0.0.0:30080        NodePort          3, outside 1  3            policy Local, affinity 1h\n",
		"tcp [::]:30080           NodePort          3, outside 1  0            policy Local, affinity 1h\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("printed:\n%s\nwant a line %q", &text, want)
		}
	}
}

// TestPrintUncounted: a frontend on localhost has no counter, and its options stay in their
// column (6.22).
func TestPrintUncounted(t *testing.T) {
	n := uint64(7)
	r := &api.Status{From: api.FromDaemon, Rules: api.Rules{Counted: true}, ServicePorts: []api.ServicePort{{
		Namespace: "default", Name: "web", Protocol: "tcp", Scheduler: "maglev", Frontends: []api.Frontend{
			{Kind: "NodePort", Address: "192.0.2.1:30080", Connections: &n}, {Kind: "NodePort", Address: "127.0.0.1:30080"},
		},
	}}}
	var text strings.Builder
	if err := show.Status(&text, r, show.View{Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if strings.Contains(line, ":30080") && strings.Index(line, "maglev") != strings.Index(text.String()[strings.Index(text.String(), "SERVICE PORT"):], "OPTIONS") {
			t.Errorf("not below OPTIONS:\n%s", text.String())
		}
	}
}
