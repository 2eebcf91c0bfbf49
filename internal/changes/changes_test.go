package changes_test

import (
	or "cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

const node = `
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/zone: a}}
status: {addresses: [{type: InternalIP, address: 192.168.7.1}]}
---
`

// cart is a Service with everything that can change.
const cart = `
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop, annotations: {nftproxy.dev/scheduler: random}}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.11
  externalIPs: [198.51.100.7]
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}
  loadBalancerSourceRanges: [192.0.2.0/24]
  ports: [{name: http, port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.20}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-1, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.0.0.4], nodeName: node-1}
- {addresses: [10.0.0.5], nodeName: node-2}
---
`

// web is a Service with two ports and two families.
const web = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIPs: [10.96.0.12, "fd00::12"]
  clusterIP: 10.96.0.12
  ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: dns, port: 53, protocol: UDP}]
endpoints:
- {addresses: [10.0.1.1]}
- {addresses: [10.0.1.2]}
- {addresses: [10.0.1.3]}
---
`

func parse(t *testing.T, yaml string) changes.Side {
	t.Helper()
	in, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(yaml)}).Load()
	if err != nil {
		t.Fatalf("%v in\n%s", err, yaml)
	}
	return changes.Side{Snapshot: in.Snapshot, Routing: model.Resolve(in.Snapshot, model.Config{NodeName: "node-1"})}
}

func printed(t *testing.T, services []changes.Service) string {
	t.Helper()
	var b strings.Builder
	changes.Print(&b, services, 0, false)
	return b.String()
}

// compared returns what both ways of comparison say.
func compared(t *testing.T, before, after changes.Side) (objects, rules string) {
	t.Helper()
	was := render.Render(before.Routing)
	is := plan.Settle(was, render.Render(after.Routing))
	p := plan.Diff(was, is)
	return printed(t, changes.Count(changes.Objects(before, after), p)), printed(t, changes.Count(changes.Rules(was, is, p, nil), p))
}

// TestChanges changes one thing after the other. The rules say the same, except where
// the table has their words.
func TestChanges(t *testing.T) {
	for _, c := range []struct {
		name, from, to string
		want           string
		rules          string // empty: the same
	}{
		{"nothing", "shop", "shop", "", ""},
		{"affinity", "timeoutSeconds: 600", "timeoutSeconds: 300", "~ shop/cart: affinity 600 s → 300 s", ""},
		{"affinity off", "sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}", "sessionAffinity: None",
			"~ shop/cart: affinity 600 s → none", ""},
		{"replaced", "10.0.0.5", "10.0.0.9", "~ shop/cart: 1 endpoint replaced (10.0.0.5:8080 → 10.0.0.9:8080)", ""},
		{"affinity and replaced", "timeoutSeconds: 600|10.0.0.5", "timeoutSeconds: 300|10.0.0.9",
			"~ shop/cart: 1 endpoint replaced (10.0.0.5:8080 → 10.0.0.9:8080); affinity 600 s → 300 s", ""},
		{"added endpoints", "- {addresses: [10.0.0.4], nodeName: node-1}\n", "- {addresses: [10.0.0.4], nodeName: node-1}\n- {addresses: [10.0.0.8]}\n- {addresses: [10.0.0.9]}\n",
			"~ shop/cart: 2 endpoints added (10.0.0.8:8080, 10.0.0.9:8080)", ""},
		{"removed endpoint", "- {addresses: [10.0.0.5], nodeName: node-2}\n", "", "~ shop/cart: 1 endpoint removed (10.0.0.5:8080)", ""},
		{"not ready", "[10.0.0.5]", "[10.0.0.5], conditions: {ready: false}", "~ shop/cart: 1 endpoint not ready (10.0.0.5:8080)",
			"~ shop/cart: 1 endpoint removed (10.0.0.5:8080)"},
		{"terminating", "[10.0.0.5]", "[10.0.0.5], conditions: {ready: false, serving: true, terminating: true}",
			"~ shop/cart: 1 endpoint terminating (10.0.0.5:8080)", "~ shop/cart: 1 endpoint removed (10.0.0.5:8080)"},
		{"drained", "labels: {kubernetes.io/service-name: cart}", `labels: {kubernetes.io/service-name: cart}, annotations: {nftproxy.dev/weight: "10.0.0.5=0"}`,
			"~ shop/cart: 1 endpoint drained by weight 0 (10.0.0.5:8080)", "~ shop/cart: 1 endpoint removed (10.0.0.5:8080)"},
		{"backup", "labels: {kubernetes.io/service-name: cart}", `labels: {kubernetes.io/service-name: cart}, annotations: {nftproxy.dev/priority: "10.0.0.5=1"}`,
			"~ shop/cart: 1 endpoint stands by (10.0.0.5:8080)", "~ shop/cart: 1 endpoint removed (10.0.0.5:8080)"},
		{"weight", "labels: {kubernetes.io/service-name: cart}", `labels: {kubernetes.io/service-name: cart}, annotations: {nftproxy.dev/weight: "10.0.0.5=3"}`,
			"~ shop/cart: weight of 10.0.0.5:8080: 1 → 3", ""},
		{"maglev", "scheduler: random", "scheduler: maglev", "~ shop/cart: scheduler random → maglev", ""},
		{"equal weights", "labels: {kubernetes.io/service-name: cart}", `labels: {kubernetes.io/service-name: cart}, annotations: {nftproxy.dev/weight: "3"}`, "", ""},
		{"scheduler", "scheduler: random", "scheduler: source-hash", "~ shop/cart: scheduler random → source-hash", ""},
		{"scheduler of the node", ", annotations: {nftproxy.dev/scheduler: random}", "", "~ shop/cart: scheduler random → round-robin", ""},
		{"limits", "annotations: {", `annotations: {nftproxy.dev/connection-rate: 10/second, nftproxy.dev/max-connections-per-client: "7", `,
			"~ shop/cart: connection rate none → 10/second; connections per client none → 7", ""},
		{"other limits", "annotations: {", `annotations: {nftproxy.dev/max-connections: "7", nftproxy.dev/connection-rate-per-client: 1/minute, `,
			"~ shop/cart: connection rate per client none → 1/minute; connections none → 7", ""},
		{"policy", "clusterIP: 10.96.0.11", "clusterIP: 10.96.0.11\n  externalTrafficPolicy: Local\n  healthCheckNodePort: 32000",
			"~ shop/cart: external traffic policy Cluster → Local; health check node port none → 32000", "~ shop/cart: external traffic policy Cluster → Local"},
		{"client addresses", "annotations: {", "annotations: {nftproxy.dev/client-addresses: keep, ", "~ shop/cart: client addresses masqueraded → kept", ""},
		{"internal policy", "clusterIP: 10.96.0.11", "clusterIP: 10.96.0.11\n  internalTrafficPolicy: Local",
			"~ shop/cart: 1 endpoint not used on this node (10.0.0.5:8080); internal traffic policy Cluster → Local", "~ shop/cart: 1 endpoint removed (10.0.0.5:8080)"},
		{"source ranges", "192.0.2.0/24", "192.0.2.0/25, 198.51.100.0/24", "~ shop/cart: allowed clients: 192.0.2.0/25, 198.51.100.0/24 added, 192.0.2.0/24 removed", ""},
		{"one more range", "192.0.2.0/24", "192.0.2.0/24, 198.51.100.0/24", "~ shop/cart: 1 allowed client added (198.51.100.0/24)", ""},
		{"no ranges", "  loadBalancerSourceRanges: [192.0.2.0/24]\n", "", "~ shop/cart: allowed clients: 192.0.2.0/24 → all", ""},
		{"NodePort", "nodePort: 30080", "nodePort: 30081", "~ shop/cart: NodePort tcp 192.168.7.1:30080 → tcp 192.168.7.1:30081", ""},
		{"no NodePort", ", nodePort: 30080", "", "~ shop/cart: 1 frontend removed (tcp 192.168.7.1:30080 (NodePort))", ""},
		{"node's address", "192.168.7.1", "192.168.7.2", "~ shop/cart: NodePort tcp 192.168.7.1:30080 → tcp 192.168.7.2:30080", ""},
		{"external IPs", "[198.51.100.7]", "[198.51.100.7, 198.51.100.8, 198.51.100.9]",
			"~ shop/cart: 2 frontends added (tcp 198.51.100.8:80 (external IP), tcp 198.51.100.9:80 (external IP))", ""},
		{"load balancer IP", "203.0.113.20", "203.0.113.21", "~ shop/cart: load balancer IP tcp 203.0.113.20:80 → tcp 203.0.113.21:80", ""},
		{"port", "name: http, port: 80, nodePort", "name: http, port: 81, nodePort",
			"~ shop/cart: ClusterIP tcp 10.96.0.11:80 → tcp 10.96.0.11:81; external IP tcp 198.51.100.7:80 → tcp 198.51.100.7:81; load balancer IP tcp 203.0.113.20:80 → tcp 203.0.113.20:81", ""},
		{"another port", "{name: http, port: 80, nodePort: 30080}", "{name: http, port: 80, nodePort: 30080}, {name: more, port: 90}",
			"~ shop/cart: 3 frontends added (tcp 10.96.0.11:90, tcp 198.51.100.7:90 (external IP), tcp 203.0.113.20:90 (load balancer IP)); " +
				"rejects connections: no endpoint can take them (tcp 10.96.0.11:90, tcp 198.51.100.7:90 (external IP), tcp 203.0.113.20:90 (load balancer IP))", ""},
		{"scaled to zero", "- {addresses: [10.0.0.4], nodeName: node-1}\n- {addresses: [10.0.0.5], nodeName: node-2}\n", "  []\n",
			"~ shop/cart: rejects connections: no endpoint can take them; 2 endpoints removed (10.0.0.4:8080, 10.0.0.5:8080)", ""},
		{"ports of two", "10.0.1.2", "10.0.1.9", "~ shop/web: dns: 1 endpoint replaced (10.0.1.2:53 → 10.0.1.9:53); http: 1 endpoint replaced (10.0.1.2:8080 → 10.0.1.9:8080)", ""},
		{"endpoint port", "{name: http, port: 8080}, {name: dns", "{name: http, port: 8081}, {name: dns",
			"~ shop/web: 3 endpoints replaced (10.0.1.1:8080 → 10.0.1.1:8081, 10.0.1.2:8080 → 10.0.1.2:8081, 10.0.1.3:8080 → 10.0.1.3:8081)", ""},
		{"endpoint port and address", "{name: http, port: 8080}, {name: dns, port: 53, protocol: UDP}]\nendpoints:\n- {addresses: [10.0.1.1]}\n- {addresses: [10.0.1.2]}\n- {addresses: [10.0.1.3]}",
			"{name: http, port: 8081}, {name: dns, port: 53, protocol: UDP}]\nendpoints:\n- {addresses: [10.0.0.9]}\n- {addresses: [10.0.1.1]}\n- {addresses: [10.0.1.3]}",
			"~ shop/web: dns: 1 endpoint replaced (10.0.1.2:53 → 10.0.0.9:53); http: 3 endpoints replaced (10.0.1.1:8080 → 10.0.1.1:8081, 10.0.1.2:8080 → 10.0.0.9:8081, 10.0.1.3:8080 → 10.0.1.3:8081)", ""},
		{"port name", "name: http, port: 80}", "name: web, port: 80}",
			`~ shop/web: name of port 80: "http" → "web"; rejects connections: no endpoint can take them (tcp 10.96.0.12:80); 3 endpoints removed (10.0.1.1:8080, 10.0.1.2:8080, 10.0.1.3:8080)`, ""},
		{"many endpoints", "name: dns, port: 53, protocol: UDP}]\nendpoints:\n- {addresses: [10.0.1.1]}", "name: x, port: 53}]\nendpoints:\n- {addresses: [10.0.1.4, 10.0.1.4]}\n- {addresses: [10.0.1.5]}\n- {addresses: [10.0.1.6]}\n- {addresses: [10.0.1.7]}\n- {addresses: [10.0.1.1]}",
			"~ shop/web: rejects connections: no endpoint can take them (udp 10.96.0.12:53); dns: 3 endpoints removed (10.0.1.1:53, 10.0.1.2:53, 10.0.1.3:53); " +
				"http: 4 endpoints added (10.0.1.4:8080, 10.0.1.5:8080, 10.0.1.6:8080 and 1 more)", ""},
		{"removed Service", web, "", "- shop/web: removed, 4 frontends, 6 endpoints", ""},
		{"two families", "fd00::12", "fd00::13", "~ shop/web: http: ClusterIP tcp [fd00::12]:80 → tcp [fd00::13]:80; dns: ClusterIP udp [fd00::12]:53 → udp [fd00::13]:53; rejects connections: no endpoint can take them (tcp [fd00::13]:80, udp [fd00::13]:53)", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := node + cart + web
			after := before
			froms, tos := strings.Split(c.from, "|"), strings.Split(c.to, "|")
			for i := range froms {
				if !strings.Contains(after, froms[i]) {
					t.Fatalf("no %q", froms[i])
				}
				after = strings.ReplaceAll(after, froms[i], tos[i])
			}
			objects, rules := compared(t, parse(t, before), parse(t, after))
			want := ""
			if c.want != "" {
				want = "  " + c.want + "\n"
			}
			if diff := cmp.Diff(want, objects); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if c.rules != "" {
				want = "  " + c.rules + "\n"
			}
			if diff := cmp.Diff(want, rules); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBeyondRules: what objects say beyond the rules is a change, too: settings that no rule
// has, and endpoints that take no connections.
func TestBeyondRules(t *testing.T) {
	const balance = "kind: Balance\nname: web\nlisten: 203.0.113.10:443\nscheduler: maglev\nbackends:\n- 10.128.0.2\n" +
		"- {address: 10.128.0.3, drain: true}\n- {address: 10.128.0.4, backup: true}\n- {address: 10.128.0.5, priority: 2}\n"
	for _, c := range []struct{ from, to, want string }{
		{"", "check: tcp", "health check none → tcp every 2s"},
		{"check: tcp", "", "health check tcp every 2s → none"},
		{"check: tcp", "check: {tcp}", ""},
		{"check: tcp", "check: {http: /healthz, interval: 1h, fall: 10, whenAllFail: reject}", "health check tcp every 2s → http GET /healthz every 1h, fall 10, all fail: reject"},
		{"check: {http: /healthz, interval: 3m, timeout: 1m}", "check: {http: /healthz, interval: 10s, status: 200, host: example.com}",
			`health check http GET /healthz: interval 3m → 10s, timeout 1m → 1s, status 200-399 → 200, host none → "example.com"`},
		{"check: {exec: [/bin/true, a]}", "check: {exec: [/bin/true, b]}", `health check exec /bin/true: arguments ["a"] → ["b"]`},
		{`check: {udp, port: 53, sendHex: "00 ff"}`, `check: {udp, port: 53, sendHex: "00 fe"}`, `health check udp on port 53: send "\x00\xff" → "\x00\xfe"`},
		{"check: {udp, port: 53, send: " + strings.Repeat("a", 99) + "b}", "check: {udp, port: 53, send: " + strings.Repeat("a", 99) + "c}",
			`health check udp on port 53: send "` + strings.Repeat("a", 79) + `… (102 bytes) changes behind that`},
		{"check: {dns: example.com}", "check: {dns: example.com, rcode: NOERROR}", "health check dns example.com. A: rcode NOERROR or NXDOMAIN → NOERROR"},
		{"", "onFailure: close", "on failure default → close"},
		{"onFailure: close", "onFailure: keep", "on failure close → keep"},
		{"0.3, drain", "0.9, drain", "1 server replaced, drained by weight 0 (10.128.0.3:443 → 10.128.0.9:443)"},
		{"0.4, backup", "0.9, backup", "1 server replaced, stands by (10.128.0.4:443 → 10.128.0.9:443)"},
		{"- {address: 10.128.0.4, backup: true}\n", "", "1 server removed, stands by (10.128.0.4:443)"},
		{"- {address: 10.128.0.3, drain: true}\n", "- {address: 10.128.0.3, drain: true}\n- {address: 10.128.0.9, drain: true}\n", "1 server added, drained by weight 0 (10.128.0.9:443)"},
		{"0.3, drain", "0.3, backup", "1 server stands by (10.128.0.3:443), before: drained by weight 0"},
		{"0.4, backup: true", "0.4, backup: true, weight: 7", "weight of 10.128.0.4:443: 1 → 7"},
		{"priority: 2", "priority: 3", "priority of 10.128.0.5:443: 2 → 3"},
		{"scheduler: maglev", "scheduler: maglev\nmaglevTableSize: 4093", "maglev table 1021 slots → 4093 slots"},
		{"scheduler: maglev", "scheduler: maglev\nbackendsFrom: default/kubernetes", "servers from none → default/kubernetes"},
	} {
		before := balance
		if !strings.Contains(balance, c.from) {
			before += c.from + "\n"
		}
		after := before + c.to + "\n"
		if c.from != "" {
			after = strings.Replace(before, c.from, c.to, 1)
		}
		objects, _ := compared(t, parse(t, before), parse(t, after))
		want := ""
		if c.want != "" {
			want = "  ~ default/web: " + c.want + "\n"
		}
		if diff := cmp.Diff(want, objects); diff != "" {
			t.Errorf("%q → %q (-want +got):\n%s", c.from, c.to, diff)
		}
	}
}

// TestSlicesWithoutServices: a daemon knows the slices of changed routes, and not their Services. They say why an
// endpoint is left out.
func TestSlicesWithoutServices(t *testing.T) {
	before := parse(t, node+cart)
	after := parse(t, node+strings.Replace(cart, "nodeName: node-2}", "nodeName: node-2, conditions: {ready: false}}", 1))
	before.Snapshot, after.Snapshot = new(model.Snapshot), &model.Snapshot{Slices: after.Snapshot.Slices}
	if got := printed(t, changes.Objects(before, after)); !strings.Contains(got, "1 endpoint not ready (10.0.0.5:8080)") {
		t.Errorf("got %s", got)
	}
}

// TestServicesWithoutFrontends: a Service that lost all of its frontends to an older one is
// still an object that comes, changes and goes.
func TestServicesWithoutFrontends(t *testing.T) {
	const winner = "kind: Balance\nname: a\nlisten: 203.0.113.10:443\nbackends: [10.128.0.2]\n"
	const loser = "---\nkind: Balance\nname: b\nlisten: 203.0.113.10:443\nbackends: [10.128.0.3]\n"
	for _, c := range []struct{ from, to, want string }{
		{winner, winner + loser, "+ default/b: added, 0 frontends, 0 servers"},
		{winner + loser, winner, "- default/b: removed, 0 frontends, 0 servers"},
		{winner + loser, winner + loser + "check: tcp\n", "~ default/b: health check none → tcp every 2s"},
	} {
		objects, _ := compared(t, parse(t, c.from), parse(t, c.to))
		if objects != "  "+c.want+"\n" {
			t.Errorf("%q, want %q", objects, c.want)
		}
	}
}

const rival = `
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop, creationTimestamp: "2020-01-01T00:00:00Z"}
spec: {clusterIP: 10.96.0.13, externalIPs: [198.51.100.7], ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api-1, namespace: shop, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.2.1]}]
---
`

// TestMaglev changes the Service of a table. Rules show weights by numbers of slots, which
// change with every endpoint.
func TestMaglev(t *testing.T) {
	const endpoint, labels = "- {addresses: [10.0.0.5], nodeName: node-2}\n", "labels: {kubernetes.io/service-name: cart}"
	for _, policy := range []string{"Cluster", "Local"} {
		maglev := func(more string) string {
			text := strings.Replace(node+cart, "scheduler: random", "scheduler: maglev"+more, 1)
			if policy == "Local" {
				text = strings.Replace(text, "clusterIP: 10.96.0.11", "clusterIP: 10.96.0.11\n  externalTrafficPolicy: Local\n  healthCheckNodePort: 32000", 1)
			}
			return strings.Replace(text, endpoint, endpoint+"- {addresses: [10.0.0.6], nodeName: node-1}\n- {addresses: [10.0.0.7], nodeName: node-3}\n", 1)
		}
		for _, c := range []struct{ name, from, to, before, after, want string }{
			{"removed", endpoint, "", "", "", "~ shop/cart: 1 endpoint removed (10.0.0.5:8080)"},
			{"added", endpoint, endpoint + "- {addresses: [10.0.0.9]}\n", "", "", "~ shop/cart: 1 endpoint added (10.0.0.9:8080)"},
			{"weight", labels, labels + `, annotations: {nftproxy.dev/weight: "10.0.0.5=3"}`, "", "", "~ shop/cart: weight of 10.0.0.5:8080: 1 → 3"},
			{"size", "", "", "", `, nftproxy.dev/maglev-table-size: "2039"`, "~ shop/cart: maglev table 1021 slots → 2039 slots"},
		} {
			t.Run(policy+" "+c.name, func(t *testing.T) {
				before, after := maglev(c.before), strings.Replace(maglev(c.after), c.from, c.to, 1)
				if before == after {
					t.Fatal("nothing changes")
				}
				objects, rules := compared(t, parse(t, before), parse(t, after))
				if want := "  " + c.want + "\n"; objects != want || rules != want {
					t.Errorf("objects: %srules: %swant: %s", objects, rules, want)
				}
			})
		}
	}
}

// TestRanges: 4.51. A range is a frontend, and its endpoints have the port that the client
// dialled. One that gets or loses ports is a change, which says what happens to connections
// through the ports that it loses (4.61).
func TestRanges(t *testing.T) {
	const ends = " [UDP flows through other ports end]"
	for _, c := range []struct{ from, to, want string }{
		{"5000-6000/udp, 10.0.0.2", "5000-6000/udp, 10.0.0.2", ""},
		{"5000-6000/udp, 10.0.0.2", "5000-6000/udp, 10.0.0.3", "1 endpoint replaced (10.0.0.2 → 10.0.0.3) [UDP flows move to another one]"},
		{"5000-6000/udp, 10.0.0.2", "5000-7000/udp, 10.0.0.2", "udp A:5000-6000 → udp A:5000-7000"},
		{"5000-6000/udp, 10.0.0.2", "4000-6000/udp, 10.0.0.2", "udp A:5000-6000 → udp A:4000-6000"},
		{"5000-6000/udp, 10.0.0.2", "5500-7000/udp, 10.0.0.2", "udp A:5000-6000 → udp A:5500-7000" + ends},
		{"5000-6000/udp, 10.0.0.2", "5500-5600/udp, 10.0.0.3", "udp A:5000-6000 → udp A:5500-5600" + ends + "; 1 endpoint replaced (10.0.0.2 → 10.0.0.3) [UDP flows move to another one]"},
		{"5000-6000, 10.0.0.2", "5000-5500, 10.0.0.2", "tcp A:5000-6000 → tcp A:5000-5500 [TCP connections continue]"},
		{"5000-6000/udp, 10.0.0.2", "7000-8000/udp, 10.0.0.2", "1 frontend added (udp A:7000-8000); 1 frontend removed (udp A:5000-6000) [UDP flows end]"},
		{"5000-6000/udp, 10.0.0.2", "all, 10.0.0.2", "2 frontends added (tcp A:1-65535, sctp A:1-65535); udp A:5000-6000 → udp A:1-65535"},
		{"5000-6000/udp:9, 10.0.0.2", "5000-6000/udp, 10.0.0.2", `name of port 5000: "5000-6000/udp:9" → "5000-6000/udp"; ` +
			"2 endpoints replaced (10.0.0.1:9 → 10.0.0.1, 10.0.0.2:9 → 10.0.0.2) [UDP flows move to another one]"},
	} {
		before, after := parse(t, ranged(c.from)), parse(t, ranged(c.to))
		was := render.Render(before.Routing)
		is := plan.Settle(was, render.Render(after.Routing))
		for how, got := range map[string][]changes.Service{
			"objects": changes.Objects(before, after), "rules": changes.Rules(was, is, plan.Diff(was, is), nil),
		} {
			if text := withConnections(got); text != c.want {
				t.Errorf("%s, %s → %s:\n%s\nwant\n%s", how, c.from, c.to, text, c.want)
			}
		}
	}
}

// ranged returns a Service with a range of ports, and an endpoint that changes.
func ranged(rangeAndEndpoint string) string {
	ports, endpoint, _ := strings.Cut(rangeAndEndpoint, ", ")
	return fmt.Sprintf(`
{apiVersion: v1, kind: Service, metadata: {name: media, annotations: {nftproxy.dev/ports: '%s'}}, spec: {type: LoadBalancer},
 status: {loadBalancer: {ingress: [{ip: 203.0.113.10}]}}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: media-1, labels: {kubernetes.io/service-name: media}},
 addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}, {addresses: [%s]}]}`, ports, endpoint)
}

// withConnections returns the details of a single Service, with what happens to
// connections in brackets.
func withConnections(services []changes.Service) string {
	var out []string
	for _, s := range services {
		for _, d := range s.Details {
			text := d.Text
			if d.Connections != "" {
				text += " [" + d.Connections + "]"
			}
			out = append(out, text)
		}
	}
	return strings.NewReplacer("load balancer IP ", "", " (load balancer IP)", "", "203.0.113.10", "A").Replace(strings.Join(out, "; "))
}

// TestSteps goes from one input to the next.
func TestSteps(t *testing.T) {
	local := strings.Replace(cart, "clusterIP: 10.96.0.11", "clusterIP: 10.96.0.11\n  externalTrafficPolicy: Local\n  healthCheckNodePort: 32000", 1)
	elsewhere := strings.Replace(local, "nodeName: node-1", "nodeName: node-3", 1)
	unready := strings.ReplaceAll(cart, "nodeName", "conditions: {ready: false}, nodeName")
	for _, c := range []struct {
		name, before, after, want string
		rules                     string // empty: the same
	}{
		{"an older Service takes an address", node + cart, node + cart + rival,
			"+ shop/api: added, 2 frontends, 1 endpoint; tcp 198.51.100.7:80 moves from shop/cart|" +
				"~ shop/cart: tcp 198.51.100.7:80 moves to shop/api", ""},
		{"and gives it back", node + cart + rival, node + cart,
			"- shop/api: removed, 2 frontends, 1 endpoint; tcp 198.51.100.7:80 moves to shop/cart|" +
				"~ shop/cart: tcp 198.51.100.7:80 moves from shop/api", ""},
		{"the last local endpoint leaves", node + local, node + elsewhere,
			"~ shop/cart: drops connections: no endpoint on this node, from outside (tcp 192.168.7.1:30080 (NodePort), tcp 198.51.100.7:80 (external IP), tcp 203.0.113.20:80 (load balancer IP))", ""},
		{"and returns", node + elsewhere, node + local,
			"~ shop/cart: takes connections again, from outside (tcp 192.168.7.1:30080 (NodePort), tcp 198.51.100.7:80 (external IP), tcp 203.0.113.20:80 (load balancer IP))", ""},
		{"ready", node + unready, node + cart,
			"~ shop/cart: takes connections again; 2 endpoints used again (10.0.0.4:8080, 10.0.0.5:8080), before: not ready",
			"~ shop/cart: takes connections again; 2 endpoints added (10.0.0.4:8080, 10.0.0.5:8080)"},
		{"a Service without endpoints", node, node + unready, "+ shop/cart: added, 4 frontends, 0 endpoints; rejects connections: no endpoint can take them", ""},
		{"everything", node, node + web + rival, "+ shop/api: added, 2 frontends, 1 endpoint|+ shop/web: added, 4 frontends, 6 endpoints; rejects connections: no endpoint can take them (tcp [fd00::12]:80, udp [fd00::12]:53)", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, rules := compared(t, parse(t, c.before), parse(t, c.after))
			lines := func(text string) string { return "  " + strings.ReplaceAll(text, "|", "\n  ") + "\n" }
			if diff := cmp.Diff(lines(c.want), objects); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(lines(or.Or(c.rules, c.want)), rules); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRivals: whatever changes, a Service whose rules change so that clients notice is
// among those whose objects do, and both ways agree on what comes and goes.
func TestRivals(t *testing.T) {
	w, r := workload.NewRivals(), rand.New(rand.NewPCG(1, 2))
	before := w.Resolve()
	rules := render.Render(before)
	seen := make(map[changes.Kind]int)
	for range 2000 {
		w.Change(r)
		after := w.Resolve()
		settled := plan.Settle(rules, render.Render(after))
		p := plan.Diff(rules, settled)
		byRules := changes.Rules(rules, settled, p, nil)
		none := &model.Snapshot{}
		byObjects := make(map[model.ServiceName]changes.Service)
		for _, s := range changes.Objects(changes.Side{Snapshot: none, Routing: before}, changes.Side{Snapshot: none, Routing: after}) {
			byObjects[s.Name] = s
		}
		for _, s := range byRules {
			if o, ok := byObjects[s.Name]; !ok || o.Action != s.Action {
				t.Fatalf("rules: %s\nobjects: %s", s.String(), o.String())
			}
			for _, d := range s.Details {
				seen[d.Kind]++
			}
		}
		if p.Empty() && len(byRules) > 0 {
			t.Fatalf("no changes, and %v", byRules)
		}
		before, rules = after, settled
	}
	for _, k := range []changes.Kind{changes.KindFrontends, changes.KindVerdict, changes.KindEndpoints, changes.KindWeights, changes.KindPolicy, changes.KindMoved,
		changes.Kind(setting.Affinity.Kind), changes.Kind(setting.Scheduler.Kind), changes.Kind(setting.AllowedClients.Kind)} {
		if seen[k] == 0 {
			t.Errorf("no change of %s", k)
		}
	}
}

// TestConnections: what happens to established connections depends on the protocol and
// on whether an endpoint still serves (9.3, 9.4, 9.8).
func TestConnections(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"removed", "- {addresses: [10.0.1.1]}\n", "", "UDP flows move to another one|TCP connections stay with their endpoint"},
		{"not ready", "[10.0.1.1]", "[10.0.1.1], conditions: {ready: false, serving: false}", "UDP flows move to another one|TCP connections stay with their endpoint"},
		{"still serving", "[10.0.1.1]", "[10.0.1.1], conditions: {ready: false, serving: true, terminating: true}", "connections continue|connections continue"},
		{"no longer serving", "[10.0.1.1]", "[10.0.1.1], conditions: {ready: false, serving: false, terminating: true}",
			"UDP flows move to another one|TCP connections stay with their endpoint"},
		{"added", "- {addresses: [10.0.1.1]}\n", "- {addresses: [10.0.1.1]}\n- {addresses: [10.0.1.9]}\n", "|"},
		{"port", ", {name: dns, port: 53, protocol: UDP}]\n---", "]\n---", "UDP flows end"},
		{"Service", web, "", "TCP connections continue, UDP flows end"},
	} {
		services, _ := planned(t, node+web, node+strings.Replace(web, c.from, c.to, 1))
		var got []string
		for _, s := range services {
			for _, d := range s.Details {
				got = append(got, d.Connections)
			}
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	closing := strings.Replace(web, "{name: web, namespace: shop}", "{name: web, namespace: shop, annotations: {nftproxy.dev/on-failure: close}}", 1)
	for to, want := range map[string]string{
		closing: "", "": "TCP connections end, UDP flows end",
		strings.Replace(closing, "- {addresses: [10.0.1.1]}\n", "", 1): "UDP flows move to another one|TCP connections end",
	} {
		services, _ := planned(t, node+closing, node+to)
		var got []string
		for _, s := range services {
			for _, d := range s.Details {
				got = append(got, d.Connections)
			}
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: %q, want %q", to, got, want)
		}
	}
	bound, _ := planned(t, node+cart, node+strings.Replace(cart, "10.0.0.5", "10.0.0.9", 1))
	if got := bound[0].Details[0].Connections; got != "TCP connections stay with their endpoint; clients bound to it are balanced again" {
		t.Errorf("with affinity: %q", got)
	}
}
