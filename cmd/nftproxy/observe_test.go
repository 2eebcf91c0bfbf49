package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// observedInput has a Service without endpoints, one that denies the client, and a range with
// unused addresses.
const observedInput = busyInput + `
---
apiVersion: v1
kind: Service
metadata:
  name: closed
  namespace: shop
  annotations: {nftproxy.dev/denied-sources: "192.0.2.0/24, 2001:db8::/64", nftproxy.dev/ports: 9000-9009}
spec:
  type: NodePort
  clusterIPs: [10.96.0.12, "fd00:96::12"]
  ports: [{name: http, port: 80, nodePort: 30080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: closed-1, namespace: shop, labels: {kubernetes.io/service-name: closed}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.128.0.2]}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16]}
`

// connectionsInput has Services whose connections are observed: one with a server, one whose server does
// not run, and one without a machine at the address of its endpoint.
const connectionsInput = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, annotations: {nftproxy.dev/observe: connections}}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.128.0.2]}]
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop, annotations: {nftproxy.dev/observe: connections}}
spec: {clusterIP: 10.96.0.11, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api-1, namespace: shop, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
ports: [{name: http, port: 8081}]
endpoints: [{addresses: [10.128.0.3]}]
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop, annotations: {nftproxy.dev/observe: connections}}
spec: {clusterIP: 10.96.0.12, ports: [{port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{port: 5432}]
endpoints: [{addresses: [10.128.0.99]}]
`

// foreign logs packets to two groups, as rules of other programs do.
const foreign = `
nft -f - <<END
table inet foreign {
	chain prerouting {
		type filter hook prerouting priority -150
		ip daddr 10.96.0.10 tcp dport 82 log prefix "of another" group 28272 drop
		ip daddr 10.96.8.8 log prefix other group 5 drop
		ip daddr 10.96.7.7 log prefix flood group 28272 drop
	}
}
END`

// observed is a node whose daemon observes refused connections.
type observed struct {
	*netlab.Lab
	daemon *process
}

func newObserved(t *testing.T, flags ...string) *observed {
	t.Helper()
	return newObservedWith(t, observedInput, flags...)
}

func newObservedWith(t *testing.T, input string, flags ...string) *observed {
	t.Helper()
	o := &observed{Lab: netlab.TestLab(t, 2)}
	o.Node.TestScript(t, foreign)
	o.daemon = start(t, o.Node.Namespace, append([]string{"nftproxy", "run", "-f", writeFile(t, input), "--cluster-cidr=10.128.0.0/16", "--hostname-override=node-1", "--observe=refusals"}, flags...)...)
	eventually(t, "rules and the metrics server", func() bool {
		return rendered(t, o.Node.Namespace, "10.96.0.10:80") && strings.Contains(o.daemon.log.String(), "msg=listening")
	})
	return o
}

// command runs a command on the node and returns its output.
func (o *observed) command(t *testing.T, code int, args ...string) string {
	t.Helper()
	p := start(t, o.Node.Namespace, append([]string{"nftproxy"}, args...)...)
	p.ends(t, code)
	return p.output.String() + p.log.String()
}

// dial sends the first packet of a connection, which is dropped.
func (o *observed) dial(t *testing.T, to string) {
	t.Helper()
	o.Client.TestSYN(t, netip.MustParseAddrPort(to))
}

// await runs a command until its output has all texts.
func (o *observed) await(t *testing.T, args string, texts ...string) string {
	t.Helper()
	out := ""
	netlab.Eventually(t, time.Minute, func() error {
		out = o.command(t, 0, strings.Fields(args)...)
		for _, text := range texts {
			if !strings.Contains(out, text) {
				return fmt.Errorf("%s: no %q in\n%s", args, text, out)
			}
		}
		return nil
	})
	return out
}

// TestObserve: 17.2, 17.3, 17.5, 17.6, 17.7. Refused connections have a line with the client,
// the Service, the reason and what to do; filters select.
func TestObserve(t *testing.T) {
	o := newObserved(t, "--log-connections=refused", "--web")
	if out := o.command(t, 0, "observe"); !strings.Contains(out, "no event matches") {
		t.Errorf("before the first event: %s", out)
	}
	follow := start(t, o.Node.Namespace, "nftproxy", "observe", "-f", "shop/*")
	for _, to := range []string{"10.96.0.12:80", "10.96.0.11:80", "10.96.0.10:81", "10.96.0.10:82", "10.96.9.9:443"} {
		o.dial(t, to)
	}
	client := o.Client.IPv4.String()
	out := o.await(t, "observe",
		client+":", " -> 10.96.0.12:80/tcp (shop/closed:http)  dropped, denied: the client is among the denied clients of the Service\n",
		"remove its address from nftproxy.dev/denied-sources\n",
		" -> 10.96.0.11:80/tcp (shop/idle:http)  rejected, no-endpoints: no endpoint of the Service can take connections\n",
		" -> 10.96.0.10:81/tcp (shop/web)  rejected, unknown-port: ",
		` -> 10.96.0.10:82/tcp  logged by a rule of another program: "of another"`,
		" -> 10.96.9.9:443/tcp  dropped, unused-address: no Service has this address\n",
		" since nftproxy started\n")
	if strings.Count(out, "remove its address") != 1 {
		t.Errorf("advice is repeated:\n%s", out)
	}
	eventually(t, "the follower has the events of the Service", func() bool {
		return strings.Contains(follow.output.String(), "unknown-port") && strings.Contains(follow.output.String(), "denied")
	})
	before := strings.Count(follow.output.String(), " -> ")
	o.dial(t, "10.96.0.12:80")
	eventually(t, "the follower has one more", func() bool { return strings.Count(follow.output.String(), " -> ") > before })
	if strings.Contains(follow.output.String(), "10.96.9.9") {
		t.Errorf("the follower has events of others:\n%s", &follow.output)
	}
	if err := follow.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	follow.ends(t, 0)
	o.filters(t, client)
	o.others(t)
}

// filters checks what flags select.
func (o *observed) filters(t *testing.T, client string) {
	t.Helper()
	for args, want := range map[string]string{
		"--reason unused-address":             "10.96.9.9:443",
		"--client " + client + "/31 --last 1": "/tcp",
		"--since 1h shop/*":                   "unknown-port",
	} {
		r := o.json(t, args)
		if len(r.Events) == 0 || !strings.Contains(r.Events[len(r.Events)-1].Frontend+"/tcp"+r.Events[0].Reason, want) && !strings.Contains(fmt.Sprint(r.Events), want) {
			t.Errorf("%s: %+v", args, r.Events)
		}
	}
	if r := o.json(t, "--client 198.51.100.0/24"); len(r.Events) != 0 || r.Total == 0 || r.Lost != 0 {
		t.Errorf("of other clients: %+v", r)
	}
	summary := o.command(t, 0, "observe", "--summary", "--reason", "denied")
	if !strings.Contains(summary, client) || !strings.Contains(summary, "shop/closed:http") || strings.Contains(summary, "10.96.9.9") {
		t.Errorf("summary:\n%s", summary)
	}
	for args, want := range map[string]string{
		"shop/cloesd":                  `warning: no Service matches "shop/cloesd": did you mean shop/closed?`,
		"--summary -n shp":             `warning: no Service matches namespace "shp": did you mean shop?`,
		"--client 198.51.100.1 shop/*": "no event matches\n",
	} {
		if out := o.command(t, 0, append([]string{"observe"}, strings.Fields(args)...)...); !strings.Contains(out, want) {
			t.Errorf("%s: %s, want %q", args, out, want)
		}
	}
	for args, want := range map[string]string{
		"--summary --since 1m": "--summary is about the last minutes: leave out --since and --last",
		"--reason foo":         `--reason: "foo" is not a reason: use "no-endpoints", `,
		"--reason denid":       `--reason: "denid" is not a reason: did you mean denied?`,
		"--client 10.0.0":      `--client: "10.0.0" is neither`,
		"--last 1001":          "--last: 1001 is not a number from 0 to 1000",
		"--follow --summary":   "exclude each other",
		"shop/[":               "is not the name of a Service",
		"--since -5m":          "is negative",
		"--output xml":         "unknown format",
		"--reason rate,rat_e":  "is not a reason",
	} {
		if out := o.command(t, cli.CodeError, append([]string{"observe"}, strings.Fields(args)...)...); !strings.Contains(out, want) {
			t.Errorf("%s: %s, want %q", args, out, want)
		}
	}
}

func (o *observed) json(t *testing.T, args string) (r api.Observed) {
	t.Helper()
	out := o.command(t, 0, append([]string{"observe", "-o", "json"}, strings.Fields(args)...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%s: %v\n%s", args, err, out)
	}
	return r
}

// others checks the status, the log, metrics and top.
func (o *observed) others(t *testing.T) {
	t.Helper()
	if out := o.command(t, 0, "status"); !strings.Contains(out, "observed") || !strings.Contains(out, "refusals, ") {
		t.Errorf("status:\n%s", out)
	}
	if out := o.command(t, 0, "top", "--once"); !strings.Contains(out, "observed  refused ") {
		t.Errorf("top:\n%s", out)
	}
	line := `msg="connection refused" reason=denied protocol=tcp client=` + o.Client.IPv4.String() + ":"
	o.daemon.says(t, line)
	o.daemon.says(t, "to=10.96.0.12:80 service=shop/closed:http")
	out := metricsIn(t, o.Node.Namespace)
	for _, want := range []string{`nftproxy_observe_events_total{reason="unused-address"} `, "nftproxy_observe_lost_total 0\n", "nftproxy_observe_up 1\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("metrics: no %q", want)
		}
	}
}

// TestObservePage runs the sessions of docs/observe.md, and writes them with -update.
func TestObservePage(t *testing.T) {
	o := newObserved(t)
	for n, to := range []string{"10.96.0.12:80", "10.96.0.12:80", "10.96.0.11:80", "10.96.0.10:81", "10.96.9.9:443"} {
		o.dial(t, to)
		o.has(t, n+1)
	}
	served := newObservedWith(t, connectionsInput)
	if err := served.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	served.Node.TestScript(t, "sysctl -qw net.netfilter.nf_conntrack_acct=1")
	if _, err := served.Client.Ask("tcp", netip.MustParseAddrPort("10.96.0.10:80"), time.Minute); err != nil {
		t.Fatal(err)
	}
	served.has(t, 1)
	for n, to := range []string{"10.96.0.11:80", "10.96.0.12:5432"} {
		served.dial(t, to)
		served.has(t, n+2)
	}
	replay(t, "../../docs/observe.md", 3, func(args string) result {
		ns := o.Node.Namespace
		if args == "observe -n shop" {
			ns = served.Node.Namespace
		}
		return ask(t, ns, strings.Fields(args)...)
	})
}

// has waits until there are so many events.
func (o *observed) has(t *testing.T, events int) {
	t.Helper()
	netlab.Eventually(t, time.Minute, func() error {
		if r := o.json(t, ""); len(r.Events) != events {
			return fmt.Errorf("%d events, want %d", len(r.Events), events)
		}
		return nil
	})
}

// TestObserveFrontends: 17.2. Frontends of each kind are named: over IPv6, of NodePorts and of ranges
// of ports. A port that no Service has is named with the Service at the address.
func TestObserveFrontends(t *testing.T) {
	o := newObserved(t, "--nodeport-addresses=all")
	node := o.Node.IPv4.String()
	for _, to := range []string{"[fd00:96::12]:80", node + ":30080", "10.96.0.12:9007"} {
		o.dial(t, to)
	}
	err := o.Client.Do(func() error {
		c, err := net.Dial("udp", "10.96.0.12:9008")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	o.await(t, "observe shop/closed",
		o.Client.IPv6.String()+"]:", " -> [fd00:96::12]:80/tcp (shop/closed:http)  dropped, denied",
		" -> "+node+":30080/tcp (shop/closed:http)  dropped, denied",
		" -> 10.96.0.12:9007/tcp (shop/closed:9000-9009/tcp)  dropped, denied",
		" -> 10.96.0.12:9008/udp (shop/closed)  rejected, unknown-port")
}

// TestObserveStopped: 17.5. While the daemon is stopped, and more is logged than the buffer of its
// socket holds, connections are served. It then tells how many events are lost.
func TestObserveStopped(t *testing.T) {
	o := newObserved(t)
	if err := o.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	if err := o.daemon.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	const packets = 60_000
	err := o.Client.Do(func() error {
		c, err := net.Dial("udp", "10.96.7.7:9")
		if err != nil {
			return err
		}
		defer c.Close()
		for n := range packets {
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
			if n%1000 != 0 {
				continue
			}
			if _, err := o.Client.Ask("tcp", netip.MustParseAddrPort("10.96.0.10:80"), 10*time.Second); err != nil {
				return fmt.Errorf("after %d packets: %w", n, err)
			}
		}
		return nil
	})
	if err := errors.Join(err, o.daemon.Process.Signal(syscall.SIGCONT)); err != nil {
		t.Fatal(err)
	}
	netlab.Eventually(t, time.Minute, func() error {
		o.dial(t, "10.96.0.12:80") // a later event shows what is lost before it
		if r := o.json(t, "--last 0"); r.Lost == 0 || r.Total+r.Lost <= packets {
			return fmt.Errorf("%d events, %d lost", r.Total, r.Lost)
		}
		return nil
	})
	if out := o.command(t, 0, "status"); !strings.Contains(out, " lost") {
		t.Errorf("the status has no losses:\n%s", out)
	}
}

// TestObserveOff: 17.1. Without the setting nothing is read, and the command says what to do.
func TestObserveOff(t *testing.T) {
	o := &observed{Lab: netlab.TestLab(t, 0)}
	o.daemon = start(t, o.Node.Namespace, "nftproxy", "run", "-f", writeFile(t, busyInput), "--hostname-override=node-1")
	eventually(t, "the metrics server", func() bool { return strings.Contains(o.daemon.log.String(), "msg=listening") })
	if out := o.command(t, cli.CodeError, "observe"); !strings.Contains(out, "does not observe connections: start it with --observe=refusals") {
		t.Errorf("%s", out)
	}
	err := o.Node.Do(func() error {
		ports, err := nflog.Ports()
		if len(ports) > 0 {
			t.Errorf("a daemon that observes nothing reads %v", ports)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestObserveTaken: 17.4, 17.8. Another reader of the group keeps the daemon from observing, not
// from serving; status and check name it. The daemon goes on when the group is free, and a
// reader of another group is not disturbed.
func TestObserveTaken(t *testing.T) {
	lab := netlab.TestLab(t, 0)
	var first, other *nflog.Reader
	err := lab.Node.Do(func() (err error) {
		if first, err = nflog.Open(28272); err != nil {
			return err
		}
		other, err = nflog.Open(5)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	defer other.Close()
	o := &observed{Lab: lab}
	o.Node.TestScript(t, foreign)
	o.daemon = start(t, o.Node.Namespace, "nftproxy", "run", "-f", writeFile(t, observedInput), "--hostname-override=node-1", "--observe=refusals")
	eventually(t, "the reason", func() bool {
		return strings.Contains(o.daemon.log.String(), "refused connections are not observed") && strings.Contains(o.daemon.log.String(), "msg=listening")
	})
	o.await(t, "status", "NotObserved", "group 28272 is read by process ", "not read now")
	for args, found := range map[string]bool{"check": false, "check --observe=refusals": true, "check --observe=refusals --observe-group=7": false} {
		p := start(t, o.Node.Namespace, append([]string{"nftproxy"}, strings.Fields(args)...)...)
		_ = p.Wait() // a machine in a test has other findings
		if strings.Contains(p.output.String(), "warning  observe-group: ") != found {
			t.Errorf("%s:\n%s", args, &p.output)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it reads", func() bool { return strings.Contains(o.daemon.log.String(), "refused connections are observed again") })
	o.dial(t, "10.96.0.12:80")
	o.dial(t, "10.96.8.8:80")
	o.await(t, "observe", "denied")
	got := 0
	for got == 0 {
		err := await.Call(t, "event of the other group", func() { other.Close() }, func() error {
			return other.Read(func(*nflog.Event) { got++ })
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(o.command(t, 0, "observe", "-o", "json"), "10.96.8.8") {
		t.Error("the daemon has events of another group")
	}
}
