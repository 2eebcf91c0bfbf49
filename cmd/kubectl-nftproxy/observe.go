package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/show"
)

type fleetObserveOptions struct {
	fleetOptions
	common.Events
	onNodes []string
}

func observeCommand(a access) *cobra.Command {
	var o fleetObserveOptions
	c := &cobra.Command{
		Use:   "observe [NAME...]",
		Short: "Show the connections that were refused on all nodes, merged by time",
		Long: `Show connections that the rules of any node have refused, in the order of their times: the
time, the node, the client, the address that it dialled, the Service, how it ended, and
why. NAME and the other flags select events as "nftproxy observe" does.

Nodes need nftproxy with --observe=refusals; the others are named. With -f all nodes are
asked again and again. A line says which node lost how many events, has started again,
or does not answer.

Exit code: 0 printed, or ended by a signal; 2 no node observes connections, or another
error.`,
		Example: `  kubectl nftproxy observe shop/web --refused -f
  kubectl nftproxy observe --reason no-endpoints --since 5m
  kubectl nftproxy observe --node node-7 -o json | jq -r .client`,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	o.addFlags(c, a)
	f := c.Flags()
	f.StringSliceVar(&o.onNodes, "node", nil, "only these `nodes`")
	o.AddFlags(f)
	o.output.Add(c, "; a document for each event")
	return c
}

func (o *fleetObserveOptions) run(c *cobra.Command, names []string) error {
	o.Query.Names, o.Query.Namespace = names, *o.access.Namespace
	if err := o.Check(c); err != nil {
		return err
	}
	f, err := o.open()
	if err != nil {
		return err
	}
	ctx, stop := cli.EndAtSignal(c)
	defer stop()
	o.nodes = o.onNodes
	m, err := o.members(c, f)
	if err != nil {
		return err
	}
	w := &watching{f, o, show.NewObserver(c.OutOrStdout(), o.output.Paint), c, 0, make(map[string]uint64), make(map[string]string)}
	answers := w.ask(ctx, m.agents, progress(c, len(m.agents)))
	cli.MeterOf(c).Stop()
	if err := w.write(answers); err != nil {
		return err
	}
	if w.observing == 0 {
		return errors.New("no node observes connections: start nftproxy with --observe=refusals")
	}
	for o.Follow && parallel.Wait(ctx, common.RetryPause) {
		if err := w.write(w.ask(ctx, m.agents, func(int) {})); err != nil {
			return err
		}
	}
	return nil
}

type watching struct {
	*fleet.Fleet
	options *fleetObserveOptions
	out     *show.Observer
	command *cobra.Command
	// observing is the number of nodes that observe connections.
	observing int
	next      map[string]uint64 // number of the last event, by pod
	said      map[string]string // what was last said about a node, by pod
}

func (w *watching) ask(ctx context.Context, agents []fleet.Agent, done func(int)) []fleet.Answer[api.Observed] {
	return fleet.AskEach(ctx, w.Fleet, agents, done, func(ctx context.Context, a *fleet.Agent, client *api.Client) (*api.Observed, error) {
		q := w.options.Query
		if after, known := w.next[a.Pod]; known {
			q.After, q.Within, q.Limit = after, 0, api.MaxObserved
		}
		return client.Observe(ctx, &q)
	})
}

// write writes events, and what is wrong with nodes when that changes.
func (w *watching) write(answers []fleet.Answer[api.Observed]) error {
	var all []show.Observed
	for i := range answers {
		a := &answers[i]
		said := ""
		switch {
		case w.command.Context().Err() != nil:
			return nil
		case a.Err != nil:
			said = a.Err.Error()
		case a.Document.Level == model.ObserveOff.String():
			said = "does not observe connections: --observe=refusals"
		default:
			w.observing++
			w.next[a.Agent.Pod] = a.Document.Next
			for j := range a.Document.Events {
				a.Document.Events[j].Node = a.Agent.Node
			}
			all = append(all, show.Observed{Node: a.Agent.Node, Observed: a.Document})
		}
		if said != w.said[a.Agent.Pod] && said != "" {
			fmt.Fprintf(w.command.ErrOrStderr(), "%s: %s\n", a.Agent.Node, cli.PrintableLines(said))
		}
		w.said[a.Agent.Pod] = said
	}
	if !w.options.output.ForPrograms() {
		return w.out.AddAll(all)
	}
	var events []api.Observation
	for _, r := range all {
		events = append(events, r.Events...)
	}
	slices.SortStableFunc(events, func(a, b api.Observation) int { return a.Time.Compare(b.Time) })
	return common.WriteEvents(w.command.OutOrStdout(), &w.options.output, events)
}
