package input

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
)

// TestValidate: 12.71, with the warnings of 1.37.
func TestValidate(t *testing.T) {
	good := strings.Replace(commandline.Misnamed, "htpp", "http", 1)
	for _, c := range []struct {
		name, input, flags string
		code               int
		want               string
	}{
		{"valid", good, "", 0, "1 Service, 1 EndpointSlice: valid\n"},
		{"valid, strict", good, "--strict", 0, "1 Service, 1 EndpointSlice: valid\n"},
		{"warning", commandline.Misnamed, "", 0, "warning: " + commandline.MisnamedWarning + "1 Service, 1 EndpointSlice: valid, 1 warning\n"},
		{"warning, strict", commandline.Misnamed, "--strict", cli.CodeError, "warning: " + commandline.MisnamedWarning + "1 Service, 1 EndpointSlice: 1 warning (--strict)\n"},
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
			r := program.Run(c.input, strings.Fields("validate -f - "+c.flags)...)
			if diff := cmp.Diff(c.want, r.Stdout); r.Code != c.code || r.Stderr != "" || diff != "" {
				t.Errorf("code %d, want %d; %s; output (-want +got):\n%s", r.Code, c.code, r.Stderr, diff)
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
		{commandline.Misnamed, "--strict", cli.CodeError, report{
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
		r := program.Run(c.input, strings.Fields("validate -o json -f - "+c.flags)...)
		var got report
		if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); r.Code != c.code || diff != "" {
			t.Errorf("code %d, want %d (-want +got):\n%s", r.Code, c.code, diff)
		}
	}
	if r := program.Run("", "validate"); r.Code != cli.CodeError || !strings.Contains(r.Stderr, "name a file with -f") {
		t.Errorf("code %d, %s", r.Code, r.Stderr)
	}
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
		commandline.Service: "1 Service, 1 EndpointSlice: valid\n",
	} {
		if r := program.Run(text, "validate", "--strict", "-f", "-"); r.Code != 0 || r.Stdout != want {
			t.Errorf("code %d, %q, want %q in\n%s", r.Code, r.Stdout, want, text)
		}
	}
	r := program.Run(balance("backends: [10.0.0.1, 10.0.0.2]"), "validate", "-f", "-", "-o", "json")
	var f findings
	if err := json.Unmarshal([]byte(r.Stdout), &f); err != nil || len(f.Notes) != 1 || f.Notes[0].Field != "check" || f.Notes[0].Line != 1 || len(f.Warnings) > 0 {
		t.Errorf("JSON: %v, %s", err, r.Stdout)
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
			r := program.Run(c.input, "validate", "-f", "-")
			if r.Code != c.code || !strings.Contains(r.Stdout, c.want) {
				t.Errorf("code %d, want %d and %q in\n%s%s", r.Code, c.code, c.want, r.Stdout, r.Stderr)
			}
		})
	}
}
