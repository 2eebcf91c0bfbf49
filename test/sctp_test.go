//go:build guest

package test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestSCTP: 15.1. Associations of real sockets reach each endpoint, over each kind of frontend and from each kind of
// client, beside TCP at the same address and port; without endpoints they are refused, and denied ones get no answer.
func TestSCTP(t *testing.T) {
	c := newWideCluster(t, 2, 1)
	if c.echoSCTP(1) > 0 {
		t.Fatal("this kernel has no sockets of SCTP")
	}
	all := append(c.Pods[:2:2], c.Remote...)
	web := service{Name: "web", N: 1, Pods: all}
	none := service{Name: "none", N: 2}
	denied := service{Name: "denied", N: 3, Pods: all, Annotations: listed(nil, []string{"0.0.0.0/0", "::/0"})}
	c.apply(web, none, denied)
	for _, f := range model.Families {
		for _, from := range append([]*netlab.Host{c.Client, c.Node}, c.Pods...) {
			for kind, to := range web.frontends(c.Node, f) {
				c.meetsAll(from, kind, to, all)
			}
			if answer, err := from.AskSCTP(none.clusterIP(f), 0); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("from %s to a Service without endpoints: %+v, %v", from.Name, answer, err)
			}
		}
		if got := ask(t, c.Client, "tcp", web.clusterIP(f)); got.Name == "" {
			t.Errorf("%s: no answer over TCP", f)
		}
		if answer, err := c.Client.AskSCTP(denied.clusterIP(f), silence); !errors.Is(err, unix.ETIMEDOUT) {
			t.Errorf("denied: %+v, %v", answer, err)
		}
	}
}

// meetsAll opens associations until each endpoint has answered one, and no other one has.
func (c *cluster) meetsAll(from *netlab.Host, kind string, to netip.AddrPort, endpoints []*netlab.Host) {
	c.t.Helper()
	missing := make(map[string]bool)
	for _, h := range endpoints {
		missing[h.Name] = true
	}
	wanted := maps.Clone(missing)
	for range 100 {
		answer, err := from.AskSCTP(to, 0)
		if err != nil || !wanted[answer.Name] || answer.Port != echoPort {
			c.t.Errorf("from %s to the %s %s: %+v, %v", from.Name, kind, to, answer, err)
			return
		}
		if delete(missing, answer.Name); len(missing) == 0 {
			return
		}
	}
	c.t.Errorf("from %s to the %s %s: no answer of %v", from.Name, kind, to, slices.Collect(maps.Keys(missing)))
}

// TestConnectivityOverSCTP: 12.97, 15.12. A Balance of SCTP alone is tested through sockets of the kernel, and a missing
// element fails its case.
func TestConnectivityOverSCTP(t *testing.T) {
	c := newCluster(t, 2)
	c.echoSCTP(1)
	text := fmt.Sprintf("kind: Balance\nname: web\nlisten: ['203.0.113.1:80', '[2001:db8:2::1]:80']\nprotocol: sctp\nbackends: ['%s', '%s', '%s', '%s']\n",
		endpointOf(c.Pods[0], model.IPv4), endpointOf(c.Pods[1], model.IPv4), endpointOf(c.Pods[0], model.IPv6), endpointOf(c.Pods[1], model.IPv6))
	c.applyText(text)
	r := c.tested(0, "web")
	if r.Passed != 4 || r.Skipped > 0 { // families and origins
		t.Errorf("%d passed, %d skipped: %+v", r.Passed, r.Skipped, r.Cases)
	}
	for _, x := range r.Cases {
		if len(x.Endpoints) != 2 || x.Endpoints[0].Connections[conntest.Answered] == 0 {
			t.Errorf("%s: %+v", x.Name(), x.Endpoints)
		}
	}
	c.nft("delete", "element", "ip", "nftproxy", "services", "{ 203.0.113.1 . sctp . 80 }")
	want := []string{"sctp 203.0.113.1:80 from host", "sctp 203.0.113.1:80 from namespace"}
	if got := failed(c.tested(1, "web")); !slices.EqualFunc(got, want, strings.HasSuffix) {
		t.Errorf("failed: %q, want %q", got, want)
	}
	fmt.Fprint(t.Output(), c.mustRun(1, exec.Command(binary, append(append([]string{"test"}, c.command("test").Args[2:]...), "web")...)))
}
