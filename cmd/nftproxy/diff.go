package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// withKernel calls f with a connection to the kernel of this network namespace.
func withKernel(f func(*kernel.Conn) error) (err error) {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return f(conn)
}

// withApplier calls f with an applier for the kernel of this network namespace.
func withApplier(log *slog.Logger, f func(*apply.Applier) error) error {
	return withKernel(func(conn *kernel.Conn) error {
		conn.Log = log
		return f(apply.New(conn, log))
	})
}

func diffCommand() *cobra.Command {
	var o options
	var output, colour string
	c := &cobra.Command{
		Use:   "diff -f FILE | --kubeconfig FILE | --config FILE",
		Short: "Show what would change in the kernel",
		Long: `Compare the kernel's rules with those for the files, or for the objects of the
API server, and print the plan that "apply" would carry out. Nothing is changed.

Exit code: 0 no changes, 1 changes, 2 error.`,
		Example: `  nftproxy diff -f services.yaml
  nftproxy diff -f services.yaml -o json | jq .summary
  nftproxy diff -f services.yaml >/dev/null && echo up to date
  nftproxy diff --config /var/lib/kube-proxy/config.conf --hostname-override node-1`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			paint, err := useColour(colour, c.OutOrStdout())
			if err != nil {
				return err
			}
			if err := checkOutput(output, "text"); err != nil {
				return err
			}
			routing, log, err := o.routing(c, true)
			if err != nil {
				return err
			}
			return withApplier(log, func(a *apply.Applier) error {
				p, _, err := a.Plan(render.Render(routing))
				if err != nil {
					return err
				}
				return printPlan(c.OutOrStdout(), p, output, paint)
			})
		},
	}
	o.addFlags(c)
	c.Flags().StringVarP(&output, "output", "o", "text", "`format`: text or json")
	c.Flags().StringVar(&colour, "color", "auto", "`when` to colour the text: auto, always or never; auto respects NO_COLOR")
	return c
}

// printPlan returns errChanges if the plan is not empty.
func printPlan(w io.Writer, p *plan.Plan, output string, paint bool) error {
	var err error
	if output == "json" {
		err = p.JSON(w, nil)
	} else {
		err = p.Print(w, paint)
	}
	if err == nil && !p.Empty() {
		return errChanges
	}
	return err
}

func useColour(when string, w io.Writer) (bool, error) {
	switch when {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		f, ok := w.(*os.File)
		return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd())), nil
	}
	return false, fmt.Errorf("--color: unknown value %q: use auto, always or never", when)
}

func applyCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "apply -f FILE | --kubeconfig FILE | --config FILE",
		Short: "Bring the kernel in sync with a file or a cluster, once",
		Long: `Commit the difference between the kernel's rules and those for the files, or for
the present objects of an API server, print it, and exit. Traffic switches in
one transaction. Without a difference nothing is sent to the kernel. Established
connections are not affected. While "nftproxy run" owns the tables, no other
process can change them: this fails then and changes nothing.

Exit code: 0 applied, 2 error.`,
		Example: `  nftproxy apply -f services.yaml
  nftproxy apply -f cluster/ --hostname-override node-1 --cluster-cidr 10.128.0.0/9`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			routing, log, err := o.routing(c, true)
			if err != nil {
				return err
			}
			return applyOnce(c, log, routing)
		},
	}
	o.addFlags(c)
	return c
}

// applyOnce commits the rules for a routing and prints what that changed.
func applyOnce(c *cobra.Command, log *slog.Logger, routing *model.Routing) error {
	paint, err := useColour("auto", c.OutOrStdout())
	if err != nil {
		return err
	}
	return withApplier(log, func(a *apply.Applier) error {
		p, err := a.Apply(nft.FromNothing(render.Render(routing)))
		if err != nil {
			return err
		}
		return errors.Join(p.Print(c.OutOrStdout(), paint), a.Sweep())
	})
}
