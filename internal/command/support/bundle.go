// Package support has the commands that look at the machine: check and bundle.
package support

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	return o.Write(c, command.ProgramVersion(c), "About nftproxy on one machine.", func(a *bundle.Archive) error {
		cli.ShowProgress(c, "asking the running nftproxy")
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
		cli.ShowProgress(c, "looking at the machine")
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
	a.Add(machineGroup, "rules.txt", text.Bytes(), err)
}

func addCheck(c *cobra.Command, a *bundle.Archive) {
	var text, log bytes.Buffer
	check := CheckCommand()
	check.SetArgs([]string{"--output", "json"})
	check.SetOut(&text)
	check.SetErr(&log)
	check.SilenceUsage, check.SilenceErrors = true, true
	err := check.ExecuteContext(c.Context())
	if errors.Is(err, cli.ErrNo) {
		err = nil
	} else if err != nil {
		err = fmt.Errorf("%w %s", err, terminal.Printable(log.String()))
	}
	a.Add(machineGroup, "check.json", text.Bytes(), err)
}

// factFiles are the files that say what kernel and machine this is.
var factFiles = []string{
	"/proc/version", "/etc/os-release", "/proc/loadavg", "/proc/meminfo",
	"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/all/forwarding", "/proc/sys/net/ipv6/conf/all/forwarding",
	"/proc/sys/net/ipv4/conf/all/rp_filter", "/proc/sys/net/ipv4/ip_local_port_range",
	"/proc/sys/net/netfilter/nf_conntrack_*", "/proc/sys/net/bridge/bridge-nf-call-*",
}

// modules are the beginnings of the names of kernel modules that matter.
var modules = []string{"nf_", "nft_", "nfnetlink", "xt_", "ip_", "ip6", "ipt_", "x_tables", "br_netfilter", "bridge", "vxlan", "wireguard"}

const (
	maxFact = 64 << 10 // bytes
	logTime = 20 * time.Second
)

// addFacts adds facts of the kernel, and the log of the service.
func addFacts(ctx context.Context, a *bundle.Archive) {
	var text strings.Builder
	for _, pattern := range factFiles {
		paths, _ := filepath.Glob(pattern) // the patterns are well-formed
		for _, path := range paths {
			if content, err := os.ReadFile(path); err == nil {
				fmt.Fprintf(&text, "# %s\n%s\n", path, content[:min(len(content), maxFact)])
			}
		}
	}
	if content, err := os.ReadFile("/proc/modules"); err == nil {
		text.WriteString("# /proc/modules\n")
		for line := range strings.Lines(string(content)) {
			if slices.ContainsFunc(modules, func(prefix string) bool { return strings.HasPrefix(line, prefix) }) {
				text.WriteString(line)
			}
		}
	}
	a.Add(machineGroup, "kernel.txt", []byte(text.String()), nil)
	ctx, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	log := exec.CommandContext(ctx, "journalctl", "--unit", "nftproxy", "--no-pager", "--output", "short-iso", "--lines", common.LogLines)
	var failure bytes.Buffer
	log.Stderr = &failure
	content, err := log.Output()
	if err != nil {
		err = fmt.Errorf("journalctl: %w %s", err, strings.TrimSpace(failure.String()))
	}
	a.Add(machineGroup, "log.txt", content, err)
}
