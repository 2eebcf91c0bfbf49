package main

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/google/nftables"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// evil clears a terminal, colours it by a character of eight bits, begins a line
// and a column, and turns the direction of writing.
const evil = "a\x1b[2J\u009b31m\nforged\tx\r\u202e\x7f"

// checkPlain wants no character in an output that does something to a terminal.
func checkPlain(t *testing.T, what, output string) {
	t.Helper()
	if i := strings.IndexFunc(output, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%s writes %q", what, output[max(0, i-40):min(len(output), i+40)])
	}
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "forged") {
			t.Errorf("%s: a foreign line: %q", what, line)
		}
	}
}

// hostileObjects have evil in every place that holds a text and is not bound by
// the rules for names.
var hostileObjects = strings.NewReplacer("EVIL", strconv.QuoteToASCII(evil), "ELSEWHERE", strconv.QuoteToASCII("x"+evil)).Replace(`
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/zone: EVIL, a: EVIL}, annotations: {a: EVIL}}
spec: {podCIDRs: [10.128.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.7.1}, {type: Hostname, address: EVIL}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, annotations: {nftproxy.dev/scheduler: EVIL, a: EVIL}, labels: {a: EVIL}}
spec:
  clusterIP: 10.96.0.10
  externalName: EVIL
  selector: {a: EVIL}
  internalTrafficPolicy: Local
  ports: [{name: http, port: 80, appProtocol: EVIL}]
---
apiVersion: v1
kind: Service
metadata: {name: near}
spec: {clusterIP: 10.96.0.11, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}, annotations: {nftproxy.dev/weight: EVIL}}
addressType: IPv4
ports: [{name: http, port: 8080, appProtocol: EVIL}]
endpoints: [{addresses: [10.128.1.1], nodeName: EVIL, zone: EVIL, hostname: EVIL, deprecatedTopology: {a: EVIL}, targetRef: {kind: EVIL, name: EVIL}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: near-1, labels: {kubernetes.io/service-name: near}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.128.1.1], hints: {forZones: [{name: EVIL}]}}
- {addresses: [10.128.1.2], hints: {forZones: [{name: ELSEWHERE}, {name: b}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: lost, labels: {kubernetes.io/service-name: EVIL}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.128.1.1]}]
---
apiVersion: v1
kind: EVIL
metadata: {name: EVIL}
`)

// TestHostileNames: texts of objects that no rule for names binds reach neither a
// terminal nor the rules, and forge no line, in anything that is printed or
// logged.
func TestHostileNames(t *testing.T) {
	path := writeFile(t, hostileObjects)
	ns := netlab.TestNamespace(t)
	for _, command := range []string{
		"render", "render -o json", "explain tcp 10.96.0.10:80", "explain tcp 10.96.0.10:80 -o json",
		"explain tcp 10.96.0.11:80", "diff", "diff -o json", "diff -o markdown", "diff --color never", "apply",
	} {
		for _, format := range []string{"text", "json"} {
			args := append(strings.Fields(command), "-f", path, "--hostname-override", "node-1", "--logging-format", format)
			r := in(t, ns, args...)
			if r.code == cli.CodeError {
				t.Errorf("%s: %s", command, r.stderr)
			}
			checkPlain(t, command, r.stdout)
			checkPlain(t, command+": the log", r.stderr)
			for line := range strings.Lines(r.stderr) {
				if format == "json" && !json.Valid([]byte(line)) || format == "text" && !strings.HasPrefix(line, "time=") && !strings.HasPrefix(line, "warning: ") {
					t.Errorf("%s: no line of a log: %q", command, line)
				}
			}
			if strings.HasSuffix(command, "json") && !json.Valid([]byte(r.stdout)) {
				t.Errorf("%s: no JSON:\n%s", command, r.stdout)
			}
		}
	}
	if r := execute("", "render", "-f", path, "--hostname-override", "node-1"); strings.Contains(r.stdout, "forged") {
		t.Errorf("the rules have texts of others:\n%s", r.stdout)
	}
	for target, want := range map[string]string{
		"10.96.0.10:80": `it is on node a\x1b[2J`, "10.96.0.11:80": `its topology hints are for zone xa\x1b[2J`,
	} {
		if r := execute("", "explain", "tcp", target, "-f", path, "--hostname-override", "node-1"); !strings.Contains(r.stdout, want) {
			t.Errorf("explain does not say why the endpoint is left out:\n%s", r.stdout)
		}
	}
}

// TestHostileErrors: the same for what is wrong with files.
func TestHostileErrors(t *testing.T) {
	text := strconv.QuoteToASCII(evil)
	for name, content := range map[string]string{
		"name":            `{apiVersion: v1, kind: Service, metadata: {name: ` + text + `, namespace: ` + text + `}, spec: {clusterIP: 10.96.0.1}}`,
		"port name":       `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: 10.96.0.1, ports: [{name: ` + text + `, port: 80, protocol: ` + text + `}]}}`,
		"address":         `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: ` + text + `, externalIPs: [` + text + `]}}`,
		"field":           `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {` + text + `: 1}}`,
		"kind":            `{apiVersion: v1, kind: ` + text + `, metadata: {name: a}}`,
		"version":         `{apiVersion: ` + text + `, kind: Service, metadata: {name: a}}`,
		"annotation":      `{apiVersion: v1, kind: Service, metadata: {name: 1a_, annotations: {` + strconv.QuoteToASCII("nftproxy.dev/"+evil) + `: a}}, spec: {clusterIP: 10.96.0.1}}`,
		"no YAML":         "\x1b[2J: [",
		"character":       "kind: \x1b[2J",
		"reference":       "a: *\u009b31m",
		"duplicate field": `{` + text + `: 1, ` + text + `: 2}`,
	} {
		path := filepath.Join(t.TempDir(), "a\x1b[2J\nforged.yaml")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		r := execute("", "render", "-f", path)
		if r.code != cli.CodeError {
			t.Errorf("%s: code %d, %s%s", name, r.code, r.stdout, r.stderr)
		}
		checkPlain(t, name, r.stderr)
	}
	r := execute("", "render", "-f", "missing\x1b[2J")
	checkPlain(t, "missing file", r.stderr)
	r = execute("", "rend\x1b[2Jer")
	checkPlain(t, "command", r.stderr)
}

// TestHostileKernel: what others with CAP_NET_ADMIN write into our table does not
// reach the terminal of who looks at it.
func TestHostileKernel(t *testing.T) {
	ns := netlab.TestNamespace(t)
	path := writeFile(t, service)
	if r := in(t, ns, "apply", "-f", path); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if err := ns.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "nftproxy"}
		c.AddChain(&nftables.Chain{Table: table, Name: "forged\x1b[2J\n"})
		set, err := c.GetSetByName(table, "services")
		if err != nil {
			return err
		}
		// 10.96.0.99 . tcp . 81 : 0:1
		if err := c.SetAddElements(set, []nftables.SetElement{{
			Key:     []byte{10, 96, 0, 99, 6, 0, 0, 0, 0, 81, 0, 0},
			Val:     binary.NativeEndian.AppendUint32(nil, 1),
			Comment: evil,
		}}); err != nil {
			return err
		}
		return c.Flush()
	}); err != nil {
		t.Fatal(err)
	}
	address := unusedAddress()
	for _, command := range []string{"diff -f FILE", "diff -o json -f FILE", "diff -o markdown -f FILE", "explain tcp 10.96.0.99:81", "explain -o json tcp 10.96.0.99:81",
		"status --metrics-bind-address " + address, "status -o json --metrics-bind-address " + address, "apply -f FILE"} {
		r := in(t, ns, strings.Fields(strings.ReplaceAll(command, "FILE", path))...)
		if r.code == cli.CodeError {
			t.Errorf("%s: %s", command, r.stderr)
		}
		if strings.Contains(command, "json") { // for programs: names as they are
			if !json.Valid([]byte(r.stdout)) || strings.Contains(r.stdout, "\x1b") {
				t.Errorf("%s writes %q", command, r.stdout)
			}
			continue
		}
		checkPlain(t, command, r.stdout+r.stderr)
	}
}
