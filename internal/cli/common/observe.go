package common

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/model"
)

// RetryPause is the time between attempts to reach a daemon that has ended, and between two questions to those that run.
const RetryPause = time.Second

// WriteEvents writes a document for each event.
func WriteEvents(w io.Writer, output *cli.Output, all []api.Observation) error {
	for i := range all {
		if err := output.PrintRecord(w, &all[i]); err != nil {
			return fmt.Errorf("write event: %w", err)
		}
	}
	return nil
}

// Events are the flags that select events of connections.
type Events struct {
	Query  api.ObserveQuery
	Follow bool

	last            int
	client          string
	refused, failed bool
}

// AddFlags adds the flags, but not the one of the namespace.
func (o *Events) AddFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.refused, "refused", false, "only connections that the rules have refused")
	f.BoolVar(&o.failed, "failed", false, "only connections without an answer: refused by rules or by their server, or not answered")
	f.StringSliceVar(&o.Query.Reasons, "reason", nil, "only these `reasons`")
	declare.Values(f, "reason", reasonValues()...)
	f.StringVar(&o.client, "client", "", "only clients in this `range`, or with this address")
	f.DurationVar(&o.Query.Within, "since", 0, "only events of this `time`, such as 5m")
	f.IntVar(&o.last, "last", 20, "`number` of events to show")
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on with events as they come")
}

// Check completes the query, or returns all mistakes.
func (o *Events) Check(c *cobra.Command) error {
	var errs []error
	for _, r := range o.Query.Reasons {
		if err := api.CheckReason(r); err != nil {
			errs = append(errs, fmt.Errorf("--reason: %w", err))
		}
	}
	if o.client != "" {
		var err error
		if o.Query.Client, err = api.ParseClients(o.client); err != nil {
			errs = append(errs, fmt.Errorf("--client: %w", err))
		}
	}
	if o.last < 0 || o.last > api.MaxObserved {
		errs = append(errs, fmt.Errorf("--last: %d is not a number from 0 to %d", o.last, api.MaxObserved))
	}
	if o.Query.Within < 0 {
		errs = append(errs, fmt.Errorf("--since: %s is negative", o.Query.Within))
	}
	switch {
	case o.refused:
		o.Query.Outcomes = []string{model.RefusedByRules.String()}
	case o.failed:
		o.Query.Outcomes = []string{model.RefusedByRules.String(), model.RefusedByEndpoint.String(), model.NoAnswer.String()}
	}
	if o.Query.Limit = o.last; o.Query.Within > 0 && !c.Flags().Changed("last") {
		o.Query.Limit = api.MaxObserved
	}
	return errors.Join(append(errs, o.Query.Check())...)
}

// reasonValues are the reasons with their meaning, for completion.
func reasonValues() []string {
	var values []string
	for _, name := range model.ReasonNames() {
		text, _, _ := model.ReasonText(name)
		values = append(values, name+"\t"+text)
	}
	return values
}
