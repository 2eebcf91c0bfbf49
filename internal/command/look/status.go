package look

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/show"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// maxRows is how many frontends are listed unless Services are selected.
const maxRows = 30

type statusOptions struct {
	daemon command.Finder
	filter api.Filter
	serves string // the Service that is asked about, instead of all
	all    bool
	output cli.Output
}

func StatusCommand() *cobra.Command {
	var o statusOptions
	c := &cobra.Command{
		Use:   "status [NAME...]",
		Short: "Show what this node serves and whether it is healthy",
		Long: `Show what is wrong, then the state of the running nftproxy, totals, and the
frontends that this node serves, with the number of their endpoints or servers.

Up to 30 frontends are listed. -A lists all; -n selects a namespace, and NAME one
or more Services or Balances: namespace/name, or name in any namespace, where *
stands for any characters. The totals are about the selected ones.

ENDPOINTS or SERVERS is how many take new connections, as in 3/4 if there are more.
A frontend without any "rejects"; one with traffic policy Local and without any
on this node "drops". "outside" has the verdict for clients outside of the
cluster, where that differs. CONNECTIONS are counted with --service-metrics.
"nftproxy describe" shows each of them.

The running nftproxy is asked at the address where its command line and its
configuration put it. If none runs, for example after "nftproxy apply", the
result is read from the tables in the kernel, which needs root; nftproxy cannot
tell then whether the rules are up to date.

--serves asks the running nftproxy about one Service or Balance only, for programs that
announce its address: is a server usable, so that it takes new connections and does not
fail its health check? The answer is one line. It does not depend on others, nor
on servers that fail while another one is usable.

Exit code: 0 healthy, even if what is served has problems; 1 the rules are not in sync
with the source: a sync failed, there was none yet, or the source cannot be used;
with --problems also 1 if there is any problem. 2 neither a daemon nor tables, NAME
selects nothing, or another error. With --serves: 0 at least one server is usable;
1 none is, even if "whenAllFail: use" still sends connections to them; 2 not known: no
daemon answers, it serves nothing of that name, or its last sync failed.`,
		Example: `  nftproxy status
  nftproxy status --problems
  nftproxy status shop/web 'kube-system/*'
  nftproxy status -n default
  nftproxy status >/dev/null || echo unhealthy
  nftproxy status --serves shop/web || [ $? = 2 ] || birdc disable vips
  nftproxy status -o json | jq '.rules.lastSync, .findings.problems'
  nftproxy status -o json | jq -r '.servicePorts[].frontends[] | "\(.connections) \(.address)"'`,
		RunE: func(c *cobra.Command, args []string) error {
			o.filter.Names = args
			if c.Flags().Changed("serves") {
				return o.runServes(c)
			}
			return o.run(c)
		},
		ValidArgsFunction: command.CompleteServices,
	}
	f := c.Flags()
	o.daemon.AddAddress(f)
	o.daemon.AddConfig(c)
	f.StringVarP(&o.filter.Namespace, "namespace", "n", "", "select this `namespace`")
	f.BoolVarP(&o.all, "all", "A", false, "list all frontends and problems, regardless of how many there are")
	f.BoolVar(&o.filter.Problems, "problems", false, "list all problems, and only Services and Balances that have one")
	f.StringVar(&o.serves, "serves", "", "say whether a server of the Service or Balance `name` is usable, by the exit code")
	o.output.Add(c, "")
	_ = c.RegisterFlagCompletionFunc("serves", command.CompleteServices) // fails only for an unknown flag
	return c
}

// runServes says whether this node serves one Service.
func (o *statusOptions) runServes(c *cobra.Command) error {
	if o.filter.Selects() || o.filter.Problems || o.all {
		return errors.New("--serves is about one Service or Balance: leave out other names, -n, -A and --problems, and write for example --serves shop/web")
	}
	s, err := command.Fetch(&o.daemon, func(client *api.Client) (api.Serving, error) { return client.Serving(c.Context(), o.serves) })
	if err != nil {
		return err
	}
	if s.Unsynced != "" {
		return fmt.Errorf("%s: %s", s.Service, s.Unsynced)
	}
	return o.output.PrintJudged(c.OutOrStdout(), s, !s.Serves, func(w io.Writer) error { return show.Serving(w, &s) })
}

func (o *statusOptions) run(c *cobra.Command) error {
	if err := o.filter.Check(); err != nil {
		return err
	}
	if o.output.Format == cli.Text && !o.all && !o.filter.Selects() {
		o.filter.Rows = maxRows
	}
	report, err := o.find(c.Context())
	if err != nil {
		return err
	}
	if err := selectsNothing(report, &o.filter); err != nil && !o.filter.Problems {
		return err
	}
	isWrong := !report.Healthy || o.filter.Problems && len(report.Problems) > 0
	return o.output.PrintJudged(c.OutOrStdout(), report, isWrong, func(w io.Writer) error {
		return show.Status(w, report, show.View{Now: time.Now(), Colour: o.output.Paint, All: o.all || o.filter.Problems})
	})
}

// selectsNothing returns an error if a filter names Services, and a report with that filter has none.
func selectsNothing(report *api.Status, f *api.Filter) error {
	switch {
	case report.Services > 0 || !f.Selects():
		return nil
	case report.From == api.FromDaemon && report.LastSuccess.IsZero():
		return report.Words.Errorf("not synced yet: whether a Service matches %s is not known so far", selection(f))
	}
	return report.Words.Errorf("no Service matches %s%s", selection(f), suggest.DidYouMean(report.DidYouMean))
}

// selection returns what a filter of the command line selects.
func selection(f *api.Filter) string {
	text := fmt.Sprintf("%q", f.Names)
	text = strings.ReplaceAll(strings.Trim(text, "[]"), `" "`, `" or "`)
	switch {
	case len(f.Names) == 0:
		return fmt.Sprintf("namespace %q", f.Namespace)
	case f.Namespace != "":
		return text + fmt.Sprintf(" in namespace %q", f.Namespace)
	}
	return text
}

// find returns the report of the running nftproxy, or of the kernel's tables if none
// answers.
func (o *statusOptions) find(ctx context.Context) (*api.Status, error) {
	var inUse iter.Seq[netip.Addr]
	found, noDaemon, err := command.FetchOrRead(&o.daemon, func(client *api.Client) (*api.Status, error) {
		return client.Status(ctx, &o.filter)
	}, func(conn *kernel.Conn) (found *api.Status, err error) {
		found, inUse, err = report.FromKernel(conn, &o.filter)
		return found, err
	}, ", or name the address of a running one with --metrics-bind-address")
	if noDaemon != "" {
		for _, f := range monitor(machine.Use{Endpoints: inUse, Words: found.Words}).Problems() {
			found.AddProblem(f.Notice())
		}
		found.NoDaemon = noDaemon
	}
	return found, err
}
