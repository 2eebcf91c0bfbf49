package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

func diffCommand(a access) *cobra.Command {
	var o fleetOptions
	c := &cobra.Command{
		Use:   "diff [NODE...]",
		Short: "Compare the kernel of nodes with the objects of the API server",
		Long: `Compare what the kernel of each node holds with what the objects of the API server ask
for, and name what differs: the node, the Service, the element. Two comparisons follow
each other: the nftproxy on the node compares the kernel with the rules that it wants,
as "nftproxy diff" does, at most once in 5 s; and this command computes from the objects
what it should want, with its settings, failing and drained endpoints.

What differs only because it changes at the moment is not named: the objects and the
node are read again until both stay the same.

It reads all Services and EndpointSlices, with the access of kubectl. Nodes with another
version of nftproxy than this one have their kernel compared, and not their objects.

Exit code: 0 no differences, 1 differences, or a node is not known, 2 error.`,
		Example: `  kubectl nftproxy diff node-7
  kubectl nftproxy diff -o json | jq -r '.nodes[] | .name as $n | .kernel[] | "\($n) \(.service) \(.change)"'`,
		RunE: func(c *cobra.Command, args []string) error { return o.diff(c, args) },
	}
	o.addFlags(c, a)
	o.output.Add(c, "")
	return c
}

func (o *fleetOptions) diff(c *cobra.Command, nodes []string) error {
	o.nodes = nodes
	f, m, err := o.reach(c)
	if err != nil {
		return err
	}
	d, err := compareNodes(c, f, m.agents)
	if err != nil {
		return err
	}
	return o.output.PrintJudged(c.OutOrStdout(), d, d.Found(), func(w io.Writer) error { return d.Print(w, o.output.Paint) })
}

// held is what the nftproxy on a node says about itself.
type held struct {
	basis      *api.Basis
	comparison *api.Comparison
}

func askHeld(ctx context.Context, client *api.Client) (*held, error) {
	h := new(held)
	var err error
	if h.comparison, err = client.Compare(ctx, ""); err != nil {
		return nil, err
	}
	h.basis, err = askBasis(ctx, client)
	return h, err
}

func askBasis(ctx context.Context, client *api.Client) (*api.Basis, error) { return client.Basis(ctx) }

func compareNodes(c *cobra.Command, f *fleet.Fleet, agents []fleet.Agent) (*fleet.Differences, error) {
	d := &fleet.Differences{Nodes: []fleet.NodeDifferences{}}
	i := newIntents(f)
	answers := fleet.Ask(c.Context(), f, agents, progress(c, len(agents)), askHeld)
	for n := range answers {
		a := &answers[n]
		cli.ShowProgress(c, "comparing node %d of %d", n+1, len(answers))
		out, err := compareNode(c.Context(), i, a)
		if err != nil {
			return nil, err
		}
		d.Nodes = append(d.Nodes, *out)
	}
	return d, nil
}

const (
	// stableAttempts is how often a node and the objects are read until both stay the same.
	stableAttempts = 5
	stablePause    = time.Second
)

// compareNode compares one node. While its Services differ, it reads both sides again; those
// that are the same as the time before, and differ, differ.
func compareNode(ctx context.Context, i *intents, a *fleet.Answer[held]) (*fleet.NodeDifferences, error) {
	out := &fleet.NodeDifferences{Name: a.Agent.Node, Kernel: []api.Difference{}, Objects: []api.Difference{}}
	var before map[string][2]string
	for attempt := range stableAttempts {
		if a.Err != nil {
			out.Unknown = a.Err.Error()
			return out, nil
		}
		c := a.Document.comparison // what the nftproxy there says about its kernel
		out.Unknown, out.Compared, out.Kernel, out.KernelCount = c.Unsettled, c.Compared, c.Differences, c.Count
		rules, err := rulesOf(ctx, i, a, out)
		if rules == nil {
			return out, err
		}
		now := differing(a.Document.comparison.Digests, changes.Digests(rules))
		if len(now) == 0 || attempt > 0 && maps.Equal(before, now) {
			return out, addObjects(ctx, i.fleet, a.Agent, out, now, rules)
		}
		before = now
		if !parallel.Wait(ctx, stablePause) {
			return nil, ctx.Err()
		}
		i.forget()
		*a = fleet.AskOne(ctx, i.fleet, a.Agent, askHeld)
	}
	out.Unknown = terminal.Count(len(before), "Service") + " changed all the time"
	return out, nil
}

// rulesOf returns the rules that the objects ask for on a node; nil: they are not known.
func rulesOf(ctx context.Context, i *intents, a *fleet.Answer[held], out *fleet.NodeDifferences) (*nft.Ruleset, error) {
	if v := a.Document.comparison.Version; v != version {
		out.Unknown = fmt.Sprintf("nftproxy there is %s, and this one %s: only the kernel was compared", v, version)
		return nil, nil
	}
	cfg, err := configOf(a.Agent.Node, a.Document.basis)
	if err != nil {
		out.Unknown = err.Error()
		return nil, nil
	}
	side, err := i.of(ctx, cfg, a.Document.basis)
	if err != nil {
		return nil, err
	}
	out.Services = len(side.Snapshot.Services)
	return render.Render(side.Routing), nil
}

// differing returns the Services whose digests differ, with both.
func differing(onNode, asked map[string]string) map[string][2]string {
	out := make(map[string][2]string)
	for _, all := range []map[string]string{onNode, asked} {
		for service := range all {
			if onNode[service] != asked[service] {
				out[service] = [2]string{onNode[service], asked[service]}
			}
		}
	}
	return out
}

// maxDetailed is how many Services of a node have their elements compared.
const maxDetailed = 10

func addObjects(ctx context.Context, f *fleet.Fleet, a fleet.Agent, out *fleet.NodeDifferences, services map[string][2]string, rules *nft.Ruleset) error {
	if len(services) > 1 {
		delete(services, "") // shared elements differ where Services do
	}
	for n, service := range slices.Sorted(maps.Keys(services)) {
		switch {
		case service == "":
			out.Objects = append(out.Objects, api.Difference{Change: "rules that Services share differ"})
			continue
		case n >= maxDetailed:
			out.Objects = append(out.Objects, api.Difference{Service: service, Change: "differs"})
			continue
		}
		answer := fleet.AskOne(ctx, f, a, func(ctx context.Context, client *api.Client) (*api.Comparison, error) {
			return client.Compare(ctx, service)
		})
		if answer.Err != nil {
			out.Unknown = answer.Err.Error()
			return nil
		}
		out.Objects = append(out.Objects, fleet.CompareElements(service, answer.Document.Elements, changes.ElementsOf(rules, service))...)
	}
	return nil
}
