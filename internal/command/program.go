// Package command has what commands of nftproxy share: the flags of the input, the configuration and the log that
// these lead to, the running nftproxy and what a plan takes over from it, the kernel, help and completion. The commands
// are in the packages below, by group: none imports another.
package command

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"
	k8sversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/cli/flag"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
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

func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the versions of nftproxy and Go, and the platform that it was built for.\n\nExit code: 0 printed, 2 error.",
		Args:    cli.NoArguments,
		Example: "  nftproxy version",
		RunE:    func(c *cobra.Command, _ []string) error { return versionPlain.Write(c) },
	}
}

// versionFlag is the value of --version. Cobra's own flag uses a template, which makes
// the program 50 % larger.
type versionFlag string

const (
	versionUnasked versionFlag = "false"
	versionPlain   versionFlag = "true"
	versionRaw     versionFlag = "raw" // as Kubernetes components do
)

func addVersionFlag(c *cobra.Command, p *versionFlag) {
	*p = versionUnasked
	declare.In(c.Flags(), declare.Other, func() {
		c.Flags().Var(p, "version", "print the version, and exit; \"raw\": with all details")
	})
	declare.Values(c.Flags(), "version", "true", string(versionRaw))
	c.Flags().Lookup("version").NoOptDefVal = string(versionPlain)
}

func (v *versionFlag) String() string { return string(*v) }
func (v *versionFlag) Type() string   { return "bool" } // for the help: it needs no value

// IsBoolFlag makes the value optional.
func (v *versionFlag) IsBoolFlag() bool { return true }

func (v *versionFlag) Set(text string) error {
	asked, err := strconv.ParseBool(text)
	switch {
	case text == string(versionRaw):
		*v = versionRaw
	case err != nil:
		return errors.New("write true, false or raw")
	case asked:
		*v = versionPlain
	default:
		*v = versionUnasked
	}
	return nil
}

func (v versionFlag) Asked() bool { return v == versionPlain || v == versionRaw }

func (v versionFlag) Write(c *cobra.Command) error {
	info := k8sversion.Info{GitVersion: ProgramVersion(c), GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if v == versionRaw {
		_, err := fmt.Fprintf(c.OutOrStdout(), "%#v\n", info)
		return err
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "nftproxy %s (%s, %s)\n", info.GitVersion, info.GoVersion, info.Platform)
	return err
}
