package look

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/top"
)

type topOptions struct {
	daemon command.Finder
	filter string
	output cli.Output
	once   bool
	open   bool
}

// openPath is the page of --open, and openRows how many rows its lists have unless they fit a terminal.
const (
	openPath = "/open"
	openRows = 20
)

func TopCommand() *cobra.Command {
	var o topOptions
	c := &cobra.Command{
		Use:   "top [NAME]",
		Short: "Watch connections, changes and problems as they come",
		Long: `Show what the running nftproxy does at present, in the whole terminal: new
connections per second of each Service and Balance, the last changes of the rules, how long
syncs take, and problems. Press ? for the keys.

With NAME, show the frontends and endpoints, or servers, of one: namespace/name, or name if
only one namespace has it.

Connections are counted if nftproxy runs with --service-metrics. The daemon is
asked once a second, on its metrics server (GET /live).

--once, and output that is no terminal, prints one sample after a second, which
is the time to measure rates.

--open shows what fills connection tracking instead: the number of entries by Service
port, by client (IPv6 by /64) and by state, and their share of nf_conntrack_max. It
reads the kernel's table once for each answer, however large that is (GET /open), and
needs no other flag of nftproxy. With NAME or --filter it is about some Services only.

Exit code: 0 ended by q or a signal, or printed; 2 no daemon answers, or another
error.`,
		Example: `  nftproxy top
  nftproxy top shop/web
  nftproxy top --filter shop/
  nftproxy top --once
  nftproxy top --open
  nftproxy top -o json | jq '.perSecond.services'`,
		Args:              cobra.MaximumNArgs(1),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, strings.Join(args, "")) },
		ValidArgsFunction: command.CompleteServices,
	}
	f := c.Flags()
	o.daemon.AddAddress(f)
	o.daemon.AddConfig(c)
	f.StringVar(&o.filter, "filter", "", "list only those with this `text` in NAMESPACE/NAME")
	f.BoolVar(&o.open, "open", false, "show what fills connection tracking: entries by Service, client and state")
	f.BoolVar(&o.once, "once", false, "print one sample, and exit")
	o.output.Add(c, "; json and yaml mean --once")
	return c
}

func (o *topOptions) run(c *cobra.Command, name string) error {
	ctx, stop := cli.EndAtSignal(c, syscall.SIGHUP)
	defer stop()
	in, out := c.InOrStdin(), c.OutOrStdout()
	live := o.output.Format == cli.Text && !o.once && cli.IsTerminal(in) && cli.IsTerminal(out)
	if o.open {
		return o.showOpen(ctx, cmp.Or(name, o.filter), live, in, out)
	}
	client, err := o.find(func(client *api.Client) error {
		_, err := client.Sample(ctx, api.LiveQuery{Limit: 1})
		return err
	})
	if err != nil {
		return err
	}
	defer client.Close()
	service := ""
	if name != "" {
		d, err := client.DescribeRules(ctx, name)
		if err != nil {
			return err
		}
		service = d.Namespace + "/" + d.Name
	}
	config := top.Config{Ask: client.Sample, Address: client.Name(), Filter: o.filter, Service: service, ASCII: !utf8Locale(), Colours: o.output.Paint}
	if live {
		return o.watch(ctx, top.New(config), in, out)
	}
	document := cli.JSONFunc(func(w io.Writer) error { return top.Once(ctx, w, config, true) })
	return o.output.Print(out, document, func(w io.Writer) error { return top.Once(ctx, w, config, false) })
}

// showOpen shows what fills connection tracking.
func (o *topOptions) showOpen(ctx context.Context, filter string, live bool, in io.Reader, out io.Writer) error {
	path := top.PageQuery(openPath, filter, openRows, false)
	if !o.output.ForPrograms() {
		path += "&text"
	}
	var answer []byte
	client, err := o.find(func(client *api.Client) (err error) {
		if answer, err = client.Page(ctx, path); err == nil && o.output.ForPrograms() {
			err = client.Decode(answer, new(api.View)) // of this version
		}
		return err
	})
	if err != nil {
		return err
	}
	defer client.Close()
	if live {
		return o.watch(ctx, &top.Page{Client: client, Path: openPath, Filter: filter}, in, out)
	}
	return o.output.Print(out, json.RawMessage(answer), func(w io.Writer) error {
		lines := top.Lines(answer)
		if cli.IsTerminal(w) {
			lines = strings.Split(top.FitLines(lines, cli.Width(w)), "\n")
		}
		_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
		return err
	})
}

// find returns the client of the daemon that answers a question.
func (o *topOptions) find(ask func(*api.Client) error) (client *api.Client, err error) {
	err = o.daemon.Ask(func(c *api.Client) error {
		client = c // it connects again
		return ask(c)
	})
	if errors.Is(err, api.ErrNoDaemon) {
		err = fmt.Errorf("%w\nstart \"nftproxy run\", or name the address of a running one with --metrics-bind-address", err)
	}
	return client, err
}

// watch shows the view until a key or a signal ends it.
func (o *topOptions) watch(ctx context.Context, view tea.Model, in io.Reader, out io.Writer) error {
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler()}
	switch {
	case o.output.Forced():
		options = append(options, tea.WithColorProfile(colorprofile.ANSI))
	case !o.output.Paint: // bold and reverse text remain
		options = append(options, tea.WithColorProfile(colorprofile.Ascii))
	}
	program := tea.NewProgram(view, options...)
	if _, err := program.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("show the terminal view: %w", err)
	}
	return nil
}

// utf8Locale reports whether the terminal shows characters other than ASCII.
func utf8Locale() bool {
	locale := strings.ToUpper(cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG")))
	return strings.Contains(locale, "UTF-8") || strings.Contains(locale, "UTF8")
}
