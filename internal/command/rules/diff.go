// Package rules has the commands that lead from objects to rules: render, diff and apply.
package rules

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/feature/table"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

type diffOptions struct {
	command.Options
	from    []string // files of the input before
	packets bool     // compare what packets experience
	reportOptions
}

func DiffCommand() *cobra.Command {
	var o diffOptions
	c := &cobra.Command{
		Use:   "diff [--from FILE] -f FILE | --kubeconfig FILE | --config FILE",
		Short: "Show what would change in the kernel, or between two inputs",
		Long: `Compare the kernel's rules with those for the files, or for the objects of the
API server, and print the plan that "apply" would carry out. Nothing is changed.

All else is as in the nftproxy that runs here: flags that are not given, servers
and endpoints that fail a health check or are drained, files that it isolates,
Services that it keeps. A line says what that is. So the plan has what the input
changes and, beside an nftproxy with the same input, nothing. If none answers,
flags and files alone count.

With --from, compare two inputs instead: that plan is for a node that runs with
the files of --from. It needs neither root nor a kernel nor a network. Servers
keep their slots as on a node. Flags about the node and the pods apply to both
inputs; warnings are about the new one. Ranges for --nodeport-addresses select
addresses of the Node object, as in "render".

Addresses that "announce" of Balances keeps on interfaces are compared as well: +
is one that is missing, - one that no Balance wants. "nftproxy run" changes them.

The plan names the Services and Balances that change, with what changes for their clients,
and then the elements of the rules. With --from, that includes what no rule has:
health checks, and servers that take no connections now. Lanes that nothing uses any more
stay for the next one: the daemon removes them within an hour, and "apply" immediately.

With --prove, compare what packets experience instead: of all classes of packets,
those that would go elsewhere, and whether the plan explains them. Rules of all
programs count, also kube-proxy's and those that others have put into nftproxy's
tables. An expression of another program that is not understood is an error.

Exit code: 0 no changes, 1 changes, 2 error, or a warning with --strict; with
--prove, 3 for a packet whose change the plan does not explain.`,
		Example: `  nftproxy diff -f services.yaml
  nftproxy diff --from old.yaml -f services.yaml
  git show origin/main:services.yaml | nftproxy diff --from - -f services.yaml
  nftproxy diff --from old/ -f new/ -o markdown >> "$GITHUB_STEP_SUMMARY"
  nftproxy diff -f services.yaml -o json | jq '.summary, .services'
  nftproxy diff -f services.yaml >/dev/null && echo up to date
  nftproxy diff --prove -f services.yaml
  nftproxy diff --config /var/lib/kube-proxy/config.conf --hostname-override node-1`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.AddFlags(c)
	o.AddHere(c)
	declare.In(c.Flags(), declare.Input, func() {
		c.Flags().StringArrayVar(&o.from, "from", nil, "compare with the rules for this `file` or directory instead of the kernel's, - for standard input; can be given several times")
	})
	c.Flags().BoolVar(&o.packets, "prove", false, "compare what packets of all classes experience, by the rules of all programs")
	o.addReportFlags(c, "; markdown is for a pull request", cli.Text, cli.JSON, cli.YAML, formatMarkdown)
	return c
}

func (o *diffOptions) run(c *cobra.Command) error {
	if o.packets {
		return o.prove(c)
	}
	r, err := o.report(c)
	if err != nil {
		return o.hint(err)
	}
	if err := o.print(c.OutOrStdout(), r); err != nil {
		return err
	}
	if !r.empty() {
		return cli.ErrNo
	}
	return nil
}

// hint adds what to do for two inputs that were given as one.
func (o *diffOptions) hint(err error) error {
	if len(o.Files) > 1 && len(o.from) == 0 && strings.Contains(err.Error(), " twice") {
		return fmt.Errorf("%w\nto compare two inputs, give the old one with --from: nftproxy diff --from OLD -f NEW", err)
	}
	return err
}

func (o *diffOptions) report(c *cobra.Command) (*outcome, error) {
	if len(o.from) > 0 {
		return o.betweenInputs(c)
	}
	side, log, err := o.ReadSide(c, true)
	if err != nil {
		return nil, err
	}
	r := new(outcome)
	err = command.WithKernel(func(conn *kernel.Conn) (err error) {
		conn.Log = log
		o.ShowPhase(c, "comparing %d frontends with the kernel", len(side.Routing.Routes))
		r.plan, r.services, err = report.Compare(conn, log, side.Routing, o.Running.Stays, side.Snapshot)
		return err
	})
	if err == nil && len(o.Files) > 0 { // only they have Balances
		r.addresses, err = o.addresses(&side, log)
	}
	return r, err
}

// addresses compares the addresses of interfaces with those that Balances announce.
func (o *diffOptions) addresses(side *changes.Side, log *slog.Logger) (all []feature.AddressChange, err error) {
	var balances []*model.View
	for _, s := range side.Snapshot.Services {
		if !command.Announces(s) {
			continue
		}
		if v := o.Router.View(s.Name); v != nil {
			v.Checks = &o.Running
			balances = append(balances, v)
		}
	}
	keeps := slices.Contains(slices.Collect(maps.Values(o.Running.Stays)), false) // from an earlier run, and not refused
	for _, row := range table.Rows {
		if c, ok := row.Kind.(feature.Comparer); ok {
			all, err = c.CompareAddresses(balances, command.RuntimeDirectory(), keeps, log)
		}
	}
	return all, err
}

// betweenInputs compares the rules of a node before and after its input changes. The
// node has rendered the input before from nothing: one with a longer history may have
// its endpoints in other slots.
func (o *diffOptions) betweenInputs(c *cobra.Command) (*outcome, error) {
	sides, _, err := o.readInputs(c)
	if err != nil {
		return nil, err
	}
	before, after := sides[0], sides[1]
	o.ShowPhase(c, "comparing %d frontends", len(after.Routing.Routes))
	was := render.Render(before.Routing)
	p := plan.Diff(was, plan.Settle(was, render.Render(after.Routing))).WithoutIdleLanes()
	return &outcome{plan: p, services: changes.Count(changes.Objects(before, after), p), words: after.Snapshot.Words()}, nil
}

func (o *diffOptions) readInputs(c *cobra.Command) (sides [2]changes.Side, cfg *config.Config, err error) {
	if slices.Contains(o.from, "-") && slices.Contains(o.Files, "-") {
		return sides, nil, errors.New("--from - and -f -: standard input can be read once: name a file for one of them")
	}
	cfg, log, err := o.LoadConfig(c)
	if err != nil {
		return sides, nil, err
	}
	var errBefore, errAfter error
	sides[0], errBefore = o.before(c, cfg)
	sides[1], errAfter = o.ResolveObjects(c, cfg, log)
	if len(o.Files) > 0 {
		errAfter = ofSide("-f", errAfter)
	}
	return sides, cfg, errors.Join(ofSide("--from", errBefore), errAfter)
}

// ofSide names the flag in each line of an error about its files.
func ofSide(flag string, err error) error {
	if err == nil {
		return nil
	}
	return errors.New(flag + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+flag+": "))
}

func (o *diffOptions) before(c *cobra.Command, cfg *config.Config) (side changes.Side, err error) {
	reader := &files.Reader{Paths: o.from, Stdin: c.InOrStdin(), ProxyName: cfg.Own.ServiceProxyName}
	if o.IsolateFiles {
		reader.Isolation = files.NewIsolation(nil)
	}
	o.ShowPhase(c, "reading %s", command.DescribeInputs(o.from))
	if side.Snapshot, err = reader.Snapshot(slog.New(slog.DiscardHandler)); err != nil {
		return side, err
	}
	side.Routing = model.Resolve(side.Snapshot, cfg.Node)
	return side, nil
}
