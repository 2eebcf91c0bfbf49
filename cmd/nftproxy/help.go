package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/nftproxy/nftproxy/internal/setting"
)

// helpWidth is the width of help that is not written to a terminal.
const helpWidth = 100

// group is a part of a help text: commands or flags that belong together.
type group struct {
	title string
	names []string // in this order
}

// commandGroups are the commands in the help of the program. Others follow as
// "Other commands".
var commandGroups = []group{
	{"From files or a cluster to rules", []string{"new", "import", "render", "validate", "diff", "apply", "run"}},
	{"See what is going on", []string{"status", "describe", "explain", "trace", "test", "top", "observe"}},
	{"All nodes of a cluster", []string{clusterName}},
	{"Maintenance", []string{"drain", "undrain", "set", "add", "remove", "disable", "enable", "undo"}},
	{"Before and after", []string{"check", "migrate", "cleanup", "bundle"}},
}

// flagGroups are the flags that several commands have, and the flags of run. All
// others of a command come first, as its own. "COMMAND FLAG" is only for one command.
var flagGroups = []group{
	{"Input", []string{"filename", "diff from", "isolate-files", "config", "strict", "service-proxy-name"}},
	{"API server", []string{"kubeconfig", "context", "master", "kube-api-qps", "kube-api-burst", "kube-api-content-type", "start-jitter"}},
	{"Nodes", []string{"selector", "agent-namespace", "agent-selector", "agent-port", "via", "parallel", "timeout"}},
	{"Node and pods", []string{"hostname-override", "bind-address", "nodeport-addresses", "cluster-cidr", "detect-local-mode",
		"pod-bridge-interface", "pod-interface-name-prefix", "masquerade-all"}},
	{"Clients", newFlags(aboutClients...)},
	{"Balancing", append(balancing(), "affinity-size", "answer-ping", "load-balancer-cidrs", "feature-gates", "fast-path")},
	{"Relay", newFlags(aboutRelay...)},
	{"Syncs", []string{"min-sync-period", "sync-period", "no-table-owner", "take-over", "announce-nftables", "drain-file"}},
	{"Balances", []string{"control-socket", "changes-file", "health-directory", "on-change", "announce-interval"}},
	{"Names of servers", []string{"dns-servers", "dns-timeout", "dns-min-ttl", "dns-max-ttl"}},
	{"Health and metrics", []string{"healthz-bind-address", "metrics-bind-address", "allowed-hosts", "bind-address-hard-fail", "node-condition", "health-checks", "web", "service-metrics", "endpoint-metrics", "profiling"}},
	{"Refused connections", []string{"observe", "observe-group"}},
	{"Connection tracking and process", []string{"conntrack-max-per-core", "conntrack-min", "conntrack-tcp-timeout-established",
		"conntrack-tcp-timeout-close-wait", "conntrack-tcp-be-liberal", "conntrack-udp-timeout", "conntrack-udp-timeout-stream",
		"conntrack-tcp-cleanup", "oom-score-adj", "manage-sysctl"}},
	{"Output", []string{"output", "elements", "quiet", "color"}},
	{"Log", []string{"v", "logging-format", "log-connections"}},
	{"Other", []string{"version", "help"}},
}

// aboutClients are the settings that new shows apart from the others.
var aboutClients = []*setting.Setting{setting.AllowedClients, setting.DeniedClients, setting.ClientAddresses, setting.MasqueradeFrom, setting.Limits, setting.Affinity}

// aboutRelay are the settings of the relay.
var aboutRelay = []*setting.Setting{setting.Relay, setting.Timeout}

// balancing are the flags for the other settings. All but the scheduler, observe and fast-path are of new alone.
func balancing() []string {
	others := slices.DeleteFunc(setting.Flags(), func(s *setting.Setting) bool {
		return s == setting.Scheduler || s == setting.Observe || s == setting.FastPath || slices.Contains(aboutClients, s) || slices.Contains(aboutRelay, s)
	})
	return append([]string{setting.Scheduler.Flag()}, newFlags(others...)...)
}

// newFlags are the flags of new for settings.
func newFlags(of ...*setting.Setting) (out []string) {
	for _, s := range of {
		out = append(out, "new "+s.Flag())
	}
	return out
}

// aliases are the hidden flags that have an effect.
var aliases = map[string]string{
	"iptables-sync-period":     "--sync-period",
	"iptables-min-sync-period": "--min-sync-period",
	"healthz-port":             "the port of --healthz-bind-address",
	"metrics-port":             "the port of --metrics-bind-address",
}

// addHelp replaces cobra's help, which has all flags in one list.
func addHelp(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		w := c.OutOrStdout()
		fmt.Fprintf(w, "%s\n\n", strings.TrimSpace(description(c)))
		writeUsage(w, c)
	})
	root.SetUsageFunc(func(c *cobra.Command) error {
		writeUsage(c.OutOrStderr(), c)
		return nil
	})
}

func description(c *cobra.Command) string {
	if c.Name() == "completion" { // cobra's
		return strings.TrimSpace(c.Long) + "\n\nExit code: 0 printed, 2 error."
	}
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

func writeUsage(w io.Writer, c *cobra.Command) {
	c.InitDefaultHelpFlag()
	fmt.Fprintln(w, "Usage:")
	for _, line := range usageLines(c) {
		fmt.Fprintf(w, "  %s\n", line)
	}
	if c.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	for _, g := range groupCommands(c) {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, sub := range g.commands {
			fmt.Fprintf(w, "  %-11s %s\n", sub.Name(), sub.Short)
		}
	}
	for _, g := range groupFlags(c) {
		fmt.Fprintf(w, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(width(w)))
	}
	if c.Name() == runName {
		writeCompatibility(w, c)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n\"%s COMMAND --help\" explains a command, with examples.\n", c.CommandPath())
	}
}

// usageLines returns how a command is called: with arguments of its own, with a command below it, or
// in both ways.
func usageLines(c *cobra.Command) (out []string) {
	if !onlyCommands(c) {
		out = append(out, c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		out = append(out, c.CommandPath()+" COMMAND [flags]")
	}
	return out
}

// onlyCommands reports whether a command has others below it, and takes no arguments of its own.
func onlyCommands(c *cobra.Command) bool {
	return c.HasAvailableSubCommands() && !strings.Contains(c.Use, " ")
}

func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return helpWidth
}

type commandGroup struct {
	title    string
	commands []*cobra.Command
}

// groupCommands returns the visible commands below c.
func groupCommands(c *cobra.Command) (out []commandGroup) {
	rest := slices.DeleteFunc(slices.Clone(c.Commands()), func(sub *cobra.Command) bool {
		return !sub.IsAvailableCommand() && sub.Name() != "help"
	})
	groups := commandGroups
	if c.HasParent() {
		groups = nil
	}
	for _, g := range groups {
		var members []*cobra.Command
		for _, name := range g.names {
			if i := slices.IndexFunc(rest, func(sub *cobra.Command) bool { return sub.Name() == name }); i >= 0 {
				members = append(members, rest[i])
				rest = slices.Delete(rest, i, i+1)
			}
		}
		if len(members) > 0 {
			out = append(out, commandGroup{g.title, members})
		}
	}
	switch {
	case len(rest) > 0 && len(out) > 0:
		out = append(out, commandGroup{"Other commands", rest})
	case len(rest) > 0:
		out = append(out, commandGroup{"Commands", rest})
	}
	return out
}

type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

// groupFlags returns the visible flags of a command: first its own.
func groupFlags(c *cobra.Command) []flagGroup {
	grouped := make(map[string]int)
	out := []flagGroup{{"Flags", nil}}
	for i, g := range flagGroups {
		out = append(out, flagGroup{g.title, nil})
		for _, name := range g.names {
			grouped[nameFor(c, name)] = i + 1
		}
	}
	add := func(i int, f *pflag.Flag) {
		if f == nil || f.Hidden {
			return
		}
		if out[i].flags == nil {
			out[i].flags = pflag.NewFlagSet("", pflag.ContinueOnError)
			out[i].flags.SortFlags = false
		}
		out[i].flags.AddFlag(f)
	}
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if grouped[f.Name] == 0 {
			add(0, f)
		}
	})
	for i, g := range flagGroups {
		for _, name := range g.names {
			add(i+1, c.Flags().Lookup(nameFor(c, name)))
		}
	}
	return slices.DeleteFunc(out, func(g flagGroup) bool { return g.flags == nil })
}

// nameFor returns a name in a group without the command that it is restricted to, with the ones below
// it, or nothing if that is another one.
func nameFor(c *cobra.Command, name string) string {
	command, flag, restricted := strings.Cut(name, " ")
	switch {
	case !restricted:
		return name
	case command == c.Name(), c.HasParent() && command == c.Parent().Name():
		return flag
	}
	return ""
}

// writeCompatibility lists the hidden flags of run.
func writeCompatibility(w io.Writer, c *cobra.Command) {
	without, alias := compatibility(c)
	fmt.Fprint(w, "\nAccepted from kube-proxy's command line:\n")
	for _, name := range alias {
		fmt.Fprintf(w, "  --%-25s %s\n", name, aliases[name])
	}
	fmt.Fprint(w, "  without an effect:\n")
	for _, line := range wrap(without, width(w)-4) {
		fmt.Fprintf(w, "    %s\n", line)
	}
}

// compatibility returns the names of the hidden flags.
func compatibility(c *cobra.Command) (without, alias []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case !f.Hidden:
		case aliases[f.Name] != "":
			alias = append(alias, f.Name)
		default:
			without = append(without, "--"+f.Name)
		}
	})
	return without, alias
}

// wrap joins words into lines of at most columns.
func wrap(words []string, columns int) (lines []string) {
	line := ""
	for i, word := range words {
		if i < len(words)-1 {
			word += ","
		}
		if line != "" && len(line)+1+len(word) > columns {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
