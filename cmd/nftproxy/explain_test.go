package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestExplainFile answers from a file, without root.
func TestExplainFile(t *testing.T) {
	path := writeFile(t, service)
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--from 203.0.113.7 tcp 10.96.0.10:80 --cluster-cidr 10.128.0.0/9", []string{
			"tcp 10.96.0.10:80 from 203.0.113.7: forwarded\n", "default/web:http (ClusterIP)", "10.128.1.2:8080   50.0 %", "masqueraded by: ip saddr != 10.128.0.0/9"}},
		{"--from 10.128.9.9 tcp 10.96.0.10:80 --cluster-cidr 10.128.0.0/9", []string{"source     kept\n"}},
		{"tcp 10.96.0.10:80 --bind-address 192.168.7.1", []string{"from the node (192.168.7.1): forwarded", "\n  output\n"}},
		{"tcp 10.96.0.10:80", []string{"from the node: forwarded", "source     kept\n"}},
		{"10.96.0.10:80", []string{"tcp 10.96.0.10:80 from the node: forwarded"}},
		{"[fd00::10]:80", []string{"tcp [fd00::10]:80 from the node: not served"}},
		{"--from 203.0.113.7 tcp 10.96.0.10:443", []string{"rejected: the ClusterIP has no such port\n"}},
		{"tcp 10.96.0.10:80 --cluster-cidr 10.128.0.0/9", []string{"a rule depends on the node's source address, which is not known"}},
		{"--from 203.0.113.7 icmp 10.96.0.10", []string{"rejected: a ClusterIP answers on the ports of its Service only, and this protocol has none\n"}},
		{"--from 2001:db8::7 tcp [fd00::10]:80", []string{"not served by nftproxy: there is no table for IPv6\n"}},
		{"--from 10.128.9.9 --interface cni0 --detect-local-mode BridgeInterface --pod-bridge-interface cni0 tcp 10.96.0.10:80", []string{
			"from 10.128.9.9 on cni0: forwarded", "source     kept"}},
		{"--from 10.128.9.9 --detect-local-mode BridgeInterface --pod-bridge-interface cni0 tcp 10.96.0.10:80", []string{"unknown: a rule depends on the input interface"}},
	} {
		r := execute("", append([]string{"explain", "-f", path}, strings.Fields(c.args)...)...)
		if r.code != 0 {
			t.Errorf("explain %s: code %d, %s", c.args, r.code, r.stderr)
		}
		for _, want := range c.want {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("explain %s: no %q in\n%s", c.args, want, r.stdout)
			}
		}
	}
}

func TestExplainJSON(t *testing.T) {
	r := execute(service, "explain", "-f", "-", "-o", "json", "tcp", "10.96.0.10:80")
	var got struct {
		Verdict  string
		Outcomes []struct{ Endpoint string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 {
		t.Fatalf("code %d, %v, %s", r.code, err, r.stderr)
	}
	if got.Verdict != "forward" || len(got.Outcomes) != 2 {
		t.Errorf("got %+v", got)
	}
}

// TestExplainUsageErrors lists command lines that must fail, with what the
// message must say.
func TestExplainUsageErrors(t *testing.T) {
	path := writeFile(t, service)
	for _, c := range []struct{ args, want string }{
		{"10.96.0.10", "has no port: write for example 10.96.0.10:80"},
		{"web -f FILE --brief --full", "exclude each other"},
		{"wbe -f FILE", `no Service is named "wbe": did you mean default/web?`},
		{"web:nope -f FILE", `default/web has no port "nope": its ports are http (tcp 80)`},
		{"udp web -f FILE", "default/web has no udp port: its ports are http (tcp 80)"},
		{"web -f FILE --from fd00::7", "fd00::7 is an IPv6 address, and default/web has none"},
		{"icmpv6 web -f FILE", "has no ClusterIP of IPv6"},
		{"htp web -f FILE", "use tcp, udp, sctp"},
		{"", "expected a protocol and a destination"},
		{"tcp", "expected a protocol and a destination"},
		{"tcp 10.96.0.10 80", "nftproxy explain tcp 10.96.0.10:80"},
		{"htp 10.96.0.10:80", "use tcp, udp, sctp"},
		{"tcp 10.96.0.10", "has no port: write for example 10.96.0.10:80"},
		{"tcp web.default:80", "names are not resolved"},
		{"icmp 10.96.0.10:80", "write 10.96.0.10"},
		{"tcp 10.96.0.10:80 --from 203.0.113.7:5000", `--from: "203.0.113.7:5000" is not an IP address`},
		{"tcp 10.96.0.10:80 --from fd00::7", "give two of one family"},
		{"tcp 10.96.0.10:80 --interface eth0", "name the client with --from"},
		{"tcp 10.96.0.10:80 --masquerade-all", "--masquerade-all: has no effect on the rules in the kernel"},
		{"tcp 10.96.0.10:80 -o xml", `--output: unknown format "xml": use text, json or yaml`},
		{"tcp 10.96.0.10:80 -f FILE --cluster-cidr 10.0.0.0", "--cluster-cidr"},
		{"tcp 10.96.0.10:80 -f FILE --logging-format xml", "--logging-format"},
		{"tcp 10.96.0.10:80 -f missing.yaml", "missing.yaml"},
	} {
		args := strings.Fields("explain " + strings.ReplaceAll(c.args, "FILE", path))
		if r := execute("", args...); r.code != cli.CodeError || !strings.Contains(r.stderr, c.want) || r.stdout != "" {
			t.Errorf("nftproxy explain %s: code %d, want %q in %q", c.args, r.code, c.want, r.stderr)
		}
	}
}

// TestExplainKernel answers from what is applied in a namespace. It needs root.
func TestExplainKernel(t *testing.T) {
	l := netlab.TestLab(t, 0)
	node := l.Node.Namespace
	if r := in(t, node, "explain", "tcp", "10.96.0.10:80"); r.code != 0 || !strings.Contains(r.stdout, "not served by nftproxy: there is no table for IPv4") {
		t.Errorf("empty kernel: code %d, %s%s", r.code, r.stdout, r.stderr)
	} else if !strings.Contains(r.stdout, noTables) {
		t.Errorf("empty kernel: no remedy in\n%s", r.stdout)
	}
	for _, command := range []string{"explain", "trace"} {
		if r := in(t, node, command, "web"); r.code != cli.CodeError || !strings.Contains(r.stderr, noTables) {
			t.Errorf("%s by name, empty kernel: code %d, %s%s", command, r.code, r.stdout, r.stderr)
		}
	}
	if r := in(t, node, "apply", "-f", writeFile(t, service), "--cluster-cidr", "10.128.0.0/9"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	// The node dials from its address on the way to the client, its gateway.
	r := in(t, node, "explain", "tcp", "10.96.0.10:80")
	for _, want := range []string{"from the node (" + l.Node.IPv4.String() + "): forwarded", "default/web:http (ClusterIP)", "masqueraded by: ", "\n  output\n"} {
		if r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("from the node: code %d, no %q in\n%s%s", r.code, want, r.stdout, r.stderr)
		}
	}
	if r := in(t, node, "explain", "--from", l.Node.IPv4.String(), "tcp", "10.96.0.10:81"); !strings.Contains(r.stdout, "from the node") || !strings.Contains(r.stdout, "rejected") {
		t.Errorf("from an address of the node: %s%s", r.stdout, r.stderr)
	}
	if r := in(t, node, "explain", "--from", "10.128.9.9", "tcp", "10.96.0.10:80"); !strings.Contains(r.stdout, "\n  prerouting\n") || !strings.Contains(r.stdout, "source     kept") {
		t.Errorf("from a pod: %s%s", r.stdout, r.stderr)
	}
}

// TestExplainUnknownSource: where the address that the node dials from is not
// known, the answer says so and has no address in its place.
func TestExplainUnknownSource(t *testing.T) {
	path := writeFile(t, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.10
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}
  externalTrafficPolicy: Local
  loadBalancerSourceRanges: [203.0.113.0/24]
  ports: [{name: http, port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 198.51.100.7}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.128.1.1]}, {addresses: [10.128.1.2]}]
`)
	ns := netlab.TestNamespace(t) // without a route
	if r := in(t, ns, "apply", "-f", path, "--cluster-cidr", "10.128.0.0/9"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	for _, frontend := range []string{"10.96.0.10:80", "198.51.100.7:80"} {
		for _, args := range [][]string{{"explain"}, {"explain", "-f", path}} {
			for _, format := range []string{"text", "json"} {
				r := in(t, ns, append(args, "-o", format, "tcp", frontend)...)
				if r.code != 0 || strings.Contains(r.stdout, "invalid") {
					t.Errorf("%s %s: code %d, %s%s", args, frontend, r.code, r.stdout, r.stderr)
				}
				if frontend == "10.96.0.10:80" && !strings.Contains(r.stdout, "remembers 10.96.0.10 . tcp . 80 . the client's address for 10m0s") {
					t.Errorf("%s %s: what is remembered is missing in %s", args, frontend, r.stdout)
				}
			}
		}
	}
}

// TestExplainByName names a Service in place of an address (12.74).
func TestExplainByName(t *testing.T) {
	for args, wants := range map[string][]string{
		"shop/web":                    {"tcp 10.96.0.10:80 from the node", "50.0 %", "note       this is port http (tcp 80); shop/web also has admin (tcp 9000)\n", "also served at tcp 198.51.100.7:80 (load balancer IP)"},
		"tcp shop/web:http":           {"tcp 10.96.0.10:80 from the node"},
		"web:admin":                   {"tcp 10.96.0.10:9000", "rejected: ", "left out   10.128.0.2  EndpointSlice web-1 has no port \"admin\" (TCP)"},
		"TCP web:9000":                {"tcp 10.96.0.10:9000"},
		"6 web:80":                    {"tcp 10.96.0.10:80"},
		"icmp web":                    {"icmp 10.96.0.10 from the node"},
		"web:30080 --from 10.128.0.2": {"tcp 192.0.2.1:30080 from 10.128.0.2: forwarded"},
		"cart":                        {"rejected", "no EndpointSlice has the label kubernetes.io/service-name: cart in namespace shop"},
	} {
		r := execute("", append([]string{"explain", "-f", shop, "--hostname-override", "node-1", "--brief"}, strings.Fields(args)...)...)
		for _, want := range wants {
			if r.code != 0 || !strings.Contains(r.stdout, want) || strings.Contains(r.stdout, "\npath\n") {
				t.Errorf("%s: code %d, no %q in %s%s", args, r.code, want, r.stdout, r.stderr)
			}
		}
	}
}

// TestExplainRunning asks the running daemon for what the kernel's rules do not have, and
// reports what would stop the connection on this machine.
func TestExplainRunning(t *testing.T) {
	ns := netlab.TestLab(t, 0).Node.Namespace
	p := startCommand(t, ns, asNftproxy(t, "run", "-f", shop, "--hostname-override", "node-1", "--metrics-bind-address", "127.0.0.1:7011", "--healthz-bind-address", ""))
	has := func(args string, wants ...string) func() bool {
		return func() bool {
			r := ask(t, ns, append([]string{"explain"}, strings.Fields(args)...)...)
			for _, want := range wants {
				if r.code != 0 || !strings.Contains(r.stdout, want) {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "who is left out", has("web", "tcp 10.96.0.10:80 from the node", "left out   10.128.0.6:8080  its weight is 0", "10.128.1.5:8080  terminating, and others are ready"))
	eventually(t, "who is left out for clients outside", has("tcp 198.51.100.7:80 --from 203.0.113.9", "10.128.1.4:8080  policy Local, and it is on node node-2", "conflict   shop/cart:http also claims this frontend, and lost"))
	eventually(t, "a slice without the port", has("web:admin", "rejected", `left out   10.128.0.2  EndpointSlice web-1 has no port "admin" (TCP)`))
	if err := ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0) }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "forwarding", has("web --from 203.0.113.9", "note       net.ipv4.ip_forward is 0"))
	p.kill()
	eventually(t, "no daemon", has("web:admin", "which endpoints are left out is not known: no daemon answers"))
}
