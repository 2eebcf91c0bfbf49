package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestRunWarnings: run logs a warning when it appears, in its own format, and the
// status has it (1.37).
func TestRunWarnings(t *testing.T) {
	ns := netlab.TestLab(t, 0).Node.Namespace
	path := writeFile(t, commandline.Misnamed)
	p := start(t, ns, "nftproxy", "run", "-f", path, noLimit)
	said := strings.Replace(strings.TrimSpace(commandline.MisnamedWarning), "standard input", path, 1)
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
	replace(strings.Replace(commandline.Misnamed, "10.96.0.10", "10.96.0.11", 1))
	eventually(t, "the change is applied", func() bool { return strings.Contains(status(), "10.96.0.11") })
	if got := strings.Count(p.log.String(), "level=WARN msg=\""+said+"\""); got != 1 {
		t.Errorf("the warning is logged %d times, want once:\n%s", got, &p.log)
	}
	replace(strings.Replace(commandline.Misnamed, "htpp", "http", 1))
	eventually(t, "the warning ends", func() bool {
		s := status()
		return strings.Contains(s, "10.96.0.10") && !strings.Contains(s, "did you mean")
	})
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
