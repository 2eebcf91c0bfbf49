package rules

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/report"
)

type applyOptions struct {
	command.Options
	reportOptions
}

func ApplyCommand() *cobra.Command {
	var o applyOptions
	c := &cobra.Command{
		Use:   "apply -f FILE | --kubeconfig FILE | --config FILE",
		Short: "Bring the kernel in sync with a file or a cluster, once",
		Long: `Commit the difference between the kernel's rules and those for the files, or for
the present objects of an API server, print it as "diff" does, and exit. Traffic
switches in one transaction. Without a difference nothing is sent to the kernel.
Established connections are not affected. While "nftproxy run" owns the tables,
no other process can change them: this fails then and changes nothing. Beside
one that does not own them, all else is as in that one, as "diff" explains.

With -o json, the document is the same as of "diff -o json".

On a terminal, long work shows its progress. With --quiet nothing is printed but
errors.

Exit code: 0 applied, 2 error, or a warning with --strict.`,
		Example: `  nftproxy apply -f services.yaml
  nftproxy apply -f services.yaml --elements=always
  nftproxy apply -f services.yaml --quiet
  nftproxy apply -f services.yaml -o json | jq .summary
  nftproxy apply -f cluster/ --hostname-override node-1 --cluster-cidr 10.128.0.0/9`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.AddFlags(c)
	o.AddHere(c)
	o.addReportFlags(c, "; json and yaml list every change")
	declare.In(c.Flags(), declare.Output, func() {
		c.Flags().BoolVarP(&o.Quiet, "quiet", "q", false, "print nothing but errors")
	})
	return c
}

func (o *applyOptions) run(c *cobra.Command) error {
	side, log, err := o.ReadSide(c, true)
	if err != nil {
		return err
	}
	return command.WithApplier(log, func(a *apply.Applier) error {
		r, err := o.commit(c, a, side)
		if err != nil {
			return err
		}
		if !o.Quiet {
			err = o.print(c.OutOrStdout(), r)
		}
		return errors.Join(err, a.Sweep())
	})
}

// commit applies the rules for a routing. If there are none yet, many are loaded in
// parts, unless all of their elements are to be listed.
func (o *applyOptions) commit(c *cobra.Command, a *apply.Applier, to changes.Side) (*outcome, error) {
	if o.elements != "always" && !o.output.ForPrograms() && len(to.Routing.Routes) > listedElements {
		if empty, err := a.Empty(); err == nil && empty {
			if r, err := o.load(c, a, to); err == nil {
				return r, nil
			}
		}
	}
	var seen apply.Comparison
	a.Observer = &seen
	o.ShowPhase(c, "rendering %d frontends", len(to.Routing.Routes))
	rules, err := report.Rules(a, to.Routing, o.Running.Stays)
	if err != nil {
		return nil, err
	}
	o.ShowPhase(c, "applying %d frontends", len(to.Routing.Routes))
	p, err := a.Apply(nft.FromNothing(rules))
	if err != nil {
		return nil, err
	}
	if o.Quiet {
		return &outcome{plan: p}, nil
	}
	return &outcome{plan: p, services: changes.Count(changes.Rules(seen.Current, seen.Wanted, p, to.Snapshot), p), words: to.Snapshot.Words()}, nil
}

// load adds all rules to a kernel without our tables, and shows how far it is.
func (o *applyOptions) load(c *cobra.Command, a *apply.Applier, to changes.Side) (*outcome, error) {
	all := render.Added(to.Routing)
	_, parts := render.Load(to.Routing, all)
	var frontends, elements atomic.Int64
	begin := time.Now()
	if !o.Quiet {
		cli.MeterOf(c).Start(func() string {
			rate := float64(elements.Load()) / max(time.Since(begin).Seconds(), 0.001)
			return fmt.Sprintf("applying %d of %d frontends, %d elements (%.0f per second)", frontends.Load(), len(all), elements.Load(), rate)
		})
	}
	p, err := a.Load(counting(parts, &frontends, &elements))
	if err != nil {
		return nil, err
	}
	if o.Quiet {
		return &outcome{plan: p}, nil
	}
	nothing := changes.Side{Snapshot: new(model.Snapshot), Routing: new(model.Routing)}
	return &outcome{plan: p, services: changes.Objects(nothing, to), words: to.Snapshot.Words()}, nil
}

// counting counts the frontends and elements of the parts that are taken.
func counting(parts iter.Seq[nft.Delta], frontends, elements *atomic.Int64) iter.Seq[nft.Delta] {
	return func(yield func(nft.Delta) bool) {
		for part := range parts {
			for _, t := range part.After.Tables {
				for _, s := range t.Sets {
					elements.Add(int64(len(s.Elements)))
				}
				for _, name := range nft.ServiceMaps {
					frontends.Add(int64(len(cmp.Or(t.Set(name), new(nft.Set)).Elements)))
				}
			}
			if !yield(part) {
				return
			}
		}
	}
}
