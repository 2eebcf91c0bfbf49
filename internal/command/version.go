package command

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"
	k8sversion "k8s.io/apimachinery/pkg/version"

	"github.com/nftproxy/nftproxy/internal/cli"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
)

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
