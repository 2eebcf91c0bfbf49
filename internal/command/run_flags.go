package command

import (
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli/flag"

	"github.com/nftproxy/nftproxy/internal/host"
)

const RunName = "run"

// ArgumentsOf returns the arguments of a command line. Under the name kube-proxy
// the program is "nftproxy run", so that a link of that name takes its place in
// an image (14.9).
func ArgumentsOf(argv []string) []string {
	if filepath.Base(argv[0]) == "kube-proxy" {
		return append([]string{RunName}, argv[1:]...)
	}
	return argv[1:]
}

// RunFlags are the flags of "nftproxy run". Other commands read those of a running nftproxy.
type RunFlags struct {
	Options
	Version           versionFlag
	WriteConfigTo     string
	Cleanup, InitOnly bool
}

func (o *RunFlags) AddRunFlags(c *cobra.Command) {
	o.AddFlags(c)
	o.Settings.AddDaemon()
	addVersionFlag(c, &o.Version)
	c.Flags().StringVar(&o.WriteConfigTo, "write-config-to", "", "write the effective configuration to this `file`, and exit")
	o.addIsolation(c, "an invalid file keeps its last valid content, or is skipped, and the other files are served")
	c.Flags().BoolVar(&o.Cleanup, "cleanup", false, "remove the rules and the leftovers of kube-proxy, and exit")
	c.Flags().BoolVar(&o.InitOnly, "init-only", false, "perform the privileged preparations, write no rules, and exit")
}

// runFlagsOf returns the flags of a process, with an error about flags that this version does not have; nil: it is not
// "nftproxy run", or has ended.
func runFlagsOf(p host.Process) (*RunFlags, error) {
	argv, err := p.Arguments()
	if err != nil {
		return nil, nil
	}
	args := ArgumentsOf(argv)
	if len(args) == 0 || args[0] != RunName {
		return nil, nil
	}
	var o RunFlags
	c := &cobra.Command{Use: RunName}
	c.SetGlobalNormalizationFunc(flag.WordSepNormalizeFunc)
	o.AddRunFlags(c)
	return &o, c.ParseFlags(args[1:])
}
