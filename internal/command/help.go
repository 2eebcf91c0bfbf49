package command

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli/flag"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
)

// Aliases are the hidden flags that have an effect.
var Aliases = map[string]string{
	"iptables-sync-period":     "--sync-period",
	"iptables-min-sync-period": "--min-sync-period",
	"healthz-port":             "the port of --healthz-bind-address",
	"metrics-port":             "the port of --metrics-bind-address",
}

// addHelp replaces cobra's help, which has all flags in one list.
func addHelp(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		w := c.OutOrStdout()
		fmt.Fprintf(w, "%s\n\n", strings.TrimSpace(Description(c)))
		writeUsage(w, c)
	})
	root.SetUsageFunc(func(c *cobra.Command) error {
		writeUsage(c.OutOrStderr(), c)
		return nil
	})
}

func addHelpFlag(c *cobra.Command) { declare.In(c.Flags(), declare.Other, c.InitDefaultHelpFlag) }

// Description returns the text that the help of a command begins with.
func Description(c *cobra.Command) string {
	if c.Name() == "completion" { // cobra's
		return strings.TrimSpace(c.Long) + "\n\nExit code: 0 printed, 2 error."
	}
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

func writeUsage(w io.Writer, c *cobra.Command) {
	addHelpFlag(c)
	fmt.Fprintln(w, "Usage:")
	for _, line := range UsageLines(c) {
		fmt.Fprintf(w, "  %s\n", line)
	}
	if c.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	for _, g := range GroupCommands(c) {
		fmt.Fprintf(w, "\n%s:\n", g.Title)
		for _, sub := range g.Commands {
			fmt.Fprintf(w, "  %-11s %s\n", sub.Name(), sub.Short)
		}
	}
	groups := GroupFlags(c)
	for _, title := range groups.Order {
		fmt.Fprintf(w, "\n%s:\n%s", title, groups.FlagSets[title].FlagUsagesWrapped(cli.Width(w)))
	}
	if c.Name() == RunName {
		writeCompatibility(w, c)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n\"%s COMMAND --help\" explains a command, with examples.\n", c.CommandPath())
	}
}

// UsageLines returns how a command is called: with arguments of its own, with a command below it, or
// in both ways.
func UsageLines(c *cobra.Command) (out []string) {
	if !OnlyCommands(c) {
		out = append(out, c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		out = append(out, c.CommandPath()+" COMMAND [flags]")
	}
	return out
}

// OnlyCommands reports whether a command has others below it, and takes no arguments of its own.
func OnlyCommands(c *cobra.Command) bool {
	return c.HasAvailableSubCommands() && !strings.Contains(c.Use, " ")
}

// GroupCommands returns the visible commands below c.
func GroupCommands(c *cobra.Command) (out []Group) {
	add := func(id, title string) {
		visible := slices.DeleteFunc(slices.Clone(c.Commands()), func(sub *cobra.Command) bool {
			return sub.GroupID != id || !sub.IsAvailableCommand() && sub.Name() != "help"
		})
		if len(visible) > 0 {
			out = append(out, Group{title, visible})
		}
	}
	for _, g := range c.Groups() {
		add(g.ID, g.Title)
	}
	add("", "Commands")
	return out
}

// GroupFlags returns the visible flags of a command by the titles of their groups.
func GroupFlags(c *cobra.Command) flag.NamedFlagSets {
	all := flag.NamedFlagSets{}
	for _, g := range declare.Groups {
		all.FlagSet(string(g)) // in this order
	}
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all.FlagSet(string(cmp.Or(declare.GroupOf(f), declare.Own))).AddFlag(f)
		}
	})
	all.Order = slices.DeleteFunc(all.Order, func(title string) bool { return !all.FlagSets[title].HasFlags() })
	return all
}

// writeCompatibility lists the hidden flags of run.
func writeCompatibility(w io.Writer, c *cobra.Command) {
	without, alias := Compatibility(c)
	fmt.Fprint(w, "\nAccepted from kube-proxy's command line:\n")
	for _, name := range alias {
		fmt.Fprintf(w, "  --%-25s %s\n", name, Aliases[name])
	}
	fmt.Fprint(w, "  without an effect:\n")
	for _, line := range wrap(without, cli.Width(w)-4) {
		fmt.Fprintf(w, "    %s\n", line)
	}
}

// Compatibility returns the names of the hidden flags.
func Compatibility(c *cobra.Command) (without, alias []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case !f.Hidden:
		case Aliases[f.Name] != "":
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

// addHelpCommand replaces cobra's command help, which prints the help of the program for a word that
// it does not know.
func addHelpCommand(root *cobra.Command) {
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		Long:  "Print the help of a command, as COMMAND --help does.\n\nExit code: 0 printed, 2 there is no such command.",
		Args: func(c *cobra.Command, args []string) error {
			if found, rest, err := c.Root().Find(args); err != nil || len(rest) > 0 {
				return cli.UnknownCommand(found, args[len(args)-len(rest)])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			found, _, err := c.Root().Find(args)
			if err != nil {
				return err
			}
			addHelpFlag(found)
			return found.Help()
		},
		ValidArgsFunction: completeCommands,
	})
}

// completeCommands completes the words of a command.
func completeCommands(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if found, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
		for _, sub := range found.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
