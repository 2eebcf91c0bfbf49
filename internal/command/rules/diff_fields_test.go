package rules

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
)

// TestDiffShowsEachField: 12.67. It removes and changes every field of the examples, each
// alone. An input that means something else gives a line about its Service and exit code 1, and one
// that means the same gives none: the files decide, not what happens to be in the rules.
func TestDiffShowsEachField(t *testing.T) {
	for name, text := range fieldInputs(t) {
		t.Run(name, func(t *testing.T) {
			before, old, node := commandline.WriteFile(t, text), meaning(text), commandline.WriteFile(t, commandline.Node)
			if old == nil {
				t.Fatalf("invalid: %s", text)
			}
			seen := make(map[string]bool) // fields with a change
			for _, v := range variants(t, text, old) {
				now := meaning(v.text)
				if now == nil {
					continue // the field is required
				}
				want, code := true, cli.CodeNo
				if reflect.DeepEqual(old, now) {
					want, code = false, 0
				}
				r := program.Run("", "diff", "--from", before, "--from", node, "-f", commandline.WriteFile(t, v.text), "-f", node, "--hostname-override", "node-1")
				if r.Code != code || serviceLine.MatchString(r.Stdout) != want {
					t.Errorf("%s: code %d, want %d:\n%s%s", v.what, r.Code, code, r.Stdout, r.Stderr)
				}
				seen[v.field] = seen[v.field] || want
			}
			walk(document(t, text), "", func(field string, _, node *yaml.Node) {
				if !seen[field] && node.Kind == yaml.ScalarNode && node.Value != "" && !meaningless.MatchString(field) {
					t.Errorf("no change of %s was tried", field)
				}
			})
		})
	}
}

// meaningless are fields of which no other value is valid, or means something else.
var meaningless = regexp.MustCompile(`(^|\.)(apiVersion|kind|addressType|check\.udp)$|^items\[1\]\.metadata\.name$`)

// serviceLine is a line about a Service in a plan.
var serviceLine = regexp.MustCompile(`(?m)^  [-+~] \S+/\S+: .`)

// fieldInputs returns the examples, and a Balance with each health check of the
// documentation.
func fieldInputs(t *testing.T) map[string]string {
	t.Helper()
	out := make(map[string]string)
	files, err := filepath.Glob("../../../docs/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(path)] = masqueradeFrom.ReplaceAllString(string(text), "")
	}
	page, err := os.ReadFile("../../../docs/health-checks.md")
	if err != nil {
		t.Fatal(err)
	}
	const balance = "kind: Balance\nname: web\nlisten: [\"203.0.113.10:443\", \"203.0.113.10:443/udp\"]\nbackends: [10.128.0.2, 10.128.0.3]\n"
	for i, check := range regexp.MustCompile(`(?m)^check: .*$`).FindAllString(string(page), -1) {
		out[fmt.Sprintf("check %d", i)] = balance + check + "\n"
	}
	out["masqueradeFrom"] = balance + "masqueradeFrom: [192.0.2.21, 192.0.2.22]\n"
	out["Kubernetes"] = kubernetesFields
	out["idle"] = idleFields
	return out
}

// masqueradeFrom is the field beside which clientAddresses has one value only.
var masqueradeFrom = regexp.MustCompile(`(?m)^masqueradeFrom:.*\n`)

// kubernetesFields has most of what a Service and an EndpointSlice can ask for.
const kubernetesFields = `
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata:
    name: cart
    namespace: shop
    annotations:
      nftproxy.dev/description: the cart
      nftproxy.dev/scheduler: maglev
      nftproxy.dev/maglev-table-size: "4093"
      nftproxy.dev/client-addresses: masquerade
      nftproxy.dev/health-check: "{http: /healthz, interval: 5s}"
      nftproxy.dev/on-failure: close
      nftproxy.dev/slow-start: 30s
      nftproxy.dev/endpoints-from: default/kubernetes
      nftproxy.dev/zone-floor: 40%
      nftproxy.dev/ports: 5000-5099/tcp
      nftproxy.dev/source-ranges: 192.0.2.0/24
      nftproxy.dev/denied-sources: 192.0.2.128/25
      nftproxy.dev/max-connections: "100"
      nftproxy.dev/max-connections-per-client: "7"
      nftproxy.dev/connection-rate: 10/second
      nftproxy.dev/connection-rate-per-client: 5/second
  spec:
    type: LoadBalancer
    clusterIP: 10.96.0.11
    externalIPs: [198.51.100.7]
    externalTrafficPolicy: Local
    internalTrafficPolicy: Local
    healthCheckNodePort: 32000
    sessionAffinity: ClientIP
    sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}
    ports: [{name: http, port: 80, nodePort: 30080}]
  status: {loadBalancer: {ingress: [{ip: 203.0.113.20}]}}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata:
    name: cart-1
    namespace: shop
    labels: {kubernetes.io/service-name: cart}
    annotations: {nftproxy.dev/weight: "10.0.0.4=2,10.0.0.5=0", nftproxy.dev/priority: "10.0.0.4=1,10.0.0.6=2"}
  addressType: IPv4
  ports: [{name: http, port: 8080}]
  endpoints:
  - {addresses: [10.0.0.4], nodeName: node-1, zone: zone-a, conditions: {ready: true}}
  - {addresses: [10.0.0.5]}
  - {addresses: [10.0.0.6]}
  - {addresses: [10.0.0.7], conditions: {ready: false}}
`

// idleFields is a Balance without usable servers.
const idleFields = `
kind: Balance
name: web
listen: 203.0.113.10:443
backends:
- {address: 10.128.0.2, drain: true}
- {address: 10.128.0.3, weight: 0}
affinity: 10m
clientAddresses: keep
maglevTableSize: 4093
scheduler: maglev
clients: 192.0.2.0/24
deny: 192.0.2.128/25
limits: {connections: 100, connectionsPerClient: 7, rate: 10/second, ratePerClient: 5/second burst 7}
check: {http: /healthz, whenAllFail: reject}
onFailure: close
`

// meaning returns the objects of a file as the node sees them, or nil for an invalid one. A
// default that is written down means the same.
func meaning(text string) any {
	in, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text)}).Load()
	if err != nil {
		return nil
	}
	for _, s := range in.Snapshot.Slices {
		s.Name = "" // of the object alone
	}
	for _, s := range in.Snapshot.Services {
		s.Scheduler = cmp.Or(s.Scheduler, model.RoundRobin)
		if s.Balance && s.ClientAddresses == model.MasqueradeClientAddresses {
			s.ClientAddresses = model.DefaultClientAddresses
		}
	}
	return in.Snapshot
}

// variant is an input with one change.
type variant struct{ field, what, text string }

// variants returns inputs in which one field has another value, or is missing.
func variants(t *testing.T, text string, old any) (out []variant) {
	t.Helper()
	walk(document(t, text), "", func(field string, _, node *yaml.Node) {
		out = append(out, variant{field, field + " removed", edited(t, text, field, removeNode)})
		for _, candidates := range otherValues(node) {
			for _, value := range candidates { // the first one that means something else
				v := variant{field, fmt.Sprintf("%s: %q → %q", field, node.Value, value), edited(t, text, field, func(_, n *yaml.Node) { setScalar(n, value) })}
				if now := meaning(v.text); now != nil && !reflect.DeepEqual(old, now) {
					out = append(out, v)
					break
				}
			}
		}
	})
	return out
}

// setScalar sets a value: a number and a truth value as such.
func setScalar(n *yaml.Node, value string) {
	n.Value, n.Tag, n.Style = value, "", 0
	if _, err := strconv.Atoi(value); err != nil && value != "true" && value != "false" {
		n.Tag = "!!str"
	}
}

// fewValues are values of fields that have one of a few.
var fewValues = []string{"true", "false", "random", "source-hash", "keep", "udp", "tcp, udp", "reject", "HEAD", "TXT", "SERVFAIL", "http", "7s"}

// otherValues returns values that may be valid in place of that of a scalar: with another
// number in each place, and other text.
func otherValues(node *yaml.Node) (out [][]string) {
	value := node.Value
	if node.Kind != yaml.ScalarNode || value == "" {
		return nil
	}
	for _, at := range regexp.MustCompile(`[0-9]+`).FindAllStringIndex(value, -1) {
		if n, err := strconv.Atoi(value[at[0]:at[1]]); err == nil {
			with := func(n int) string { return value[:at[0]] + strconv.Itoa(n) + value[at[1]:] }
			out = append(out, []string{with(n + 1), with(n - 1)})
		}
	}
	return append(out, append([]string{value + "x", "x" + value}, fewValues...))
}

func document(t *testing.T, text string) *yaml.Node {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Content[0]
}

// walk calls f with each field and item below a node.
func walk(node *yaml.Node, path string, f func(path string, parent, node *yaml.Node)) {
	for i, child := range node.Content {
		here := fmt.Sprintf("%s[%d]", path, i)
		if node.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue
			}
			here = strings.TrimPrefix(path+"."+node.Content[i-1].Value, ".")
		}
		f(here, node, child)
		walk(child, here, f)
	}
}

// edited returns a file after a change of the field at a path.
func edited(t *testing.T, text, path string, change func(parent, node *yaml.Node)) string {
	t.Helper()
	doc := document(t, text)
	type place struct{ parent, node *yaml.Node }
	var at place
	walk(doc, "", func(p string, parent, node *yaml.Node) {
		if p == path {
			at = place{parent, node}
		}
	})
	change(at.parent, at.node)
	out, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// removeNode removes a field with its name, or an item.
func removeNode(parent, node *yaml.Node) {
	i := slices.Index(parent.Content, node)
	first := i
	if parent.Kind == yaml.MappingNode {
		first--
	}
	parent.Content = slices.Delete(parent.Content, first, i+1)
}
