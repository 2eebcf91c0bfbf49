package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// misnamed is a Service whose slice has another name for its port.
const misnamed = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: htpp, port: 8080}]
endpoints: [{addresses: [10.128.0.2]}]
`

const misnamedWarning = "standard input: document 1 (line 4): Service shop/web: spec.ports[0]: port http has no endpoints: EndpointSlice shop/web-1 has ports: htpp (did you mean http?)\n"

// TestValidate: 12.71, with the warnings of 1.37.
func TestValidate(t *testing.T) {
	good := strings.Replace(misnamed, "htpp", "http", 1)
	for _, c := range []struct {
		name, input, flags string
		code               int
		want               string
	}{
		{"valid", good, "", 0, "1 Service, 1 EndpointSlice: valid\n"},
		{"valid, strict", good, "--strict", 0, "1 Service, 1 EndpointSlice: valid\n"},
		{"warning", misnamed, "", 0, "warning: " + misnamedWarning + "1 Service, 1 EndpointSlice: valid, 1 warning\n"},
		{"warning, strict", misnamed, "--strict", cli.CodeError, "warning: " + misnamedWarning + "1 Service, 1 EndpointSlice: 1 warning (--strict)\n"},
		{"two Services with one address",
			good + "---\napiVersion: v1\nkind: Service\nmetadata: {name: zeb, namespace: shop}\nspec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}\n" +
				"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: zeb-1, namespace: shop, labels: {kubernetes.io/service-name: zeb}}\naddressType: IPv4\n", "", 0,
			"warning: standard input: document 3 (line 13): Service shop/zeb: tcp 10.96.0.10:80 (ClusterIP of port \"http\") is served by Service shop/web, not by this one\n" +
				"2 Services, 2 EndpointSlices: valid, 1 warning\n"},
		{"only a list of servers", "kind: Servers\nname: web\nservers: [10.1.0.11]\n", "", 0,
			"warning: standard input: document 1 (line 1): Servers web: is used by no Balance: name it in one, like \"backends: {servers: web}\", or remove it\n" +
				"no Balance or Service: valid, 1 warning\n"},
		{"other kinds are no warning", good + "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n", "--strict", 0,
			"note: skipped 1 object of other kinds: Deployment 1\n1 Service, 1 EndpointSlice: valid\n"},
		{"problem", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIp: 10.96.0.10}\n", "", cli.CodeError,
			"error: standard input: document 1 (line 4): Service default/web: spec.clusterIp: unknown field: did you mean clusterIP?\ninvalid: 1 problem\n"},
		{"no YAML", "root:x:0:0:root:/root:/bin/bash\ndaemon:x\n", "", cli.CodeError,
			"error: standard input: document 1 (line 1): text is not an object: write a Balance, as \"nftproxy new\" prints it, or a Kubernetes object with fields such as \"apiVersion: v1\" and \"kind: Service\"\ninvalid: 1 problem\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := execute(c.input, strings.Fields("validate -f - "+c.flags)...)
			if diff := cmp.Diff(c.want, r.stdout); r.code != c.code || r.stderr != "" || diff != "" {
				t.Errorf("code %d, want %d; %s; output (-want +got):\n%s", r.code, c.code, r.stderr, diff)
			}
		})
	}
}

// TestValidateJSON has a finding for each problem and warning.
func TestValidateJSON(t *testing.T) {
	type report struct {
		Valid              bool
		Summary            string
		Objects            map[string]int
		Problems, Warnings []map[string]any
	}
	for _, c := range []struct {
		input, flags string
		code         int
		want         report
	}{
		{misnamed, "--strict", cli.CodeError, report{
			Summary: "1 Service, 1 EndpointSlice: 1 warning (--strict)", Objects: map[string]int{"Service": 1, "EndpointSlice": 1}, Problems: []map[string]any{},
			Warnings: []map[string]any{{"file": "standard input", "line": 4.0, "object": "Service shop/web", "field": "spec.ports[0]",
				"message": "port http has no endpoints: EndpointSlice shop/web-1 has ports: htpp (did you mean http?)"}},
		}},
		{"kind: [", "", cli.CodeError, report{
			Summary: "invalid: 1 problem", Warnings: []map[string]any{},
			Problems: []map[string]any{{"file": "standard input", "line": 1.0,
				"message": "broken YAML: did not find expected node content: check the indentation of this line and of the one before"}},
		}},
	} {
		r := execute(c.input, strings.Fields("validate -o json -f - "+c.flags)...)
		var got report
		if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); r.code != c.code || diff != "" {
			t.Errorf("code %d, want %d (-want +got):\n%s", r.code, c.code, diff)
		}
	}
	if r := execute("", "validate"); r.code != cli.CodeError || !strings.Contains(r.stderr, "name a file with -f") {
		t.Errorf("code %d, %s", r.code, r.stderr)
	}
}

// TestStrict: 12.72. With --strict a warning is an error, and nothing is printed or
// changed; without it, it is a line for a person, or for a program.
func TestStrict(t *testing.T) {
	ns := netlab.TestNamespace(t)
	path := writeFile(t, misnamed)
	said := strings.Replace(misnamedWarning, "standard input", path, 1)
	node := []string{"-f", path, "--hostname-override", ""}
	before := ns.TestGeneration(t)
	for _, command := range []string{"render", "diff", "apply"} {
		args := append([]string{command, "--strict"}, node...)
		r := in(t, ns, args...)
		want := "warning: " + said + "nftproxy: --strict: 1 warning about the input: nothing is done\n"
		if diff := cmp.Diff(want, onlyInput(r.stderr)); r.code != cli.CodeError || r.stdout != "" || diff != "" {
			t.Errorf("%s: code %d, %s; log (-want +got):\n%s", command, r.code, r.stdout, diff)
		}
	}
	if after := ns.TestGeneration(t); after != before {
		t.Errorf("the rules were changed: generation %d after %d", after, before)
	}
	if r := in(t, ns, append([]string{"apply"}, node...)...); r.code != 0 || onlyInput(r.stderr) != "warning: "+said {
		t.Errorf("apply: code %d, %s", r.code, r.stderr)
	}
	r := in(t, ns, append([]string{"render", "--logging-format", "json"}, node...)...)
	var line struct{ Level, Msg string }
	first, _, _ := strings.Cut(r.stderr, "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil || line.Level != "WARN" || line.Msg+"\n" != said {
		t.Errorf("render: %v, %s", err, r.stderr)
	}
}

// onlyInput returns a log without what it says about the node.
func onlyInput(log string) (out string) {
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "warning: Node ") {
			out += line
		}
	}
	return out
}

// TestRunWarnings: run logs a warning when it appears, in its own format, and the
// status has it (1.37).
func TestRunWarnings(t *testing.T) {
	ns := netlab.TestLab(t, 0).Node.Namespace
	path := writeFile(t, misnamed)
	p := start(t, ns, "nftproxy", "run", "-f", path, noLimit)
	said := strings.Replace(strings.TrimSpace(misnamedWarning), "standard input", path, 1)
	status := func() string {
		c := start(t, ns, "nftproxy", "status")
		_ = c.Wait() // it fails until there is a daemon
		return c.output.String()
	}
	eventually(t, "status has the warning", func() bool { return strings.Contains(status(), said) })
	replace := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	replace(strings.Replace(misnamed, "10.96.0.10", "10.96.0.11", 1))
	eventually(t, "the change is applied", func() bool { return strings.Contains(status(), "10.96.0.11") })
	if got := strings.Count(p.log.String(), "level=WARN msg=\""+said+"\""); got != 1 {
		t.Errorf("the warning is logged %d times, want once:\n%s", got, &p.log)
	}
	replace(strings.Replace(misnamed, "htpp", "http", 1))
	eventually(t, "the warning ends", func() bool {
		s := status()
		return strings.Contains(s, "10.96.0.10") && !strings.Contains(s, "did you mean")
	})
}

// TestValidateChecks: a Balance of several servers without a health check has a note, which
// changes no exit code.
func TestValidateChecks(t *testing.T) {
	balance := func(lines ...string) string {
		return "kind: Balance\nname: web\nlisten: 203.0.113.10:80\n" + strings.Join(lines, "\n") + "\n"
	}
	const note = "note: standard input: document 1 (line 1): Balance web: check: missing: a dead server keeps its share of the connections; "
	for text, want := range map[string]string{
		balance("backends: [10.0.0.1, 10.0.0.2]"):                          note + "add for example \"check: tcp\"\n1 Balance: valid\n",
		balance("backends: [10.0.0.1, 10.0.0.2]", "protocol: udp"):         note + "docs/health-checks.md has checks for each protocol\n1 Balance: valid\n",
		balance("backends: [10.0.0.1, {address: 10.0.0.2, backup: true}]"): note + "add for example \"check: tcp\"\n1 Balance: valid\n",
		balance("backends: [10.0.0.1, 10.0.0.2]", "check: tcp"):            "1 Balance: valid\n",
		balance("backends: 10.0.0.1"):                                      "1 Balance: valid\n",
		balance("backends: [10.0.0.1:80, 10.0.0.1:81]"):                    "1 Balance: valid\n",
		service: "1 Service, 1 EndpointSlice: valid\n",
	} {
		if r := execute(text, "validate", "--strict", "-f", "-"); r.code != 0 || r.stdout != want {
			t.Errorf("code %d, %q, want %q in\n%s", r.code, r.stdout, want, text)
		}
	}
	r := execute(balance("backends: [10.0.0.1, 10.0.0.2]"), "validate", "-f", "-", "-o", "json")
	var f findings
	if err := json.Unmarshal([]byte(r.stdout), &f); err != nil || len(f.Notes) != 1 || f.Notes[0].Field != "check" || f.Notes[0].Line != 1 || len(f.Warnings) > 0 {
		t.Errorf("JSON: %v, %s", err, r.stdout)
	}
}

// TestValidateLoop: 1.49. A server that is an address and port of another Balance gets no connections:
// validate and describe say so. A relay reaches such a Balance, unless that has a relay, too.
func TestValidateLoop(t *testing.T) {
	balance := func(name, address, server, more string) string {
		return "kind: Balance\nname: " + name + "\nlisten: " + address + ":80\nbackends: [" + server + ":80]\n" + more + "---\n"
	}
	end := balance("end", "203.0.113.3", "10.1.1.2", "")
	relay := balance("relay", "203.0.113.4", "10.1.1.2", "relay: true\n")
	for _, c := range []struct {
		name, input, of string
	}{
		{"rules twice", balance("first", "203.0.113.1", "203.0.113.3", "") + end, "Balance end"},
		{"rules, then a relay", balance("first", "203.0.113.1", "203.0.113.4", "") + relay, "Balance relay"},
		{"a relay, then rules", balance("first", "203.0.113.1", "203.0.113.3", "relay: true\n") + end, ""},
		{"a relay, then a relay", balance("first", "203.0.113.1", "203.0.113.4", "relay: true\n") + relay, "Balance relay"},
		{"another port", balance("first", "203.0.113.1", "203.0.113.3:8", "") + end, ""},
	} {
		input := strings.Replace(c.input, ":8:80", ":8080", 1)
		server := "203.0.113.3:80"
		if c.of == "Balance relay" {
			server = "203.0.113.4:80"
		}
		text := "server " + server + " is an address and port of " + c.of + " on this machine, and gets no connections"
		warns := func(out string) bool { return strings.Contains(out, "gets no connections") }
		r := execute(input, "validate", "-f", "-")
		if r.code != 0 || warns(r.stdout) != (c.of != "") || c.of != "" && !strings.Contains(r.stdout, "warning: standard input: document 1 (line 1): Balance first: "+text) {
			t.Errorf("%s: code %d: %s%s", c.name, r.code, r.stdout, r.stderr)
		}
		r = execute(input, "describe", "first", "-f", "-")
		if r.code != 0 || warns(r.stdout) != (c.of != "") || c.of != "" && !strings.Contains(r.stdout, text) {
			t.Errorf("%s: describe: code %d: %s%s", c.name, r.code, r.stdout, r.stderr)
		}
	}
}

// TestValidateManyLoops: the number of lines about one Balance has a limit.
func TestValidateManyLoops(t *testing.T) {
	var input, servers strings.Builder
	for i := range 50 {
		fmt.Fprintf(&input, "kind: Balance\nname: end%d\nlisten: 203.0.113.%d:80\nbackends: [10.1.1.2:80]\n---\n", i, i)
		fmt.Fprintf(&servers, "203.0.113.%d:80,", i)
	}
	fmt.Fprintf(&input, "kind: Balance\nname: first\nlisten: 198.51.100.1:80\nbackends: [%s]\n", servers.String())
	for _, args := range [][]string{{"validate"}, {"describe", "first"}, {"explain", "tcp", "198.51.100.1:80"}} {
		r := execute(input.String(), append(args, "-f", "-")...)
		if n := strings.Count(r.stdout, "gets no connections"); r.code != 0 || n != 10 ||
			strings.Count(r.stdout, "40 more servers are addresses and ports that this machine serves, and get no connections") != 1 {
			t.Errorf("%v: code %d, %d lines: %s%s", args, r.code, n, r.stdout, r.stderr)
		}
	}
}

// TestValidateSameListen: 12.71. Two Balances of one input that listen at the same
// address and port contradict each other; "run" serves the first. A Service that has an
// address of another one is a warning, as before.
func TestValidateSameListen(t *testing.T) {
	balance := func(name, listen string) string {
		return "kind: Balance\nname: " + name + "\nlisten: " + listen + "\nbackends: [10.128.0.2]\n---\n"
	}
	const kubernetes = "{apiVersion: v1, kind: Service, metadata: {namespace: default, name: c}, spec: {clusterIP: 10.96.0.1, externalIPs: [203.0.113.10], ports: [{port: 80}]}}\n"
	for _, c := range []struct {
		name, input string
		code        int
		want        string
	}{
		{"other ports", balance("a", "203.0.113.10:80") + balance("b", "203.0.113.10:81"), 0, "2 Balances: valid"},
		{"the same", balance("a", "203.0.113.10:80") + balance("b", "203.0.113.10:80"), cli.CodeError,
			`error: standard input: document 2 (line 6): Balance b: tcp 203.0.113.10:80 is served by Balance a, not by this one`},
		{"a Kubernetes object", balance("a", "203.0.113.10:80") + kubernetes, 0, "warning: standard input: document 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := execute(c.input, "validate", "-f", "-")
			if r.code != c.code || !strings.Contains(r.stdout, c.want) {
				t.Errorf("code %d, want %d and %q in\n%s%s", r.code, c.code, c.want, r.stdout, r.stderr)
			}
		})
	}
}
