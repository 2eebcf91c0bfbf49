package test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

var updateTraces = flag.Bool("update", false, "rewrite what trace prints, in testdata/trace")

// traced is a connection that is followed, and what else is on the node.
type traced struct {
	name   string // of the file with what is printed
	script string // of the shell, on the node: rules of other programs
	pod    string // another script, on the endpoint
	web    service
	from   func(*cluster) *netlab.Host // nil: the node itself, with --probe
	family model.Family
	udp    bool
	to     func(*cluster, service, model.Family) netip.AddrPort // nil: the ClusterIP
	args   []string
	code   int
}

func outside(c *cluster) *netlab.Host { return c.Client }

func fromPod(c *cluster) *netlab.Host { return c.Pods[1] }

func toNodePort(c *cluster, s service, f model.Family) netip.AddrPort { return s.nodePort(c.Node, f) }

// nftChain is a shell command that adds a base chain with rules.
func nftChain(family, table, declaration, rules string) string {
	return fmt.Sprintf("nft 'table %s %s { chain c { type %s; %s }; }'\n", family, table, declaration, rules)
}

// unanswered is an endpoint port on which nothing listens.
const unanswered = 9999

var tracedConnections = []traced{
	{name: "answered", from: outside},
	{name: "answered-pod-udp-ipv6", from: fromPod, family: model.IPv6, udp: true},
	{name: "answered-nodeport-ipv6", from: outside, family: model.IPv6, to: toNodePort},
	{name: "answered-node"},
	{name: "answered-node-udp", udp: true},
	{name: "refused-endpoint", from: outside, web: service{Target: unanswered}, code: 1},
	{name: "refused-endpoint-udp", from: outside, udp: true, web: service{Target: unanswered}, code: 1},
	{name: "unanswered", from: outside, code: 1, pod: nftChain("ip", "fw", "filter hook input priority 0", "tcp dport 8080 drop;")},
	{name: "endpoint-on-node", from: outside, web: service{N: 3}},
	{name: "endpoint-on-node-from-node", web: service{N: 3}},
	{name: "no-endpoints", from: outside, web: service{N: 2}, code: 1},
	{name: "no-endpoints-probe-ipv6", family: model.IPv6, web: service{N: 2}, code: 1},
	{name: "denied", from: outside, code: 1, web: service{Annotations: map[string]string{"nftproxy.dev/denied-sources": "192.0.2.2"}}},
	{name: "forward-policy", from: outside, code: 1, script: nftChain("inet", "fw", "filter hook forward priority 0; policy drop", "ct state established,related accept; ip daddr 10.99.0.0/16 accept;")},
	{name: "forward-reject-udp", from: outside, udp: true, code: 1, script: nftChain("ip", "fw", "filter hook forward priority 0", "meta l4proto udp th dport 8080 reject;")},
	{name: "firewalld", from: outside, family: model.IPv6, code: 1, script: nftChain("inet", "firewalld", "filter hook forward priority filter + 10", "tcp dport 8080 drop;")},
	{name: "raw-drop", from: outside, code: 1, script: nftChain("ip", "fw", "filter hook prerouting priority raw", "tcp dport 80 drop;")},
	{name: "translated-before", from: outside, script: nftChain("ip", "early", "nat hook prerouting priority -110", "ip daddr 10.96.0.1 tcp dport 80 dnat to 10.128.0.3:8080;")},
	{name: "marked", from: outside, script: nftChain("ip", "marks", "filter hook prerouting priority mangle", "ip daddr 10.96.0.1 meta mark set 0x4000; ip saddr 192.0.2.2 meta mark set meta mark or 1;")},
	{name: "docker", from: outside, code: 1, script: "iptables-nft -N DOCKER-USER; iptables-nft -A FORWARD -j DOCKER-USER; iptables-nft -A DOCKER-USER -p tcp --dport 8080 -j DROP\n"},
	{name: "docker-policy", from: outside, code: 1, script: "iptables-nft -N DOCKER; iptables-nft -A FORWARD -o docker0 -j DOCKER; iptables-nft -P FORWARD DROP\n"},
	{name: "iptables-reject", from: outside, code: 1, script: "iptables-nft -A FORWARD -p tcp --dport 8080 -m comment --comment 'cali:abc' -j REJECT --reject-with tcp-reset\n"},
	{name: "iptables-legacy", from: outside, code: 1, script: "iptables-legacy -w -A FORWARD -p tcp --dport 8080 -j DROP\n"},
	{name: "answer-dropped", from: outside, code: 1, script: nftChain("ip", "fw", "filter hook forward priority 0", "ct direction reply drop;")},
	{name: "no-forwarding", from: outside, code: 1, script: "echo 0 >/proc/sys/net/ipv4/ip_forward\n"},
	{name: "other-client", from: outside, code: 1, args: []string{"--from", "192.0.2.77", "--timeout", "1s"}},
}

// 12.90, 12.91, 12.92: trace says which rule of which program decided about a connection, and
// compares that with what explain predicts.
func TestTrace(t *testing.T) {
	for _, tr := range tracedConnections {
		t.Run(tr.name, func(t *testing.T) {
			c := newCluster(t, 2)
			switch tr.web.N {
			case 0:
				tr.web.N, tr.web.Pods = 1, c.Pods[:1]
			case 3:
				c.echo(c.Node)
				tr.web.Pods = []*netlab.Host{c.Node}
			}
			tr.web.Name = "web"
			if tr.family == 0 {
				tr.family = model.IPv4
			}
			c.apply(tr.web)
			c.mustRun(0, exec.Command("sh", "-ec", tr.script))
			c.Pods[0].TestScript(t, tr.pod)
			compareTrace(t, tr.name, stable(c.followed(&tr)))
			if tables := c.nft("list", "tables"); strings.Contains(tables, "nftproxy-trace") {
				t.Errorf("a table of the trace is left:\n%s", tables)
			}
		})
	}
}

// followed returns what trace prints about a connection.
func (c *cluster) followed(tr *traced) string {
	c.t.Helper()
	network, to := "tcp", tr.web.clusterIP(tr.family)
	if tr.udp {
		network = "udp"
	}
	if tr.to != nil {
		to = tr.to(c, tr.web, tr.family)
	}
	args := append([]string{"trace", network, to.String()}, tr.args...)
	if tr.from == nil {
		return c.mustRun(tr.code, exec.Command(binary, append(args, "--probe")...))
	}
	w := c.startTrace(args...)
	_, _ = tr.from(c).Ask(network, to, silence) // what trace says about it is tested
	return w.ends(tr.code)
}

// waitingTrace is a trace that waits for a connection.
type waitingTrace struct {
	c      *cluster
	cmd    *exec.Cmd
	output chan string
}

// startTrace starts the program, and returns when its table is there.
func (c *cluster) startTrace(args ...string) *waitingTrace {
	c.t.Helper()
	w := &waitingTrace{c, exec.Command(binary, args...), make(chan string, 1)}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	stderr, err := w.cmd.StderrPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.Node.Start(w.cmd); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = w.cmd.Process.Kill() })
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "waiting up to ") {
		c.t.Fatalf("trace says %q, want that it waits", lines.Text())
	}
	go func() { _, _ = io.Copy(c.t.Output(), stderr) }()
	go func() {
		text, _ := io.ReadAll(stdout)
		w.output <- string(text)
	}()
	return w
}

// ends waits for the end of the trace, and returns its output.
func (w *waitingTrace) ends(code int) string {
	w.c.t.Helper()
	text := <-w.output
	if err := w.cmd.Wait(); w.cmd.ProcessState.ExitCode() != code {
		w.c.t.Fatalf("trace ended with %v, want exit status %d\n%s", err, code, text)
	}
	return text
}

var (
	masqueraded = regexp.MustCompile(`(?m)^  source +\S+ → \S+:(\d+),`)
	dialledFrom = regexp.MustCompile(`(?m)^(?:tcp|udp) \S+ from \S+:(\d+): `)
)

// stable returns a text without the numbers that differ each time.
func stable(text string) string {
	for name, number := range map[string]*regexp.Regexp{"PORT": masqueraded, "CLIENT": dialledFrom} {
		if m := number.FindStringSubmatch(text); m != nil {
			text = regexp.MustCompile(`:`+m[1]+`\b`).ReplaceAllString(text, ":"+name)
		}
	}
	return text
}

func compareTrace(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "trace", name+".txt")
	if *updateTraces && t.Name() != "TestTracePage" {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); go test ./test -run TestTrace -update rewrites it:\n%s", path, diff)
	}
}

// TestTracePage: the example of the page is what trace prints.
func TestTracePage(t *testing.T) {
	page, err := os.ReadFile("../docs/inspect.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin = "waiting up to 30s for a connection to tcp 10.96.0.1:80\n"
	_, example, found := strings.Cut(string(page), begin)
	example, _, _ = strings.Cut(example, "```")
	if !found {
		t.Fatalf("the page has no example that begins with %q", begin)
	}
	compareTrace(t, "docker-policy", stable(example))
}

// 12.93: whatever ends a trace, nothing of it remains, and nothing else has changed.
func TestTraceLeavesNothing(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			c := newCluster(t, 1)
			d := c.started(service{Name: "web", N: 1, Pods: c.Pods})
			before := c.nft("list", "ruleset")
			w := c.startTrace("trace", "10.96.0.1:80")
			if during := c.nft("list", "tables"); !strings.Contains(during, "table ip nftproxy-trace-") {
				t.Errorf("there is no table of the trace:\n%s", during)
			}
			if err := w.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			<-w.output
			_ = w.cmd.Wait()
			eventually(t, func() error {
				if diff := cmp.Diff(before, c.nft("list", "ruleset")); diff != "" {
					return fmt.Errorf("the rules differ:\n%s", diff)
				}
				return nil
			})
			d.stop(t)
		})
	}
}

// 12.94: the connection of a pod, whose address the API server knows, is followed, and not those
// of others.
func TestTraceFromPod(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.apply(web)
	pod := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","spec":{"nodeName":"node"},"status":{"hostIPs":[{"ip":%q}],"podIPs":[{"ip":%q},{"ip":%q}]}}`,
		c.Node.IPv4, c.Pods[1].IPv4, c.Pods[1].IPv6)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/shop/pods/cart", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, pod)
	})
	var listener net.Listener
	if err := c.Node.Do(func() (err error) { listener, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		t.Fatal(err)
	}
	go func() { _ = http.Serve(listener, mux) }()
	t.Cleanup(func() { listener.Close() })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'http://" + listener.Addr().String() + "'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, family := range model.Families {
		to := web.clusterIP(family)
		w := c.startTrace("trace", "tcp", to.String(), "--from", "shop/cart", "--kubeconfig", kubeconfig)
		for _, from := range []*netlab.Host{c.Client, c.Pods[1]} {
			_, _ = from.Ask("tcp", to, silence)
		}
		got, want := w.ends(0), " from "+netip.AddrPortFrom(c.Pods[1].Address(family), 0).String()
		if !strings.Contains(got, strings.TrimSuffix(want, "0")) || !strings.Contains(got, "answered") {
			t.Errorf("%s: trace prints\n%s\nwant%s", family, got, want)
		}
	}
}
