package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// complete returns what the shell is offered for the last word of a command line,
// without descriptions, and the directive for it.
func complete(words ...string) (offered []string, directive string) {
	r := execute("", append([]string{cobra.ShellCompRequestCmd}, words...)...)
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	for _, line := range lines[:len(lines)-1] {
		word, _, _ := strings.Cut(line, "\t")
		offered = append(offered, word)
	}
	return offered, lines[len(lines)-1]
}

const noFiles = ":4" // cobra.ShellCompDirectiveNoFileComp

func TestCompleteValues(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"render --scheduler ", "round-robin random source-hash maglev maglev-port"},
		{"run --detect-local-mode ", "ClusterCIDR NodeCIDR BridgeInterface InterfaceNamePrefix"},
		{"run --logging-format ", "text json"},
		{"run --log-connections ", "off refused failed all"},
		{"run --observe ", "off refusals failures connections"},
		{"run --fast-path ", "off services all hardware"},
		{"new --observe ", "connections"},
		{"render -o ", "nft json yaml"},
		{"new --client-addresses ", "keep masquerade"},
		{"new --on-failure ", "keep close"},
		{"new 203.0.113.10:80 ", ""},
		{"new serv", "servers"},
		{"new servers app --check ", "tcp http https grpc udp dns exec passive none"},
		{"new defaults --on-failure ", "keep close"},
		{"status -o ", "text json yaml"},
		{"diff --color a", "auto always"},
		{"explain ", "tcp udp sctp icmp icmpv6"},
		{"explain t", "tcp udp sctp icmp icmpv6"}, // the shell filters
		{"render --cluster-cidr ", ""},
		{"render ", ""},
		{"cleanup ", ""},
		{"version ", ""},
	} {
		offered, directive := complete(strings.Split(c.line, " ")...)
		if c.line == "diff --color a" {
			offered = slices.DeleteFunc(offered, func(w string) bool { return !strings.HasPrefix(w, "a") })
		}
		if got := strings.Join(offered, " "); got != c.want || directive != noFiles {
			t.Errorf("%q: %q with directive %s, want %q and no file names", c.line, got, directive, c.want)
		}
	}
}

var (
	splitter  = strings.NewReplacer(", or ", "|", ", ", "|", " or ", "|", "; ", "|")
	explained = regexp.MustCompile(` \([^)]*\)`)
)

// listed matches the values that the help of a flag lists: "which: off, refused or all", "mode A, B or C" and "off; some: why".
var listed = regexp.MustCompile(`(?:^format of FILE|^protocols|: |^mode |, mode )?: ?([a-z-]+(?:, [a-z-]+)*(?: \([^)]*\))?,? or [a-z-]+)(?:$|[;,] )|mode ([A-Z]\w+(?:, \w+)* or \w+)|: (off; .*)`)

// TestCompleteListed: the shell completes each value that the help of a flag lists.
func TestCompleteListed(t *testing.T) {
	found := 0
	for _, c := range commandTree() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			m := listed.FindStringSubmatch(usage)
			if m == nil {
				return
			}
			found++
			offered, _ := complete(append(strings.Fields(c.CommandPath())[1:], "--"+f.Name, "")...)
			for part := range strings.SplitSeq(splitter.Replace(explained.ReplaceAllString(m[1]+m[2]+m[3], "")), "|") {
				if value, meaning, described := strings.Cut(part, ":"); (described || meaning == "" && m[3] == "" || value == "off") && !slices.Contains(offered, strings.Fields(value)[0]) {
					t.Errorf("%s --%s completes %q, and the help lists %q", c.CommandPath(), f.Name, offered, value)
				}
			}
		})
	}
	if found < 60 {
		t.Errorf("found %d flags whose help lists values", found)
	}
}

// TestCompleteFiles proves that exactly the flags that take files complete them.
func TestCompleteFiles(t *testing.T) {
	for _, c := range commandTree() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			path := strings.Fields(c.CommandPath())[1:]
			_, directive := complete(append(path, "--"+f.Name, "")...)
			kind, _ := pflag.UnquoteUsage(f)
			if takesFile := kind == "file"; takesFile == (directive == noFiles) && f.Value.Type() != "bool" {
				t.Errorf("%s --%s %s: directive %s", c.CommandPath(), f.Name, kind, directive)
			}
		})
	}
}

// TestCompleteContexts: the contexts of the kubeconfig on the command line.
func TestCompleteContexts(t *testing.T) {
	file := writeFile(t, twoContexts)
	for _, command := range [][]string{{"describe"}, {"run"}, {"migrate", "status"}} {
		offered, directive := complete(append(command, "--kubeconfig", file, "--context", "")...)
		if strings.Join(offered, " ") != "production staging" || directive != noFiles {
			t.Errorf("%s: %q, directive %s", command, offered, directive)
		}
	}
}

// TestCompleteOutput compares the completed formats with those in the help.
func TestCompleteOutput(t *testing.T) {
	for _, c := range commandTree() {
		f := c.Flags().Lookup("output")
		if f == nil {
			continue
		}
		offered, _ := complete(append(strings.Fields(c.CommandPath())[1:], "-o", "")...)
		for _, format := range []string{"text", "nft", "json", "markdown", "yaml", "wide"} {
			if strings.Contains(f.Usage, format) != slices.Contains(offered, format) {
				t.Errorf("%s -o completes %q, and the help says %q", c.Name(), offered, f.Usage)
			}
		}
	}
}

// TestCompleteFromDaemon asks a daemon, and trusts no answer (12.75).
func TestCompleteFromDaemon(t *testing.T) {
	report := api.Status{From: api.FromDaemon, ServicePorts: []api.ServicePort{
		{Namespace: "shop", Name: "web", Protocol: "TCP", Frontends: []api.Frontend{{Address: "10.96.0.10:80"}, {Address: "*:30080"}}},
		{Namespace: "kube-system", Name: "dns", Protocol: "UDP", Frontends: []api.Frontend{{Address: "[fd00::10]:53"}}},
		{Namespace: "$(reboot)", Name: "a`b`", Protocol: "TCP", Frontends: []api.Frontend{{Address: "10.96.0.11:80"}}},
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(report) }))
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	if got, _ := complete("status", "--metrics-bind-address", address, "-n", ""); !slices.Equal(got, []string{"kube-system", "shop"}) {
		t.Errorf("namespaces: %q", got)
	}
	for _, command := range []string{"status", "describe"} {
		if got, _ := complete(command, "--metrics-bind-address", address, ""); !slices.Equal(got, []string{"kube-system/dns", "shop/web"}) {
			t.Errorf("%s: %q", command, got)
		}
	}
	if got, _ := complete("explain", "--metrics-bind-address", address, ""); !slices.Contains(got, "shop/web") || !slices.Contains(got, "tcp") {
		t.Errorf("explain: %q", got)
	}
	if got, _ := complete("explain", "--metrics-bind-address", address, "tcp", ""); !slices.Contains(got, "shop/web") || !slices.Contains(got, "10.96.0.10:80") {
		t.Errorf("explain tcp: %q", got)
	}
	if got, _ := complete("explain", "--metrics-bind-address", address, "udp", ""); !slices.Contains(got, "[fd00::10]:53") || slices.Contains(got, "10.96.0.10:80") {
		t.Errorf("explain udp: %q", got)
	}
	server.Close()
	if got, directive := complete("status", "--metrics-bind-address", address, "-n", ""); len(got) > 0 || directive != noFiles {
		t.Errorf("without a daemon: %q, %s", got, directive)
	}
}

// TestCompleteDrain offers the endpoints of the daemon's Services (12.75).
func TestCompleteDrain(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != api.DrainPath || !slices.Equal(r.URL.Query()["begin"], []string{"10.1"}) {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(api.Drains{Drains: model.Drains{Endpoints: []string{"10.1.1.2", "10.1.1.2:8080", "$(reboot)"}}})
	}))
	t.Cleanup(server.Close)
	got, directive := complete("drain", "--metrics-bind-address", server.Listener.Addr().String(), "10.1")
	if !slices.Equal(got, []string{"10.1.1.2", "10.1.1.2:8080"}) || directive != noFiles {
		t.Errorf("%q, %s", got, directive)
	}
}

// TestCompletionDoesNotWait asks a server that never answers.
func TestCompletionDoesNotWait(t *testing.T) {
	silent, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	if got, directive := complete("status", "--metrics-bind-address", silent.Addr().String(), "-n", ""); len(got) > 0 || directive != noFiles {
		t.Errorf("%q, %s", got, directive)
	}
}
