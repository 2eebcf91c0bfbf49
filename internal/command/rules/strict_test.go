package rules

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestStrict: 12.72. With --strict a warning is an error, and nothing is printed or
// changed; without it, it is a line for a person, or for a program.
func TestStrict(t *testing.T) {
	ns := netlab.TestNamespace(t)
	path := commandline.WriteFile(t, commandline.Misnamed)
	said := strings.Replace(commandline.MisnamedWarning, "standard input", path, 1)
	node := []string{"-f", path, "--hostname-override", ""}
	before := ns.TestGeneration(t)
	for _, command := range []string{"render", "diff", "apply"} {
		args := append([]string{command, "--strict"}, node...)
		r := program.RunIn(t, ns, args...)
		want := "warning: " + said + "nftproxy: --strict: 1 warning about the input: nothing is done\n"
		if diff := cmp.Diff(want, onlyInput(r.Stderr)); r.Code != cli.CodeError || r.Stdout != "" || diff != "" {
			t.Errorf("%s: code %d, %s; log (-want +got):\n%s", command, r.Code, r.Stdout, diff)
		}
	}
	if after := ns.TestGeneration(t); after != before {
		t.Errorf("the rules were changed: generation %d after %d", after, before)
	}
	if r := program.RunIn(t, ns, append([]string{"apply"}, node...)...); r.Code != 0 || onlyInput(r.Stderr) != "warning: "+said {
		t.Errorf("apply: code %d, %s", r.Code, r.Stderr)
	}
	r := program.RunIn(t, ns, append([]string{"render", "--logging-format", "json"}, node...)...)
	var line struct{ Level, Msg string }
	first, _, _ := strings.Cut(r.Stderr, "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil || line.Level != "WARN" || line.Msg+"\n" != said {
		t.Errorf("render: %v, %s", err, r.Stderr)
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
