package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

// TestNewParts: 1.67, lists of servers and defaults, and a Balance that has both.
func TestNewParts(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ file, args, want string }{
		{"app.yaml", "servers app 10.128.0.2 fd00::2 --backup 10.128.0.9:8443 --namespace shop", `kind: Servers
name: app
namespace: shop
servers:
- 10.128.0.2
- fd00::2
- {address: 10.128.0.9:8443, backup: true}
check: tcp
`},
		{"", "servers app 10.128.0.2:53 --check none", "kind: Servers\nname: app\nservers:\n- 10.128.0.2:53\n"},
		{"", "servers app app.example.com:8443 --check {http:,/healthz}", "kind: Servers\nname: app\nservers:\n- app.example.com:8443\ncheck: {http: /healthz}\n"},
		{"defaults.yaml", "defaults --check tcp --scheduler maglev --slow-start 30s --deny 192.0.2.0/24,2001:db8::/32 --limits {connections:,100}", `kind: Defaults
scheduler: maglev
deny: [192.0.2.0/24, 2001:db8::/32]
limits: {connections: 100}
check: tcp
slowStart: 30s
`},
		{"", "203.0.113.10:443-444 10.128.0.9 --servers app:8443-8444 --servers app2", "kind: Balance\nname: vip-203-0-113-10-443-444\nlisten: 203.0.113.10:443-444\n" +
			"backends:\n- {servers: app, port: \"8443-8444\"}\n- {servers: app2}\n- 10.128.0.9\n"},
		{"web.yaml", "203.0.113.10:443,[2001:db8::10]:443 --servers app:8443 --name web --namespace shop", `kind: Balance
name: web
namespace: shop
listen: [203.0.113.10:443, "[2001:db8::10]:443"]
backends:
- {servers: app, port: 8443}
`},
	} {
		args := append([]string{"new"}, strings.Fields(c.args)...)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], ":,", ": ")
		}
		r := execute("", args...)
		if r.code != 0 || r.stdout != c.want || r.stderr != "" {
			t.Errorf("new %s: code %d\n%s%s\nwant\n%s", c.args, r.code, r.stdout, r.stderr, c.want)
		}
		if c.file == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(r.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := execute("", "validate", "--strict", "-f", dir); r.code != 0 || !strings.Contains(r.stdout, "valid") {
		t.Errorf("validate: %s%s", r.stdout, r.stderr)
	}
	if r := execute("", "describe", "shop/web", "-f", dir); !strings.Contains(r.stdout, "10.128.0.2:8443") || !strings.Contains(r.stdout, "maglev") {
		t.Errorf("describe: %s%s", r.stdout, r.stderr)
	}
}

const schemaFile = "../../docs/schema/balance.json"

// TestSchema: the published schema is the one of the program, and fits what the decoder
// accepts. "make docs" writes it.
func TestSchema(t *testing.T) {
	text := execute("", "schema").stdout
	if *update {
		if err := os.MkdirAll(filepath.Dir(schemaFile), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(schemaFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(schemaFile); err != nil || string(is) != text {
		t.Errorf("%s is not what nftproxy schema prints (%v): run \"make docs\"", schemaFile, err)
	}
	check := compileSchema(t, text)
	for _, file := range []string{"../../internal/source/files/testdata/good/balance.yaml", "../../docs/examples/*.yaml", "../../golden/balance*.txtar"} {
		paths, err := filepath.Glob(file)
		if err != nil || len(paths) == 0 {
			t.Fatal(file, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range balancesIn(string(text)) {
				if err := check(document); err != nil {
					t.Errorf("%s: %v in\n%s", path, err, document)
				}
			}
		}
	}
	for _, wrong := range []string{
		"nam: x", "listen: 203.0.113.10", "listen: 'host.example.com:80'", "listen: '[::1]:80/icmp'", "listen: []", "protocol: icmp", "backends: [{port: 80}]", "backends: [{address: 10.0.0.1, wieght: 3}]",
		"backends: [{address: 10.0.0.1, weight: 101}]", "backends: [{address: 10.0.0.1, weight: '3'}]", "backends: [{address: 10.0.0.1, priority: 10}]", "backends: [host..example.com]",
		"backends: [{address: 10.0.0.1, port: 0}]", "scheduler: rr", "affinity: 10", "clients: all", "deny: all", "clientAddresses: yes", "onFailure: reset", "check: htttp", "check: {http: /x, intervall: 3s}",
		"check: {http: /x, tcp: ''}", "backendsFrom: kubernetes", "namespace: A", "name: ''", "apiVersion: v1", "kind: Balancer",
	} {
		field, _, _ := strings.Cut(wrong, ":")
		var lines []string
		for line := range strings.Lines("kind: Balance\nname: x\nlisten: 203.0.113.10:80\nbackends: 10.0.0.1\n") {
			if !strings.HasPrefix(line, field+":") {
				lines = append(lines, line)
			}
		}
		document := strings.Join(append(lines, wrong+"\n"), "")
		if err := check(document); err == nil {
			t.Errorf("the schema accepts %s", wrong)
		}
		if in, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(document)}).Load(); err == nil {
			t.Errorf("the decoder accepts %s: %v", wrong, in)
		}
	}
}

// compileSchema returns a function that validates YAML.
func compileSchema(t *testing.T, text string) func(string) error {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("balance.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("balance.json")
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) error {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			return err
		}
		text2, err := json.Marshal(v)
		if err != nil {
			return err
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text2)))
		if err != nil {
			return err
		}
		return s.Validate(value)
	}
}

// TestDocumentedBalances: every Balance in the documentation is valid, and fits the
// schema.
func TestDocumentedBalances(t *testing.T) {
	check := compileSchema(t, execute("", "schema").stdout)
	var all strings.Builder
	required := []string{"../../README.md", "../../docs/quick-start.md", "../../docs/standalone.md"}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, block := range fence.FindAllString(string(text), -1) {
			_, block, _ = strings.Cut(strings.TrimSuffix(block, "```"), "\n")
			if !strings.Contains(block, "kind: Balance") || strings.HasPrefix(block, "#cloud-config") { // a part of it: TestAutomation
				continue
			}
			n++
			all.WriteString(block)
			if r := execute(block, "validate", "--strict", "-f", "-"); r.code != 0 {
				t.Errorf("%s: %s in\n%s", page, r.stdout, block)
			}
			if err := check(block); err != nil {
				t.Errorf("%s: %v in\n%s", page, err, block)
			}
		}
		if n == 0 && slices.Contains(required, page) {
			t.Errorf("%s has no Balance", page)
		}
	}
	examples, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range examples {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if r := execute("", "validate", "--strict", "-f", path); r.code != 0 {
			t.Errorf("%s: %s", path, r.stdout)
		}
		if strings.HasSuffix(path, "all.yaml") && !strings.Contains(all.String(), string(text)) {
			t.Errorf("docs/standalone.md does not show %s", path)
		}
	}
}

// balancesIn returns the documents of a file, or of the inputs of a golden file, that
// are Balances.
func balancesIn(text string) (out []string) {
	for section := range strings.SplitSeq(text, "\n-- ") {
		if _, after, found := strings.Cut(section, " --\n"); found {
			section = after
		}
		for document := range strings.SplitSeq(section, "---\n") {
			if strings.Contains(document, "kind: Balance") || strings.Contains(document, `"kind": "Balance"`) {
				out = append(out, document)
			}
		}
	}
	return out
}

// TestBalanceCommands: 1.48, a Balance in the commands that show objects.
func TestBalanceCommands(t *testing.T) {
	const file = "../../docs/examples/web.yaml"
	objects := execute("", "render", "--objects", "-f", file)
	rules, again := execute("", "render", "-f", file), execute(objects.stdout, "render", "-f", "-")
	if objects.code != 0 || rules.code != 0 || rules.stdout != again.stdout || !strings.Contains(objects.stdout, "kind: EndpointSlice") {
		t.Errorf("objects:\n%s%s\nrules\n%s\nwant\n%s", objects.stdout, objects.stderr, again.stdout, rules.stdout)
	}
	if r := execute("", "render", "--objects", "-o", "json", "-f", file); r.code != cli.CodeError || !strings.Contains(r.stderr, "--objects and --output exclude each other") {
		t.Errorf("objects as JSON: %+v", r)
	}
	d := execute("", "describe", "web", "-f", file)
	if d.code != 0 || !strings.HasPrefix(d.stdout, "Balance web on machine ") || strings.Contains(d.stdout, "slices") || strings.Contains(d.stdout, "polic") {
		t.Errorf("describe:\n%s%s", d.stdout, d.stderr)
	}
	var s api.Description
	if err := json.Unmarshal([]byte(execute("", "describe", "web", "-f", file, "-o", "json").stdout), &s); err != nil || !s.Balance || s.Namespace != "default" {
		t.Errorf("describe as JSON: %v, %+v", err, s)
	}
	conflict := execute("kind: Balance\nname: a\nlisten: 203.0.113.10:443\nbackends: 10.0.0.1\n---\nkind: Balance\nname: b\nlisten: 203.0.113.10:443\nbackends: 10.0.0.2\n", "validate", "-f", "-")
	if want := "error: standard input: document 2 (line 6): Balance b: tcp 203.0.113.10:443 is served by Balance a, not by this one"; conflict.code != cli.CodeError || !strings.Contains(conflict.stdout+conflict.stderr, want) {
		t.Errorf("conflict: %+v, want %s", conflict, want)
	}
}
