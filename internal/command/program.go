package command

import (
	"github.com/spf13/cobra"
	"k8s.io/component-base/cli/flag"

	"github.com/nftproxy/nftproxy/internal/cli"
)

// Group are commands with a title in the help; without one they are hidden.
type Group struct {
	Title    string
	Commands []*cobra.Command
}

// OtherGroup is the title of commands that cobra adds, and of others like these.
const OtherGroup = "Other commands"

// versionKey is the key of an annotation of the program.
const versionKey = "version"

// ProgramVersion returns the version of the program that has a command.
func ProgramVersion(c *cobra.Command) string { return c.Root().Annotations[versionKey] }

// UserAgent names the program to API servers.
func UserAgent(c *cobra.Command) string { return "nftproxy/" + ProgramVersion(c) }

// NewProgram completes the root of a program with groups of commands.
func NewProgram(version string, root *cobra.Command, groups []Group) *cobra.Command {
	cobra.EnableCommandSorting = false
	var printVersion versionFlag
	root.Annotations = map[string]string{versionKey: version}
	root.Args, root.SilenceUsage, root.SilenceErrors = cli.NoArguments, true, true
	root.RunE = func(c *cobra.Command, _ []string) error {
		if printVersion.Asked() {
			return printVersion.Write(c)
		}
		return c.Help()
	}
	addVersionFlag(root, &printVersion)
	root.SetFlagErrorFunc(cli.FlagError)
	root.SetHelpCommandGroupID(OtherGroup)
	root.SetCompletionCommandGroupID(OtherGroup)
	for _, g := range groups {
		if g.Title != "" {
			root.AddGroup(&cobra.Group{ID: g.Title, Title: g.Title})
		}
		for _, c := range g.Commands {
			c.GroupID = g.Title
			root.AddCommand(c)
		}
	}
	root.SetGlobalNormalizationFunc(flag.WordSepNormalizeFunc) // "_" means "-" (12.1)
	addHelp(root)
	addHelpCommand(root)
	addCompletion(root)
	return root
}
