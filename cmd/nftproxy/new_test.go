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

// TestNew: the output is a file that validates, with what the arguments say.
func TestNew(t *testing.T) {
	for _, c := range []struct{ args, want, warning string }{
		{"203.0.113.10:443 10.128.0.2:8443 10.128.0.3:8443", `kind: Balance
name: vip-203-0-113-10-443
listen: 203.0.113.10:443
backends:
- 10.128.0.2:8443
- 10.128.0.3:8443
check: tcp
`, ""},
		{"203.0.113.10:443 10.128.0.2 --name web --check none", `kind: Balance
name: web
listen: 203.0.113.10:443
backends:
- 10.128.0.2
`, ""},
		{"203.0.113.10:123/udp 10.128.0.2 --name ntp", `kind: Balance
name: ntp
listen: 203.0.113.10:123/udp
backends:
- 10.128.0.2
`, ""},
		{"203.0.113.10:53,[2001:DB8::10]:53 10.128.0.2 fd00::2 --protocol tcp,udp --name 12 --namespace infra", `kind: Balance
name: "12"
namespace: infra
listen: [203.0.113.10:53, "[2001:DB8::10]:53"]
protocol: [tcp, udp]
backends:
- 10.128.0.2
- fd00::2
check: tcp
`, ""},
		{"[2001:db8::10]:443 fd00::2 --backup [fd00::3]:8443 --scheduler source-hash --affinity 10m --clients 2001:db8::/32 --client-addresses keep --check {http:,port:8080} --on-failure close",
			`kind: Balance
name: vip-2001-db8--10--443
listen: "[2001:db8::10]:443"
backends:
- fd00::2
- {address: "[fd00::3]:8443", backup: true}
scheduler: source-hash
affinity: 10m
clients: 2001:db8::/32
clientAddresses: keep
check: {http: , port: 8080}
onFailure: close
`, ""},
		{"203.0.113.10:all 10.128.0.2 --name vm --clients 192.0.2.0/24 --deny 192.0.2.7,192.0.2.8 --limits {connections:100}", `kind: Balance
name: vm
listen: 203.0.113.10:all
backends:
- 10.128.0.2
clients: 192.0.2.0/24
deny: [192.0.2.7, 192.0.2.8]
limits: {connections: 100}
`, ""},
		{"203.0.113.10:443 10.128.0.2 --name web --scheduler maglev --maglev-table-size 251 --backends-from default/kubernetes --check none", `kind: Balance
name: web
listen: 203.0.113.10:443
backends:
- 10.128.0.2
scheduler: maglev
maglevTableSize: 251
backendsFrom: default/kubernetes
`, ""},
		{"203.0.113.10:443 203.0.113.10", "", "warning: BACKEND: \"203.0.113.10\" is an address and port of listen"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.NewReplacer("http:,", "http: , ", "port:", "port: ", "connections:", "connections: ").Replace(args[i])
		}
		r := execute("", append([]string{"new"}, args...)...)
		if r.code != 0 || c.want != "" && r.stdout != c.want || !strings.HasPrefix(r.stderr, c.warning) || c.warning == "" && r.stderr != "" {
			t.Errorf("new %s: code %d\n%s%s\nwant\n%s", c.args, r.code, r.stdout, r.stderr, c.want)
		}
		if v := execute(r.stdout, "validate", "-f", "-"); v.code != 0 || !strings.Contains(v.stdout, "1 Balance: valid") {
			t.Errorf("validate: %s", v.stdout)
		}
	}
}

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

// TestNewPartsErrors: 1.67, a problem names the argument.
func TestNewPartsErrors(t *testing.T) {
	for args, want := range map[string]string{
		"servers":                                    "expected a name, and the servers",
		"servers app":                                "expected a name, and the servers",
		"servers App 10.128.0.2":                     `"App" is not a name`,
		"servers app 10.0.0.300":                     `SERVER: "10.0.0.300" is not an IP address`,
		"servers app 10.128.0.2 --check tpc":         `--check: "tpc" is not a type of health check (did you mean tcp?)`,
		"servers app 10.128.0.2 --check {tcp":        `--check: "{tcp" cannot be read`,
		"server app 10.128.0.2":                      `"server" is not an address with a port: did you mean servers?`,
		"default --check tcp":                        `"default" is not an address with a port: did you mean defaults?`,
		"defaults":                                   "expected a setting: nftproxy new defaults --check tcp",
		"defaults --scheduler rr":                    `--scheduler: "rr" is unknown`,
		"defaults --deny x":                          `--deny: "x" is neither an IP address nor a range`,
		"defaults --backends-from a/b":               "unknown flag: --backends-from",
		"defaults x --check tcp":                     `unexpected argument "x"`,
		"203.0.113.10:443 --servers App":             `--servers: "App"`,
		"203.0.113.10:443 --servers app:0":           `--servers:`,
		"203.0.113.10:443 --servers app:8443:8444":   `--servers:`,
		"203.0.113.10:443 --servers app --check tpc": `--check: "tpc" is not a type`,
	} {
		r := execute("", append([]string{"new"}, strings.Fields(args)...)...)
		if r.code != cli.CodeError || !strings.Contains(r.stderr, want) || r.stdout != "" {
			t.Errorf("new %s: code %d, %s%s\nwant %s", args, r.code, r.stdout, r.stderr, want)
		}
	}
}

// TestNewErrors: 12.75, a problem names the argument.
func TestNewErrors(t *testing.T) {
	for args, want := range map[string]string{
		"":                                       "expected an address with a port, and the servers behind it",
		"203.0.113.10:443":                       "expected an address with a port, and the servers behind it",
		"203.0.113.10 10.128.0.2":                `LISTEN: "203.0.113.10" has no port: write it like 203.0.113.10:443`,
		"203.0.113.10:443 10.0.0.300":            `BACKEND: "10.0.0.300" is not an IP address`,
		"203.0.113.10:443 10.128.0.2 --name Web": "--name: \"Web\" is not a name",
		"203.0.113.10:443 10.128.0.2 --affinity 1y":             `--affinity: "1y" is not a duration`,
		"203.0.113.10:443 10.128.0.2 --clients x --scheduler y": "--scheduler: \"y\" is unknown",
		"203.0.113.10:443 10.128.0.2 --client-addresses kep":    `--client-addresses: "kep" is unknown: use "keep" or "masquerade"`,
		"203.0.113.10:443 10.128.0.2 --on-failure clos":         `--on-failure: "clos" is unknown: use "keep" or "close"`,
		"203.0.113.10:443 10.128.0.2 --check tpc":               `--check: "tpc" is not a type of health check (did you mean tcp?)`,
		"203.0.113.10:443 10.128.0.2 --check {tcp":              `--check: "{tcp" cannot be read`,
		"203.0.113.10:443 10.128.0.2 --check {http,statuss:3}":  "--check.statuss: unknown field",
		"203.0.113.10:443 10.128.0.2 --deny x":                  `--deny: "x" is neither an IP address nor a range`,
		"203.0.113.10:443 10.128.0.2 --limits 7":                `--limits: 7 is not an object`,
		"203.0.113.10:443 10.128.0.2 --limits {rate":            `--limits: "{rate" cannot be read`,
		"203.0.113.10:443 10.128.0.2 --protocol tpc":            `--protocol: "tpc" is not a protocol: did you mean tcp?`,
		"203.0.113.10:443, 10.128.0.2":                          `LISTEN: "" is not an IP address`,
		"203.0.113.10:443 \x1b[31m":                             `BACKEND: "\x1b[31m" is not an IP address`,
	} {
		words := strings.Fields(args)
		for i := range words {
			words[i] = strings.Replace(words[i], "statuss:", " statuss: ", 1)
		}
		r := execute("", append([]string{"new"}, words...)...)
		if r.code != cli.CodeError || !strings.Contains(r.stderr, want) || r.stdout != "" {
			t.Errorf("new %s: code %d, %s%s\nwant %s", args, r.code, r.stdout, r.stderr, want)
		}
	}
	injected := execute("", "new", "203.0.113.10:443", "10.128.0.2", "--scheduler", "random\nname: x")
	if injected.code != cli.CodeError || !strings.Contains(injected.stderr, "is unknown") {
		t.Errorf("a line in an argument: %+v", injected)
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

// TestDocumentedMistakes: the mistakes in the documentation have these messages.
func TestDocumentedMistakes(t *testing.T) {
	for _, c := range []struct{ page, text string }{
		{"standalone.md", "kind: Balance\nname: web\nlisten: 203.0.113.10\nbackends:\n- 10.128.0.2:8443\n- {address: 10.128.0.3:8443, wieght: 3}\n"},
		{"quick-start.md", "kind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackend: 10.128.0.2:8080\n"},
		{"quick-start.md", "kind: Balance\nname: web\nlisten: [\"203.0.113.10:80\", \"[2001:db8::10]:80\"]\nbackends: 10.128.0.2:8080\n"},
	} {
		page, err := os.ReadFile("../../docs/" + c.page)
		if err != nil {
			t.Fatal(err)
		}
		shown := strings.ReplaceAll(execute(c.text, "validate", "-f", "-").stdout, "standard input", "web.yaml")
		if !strings.Contains(string(page), "$ nftproxy validate -f web.yaml\n"+shown) {
			t.Errorf("%s does not show\n%s", c.page, shown)
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
