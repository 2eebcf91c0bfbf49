package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

type fleetStatusOptions struct {
	fleetOptions
	watch bool
	every time.Duration
}

func statusCommand(a access) *cobra.Command {
	var o fleetStatusOptions
	c := &cobra.Command{
		Use:   "status [NODE...]",
		Short: "Show which nodes need attention, the worst first",
		Long: `Ask the nftproxy of every node, or of the nodes that are named, for its status, and
show the nodes that need attention first:

  no answer   it does not answer, for example because its process is stopped; the
              rules on the node stay as they were
  no agent    no pod of nftproxy is on a node that a DaemonSet of it selects
  unhealthy   the last sync failed, or the source cannot be used
  behind      it has not seen the object of the API server that changed last, nor two
              seconds later, or changes wait for more than 10 s
  no node     nftproxy runs on a machine without a Node object
  problems    nftproxy reports problems of the machine

Problems of Services are listed once, with the number of nodes. The same program is on
all nodes, unless a line "mixed versions" says otherwise.

Exit code: 0 all nodes are ok, or have only problems that "nftproxy status" also
reports with exit code 0; 1 another node needs attention; 2 error.`,
		Example: `  kubectl nftproxy status
  kubectl nftproxy status node-7
  kubectl nftproxy status -l topology.kubernetes.io/zone=a --watch
  kubectl nftproxy status -o json | jq -r '.nodes[] | select(.verdict != "ok").name'`,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	o.addFlags(c, a)
	f := c.Flags()
	f.BoolVarP(&o.all, "all", "A", false, "list all nodes and problems, regardless of how many there are")
	f.BoolVarP(&o.watch, "watch", "w", false, "ask again and again")
	f.DurationVar(&o.every, "every", 10*time.Second, "with --watch: `time` between two questions")
	o.output.Add(c, "")
	return c
}

func (o *fleetStatusOptions) run(c *cobra.Command, nodes []string) error {
	o.nodes = nodes
	if o.every <= 0 {
		return fmt.Errorf("--every: %s is not positive", o.every)
	}
	f, err := o.open()
	if err != nil {
		return err
	}
	ctx, stop := cli.EndAtSignal(c)
	defer stop()
	for {
		r, err := o.ask(c, f)
		if err == nil {
			err = o.output.Print(c.OutOrStdout(), r, func(w io.Writer) error { return r.Print(w, o.all, o.output.Paint) })
		}
		switch {
		case ctx.Err() != nil && o.watch:
			return nil
		case ctx.Err() != nil:
			return errors.New("interrupted before all nodes have answered")
		case err != nil:
			return err
		case !o.watch && r.Wrong() > 0:
			return cli.ErrNo
		case !o.watch:
			return nil
		}
		if !parallel.Wait(ctx, o.every) {
			return nil
		}
	}
}

func (o *fleetStatusOptions) ask(c *cobra.Command, f *fleet.Fleet) (*fleet.Report, error) {
	start := time.Now()
	m, err := o.members(c, f)
	if err != nil {
		return nil, err
	}
	r, err := judged(c, f, &m)
	if err != nil {
		return nil, err
	}
	r.Seconds = time.Since(start).Seconds()
	return r, c.Context().Err()
}

// judged asks the agents for their status, and judges the answers.
func judged(c *cobra.Command, f *fleet.Fleet, m *members) (*fleet.Report, error) {
	newest, unknown := f.Newest(c.Context())
	answers := fleet.Ask(c.Context(), f, m.agents, progress(c, len(m.agents)), headOfStatus)
	if err := askAgain(c, f, answers, newest); err != nil {
		return nil, err
	}
	r := fleet.Judge(time.Now(), m.nodes, answers, newest, m.all)
	if unknown != nil {
		r.NewestError = unknown.Error()
	}
	return r, nil
}

// lagPause is the time in which objects reach a node that is not behind.
const lagPause = 2 * time.Second

// askAgain asks the agents again that have not seen the newest objects, after a while: these may
// be on the way.
func askAgain(c *cobra.Command, f *fleet.Fleet, answers []fleet.Answer[api.Status], newest map[string]fleet.Newest) error {
	var lagging []fleet.Agent
	for i := range answers {
		if s := answers[i].Document; s != nil && fleet.Lags(s, newest) != "" {
			lagging = append(lagging, answers[i].Agent)
		}
	}
	if len(lagging) == 0 {
		return nil
	}
	if !parallel.Wait(c.Context(), lagPause) {
		return c.Context().Err()
	}
	for _, again := range fleet.Ask(c.Context(), f, lagging, progress(c, len(lagging)), headOfStatus) {
		i := slices.IndexFunc(answers, func(a fleet.Answer[api.Status]) bool { return a.Agent == again.Agent })
		answers[i] = again
	}
	return nil
}

// headOfStatus asks for the part of a status that does not grow with the frontends.
func headOfStatus(ctx context.Context, client *api.Client) (*api.Status, error) {
	return client.Status(ctx, &api.Filter{Rows: 1})
}
