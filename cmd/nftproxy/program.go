package main

import (
	"github.com/spf13/cobra"
	"k8s.io/component-base/cli/flag"

	"github.com/nftproxy/nftproxy/internal/cli"
)

// group are commands with a title in the help; without one they are hidden.
type group struct {
	title    string
	commands []*cobra.Command
}

// otherGroup is the title of commands that cobra adds, and of others like these.
const otherGroup = "Other commands"

// versionKey is the key of an annotation of the program.
const versionKey = "version"

// programVersion returns the version of the program that has a command.
func programVersion(c *cobra.Command) string { return c.Root().Annotations[versionKey] }

// userAgent names the program to API servers.
func userAgent(c *cobra.Command) string { return "nftproxy/" + programVersion(c) }

// newProgram completes the root of a program with groups of commands.
func newProgram(version string, root *cobra.Command, groups []group) *cobra.Command {
	cobra.EnableCommandSorting = false
	var printVersion versionFlag
	root.Annotations = map[string]string{versionKey: version}
	root.Args, root.SilenceUsage, root.SilenceErrors = cli.NoArguments, true, true
	root.RunE = func(c *cobra.Command, _ []string) error {
		if printVersion.asked() {
			return printVersion.write(c)
		}
		return c.Help()
	}
	addVersionFlag(root, &printVersion)
	root.SetFlagErrorFunc(cli.FlagError)
	root.SetHelpCommandGroupID(otherGroup)
	root.SetCompletionCommandGroupID(otherGroup)
	for _, g := range groups {
		if g.title != "" {
			root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		}
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.SetGlobalNormalizationFunc(flag.WordSepNormalizeFunc) // "_" means "-" (12.1)
	addHelp(root)
	addHelpCommand(root)
	addCompletion(root)
	return root
}
