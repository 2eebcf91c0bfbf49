package look

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/show"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

type observeOptions struct {
	common.Events
	daemon   command.Finder
	summary  bool
	withPods bool
	access   kubectl.Access
	pods     *kubectl.Pods // nil: clients are not named
	output   cli.Output
}

func ObserveCommand() *cobra.Command {
	var o observeOptions
	c := &cobra.Command{
		Use:   "observe [NAME...]",
		Short: "Show the connections that were refused, or served: who, where and why",
		Long: `Show connections that the rules have refused on this node, one line for each: the
time, the client, the address that it dialled, the Service or Balance, how it ended, and why. The
first line of each reason is followed by what to do.

Connections to endpoints and servers are there as well, with these, their outcome, who has
ended them, how long they have lasted and, if the kernel counts them, their bytes: of all
Services with --observe=connections, and of Services with the annotation
nftproxy.dev/observe: connections. A connection has a line when it has ended, and another
one before that if it is open for 2 seconds.

NAME selects Services and Balances: namespace/name, or name in any namespace, where * stands for any
characters. --reason, --client and --since select as well.

The running nftproxy has the last 4,096 events, if it was started with --observe. Of
refused connections rules log samples: of each frontend and reason at most 10 a second,
of each reason 500. "nftproxy status" and metrics have exact numbers. If events are lost
or no longer kept, a line says how many.

--summary shows who was refused by what in the last minutes.

--pods names the pods of clients. The command asks the API server for that, with the access
of kubectl and the permission to list pods; the daemon needs none.

Exit code: 0 printed, or ended by a signal; 2 no daemon answers, it does not observe
connections, or another error.`,
		Example: `  nftproxy observe
  nftproxy observe shop/web -f
  nftproxy observe shop/web --failed
  nftproxy observe --reason denied --client 10.0.0.0/8 --last 50
  nftproxy observe --since 5m 'kube-system/*'
  nftproxy observe --summary --pods
  nftproxy observe -o json | jq -r '.events[] | "\(.client) \(.frontend) \(.reason)"'
  nftproxy observe -f -o json | jq -r .client`,
		RunE:              func(c *cobra.Command, _ []string) error { return o.run(c) },
		ValidArgsFunction: command.CompleteServices,
	}
	cli.AddCheck(c, o.check)
	f := c.Flags()
	f.StringVarP(&o.Query.Namespace, "namespace", "n", "", "select this `namespace`")
	o.AddFlags(f)
	f.BoolVar(&o.summary, "summary", false, "show who was refused by what in the last minutes")
	o.output.Add(c, "; with --follow, a document for each event")
	f.BoolVar(&o.withPods, "pods", false, "name the pods of clients, with the access of kubectl")
	declare.In(f, declare.APIServer, func() {
		f.StringVar(&o.access.Kubeconfig, "kubeconfig", "", "with --pods: `file` with the address of the API server and credentials (default: as for kubectl)")
	})
	config.AddContext(f, &o.access.Context)
	o.daemon.AddAddress(f)
	o.daemon.AddConfig(c)
	return c
}

// check completes the query.
func (o *observeOptions) check(c *cobra.Command, args []string) error {
	o.Query.Names = args
	errs := []error{o.Check(c)}
	if o.Follow && o.summary {
		errs = append(errs, errors.New("--follow and --summary exclude each other"))
	}
	if o.summary && (o.Query.Within > 0 || c.Flags().Changed("last")) {
		errs = append(errs, errors.New("--summary is about the last minutes: leave out --since and --last"))
	}
	if o.withPods {
		var err error
		o.access.UserAgent = command.UserAgent(c)
		if o.pods, err = kubectl.NewPods(o.access); err != nil {
			errs = append(errs, fmt.Errorf("--pods: %w", err))
		}
	}
	if o.summary {
		o.Query.Limit, o.Query.Top = 0, maxRows
	}
	return errors.Join(errs...)
}

func (o *observeOptions) run(c *cobra.Command) error {
	ctx, stop := cli.EndAtSignal(c)
	defer stop()
	var client *api.Client
	var first *api.Observed
	err := o.daemon.Ask(func(asked *api.Client) (err error) {
		client = asked // it connects again
		first, err = client.Observe(ctx, &o.Query)
		return err
	})
	switch {
	case errors.Is(err, api.ErrNoDaemon):
		return fmt.Errorf("%w\nstart \"nftproxy run\", or name the address of a running one with --metrics-bind-address", err)
	case err != nil:
		return err
	case first.Level == model.ObserveOff.String():
		return fmt.Errorf("the nftproxy at %s does not observe connections: start it with --observe=refusals", client.Name())
	}
	defer client.Close()
	if len(first.Events) == 0 && len(first.Refused) == 0 {
		o.warn(ctx, c, client)
	}
	if !o.Follow {
		o.name(c, first)
		return o.print(c.OutOrStdout(), first)
	}
	return o.watch(ctx, c, client, first)
}

// warn says where names are of no Service. It may have had events, or have some later.
func (o *observeOptions) warn(ctx context.Context, c *cobra.Command, client *api.Client) {
	filter := o.Query.Filter
	if !filter.Selects() {
		return
	}
	filter.Rows = 1
	report, err := client.Status(ctx, &filter)
	if err != nil {
		return // the events were asked for
	}
	if err := selectsNothing(report, &filter); err != nil {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", terminal.Printable(err.Error()))
	}
}

// name adds the pods of clients. After an error it names no more.
func (o *observeOptions) name(c *cobra.Command, r *api.Observed) {
	if o.pods == nil {
		return
	}
	podOf := func(client string) (name string) {
		at, err := netip.ParseAddr(client)
		if err != nil {
			end, _ := netip.ParseAddrPort(client) // without an address no pod is found
			at = end.Addr()
		}
		if o.pods == nil || !at.IsValid() {
			return ""
		}
		if name, err = o.pods.At(context.WithoutCancel(c.Context()), at); err != nil {
			fmt.Fprintln(c.ErrOrStderr(), "warning: clients are not named:", terminal.Printable(err.Error()))
			o.pods = nil
		}
		return name
	}
	for i := range r.Events {
		r.Events[i].Pod = podOf(r.Events[i].Client)
	}
	for i := range r.Refused {
		r.Refused[i].Pod = podOf(r.Refused[i].Client)
	}
}

func (o *observeOptions) print(w io.Writer, r *api.Observed) error {
	return o.output.Print(w, r, func(w io.Writer) error {
		if o.summary {
			return show.Refused(w, r, o.output.Paint)
		}
		printer := show.NewObserver(w, o.output.Paint)
		return errors.Join(printer.Add(r), printer.Totals(r))
	})
}

// watch writes events as they come, until ctx ends. A daemon that does not answer is asked
// again: it may be starting.
func (o *observeOptions) watch(ctx context.Context, c *cobra.Command, client *api.Client, answer *api.Observed) error {
	w := c.OutOrStdout()
	write := show.NewObserver(w, o.output.Paint).Add
	if o.output.ForPrograms() {
		write = func(r *api.Observed) error { return common.WriteEvents(w, &o.output, r.Events) }
	}
	q := o.Query
	q.Limit, q.Within, q.Wait, q.Top = api.MaxObserved, 0, api.MaxWait, 0
	for {
		o.name(c, answer)
		if err := write(answer); err != nil {
			return err
		}
		q.After = answer.Next
		next, err := client.Observe(ctx, &q)
		for errors.Is(err, api.ErrNoDaemon) && parallel.Wait(ctx, common.RetryPause) {
			next, err = client.Observe(ctx, &q)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		answer = next
	}
}
