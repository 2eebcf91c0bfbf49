package look

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
)

// TestExplainFile answers from a file, without root.
func TestExplainFile(t *testing.T) {
	path := commandline.WriteFile(t, commandline.Service)
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
		r := program.Run("", append([]string{"explain", "-f", path}, strings.Fields(c.args)...)...)
		if r.Code != 0 {
			t.Errorf("explain %s: code %d, %s", c.args, r.Code, r.Stderr)
		}
		for _, want := range c.want {
			if !strings.Contains(r.Stdout, want) {
				t.Errorf("explain %s: no %q in\n%s", c.args, want, r.Stdout)
			}
		}
	}
}

func TestExplainJSON(t *testing.T) {
	r := program.Run(commandline.Service, "explain", "-f", "-", "-o", "json", "tcp", "10.96.0.10:80")
	var got struct {
		Verdict  string
		Outcomes []struct{ Endpoint string }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || r.Code != 0 {
		t.Fatalf("code %d, %v, %s", r.Code, err, r.Stderr)
	}
	if got.Verdict != "forward" || len(got.Outcomes) != 2 {
		t.Errorf("got %+v", got)
	}
}

// TestExplainUsageErrors lists command lines that must fail, with what the
// message must say.
func TestExplainUsageErrors(t *testing.T) {
	path := commandline.WriteFile(t, commandline.Service)
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
		if r := program.Run("", args...); r.Code != cli.CodeError || !strings.Contains(r.Stderr, c.want) || r.Stdout != "" {
			t.Errorf("nftproxy explain %s: code %d, want %q in %q", c.args, r.Code, c.want, r.Stderr)
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
		r := program.Run("", append([]string{"explain", "-f", shop, "--hostname-override", "node-1", "--brief"}, strings.Fields(args)...)...)
		for _, want := range wants {
			if r.Code != 0 || !strings.Contains(r.Stdout, want) || strings.Contains(r.Stdout, "\npath\n") {
				t.Errorf("%s: code %d, no %q in %s%s", args, r.Code, want, r.Stdout, r.Stderr)
			}
		}
	}
}
