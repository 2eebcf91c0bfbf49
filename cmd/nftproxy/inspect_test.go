package main

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const inspectPage = "../../docs/inspect.md"

// session is a command with its output in a page.
var session = regexp.MustCompile("(?s)```console\n\\$ nftproxy ([^\n]*)\n(.*?)```")

// passing are the parts of an output that differ from one run to the next.
var passing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`nftproxy \S+, started \S+ ago \([^)]*\)`), "nftproxy v1.0.0, started 2h3m ago (2026-01-02 03:04:05)"},
	{regexp.MustCompile(`last sync  \S+ ago in \S+: \d+ added, \d+ changed, \d+ deleted`), "last sync  12s ago in 1.4ms: 0 added, 1 changed, 0 deleted"},
	{regexp.MustCompile(`source     files \S+`), "source     files shop.yaml"},
	{regexp.MustCompile(`testdata/`), ""},
	{regexp.MustCompile(`nftproxy started, \S+ ago`), "nftproxy started, 2h3m ago"},
	{regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  (\S+):\d+ ->`), "12:00:03  $1:40962 ->"},
	{regexp.MustCompile(`(?m)\d+s ago$`), "3s ago"},
	{regexp.MustCompile(`; \S+s, \d+ bytes sent, \d+ bytes received`), "; 1.204s, 532 bytes sent, 12940 bytes received"},
}

// TestInspectPage runs the sessions of docs/inspect.md: with a file, else with a daemon.
// With -update it writes their output.
func TestInspectPage(t *testing.T) {
	ns := netlab.TestLab(t, 0).Node.Namespace
	startCommand(t, ns, asNftproxy(t, "run", "-f", shop, "--hostname-override", "node-1", "--healthz-bind-address", ""))
	eventually(t, "the daemon", func() bool { return strings.HasPrefix(ask(t, ns, "status").stdout, "healthy") })
	replay(t, inspectPage, 4, func(args string) result {
		words := strings.Fields(args)
		if !strings.Contains(args, " -f ") {
			return ask(t, ns, words...)
		}
		for i, w := range words {
			words[i] = strings.Replace(w, "shop.yaml", shop, 1)
		}
		return execute("", words...)
	})
}

// replay runs the sessions of a page, which are so many at least, and compares their output.
// With -update it writes it.
func replay(t *testing.T, path string, least int, run func(args string) result) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	written := session.ReplaceAllStringFunc(string(page), func(block string) string {
		n++
		args := session.FindStringSubmatch(block)[1]
		r := run(args)
		if r.code != 0 {
			t.Fatalf("%s: code %d, %s", args, r.code, r.stderr)
		}
		for _, p := range passing {
			r.stdout = p.pattern.ReplaceAllString(r.stdout, p.with)
		}
		return "```console\n$ nftproxy " + args + "\n" + r.stdout + "```"
	})
	if n < least {
		t.Errorf("%d sessions", n)
	}
	if written == string(page) {
		return
	}
	if flag.Lookup("update").Value.String() != "true" {
		t.Fatalf("%s differs from what the commands print: go test ./cmd/nftproxy -run Page -update\n%s", path, written)
	}
	if err := os.WriteFile(path, []byte(written), 0o644); err != nil {
		t.Fatal(err)
	}
}
