package input

import (
	"os"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
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
		r := program.Run("", append([]string{"new"}, args...)...)
		if r.Code != 0 || c.want != "" && r.Stdout != c.want || !strings.HasPrefix(r.Stderr, c.warning) || c.warning == "" && r.Stderr != "" {
			t.Errorf("new %s: code %d\n%s%s\nwant\n%s", c.args, r.Code, r.Stdout, r.Stderr, c.want)
		}
		if v := program.Run(r.Stdout, "validate", "-f", "-"); v.Code != 0 || !strings.Contains(v.Stdout, "1 Balance: valid") {
			t.Errorf("validate: %s", v.Stdout)
		}
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
		r := program.Run("", append([]string{"new"}, strings.Fields(args)...)...)
		if r.Code != cli.CodeError || !strings.Contains(r.Stderr, want) || r.Stdout != "" {
			t.Errorf("new %s: code %d, %s%s\nwant %s", args, r.Code, r.Stdout, r.Stderr, want)
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
		r := program.Run("", append([]string{"new"}, words...)...)
		if r.Code != cli.CodeError || !strings.Contains(r.Stderr, want) || r.Stdout != "" {
			t.Errorf("new %s: code %d, %s%s\nwant %s", args, r.Code, r.Stdout, r.Stderr, want)
		}
	}
	injected := program.Run("", "new", "203.0.113.10:443", "10.128.0.2", "--scheduler", "random\nname: x")
	if injected.Code != cli.CodeError || !strings.Contains(injected.Stderr, "is unknown") {
		t.Errorf("a line in an argument: %+v", injected)
	}
}

// TestDocumentedMistakes: the mistakes in the documentation have these messages.
func TestDocumentedMistakes(t *testing.T) {
	for _, c := range []struct{ page, text string }{
		{"standalone.md", "kind: Balance\nname: web\nlisten: 203.0.113.10\nbackends:\n- 10.128.0.2:8443\n- {address: 10.128.0.3:8443, wieght: 3}\n"},
		{"quick-start.md", "kind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackend: 10.128.0.2:8080\n"},
		{"quick-start.md", "kind: Balance\nname: web\nlisten: [\"203.0.113.10:80\", \"[2001:db8::10]:80\"]\nbackends: 10.128.0.2:8080\n"},
	} {
		page, err := os.ReadFile("../../../docs/" + c.page)
		if err != nil {
			t.Fatal(err)
		}
		shown := strings.ReplaceAll(program.Run(c.text, "validate", "-f", "-").Stdout, "standard input", "web.yaml")
		if !strings.Contains(string(page), "$ nftproxy validate -f web.yaml\n"+shown) {
			t.Errorf("%s does not show\n%s", c.page, shown)
		}
	}
}
