package rules

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// The most that is listed unless more is asked for.
const (
	listedServices = 50
	listedElements = 200
)

// outcome is what changes, by element and by Service.
type outcome struct {
	plan     *plan.Plan
	services []changes.Service
	words    words.Vocabulary // for all objects
	// addresses are those of interfaces that a running nftproxy would change.
	addresses []feature.AddressChange
}

// in returns the words for the Services that change, or for all if none does.
func (r *outcome) in() words.Vocabulary {
	if len(r.services) == 0 {
		return r.words
	}
	return changes.Words(r.services)
}

// empty reports whether nothing changes, neither in the rules nor in settings of a Service
// beyond them, nor in addresses.
func (r *outcome) empty() bool { return r.sameServices() && len(r.addresses) == 0 }

func (r *outcome) sameServices() bool { return r.plan.Empty() && len(r.services) == 0 }

// reportOptions are flags about the output of a report.
type reportOptions struct {
	output   cli.Output
	elements string
}

// formatMarkdown is the format of diff for a pull request.
const formatMarkdown = "markdown"

func (o *reportOptions) addReportFlags(c *cobra.Command, note string, formats ...string) {
	declare.In(c.Flags(), declare.Output, func() {
		c.Flags().StringVar(&o.elements, "elements", "auto", fmt.Sprintf("`when` to list every changed element of the rules: auto, always or never; auto lists up to %d, and %d Services", listedElements, listedServices))
	})
	declare.Values(c.Flags(), "elements", "auto", "always", "never")
	cli.AddCheck(c, func(*cobra.Command, []string) error {
		if !slices.Contains([]string{"auto", "always", "never"}, o.elements) {
			return fmt.Errorf("--elements: unknown value %q: use auto, always or never", o.elements)
		}
		return nil
	})
	o.output.Add(c, note, formats...)
}

func (o *reportOptions) print(w io.Writer, r *outcome) error {
	b := bufio.NewWriter(w) // it keeps the first error
	err := o.output.Print(b, r, func(io.Writer) error {
		if o.output.Format != formatMarkdown {
			return o.text(b, r)
		}
		err := changes.Markdown(b, r.services, r.plan, o.elements != "never")
		r.printAddresses(b, "\n- `%s`", "\n")
		return err
	})
	return errors.Join(err, b.Flush())
}

// WriteJSON implements [cli.JSONWriter].
func (r *outcome) WriteJSON(w io.Writer) error {
	if len(r.addresses) == 0 {
		return r.plan.JSON(w, changes.JSON(r.services), nil)
	}
	return r.plan.JSON(w, changes.JSON(r.services), r.addresses)
}

// printAddresses prints a line for each address that changes, and then an end, if there are any.
func (r *outcome) printAddresses(w *bufio.Writer, line, end string) {
	for _, a := range r.addresses {
		fmt.Fprintf(w, line, terminal.Printable(a.String()))
	}
	if len(r.addresses) > 0 {
		w.WriteString(end)
	}
}

// text prints the addresses, the Services, the elements, and the numbers of both.
func (o *reportOptions) text(w *bufio.Writer, r *outcome) error {
	r.printAddresses(w, "%s\n", "nftproxy run changes these addresses of interfaces.\n\n")
	if r.sameServices() {
		fmt.Fprintln(w, r.plan.Summary())
		return nil
	}
	limit := listedServices
	if o.elements != "auto" {
		limit = 0
	}
	fmt.Fprintf(w, "%s: %s.\n", r.in().Text("Services"), changes.Summary(r.services))
	changes.Print(w, r.services, limit, o.output.Paint)
	fmt.Fprintln(w)
	switch n := r.plan.Len(); {
	case r.plan.Empty():
		fmt.Fprintln(w, changes.SameRules)
		return nil
	case o.elements == "always", o.elements == "auto" && n <= listedElements:
		if err := r.plan.PrintChanges(w, o.output.Paint, 0); err != nil {
			return err
		}
		fmt.Fprintln(w)
	case o.elements == "auto":
		fmt.Fprintf(w, "%d changes of the rules are not listed: --elements=always lists them.\n", n)
	}
	fmt.Fprintln(w, r.plan.Summary())
	return nil
}
