package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/status"
)

// errUnhealthy ends status with exit code 1. The output shows the problem.
var errUnhealthy = errors.New("the last sync failed")

type statusOptions struct{ address, namespace, output string }

func statusCommand() *cobra.Command {
	var o statusOptions
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what this node serves and whether it is healthy",
		Long: `Ask the running nftproxy for its state and what it serves: its last sync,
pending changes, problems, health checks, remembered clients, and each frontend
with the number of its endpoints and, with --service-metrics, of its connections.

If no nftproxy answers, for example after "nftproxy apply", the result is read
from the tables in the kernel, which needs root. nftproxy cannot tell then
whether the rules are up to date.

A frontend without endpoints rejects; one with traffic policy Local and without
endpoints on this node drops. "outside" shows what clients outside of the
cluster get, where that differs.

Exit code: 0 healthy, 1 the last sync failed or there was none yet, 2 neither a
daemon nor tables, or another error.`,
		Example: `  nftproxy status
  nftproxy status -n default
  nftproxy status >/dev/null || echo unhealthy
  nftproxy status -o json | jq '.lastSync, .problems'
  nftproxy status -o json | jq -r '.servicePorts[].frontends[] | "\(.connections) \(.address)"'`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.StringVar(&o.address, "metrics-bind-address", "127.0.0.1:10249", "`address` with port where the running nftproxy serves metrics")
	f.StringVarP(&o.namespace, "namespace", "n", "", "list only the Services of this `namespace`")
	f.StringVarP(&o.output, "output", "o", "text", "`format`: text or json")
	return c
}

func (o *statusOptions) run(c *cobra.Command) error {
	if err := checkOutput(o.output, "text"); err != nil {
		return err
	}
	address, err := netip.ParseAddrPort(o.address)
	if err != nil {
		return fmt.Errorf("--metrics-bind-address: %q is not an address with port: write it like 127.0.0.1:10249 or [::1]:10249", o.address)
	}
	report, err := status.Fetch(c.Context(), address)
	if errors.Is(err, status.ErrNoDaemon) {
		report, err = o.fromKernel(c, err)
	}
	if err != nil {
		return err
	}
	if o.namespace != "" {
		report.Only(o.namespace)
	}
	if o.output == "json" {
		err = report.WriteJSON(c.OutOrStdout())
	} else {
		err = report.Print(c.OutOrStdout(), time.Now())
	}
	if err == nil && !report.Healthy {
		return errUnhealthy
	}
	return err
}

// fromKernel returns a report when no daemon answers.
func (o *statusOptions) fromKernel(c *cobra.Command, noDaemon error) (report *status.Report, err error) {
	err = withKernel(func(conn *kernel.Conn) (err error) {
		report, err = status.FromKernel(conn)
		return err
	})
	switch {
	case err != nil:
		return nil, errors.Join(noDaemon, err)
	case report == nil:
		return nil, fmt.Errorf("%w, and the kernel has no tables of nftproxy: start \"nftproxy run\", or name the address of a running one with --metrics-bind-address", noDaemon)
	}
	if o.output == "text" {
		fmt.Fprintf(c.OutOrStdout(), "%v; this is what the kernel holds\n\n", noDaemon)
	}
	return report, nil
}
