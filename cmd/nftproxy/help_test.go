package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
)

// TestHelpGroups proves that each command's help has every visible flag once, in
// groups that can be read at a glance, and in lines that fit.
func TestHelpGroups(t *testing.T) {
	for _, c := range commandTree() {
		r := execute("", append(strings.Fields(c.CommandPath())[1:], "--help")...)
		if r.code != 0 {
			t.Fatalf("%s --help: %s", c.CommandPath(), r.stderr)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if n := strings.Count(r.stdout, " --"+f.Name+" "); !f.Hidden && countDeclared(r.stdout, f.Name) != 1 {
				t.Errorf("%s --help has --%s %d times", c.CommandPath(), f.Name, n)
			}
		})
		for title, set := range command.GroupFlags(c).FlagSets {
			n := 0
			set.VisitAll(func(*pflag.Flag) { n++ })
			if n > 10 {
				t.Errorf("%s --help: group %q has %d flags", c.CommandPath(), title, n)
			}
		}
		flags := r.stdout[strings.Index(r.stdout, "Usage:"):]
		if _, after, ok := strings.Cut(flags, "\nExamples:"); ok {
			_, flags, _ = strings.Cut(after, "\n\n")
		}
		for line := range strings.Lines(flags) {
			if len(strings.TrimSpace(line)) > cli.HelpWidth {
				t.Errorf("%s --help: a line of %d columns: %s", c.CommandPath(), len(line), line)
			}
		}
	}
}

// countDeclared counts the lines of a help text that describe a flag.
func countDeclared(help, name string) (n int) {
	for line := range strings.Lines(help) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasPrefix(fields[0], "-") && strings.HasSuffix(fields[0], ",") {
			fields = fields[1:]
		}
		if len(fields) > 0 && strings.HasPrefix(line, "  ") && fields[0] == "--"+name {
			n++
		}
	}
	return n
}

// TestHelpOfRun keeps the flags that kube-proxy alone needs apart.
func TestHelpOfRun(t *testing.T) {
	help := execute("", "run", "--help").stdout
	_, compatible, found := strings.Cut(help, "\nAccepted from kube-proxy's command line:\n")
	if !found {
		t.Fatal(help)
	}
	for _, want := range []string{"--iptables-sync-period", "--ipvs-scheduler", "--proxy-mode", "--vmodule", "the port of --healthz-bind-address"} {
		if !strings.Contains(compatible, want) {
			t.Errorf("%s is not in %q", want, compatible)
		}
	}
	if strings.Contains(execute("", "render", "--help").stdout, "--vmodule") {
		t.Error("render --help lists a flag of kube-proxy")
	}
}

// TestGroups: each command has a group in the help of the program, and so has each flag that means the same for several
// commands.
func TestGroups(t *testing.T) {
	for _, c := range rootCommand().Commands() {
		if c.GroupID == "" && c.IsAvailableCommand() {
			t.Errorf("%s is in no group: add it to one of commands", c.Name())
		}
	}
	same := make(map[[2]string]*cobra.Command)
	for _, c := range commandTree() {
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || declare.GroupOf(f) != "" {
				return
			}
			key := [2]string{f.Name, f.Usage}
			if other := same[key]; other != nil && findGroup(other) != findGroup(c) {
				t.Errorf("--%s of %s and %s is in no group: declare it in one", f.Name, other.CommandPath(), c.CommandPath())
			}
			same[key] = c
		})
	}
}

// findGroup returns the group of a command, or of the one that it belongs to.
func findGroup(c *cobra.Command) string {
	for c.GroupID == "" && c.HasParent() {
		c = c.Parent()
	}
	return c.GroupID
}

// TestHelpNamesBalances: 11.27. Help of a command that is also for machines without Kubernetes names Balances
// where it names Services or endpoints.
func TestHelpNamesBalances(t *testing.T) {
	foreign := regexp.MustCompile(`\b(Services?|[Ee]ndpoints?|ENDPOINTS?)\b`)
	for _, c := range commandTree() {
		if path := c.CommandPath(); strings.HasPrefix(path, "nftproxy cluster") || strings.HasPrefix(path, "nftproxy migrate") {
			continue
		}
		text := command.Description(c) + "\n" + strings.Join(command.UsageLines(c), "\n") + "\n" + c.Short
		if found := foreign.FindString(text); found != "" && !strings.Contains(text, "Balance") {
			t.Errorf("%s --help says %s and never Balance", c.CommandPath(), found)
		}
		if found := foreign.FindString(c.Short); found != "" && !strings.Contains(c.Short, "Balance") {
			t.Errorf("%s: %q says %s and never Balance", c.CommandPath(), c.Short, found)
		}
	}
}

// TestColourFlag: every command that prints text for people can be told whether to colour
// it.
func TestColourFlag(t *testing.T) {
	printing := map[string]bool{"nftproxy cleanup": true} // without other formats
	for _, c := range commandTree() {
		if f := c.Flags().Lookup("output"); f != nil && f.DefValue == "text" {
			printing[c.CommandPath()] = true
		}
		if has := c.Flags().Lookup("color") != nil; has != printing[c.CommandPath()] {
			t.Errorf("%s prints text: %t, has --color: %t", c.CommandPath(), printing[c.CommandPath()], has)
		}
	}
}

// TestContextFlag: every command that reads a kubeconfig can use any of its contexts.
func TestContextFlag(t *testing.T) {
	for _, c := range commandTree() {
		if kubeconfig, context := c.Flags().Lookup("kubeconfig"), c.Flags().Lookup("context"); (kubeconfig == nil) != (context == nil) {
			t.Errorf("%s has --kubeconfig: %t, --context: %t", c.CommandPath(), kubeconfig != nil, context != nil)
		}
	}
}

// TestExitCodesAreNamed: scripts depend on them.
func TestExitCodesAreNamed(t *testing.T) {
	for _, c := range commandTree() {
		if _, exit := splitDescription(c); exit == "" && (!c.HasAvailableSubCommands() || c.Name() == "completion") {
			t.Errorf("%s --help names no exit code", c.CommandPath())
		}
	}
}

// TestDidYouMean covers misspelt commands and flags (12.75).
func TestDidYouMean(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"rendr", `unknown command "rendr": did you mean render?` + "\nrun \"nftproxy\" for the list"},
		{"Run", `did you mean run?`},
		{"stat", `did you mean status?`},
		{"help-me", `unknown command "help-me"` + "\n"},
		{"render --filenam x", "unknown flag: --filenam: did you mean --filename?\nrun \"nftproxy render --help\""},
		{"render --clustr-cidr x", "did you mean --cluster-cidr?"},
		{"diff --colour never", "did you mean --color?"},
		{"run --pod", "did you mean --pod-bridge-interface or --pod-interface-name-prefix?"},
		{"render --nonsense", "unknown flag: --nonsense\n"},
		{"status -x", "unknown shorthand flag: 'x' in -x\n"},
	} {
		if r := execute("", strings.Fields(c.args)...); r.code == 0 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("nftproxy %s: code %d, want %q in %q", c.args, r.code, c.want, r.stderr)
		}
	}
}
