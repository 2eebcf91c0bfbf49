package rules

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const provedServices = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.128.1.1], nodeName: node-1}, {addresses: [10.128.1.2], nodeName: node-2}]
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {clusterIP: 10.96.0.11, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {clusterIP: 10.96.0.12, type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 31999, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}},
  loadBalancerSourceRanges: [203.0.113.0/24], ports: [{name: http, port: 80, nodePort: 30080}]}
status: {loadBalancer: {ingress: [{ip: 198.18.0.12, ipMode: VIP}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.128.1.3], nodeName: node-1}, {addresses: [10.128.1.4], nodeName: node-2}]
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/12]}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.168.7.1}]}
`

// proveNode is the flags of a node.
var proveNode = []string{"--hostname-override", "node-1", "--cluster-cidr", "10.128.0.0/9"}

func proveFlags(args ...string) []string {
	return append(append([]string{"diff", "--prove"}, args...), proveNode...)
}

// TestProveInputs: packets of two inputs are compared, and the plan explains what changes (12.69).
func TestProveInputs(t *testing.T) {
	old := commandline.WriteFile(t, provedServices)
	changed := commandline.WriteFile(t, strings.Replace(provedServices, "10.128.1.2", "10.128.1.3", 1))
	if r := program.Run("", proveFlags("--from", old, "-f", old)...); r.Code != 0 || !strings.HasSuffix(r.Stdout, " classes of packets: all packets: equal\n") {
		t.Errorf("equal inputs: %+v", r)
	}
	r := program.Run("", proveFlags("--from", old, "-f", changed)...)
	want := "tcp 10.96.0.10:80\n" +
		"  from:   outside, outside (a related connection), the node, the node (a related connection)\n" +
		"  before: to 10.128.1.1:8080 masquerade, to 10.128.1.2:8080 masquerade\n" +
		"  after:  to 10.128.1.1:8080 masquerade, to 10.128.1.3:8080 masquerade\n"
	if r.Code != cli.CodeNo || !strings.Contains(r.Stdout, want) || !strings.HasSuffix(r.Stdout, "change as the plan says; all other packets: equal\n") {
		t.Errorf("another endpoint: %+v", r)
	}
	r = program.Run("", proveFlags("--from", old, "-f", changed, "-o", "markdown")...)
	if r.Code != cli.CodeNo || !strings.Contains(r.Stdout, "| tcp 10.96.0.10:80 | outside, outside (a related connection), the node") {
		t.Errorf("markdown: %+v", r)
	}
	r = program.Run("", proveFlags("--from", old, "-f", changed, "-o", "json")...)
	var document struct {
		Classes, Packets int
		Explained        bool
		Changes          []struct {
			To, From               []string
			Before, After, Planned string
		}
	}
	if err := json.Unmarshal([]byte(r.Stdout), &document); err != nil || !document.Explained || document.Packets == 0 || len(document.Changes) == 0 || document.Changes[0].To[0] != "tcp 10.96.0.10:80" {
		t.Errorf("json: %v: %+v", err, r)
	}
}

// servedHere returns a namespace with the rules for the Services.
func servedHere(t *testing.T) (*netlab.Namespace, string) {
	t.Helper()
	ns, file := netlab.TestNamespace(t), commandline.WriteFile(t, provedServices)
	if r := program.RunIn(t, ns, append([]string{"apply", "-f", file}, proveNode...)...); r.Code != 0 {
		t.Fatalf("apply: %+v", r)
	}
	return ns, file
}

// loadRules loads rules with nft.
func loadRules(t *testing.T, ns *netlab.Namespace, rules string) {
	t.Helper()
	ns.NFT(t, "-f", commandline.WriteFile(t, rules+"\n"))
}

// TestProveForeign: rules of other programs, in nftproxy's tables or in front of them, show as packets
// that differ. The plan repairs the first kind only (12.69).
func TestProveForeign(t *testing.T) {
	ns, file := servedHere(t)
	flags := proveFlags("-f", file)
	if r := program.RunIn(t, ns, flags...); r.Code != 0 || !strings.HasSuffix(r.Stdout, "all packets: equal\n") {
		t.Fatalf("without other rules: %+v", r)
	}
	for _, c := range []struct {
		name, rules string
		code        int
		want        []string
	}{
		{"a rule in our chain", "insert rule ip nftproxy prerouting ip daddr 10.96.0.10 tcp dport 80 drop", cli.CodeNo,
			[]string{"tcp 10.96.0.10:80", "before: drop\n", "change as the plan says"}},
		{"a chain in our table", "add chain ip nftproxy other { type nat hook prerouting priority -150 ; }\nadd rule ip nftproxy other tcp dport 8443 redirect to :443", cli.CodeNo,
			[]string{"tcp 192.168.7.1:8443", "before: redirect to port 443", "change as the plan says"}},
		{"another program translates first", "add table ip other\nadd chain ip other pre { type nat hook prerouting priority -150 ; }\nadd rule ip other pre ip daddr 10.96.0.10 tcp dport 80 dnat to 192.0.2.9", cli.CodeUnexplained,
			[]string{"tcp 10.96.0.10:80", "before: to 192.0.2.9:80", "the plan does not explain that: with it, to 192.0.2.9:80", "the plan does not explain"}},
		{"another program translates later", "add table ip other\nadd chain ip other pre { type nat hook prerouting priority -50 ; }\nadd rule ip other pre ip daddr 10.96.0.10 tcp dport 80 dnat to 192.0.2.9", 0,
			[]string{"all packets: equal"}},
		{"a filter for a source", "add table inet wall\nadd chain inet wall pre { type filter hook prerouting priority -300 ; }\nadd rule inet wall pre ip saddr 203.0.113.66 drop", cli.CodeUnexplained,
			[]string{"203.0.113.66 (named in a rule)", "before: drop"}},
		{"a rule that is not understood", "add table ip other\nadd chain ip other pre { type filter hook prerouting priority -300 ; }\nadd rule ip other pre ip ttl 1 drop", cli.CodeError,
			[]string{"a load of bytes 8 of a header in chain pre of table other"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			loadRules(t, ns, c.rules)
			r := program.RunIn(t, ns, flags...)
			for _, want := range c.want {
				if r.Code != c.code || !strings.Contains(r.Stdout+r.Stderr, want) {
					t.Fatalf("want code %d and %q: %+v", c.code, want, r)
				}
			}
			if c.code == cli.CodeUnexplained && strings.Contains(c.rules, "dnat") {
				onPage(t, r.Stdout+"3\n")
			}
			loadRules(t, ns, "table ip other\ndelete table ip other\ntable inet wall\ndelete table inet wall")
			if r := program.RunIn(t, ns, append([]string{"apply", "-f", file}, proveNode...)...); r.Code != 0 {
				t.Fatalf("apply: %+v", r)
			}
		})
	}
}

// TestProveRelay: connections to a relay are refused, or reach it while the process that relays has its table
// (4.47, 12.69).
func TestProveRelay(t *testing.T) {
	ns, file := netlab.TestNamespace(t), commandline.WriteFile(t, "kind: Balance\nname: web\nlisten: 203.0.113.10:443\nbackends: [10.128.0.2:8443]\nrelay: true\n")
	if r := program.RunIn(t, ns, "apply", "-f", file); r.Code != 0 {
		t.Fatalf("apply: %+v", r)
	}
	for _, rules := range []string{"", "add table ip nftproxy-relay\nadd chain ip nftproxy-relay input { type filter hook input priority 98 ; }\n" +
		"add rule ip nftproxy-relay input meta iifkind \"vrf\" accept\nadd rule ip nftproxy-relay input ct status dnat tcp dport 10245 meta priority set 7265:6c61"} {
		loadRules(t, ns, rules)
		if r := program.RunIn(t, ns, "diff", "--prove", "-f", file); r.Code != 0 || !strings.HasSuffix(r.Stdout, "all packets: equal\n") {
			t.Errorf("with %q: %+v", rules, r)
		}
	}
}

// TestProveTakeover: the tables of kube-proxy 1.37, as it wrote them for these Services, are read like
// all others, and the plan explains what changes when they go (12.69).
func TestProveTakeover(t *testing.T) {
	tables, err := os.ReadFile("testdata/kube-proxy-1.37.nft")
	if err != nil {
		t.Fatal(err)
	}
	ns, file := netlab.TestNamespace(t), commandline.WriteFile(t, provedServices)
	loadRules(t, ns, string(tables))
	r := program.RunIn(t, ns, proveFlags("-f", file)...)
	onPage(t, r.Stdout)
	if r.Code != cli.CodeNo || !strings.Contains(r.Stdout, "change as the plan says; all other packets: equal") {
		t.Errorf("%+v", r)
	}
}

// onPage fails unless docs/proof.md shows an output.
func onPage(t *testing.T, output string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n"+output+"```") {
		t.Errorf("docs/proof.md does not show:\n%s", output)
	}
}
