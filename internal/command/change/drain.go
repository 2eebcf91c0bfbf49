package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

type drainOptions struct {
	daemon                       command.Finder
	file, service                string
	output                       cli.Output
	list, undo, all, force, wait bool
	timeout                      time.Duration

	noDaemon error // why no daemon was asked
}

const drainExit = `Exit code: 0 done; 1 with --wait, connections are still open after --timeout; 2 an
server that no Service or Balance has, the last one of these, or another error.`

func DrainCommand() *cobra.Command {
	var o drainOptions
	c := &cobra.Command{
		Use:   "drain [ADDRESS[:PORT]...]",
		Short: "Take servers out of service before maintenance, and count their connections",
		Long: `Keep new connections away from servers of Balances, and endpoints of Services, on
this machine, as weight 0 does, and count the connections that are still open: when
there is none, the server can be stopped. Existing connections stay; clients with
affinity move with their next connection. ADDRESS stands for all of its ports;
--service limits it to one Service or Balance. Without ADDRESS, the drained ones are
listed.

The list is a file that the running nftproxy follows: servers stay drained over
restarts and reboots, until "nftproxy undrain". Without a running nftproxy, the next
one reads the file, as do "nftproxy apply" and "diff".

Nothing changes if no Service or Balance has the address, or if it is the last one of
these that takes connections; --force drains it in any case.

With --wait, the command ends when no connection to the servers is open any more.
A TCP connection counts until both sides have ended it, a flow of UDP until the kernel
forgets it, after 30 to 120 seconds without a packet. Counting connections needs root.

` + drainExit,
		Example: `  nftproxy drain 10.128.0.2
  nftproxy drain 10.128.0.2 --wait && ssh 10.128.0.2 systemctl stop web
  nftproxy drain 10.128.0.2:8080 '[fd00::2]:8080' --service shop/web --wait --timeout 5m
  nftproxy drain
  nftproxy drain -o json | jq -r '.endpoints[] | "\(.endpoint) \(.open.total)"'
  nftproxy undrain 10.128.0.2`,
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, args) },
		ValidArgsFunction: command.CompleteEndpoints,
	}
	o.addFlags(c)
	f := c.Flags()
	f.BoolVar(&o.list, "list", false, "list what is drained, as without ADDRESS")
	f.BoolVar(&o.undo, "undo", false, "end the drain of these addresses, as \"nftproxy undrain\" does")
	f.BoolVar(&o.force, "force", false, "drain also what no Service or Balance has, and the last one of these")
	f.BoolVar(&o.wait, "wait", false, "wait until no connection to the servers is open")
	f.DurationVar(&o.timeout, "timeout", 0, "longest `time` to wait; 0: no limit")
	return c
}

func UndrainCommand() *cobra.Command {
	o := drainOptions{undo: true}
	c := &cobra.Command{
		Use:   "undrain ADDRESS[:PORT]... | --all",
		Short: "Put drained servers back into service",
		Long: `End what "nftproxy drain" began: servers of Balances, and endpoints of Services, take
new connections again, if they are ready and their weight is not 0. An address also
means its ports; with --service, only what was drained for that Service or Balance.

Exit code: 0 done; 2 a server that is not drained, or another error.`,
		Example: `  nftproxy undrain 10.128.0.2
  nftproxy undrain 10.128.0.2:8080 --service shop/web
  nftproxy undrain --all`,
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, args) },
		ValidArgsFunction: command.CompleteDrained,
	}
	o.addFlags(c)
	return c
}

func (o *drainOptions) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.service, "service", "", "only for this `Service` or Balance: namespace/name")
	f.BoolVar(&o.all, "all", false, "with undrain or --undo: all that are drained")
	f.StringVar(&o.file, "drain-file", "", "`file` with what is drained, the one of the running nftproxy (default: "+config.DefaultDrainFile+")")
	o.output.Add(c, "")
	o.daemon.AddAddress(f)
	o.daemon.AddConfig(c)
	_ = c.MarkFlagFilename("drain-file", "yaml") // fails only for an unknown flag
	_ = c.RegisterFlagCompletionFunc("service", command.CompleteServices)
}

func (o *drainOptions) run(c *cobra.Command, args []string) error {
	targets, err := o.targets(args)
	if err := errors.Join(err, o.checkFlags(c, args)); err != nil {
		return err
	}
	o.daemon.Acts = true
	report, err := o.ask(c.Context(), nil)
	if err != nil {
		return err
	}
	lists := len(targets) == 0 && !o.all
	file, err := o.place(report, lists)
	if err != nil {
		return err
	}
	if lists {
		return o.printList(c, file, report)
	}
	update := &drain.Update{File: file, Targets: targets, Undo: o.undo, Force: o.force, Ask: o.ask}
	list, err := update.Write(c.Context())
	if err != nil {
		return err
	}
	if report != nil {
		if report, err = update.Await(c.Context(), report); err != nil {
			return err
		}
	}
	if report != nil { // others change the list, too
		if list, err = drain.ListOf(report.Drained); err != nil {
			return err
		}
	}
	result := o.result(file.Path, report, list, targets)
	if !o.wait {
		return result.write(c.OutOrStdout(), o)
	}
	if o.output.ForPrograms() { // the result is one object
		err := o.waitForEnd(c, targets, result)
		result.count()
		return errors.Join(result.write(c.OutOrStdout(), o), err)
	}
	if err := result.write(c.OutOrStdout(), o); err != nil {
		return err
	}
	return o.waitForEnd(c, targets, result)
}

// targets parses the arguments. Each counts once.
func (o *drainOptions) targets(args []string) (out []drain.Target, err error) {
	var service model.ServiceName
	var errs []error
	if o.service != "" {
		if service, err = drain.ParseService(o.service); err != nil {
			errs = append(errs, fmt.Errorf("--service: %w", err))
		}
	}
	for _, a := range args {
		t, err := drain.ParseEndpoint(a)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t.Service = service
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out, errors.Join(errs...)
}

func (o *drainOptions) checkFlags(c *cobra.Command, args []string) error {
	switch {
	case o.undo && !o.all && len(args) == 0:
		return errors.New("name the addresses to put back into service, or all of them with --all")
	case o.all && (!o.undo || len(args) > 0):
		return errors.New("--all is for undrain, without addresses")
	case o.all && o.service != "":
		return errors.New("--all and --service exclude each other: name the addresses")
	case o.list && (o.undo || len(args) > 0):
		return errors.New("--list takes no addresses")
	case o.undo && (o.wait || o.force):
		return errors.New("--wait and --force are for drain, not for --undo")
	case len(args) == 0 && !o.undo && (o.wait || o.force || o.service != ""):
		return errors.New("name the addresses to drain, for example 10.128.0.2 or 10.128.0.2:8080")
	case o.timeout < 0 || c.Flags().Changed("timeout") && !o.wait:
		return errors.New("--timeout is a positive time, for --wait")
	}
	return nil
}

// ask asks the running nftproxy about targets; nil: there is none.
func (o *drainOptions) ask(ctx context.Context, targets []drain.Target) (*model.Drains, error) {
	var query api.DrainQuery
	for _, t := range targets {
		query.Targets = append(query.Targets, t.Encode())
	}
	if most, fit := query.Fits(); !fit {
		return nil, fmt.Errorf("%d addresses are too many for one command: name at most %d", len(targets), most)
	}
	report, err := command.Fetch(&o.daemon, func(client *api.Client) (*api.Drains, error) { return client.Drains(ctx, query) })
	if errors.Is(err, api.ErrNoDaemon) {
		o.noDaemon = err
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &report.Drains, nil
}

// askAll asks about any number of targets that are drained already.
func (o *drainOptions) askAll(ctx context.Context, targets []drain.Target) (*model.Drains, error) {
	const most = 50 // they fit, with names of Services of any length
	var all *model.Drains
	for some := range slices.Chunk(targets, most) {
		report, err := o.ask(ctx, some)
		if err != nil || report == nil {
			return nil, err
		}
		if all != nil {
			report.Asked = append(all.Asked, report.Asked...)
		}
		all = report
	}
	return all, nil
}

// place returns the file to read or to write. An answer never names the one to write: the running nftproxy
// must follow the file of the flag, or the default one.
func (o *drainOptions) place(report *model.Drains, lists bool) (drain.File, error) {
	path, err := filepath.Abs(cmp.Or(o.file, config.DefaultDrainFile))
	switch {
	case err != nil:
		return drain.File{}, fmt.Errorf("--drain-file: %w", err)
	case report == nil:
		return drain.File{Path: path}, nil
	case report.File == "":
		return drain.File{}, errors.New("the running nftproxy follows no drain file: start it with --drain-file")
	case lists && o.file == "":
		return drain.File{Path: report.File}, nil
	case path != report.File:
		return drain.File{}, fmt.Errorf("the running nftproxy follows %s, not %s: if that is right, add --drain-file %s", report.File, path, report.File)
	}
	return drain.File{Path: path, State: report.State, Followed: true}, nil
}

// waitForEnd waits until no connection to the targets is open.
func (o *drainOptions) waitForEnd(c *cobra.Command, targets []drain.Target, result *drainResult) error {
	ctx, stop := cli.EndAtSignal(c)
	defer stop()
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	begun := time.Now()
	w := &waiter{names: targetNames(result.Words, targets)}
	cli.MeterOf(c).Start(w.text)
	err := w.wait(ctx, result.targets)
	cli.MeterOf(c).Stop()
	if err != nil {
		return err
	}
	if o.output.ForPrograms() {
		return nil
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "no connection is open any more, after %s\n", time.Since(begun).Round(time.Second))
	return err
}

// names joins targets, the first ones if there are many.
func targetNames(in words.Vocabulary, targets []drain.Target) string {
	const most = 3
	var out []string
	for _, t := range targets[:min(len(targets), most)] {
		out = append(out, t.Text(in))
	}
	text := strings.Join(out, ", ")
	if more := len(targets) - most; more > 0 {
		text += " and " + terminal.Count(more, "other")
	}
	return text
}
