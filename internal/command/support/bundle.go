package support

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/bundle"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

type machineBundleOptions struct {
	common.Bundle
	daemon command.Finder
}

func BundleCommand() *cobra.Command {
	var o machineBundleOptions
	c := &cobra.Command{
		Use:   "bundle",
		Short: "Collect what a support case needs in one file",
		Long: `Write one archive (tar.gz) about nftproxy on this machine: its status and other
documents, Services and Balances with problems, metrics, settings, the rules, the log,
what "nftproxy check" says, and facts of the kernel. "kubectl nftproxy bundle" does so
for all nodes of a cluster.

Passwords, keys and tokens are removed from every file. Addresses and names stay, and so
does free text, such as descriptions of Services and messages of health checks: read the
archive before you send it.

The size is limited. contents.txt in the archive lists its files, which of them are cut,
and which are missing, with the reason.

Exit code: 0 written, also if files are missing; 2 error.`,
		Example: `  nftproxy bundle
  nftproxy bundle --file case-17.tar.gz`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.AddFlags(c)
	o.daemon.AddAddress(c.Flags())
	o.daemon.AddConfig(c)
	return c
}

// machineGroup is the directory of the archive about this machine.
const machineGroup = "machine"

func (o *machineBundleOptions) run(c *cobra.Command) error {
	if err := o.Check(); err != nil {
		return err
	}
	return o.Write(c, command.ProgramVersion(c), "About nftproxy on one machine.", func(a *bundle.Archive) error {
		cli.MeterOf(c).Start(func() string { return "asking the running nftproxy" })
		got, err := command.Fetch(&o.daemon, func(client *api.Client) (*common.Collected, error) { return common.Collect(c.Context(), client) })
		if err != nil && !errors.Is(err, api.ErrNoDaemon) {
			return err
		}
		if got == nil {
			a.Lack(machineGroup, "status.json", err)
			o.addRules(a)
		} else {
			got.Add(a, machineGroup)
		}
		cli.MeterOf(c).Start(func() string { return "looking at the machine" })
		addCheck(c, a)
		addFacts(c.Context(), a)
		return nil
	})
}

// addRules adds the rules of the kernel where no daemon answers.
func (o *machineBundleOptions) addRules(a *bundle.Archive) {
	var text bytes.Buffer
	rules, err := command.ReadRules()
	if err == nil {
		err = rules.Text(&text)
	}
	if err != nil {
		a.Lack(machineGroup, "rules.txt", err)
		return
	}
	a.Add(machineGroup, "rules.txt", text.Bytes(), bundle.Head)
}

// addCheck adds what "nftproxy check" says.
func addCheck(c *cobra.Command, a *bundle.Archive) {
	var text, log bytes.Buffer
	check := CheckCommand()
	check.SetArgs([]string{"--output", "json"})
	check.SetOut(&text)
	check.SetErr(&log)
	check.SilenceUsage, check.SilenceErrors = true, true
	if err := check.ExecuteContext(c.Context()); err != nil && !errors.Is(err, cli.ErrNo) {
		a.Lack(machineGroup, "check.json", fmt.Errorf("%w %s", err, terminal.Printable(log.String())))
		return
	}
	a.Add(machineGroup, "check.json", text.Bytes(), bundle.Head)
}
