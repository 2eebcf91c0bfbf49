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
}

// TestInspectPage runs the sessions of docs/inspect.md: with a file, else with a daemon.
// With -update it writes their output.
func TestInspectPage(t *testing.T) {
	page, err := os.ReadFile(inspectPage)
	if err != nil {
		t.Fatal(err)
	}
	ns := netlab.TestLab(t, 0).Node.Namespace
	startCommand(t, ns, asNftproxy(t, "run", "-f", shop, "--hostname-override", "node-1", "--healthz-bind-address", ""))
	eventually(t, "the daemon", func() bool { return strings.HasPrefix(ask(t, ns, "status").stdout, "healthy") })
	n := 0
	written := session.ReplaceAllStringFunc(string(page), func(block string) string {
		n++
		args := session.FindStringSubmatch(block)[1]
		words := strings.Fields(args)
		var r result
		if strings.Contains(args, " -f ") {
			for i, w := range words {
				words[i] = strings.Replace(w, "shop.yaml", shop, 1)
			}
			r = execute("", words...)
		} else {
			r = ask(t, ns, words...)
		}
		if r.code != 0 {
			t.Fatalf("%s: code %d, %s", args, r.code, r.stderr)
		}
		for _, p := range passing {
			r.stdout = p.pattern.ReplaceAllString(r.stdout, p.with)
		}
		return "```console\n$ nftproxy " + args + "\n" + r.stdout + "```"
	})
	if n < 4 {
		t.Errorf("%d sessions", n)
	}
	if written == string(page) {
		return
	}
	if flag.Lookup("update").Value.String() != "true" {
		t.Fatalf("the page differs from what the commands print: go test ./cmd/nftproxy -run TestInspectPage -update\n%s", written)
	}
	if err := os.WriteFile(inspectPage, []byte(written), 0o644); err != nil {
		t.Fatal(err)
	}
}
