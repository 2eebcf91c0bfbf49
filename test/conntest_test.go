package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/joshdk/go-junit"
	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// tested runs test for a Service and returns its report.
func (c *cluster) tested(status int, name string, args ...string) *conntest.Report {
	c.t.Helper()
	return c.reported(status, append(c.command("test").Args[1:], append([]string{name}, args...)...)...)
}

// reported runs the program and returns the report of its test.
func (c *cluster) reported(status int, args ...string) *conntest.Report {
	c.t.Helper()
	out := c.mustRun(status, exec.Command(binary, append(args, "-o", "json")...))
	r := &conntest.Report{}
	if err := json.Unmarshal([]byte(out), r); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	if r.Passed+r.Failed+r.Skipped != len(r.Cases) || len(r.Cases) == 0 {
		c.t.Fatalf("counts do not fit the cases:\n%s", out)
	}
	return r
}

// echoSCTP starts servers of SCTP where the kernel has its sockets, and returns how many cases of a Service with
// all kinds of frontends are skipped without them, from so many origins.
func (c *cluster) echoSCTP(origins int) (skipped int) {
	c.t.Helper()
	if !netlab.HasSCTP() {
		return 2 * 4 * origins // families, kinds of frontends
	}
	for _, h := range append(c.Pods, c.Remote...) {
		e, err := h.EchoSCTP(echoPort)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { e.Close() })
	}
	return 0
}

// failed returns the names of the cases that have failed.
func failed(r *conntest.Report) (names []string) {
	for _, c := range r.Cases {
		if c.State == conntest.NotPassed {
			names = append(names, fmt.Sprintf("%s from %s", c.Target(), c.From))
		}
	}
	return names
}

// 12.96, 15.12: all frontends of Services of all kinds, from the machine and from a client beside it.
func TestConnectivity(t *testing.T) {
	c := newWideCluster(t, 2, 1)
	all := append(c.Pods[:2:2], c.Remote...)
	skipped := c.echoSCTP(2)
	services := []service{
		{Name: "plain", N: 1, Pods: all},
		{Name: "none", N: 2},
		{Name: "affinity", N: 3, Pods: all, Affinity: 600},
		{Name: "local", N: 4, Pods: all, External: "Local"},
		{Name: "away", N: 5, Pods: c.Remote, External: "Local", Internal: "Local"},
		{Name: "ranges", N: 6, Pods: all, SourceRanges: []string{"192.0.2.0/24"}},
		{Name: "denied", N: 7, Pods: all, Annotations: map[string]string{"nftproxy.dev/denied-sources": "198.18.0.0/15, 2001:2::/48"}},
		{Name: "hash", N: 8, Pods: all, Annotations: map[string]string{"nftproxy.dev/scheduler": "source-hash"}},
		{Name: "weights", N: 9, Pods: all, Weights: map[*netlab.Host]int{all[0]: 1, all[1]: 3}},
		{Name: "limited", N: 10, Pods: all, Annotations: map[string]string{"nftproxy.dev/max-connections": "100"}},
	}
	c.apply(services...)
	before := c.Node.TestGeneration(t)
	for _, s := range services {
		r := c.tested(0, s.Name)
		// 3 protocols, 2 families, 4 kinds of frontends, 2 origins.
		if len(r.Cases) != 48 || r.Skipped != skipped {
			t.Errorf("%s: %d cases, %d skipped, want %d", s.Name, len(r.Cases), r.Skipped, skipped)
		}
		refusals := 0
		for _, x := range r.Cases {
			if x.State == conntest.NotTried && (x.Protocol != "sctp" || !slices.Equal(x.Reasons, []string{"the kernel of the client has no sockets of sctp"})) {
				t.Errorf("%s: %q", x.Name(), x.Reasons)
			}
			if x.State != conntest.NotTried && len(x.Endpoints) == 0 {
				refusals++
			}
		}
		expected := slices.Contains([]string{"none", "away", "ranges", "denied"}, s.Name)
		if expected != (refusals > 0) {
			t.Errorf("%s: %d cases without an endpoint", s.Name, refusals)
		}
	}
	if after := c.Node.TestGeneration(t); after != before {
		t.Errorf("the rules were changed: generation %d, and %d before", after, before)
	}
	c.wantNoRoom()
}

// wantNoRoom waits until nothing is left of a client beside the machine.
func (c *cluster) wantNoRoom() {
	c.t.Helper()
	eventually(c.t, func() error {
		if left := c.room(); left != nil {
			return fmt.Errorf("interface %s is left", left.Attrs().Name)
		}
		return nil
	})
}

// room returns the interface of a client beside the machine, with which its routes and neighbours go; nil: there is none.
func (c *cluster) room() (found netlink.Link) {
	c.t.Helper()
	err := c.Node.Do(func() error {
		links, err := netlinkio.List(netlink.LinkList)
		i := slices.IndexFunc(links, func(l netlink.Link) bool { return strings.HasPrefix(l.Attrs().Name, "nftest") })
		if i >= 0 {
			found = links[i]
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}

// 12.97: an element that was deleted by hand fails the cases of its frontend, and no others.
func TestConnectivityOfMissingElement(t *testing.T) {
	c := newCluster(t, 2)
	c.echoSCTP(2)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.apply(web)
	c.tested(0, "web")
	c.nft("delete", "element", "ip", "nftproxy", "services", "{ 10.96.0.1 . tcp . 80 }")
	r := c.tested(1, "web")
	want := []string{"ClusterIP tcp 10.96.0.1:80 from host", "ClusterIP tcp 10.96.0.1:80 from namespace"}
	if got := failed(r); !slices.Equal(got, want) {
		t.Errorf("failed: %q, want %q", got, want)
	}
}

// 12.98: an endpoint that does not listen is named.
func TestConnectivityOfDeadEndpoint(t *testing.T) {
	c := newCluster(t, 1)
	c.echoSCTP(1)
	if err := c.AddRemotePods(1); err != nil { // no server runs there
		t.Fatal(err)
	}
	dead := c.Remote[0]
	web := service{Name: "web", N: 1, Pods: []*netlab.Host{c.Pods[0], dead}}
	c.apply(web)
	r := c.tested(1, "web", "--from", "namespace")
	for _, x := range r.Cases {
		endpoint := endpointOf(dead, model.IPv4).String()
		if x.Family == model.IPv6.String() {
			endpoint = endpointOf(dead, model.IPv6).String()
		}
		if x.Protocol == "sctp" && !netlab.HasSCTP() {
			continue
		}
		if x.State != conntest.NotPassed || !strings.Contains(strings.Join(x.Reasons, "\n"), endpoint) {
			t.Errorf("%s: %s, %q does not name %s", x.Name(), x.State, x.Reasons, endpoint)
		}
	}
}

// TestConnectivityOfRelay: 12.96, 12.98, 12.99. A client beside the machine reaches a relay in both
// families, and a server that the relay cannot use is named, although the relay accepts each client.
func TestConnectivityOfRelay(t *testing.T) {
	w := newWard(t, 2)
	w.relay(onPods(w.Pods...))
	w.start()
	w.relays(w.Pods[0].Name, w.Pods[1].Name)
	if r := w.reported(0, "test", "web"); r.Passed != 4 {
		t.Errorf("%d passed, want 4: 2 families, 2 origins", r.Passed)
	}
	for _, f := range model.Families { // 12.92
		out := w.mustRun(0, exec.Command(binary, "trace", "tcp", relayed(f).String(), "--probe"))
		if !strings.Contains(out, "answered by the relay of nftproxy run") || !strings.Contains(out, "the kernel did the same: redirected to the relay") {
			t.Errorf("trace:\n%s", out)
		}
	}
	// A server that loses the first SYN of each connection, as with a full queue, takes connections.
	for _, command := range []string{"add table inet lossy", "add set inet lossy seen { type inet_service; size 65535; flags dynamic; }",
		"add chain inet lossy in { type filter hook input priority 0; }", "add rule inet lossy in tcp flags & (fin|syn|rst|ack) == syn tcp sport != @seen add @seen { tcp sport } drop"} {
		if err := w.Pods[1].Run(exec.Command("nft", command)); err != nil {
			t.Fatal(err)
		}
	}
	if r := w.reported(0, "test", "web", "--count", "1"); r.Passed != 4 {
		t.Errorf("a server that loses a SYN: %d passed, want 4: %+v", r.Passed, r.Cases)
	}
	w.kill(w.Pods[1])
	r := w.reported(1, "test", "web")
	for _, x := range r.Cases {
		dead := w.Pods[1].IPv4
		if x.Family == model.IPv6.String() {
			dead = w.Pods[1].IPv6
		}
		if !strings.Contains(strings.Join(x.Reasons, "\n"), dead.String()) {
			t.Errorf("%s from %s: %s, %q does not name %s", x.Target(), x.From, x.State, x.Reasons, dead)
		}
	}
	w.wantNoRoom()
}

// 12.96: without flags the files of the running nftproxy say what should happen, else the rules.
func TestConnectivityWithoutFlags(t *testing.T) {
	c := newCluster(t, 2)
	c.echoSCTP(2)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: 600}
	d := c.started(web)
	if r := c.reported(0, "test", "web"); len(r.Notes) > 0 || r.Passed < 32 {
		t.Errorf("beside nftproxy: %d passed, notes %q", r.Passed, r.Notes)
	}
	d.stop(t)
	if r := c.reported(0, "test", "default/web"); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "from the rules in the kernel") || r.Passed < 32 {
		t.Errorf("without nftproxy: %d passed, notes %q", r.Passed, r.Notes)
	}
}

// 12.96: a client of an address that is given, and the formats.
func TestConnectivityFormats(t *testing.T) {
	c := newCluster(t, 1)
	c.echoSCTP(2)
	c.apply(service{Name: "web", N: 1, Pods: c.Pods, SourceRanges: []string{"192.0.2.77/32"}}, service{Name: "none", N: 2})
	r := c.tested(0, "web", "--from", "namespace", "--client-address", "198.51.100.7", "--count", "5")
	for _, x := range r.Cases {
		if x.Family == model.IPv4.String() && (x.Client.String() != "198.51.100.7" || len(x.Endpoints) > 0 && x.Connections != 5) {
			t.Errorf("%s: client %s, %d connections", x.Name(), x.Client, x.Connections)
		}
	}
	c.nft("delete", "element", "ip", "nftproxy", "services", "{ 10.96.0.1 . udp . 80 }")
	text := c.command("test")
	text.Args = append(text.Args, "web", "--from", "host")
	if out := c.mustRun(1, text); !strings.Contains(out, "default/web: ") || !strings.Contains(out, "1 failed") || !strings.Contains(out, "failed: default/web:udp, ClusterIP udp 10.96.0.1:80 from host") {
		t.Errorf("the text is\n%s", out)
	}
	xml := c.command("test")
	xml.Args = append(xml.Args, "web", "--from", "host", "-o", "junit")
	suites, err := junit.Ingest([]byte(c.mustRun(1, xml)))
	if err != nil {
		t.Fatal(err)
	}
	if len(suites) != 1 || suites[0].Totals.Failed != 1 || suites[0].Totals.Passed == 0 {
		t.Errorf("JUnit has %+v", suites)
	}
}

// 12.99: nothing is left of a test that was killed, and the next one works.
func TestConnectivityKilled(t *testing.T) {
	c := newCluster(t, 1)
	c.echoSCTP(2)
	c.apply(service{Name: "web", N: 1, Pods: c.Pods})
	// Without neighbour discovery, the pod could not be reached for a while after the table is deleted.
	c.Pods[0].TestScript(t, nftChain("inet", "fw", "filter hook input priority 0", "meta l4proto { tcp, udp, sctp } drop;"))
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		cmd := c.command("test")
		cmd.Args = append(cmd.Args, "web", "--wait", "60s")
		if err := c.Node.Start(cmd); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if c.room() == nil {
				return errors.New("there is no client yet")
			}
			return nil
		})
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("%s: the test has ended well", signal)
		}
		c.wantNoRoom()
	}
	c.Pods[0].TestScript(t, "nft delete table inet fw")
	c.tested(0, "web")
}
