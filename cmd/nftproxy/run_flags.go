package main

import (
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli/flag"
)

const runName = "run"

// arguments returns the arguments of a command line. Under the name kube-proxy
// the program is "nftproxy run", so that a link of that name takes its place in
// an image (14.9).
func arguments(argv []string) []string {
	if filepath.Base(argv[0]) == "kube-proxy" {
		return append([]string{runName}, argv[1:]...)
	}
	return argv[1:]
}

// runFlags are the flags of "nftproxy run". Other commands read those of a running nftproxy.
type runFlags struct {
	options
	version           versionFlag
	writeConfigTo     string
	cleanup, initOnly bool
}

func (o *runFlags) addRunFlags(c *cobra.Command) {
	o.addFlags(c)
	o.settings.AddDaemon()
	addVersionFlag(c, &o.version)
	c.Flags().StringVar(&o.writeConfigTo, "write-config-to", "", "write the effective configuration to this `file`, and exit")
	o.addIsolation(c, "an invalid file keeps its last valid content, or is skipped, and the other files are served")
	c.Flags().BoolVar(&o.cleanup, "cleanup", false, "remove the rules and the leftovers of kube-proxy, and exit")
	c.Flags().BoolVar(&o.initOnly, "init-only", false, "perform the privileged preparations, write no rules, and exit")
}

// parseRun parses the flags of "nftproxy run".
func parseRun(args []string) (*runFlags, error) {
	var o runFlags
	c := &cobra.Command{Use: runName}
	c.SetGlobalNormalizationFunc(flag.WordSepNormalizeFunc)
	o.addRunFlags(c)
	return &o, c.ParseFlags(args)
}
