package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

type fleetConvergeOptions struct {
	fleetOptions
	fleet.ConvergeOptions
}

func convergeCommand(a access) *cobra.Command {
	var o fleetConvergeOptions
	c := &cobra.Command{
		Use:   "converge [NODE...]",
		Short: "Measure how fast a change reaches the kernel of every node",
		Long: `Change an EndpointSlice, and measure for each node, or the named nodes, the time from the
API server's answer until the kernel of the node has the change. Clocks of nodes need not
agree: a node says for how long its kernel has had the change. The output says by how much
each time can be too long: the time that the node took to answer.

The slice belongs to a Service without traffic, in a namespace of its own, and its
endpoints have addresses for documentation. All objects are removed at the end, also after
SIGINT or SIGTERM. A later run removes the objects of a killed one.

A node that does not have a change in time (--wait) is named with the reason, and is not
asked in later rounds. Nodes that kube-proxy serves cannot be measured.

This command writes objects: it needs more permissions than "kubectl nftproxy status".
docs/kubectl.md lists them.

Exit code: 0 all nodes were measured in all rounds; 1 some were not; 2 error, or
interrupted.`,
		Example: `  kubectl nftproxy converge
  kubectl nftproxy converge node-7 --rounds 20
  kubectl nftproxy converge -o json | jq -r '.nodes[] | "\(.max) \(.name)"'`,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	o.addFlags(c, a)
	f := c.Flags()
	f.IntVar(&o.Rounds, "rounds", 5, fmt.Sprintf("`number` of changes that are measured, up to %d", fleet.MaxRounds))
	f.DurationVar(&o.Wait, "wait", 30*time.Second, "`time` in which a node has to have a change")
	f.StringVar(&o.ProxyName, "service-proxy-name", "", "`name` of the nftproxy that is measured, for nodes where it has one")
	f.BoolVarP(&o.all, "all", "A", false, "list all nodes, regardless of how many there are")
	o.output.Add(c, "")
	return c
}

func (o *fleetConvergeOptions) run(c *cobra.Command, nodes []string) error {
	o.nodes = nodes
	var err error
	if o.Rounds < 1 || o.Rounds > fleet.MaxRounds {
		err = errors.Join(err, fmt.Errorf("--rounds: %d is not a number from 1 to %d", o.Rounds, fleet.MaxRounds))
	}
	if o.Wait <= 0 {
		err = errors.Join(err, fmt.Errorf("--wait: %s is not positive", o.Wait))
	}
	if err != nil {
		return err
	}
	ctx, stop := cli.EndAtSignal(c)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the command at once
	f, m, err := o.reach(c)
	if err != nil {
		return err
	}
	return o.measure(c, f, &m)
}

// measure measures, and prints the result, also of some of the rounds.
func (o *fleetConvergeOptions) measure(c *cobra.Command, f *fleet.Fleet, m *members) error {
	progress := func(round, have int) {
		if round == 0 {
			cli.ShowProgress(c, "%d of %d nodes have the Service", have, len(m.agents))
			return
		}
		cli.ShowProgress(c, "round %d of %d: %d of %d nodes have the change", round, o.Rounds, have, len(m.agents))
	}
	cli.ShowProgress(c, "creating the Service")
	r, err := f.Converge(c.Context(), m.nodes, m.agents, o.ConvergeOptions, progress)
	if errors.Is(err, context.Canceled) && !errors.Is(err, kubectl.ErrNotRemoved) {
		err = fmt.Errorf("interrupted after %s; all objects of this run are removed", terminal.Count(r.Rounds, "round"))
	}
	if err != nil && r.Rounds == 0 {
		return err
	}
	printed := o.output.PrintJudged(c.OutOrStdout(), r, err == nil && !r.Complete(), func(w io.Writer) error { return r.Print(w, o.all, o.output.Paint) })
	if err == nil {
		return printed
	}
	return errors.Join(printed, err)
}
