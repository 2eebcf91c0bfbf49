package look

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/conntest/dial"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/served"
)

type testOptions struct {
	command.Options
	from, clients []string
	count         int
	wait          time.Duration
	output        cli.Output

	addresses []netip.Addr // of the client in the namespace
}

func TestCommand() *cobra.Command {
	var o testOptions
	c := &cobra.Command{
		Use:   "test NAMESPACE/NAME",
		Short: "Connect to a Service or Balance in every way, and compare with what explain predicts",
		Long: `Open real connections to each frontend of a Service or Balance, and compare each with
what "nftproxy explain" predicts: by which endpoint or server it is answered, with which
client address, or why it is refused. A client that is denied passes if it is refused.

Connections come from this machine itself (host) and from a client beside it
(namespace), as from another machine: a network namespace with an address of its own. For
the time of the test, this machine gets an interface nftestNUMBER, with an address only
for a Balance with relay, and a route to the client. The kernel removes namespace,
interface and route when the process ends, however it ends. Rules and settings of the
machine stay as they are.

Over TCP and SCTP, the test sends nothing. Over UDP, it sends one empty datagram for each
connection; one that reaches an endpoint and gets no answer passes. Cases over SCTP are
skipped where the kernel has no sockets of it (module sctp). Connections of the test count
like others. Each frontend gets as many as it takes to meet all endpoints: at least 4, at
most 240, and 1 if the Service limits its clients. A relay accepts clients before it
connects to a server, so this machine also connects to each of its servers.

What should happen follows from the files of the running nftproxy, or from those that
-f, --kubeconfig or --config name, with its settings, failing health checks and drained
endpoints. If none of these is known, it follows from the rules in the kernel: then the
test does not notice a missing rule. It needs root.

Exit code: 0 all cases pass; 1 a case fails; 2 error.`,
		Example: `  nftproxy test web
  nftproxy test shop/web --from namespace
  nftproxy test web --client-address 192.0.2.77       # as a client that is allowed
  nftproxy test web -f web.yaml -o junit > result.xml
  nftproxy test web -o json | jq -r '.cases[] | select(.result == "failed").reasons[]'`,
		Args:              cli.DescribeArguments,
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
		ValidArgsFunction: command.CompleteServices,
	}
	o.AddFlags(c)
	o.AddHere(c)
	f := c.Flags()
	f.StringSliceVar(&o.from, "from", []string{string(conntest.Host), string(conntest.Namespace)}, "`origins` of connections: host or namespace; both, separated by a comma")
	declare.Values(f, "from", string(conntest.Host), string(conntest.Namespace))
	f.StringSliceVar(&o.clients, "client-address", nil, "`addresses` of the client in the namespace, one of each family (default: 198.18.255.254 and 2001:2:0:ffff::fffe, or others that are free)")
	f.IntVar(&o.count, "count", 0, "`number` of connections to each frontend (default: as many as it takes to meet all endpoints)")
	f.DurationVar(&o.wait, "wait", conntest.Patience, "`time` to wait for an answer; for one that should not come, and over UDP, at most 1s")
	cli.AddCheck(c, o.check)
	o.output.Add(c, "", cli.Text, cli.JSON, cli.YAML, common.JUnit)
	return c
}

func (o *testOptions) run(c *cobra.Command, name string) error {
	_, stop := cli.EndAtSignal(c)
	defer stop()
	start := time.Now()
	p, err := o.oracle(c, name)
	if err != nil {
		return err
	}
	results, err := o.try(c, p)
	if err != nil {
		return err
	}
	report := conntest.NewReport(p.service.String(), results, time.Since(start).Seconds())
	report.Notes = p.notes
	return common.PrintTest(c.OutOrStdout(), report, &o.output, true)
}

func (o *testOptions) check(*cobra.Command, []string) (err error) {
	for _, f := range o.from {
		if f != string(conntest.Host) && f != string(conntest.Namespace) {
			err = errors.Join(err, fmt.Errorf("--from: %q is not an origin: use host, namespace or both", f))
		}
	}
	for _, text := range o.clients {
		a, wrong := netip.ParseAddr(text)
		a = a.Unmap()
		switch {
		case wrong != nil || a.Zone() != "":
			err = errors.Join(err, fmt.Errorf("--client-address: %q is not an IP address (no port, no brackets, no zone)", text))
		case slices.ContainsFunc(o.addresses, func(b netip.Addr) bool { return model.FamilyOf(a) == model.FamilyOf(b) }):
			err = errors.Join(err, fmt.Errorf("--client-address: %s is a second %s address: give one of each family", a, model.FamilyOf(a)))
		}
		o.addresses = append(o.addresses, a)
	}
	switch {
	case len(o.from) == 0:
		err = errors.Join(err, errors.New("--from: name an origin: host, namespace or both"))
	case len(o.clients) > 0 && !slices.Contains(o.from, string(conntest.Namespace)):
		err = errors.Join(err, errors.New("--client-address: is for the client in the namespace, and --from leaves it out"))
	case o.count < 0:
		err = errors.Join(err, fmt.Errorf("--count: %d is negative", o.count))
	case o.wait <= 0:
		err = errors.Join(err, fmt.Errorf("--wait: %s is not positive", o.wait))
	}
	return err
}

func (o *testOptions) try(c *cobra.Command, p *oracle) (results []*conntest.Result, err error) {
	probers := map[conntest.Origin]*dial.Prober{conntest.Host: {Patience: o.wait}}
	var room *dial.Room
	if slices.Contains(o.from, string(conntest.Namespace)) {
		if room, err = openRoom(p, o.addresses); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, room.Close()) }()
		probers[conntest.Namespace] = &dial.Prober{Room: room, Patience: o.wait}
	}
	cases, err := p.cases(o.from, room)
	if err != nil {
		return nil, err
	}
	results, err = dial.Run(c.Context(), cases, probers, o.count, func(n int) {
		cli.ShowProgress(c, "%d of %d cases are tried", n, len(cases))
	})
	if err != nil {
		return nil, interrupted(c.Context(), err)
	}
	for i, r := range results {
		if r.State == conntest.NotPassed {
			predicted := p.results[cases[i]]
			addMachine(predicted)
			r.Expected.Notes = predicted.Notes
		}
	}
	return results, nil
}

// interrupted returns the error of a test that was cancelled by a signal.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted: everything that the test made is removed")
	}
	return err
}

// openRoom makes the client beside the machine, with an address of each family of the frontends.
func openRoom(p *oracle, addresses []netip.Addr) (*dial.Room, error) {
	var families, redirected []model.Family
	for _, t := range p.targets {
		f := model.FamilyOf(t.To.Addr())
		if !slices.Contains(families, f) {
			families = append(families, f)
		}
		if t.Relayed && !slices.Contains(redirected, f) {
			redirected = append(redirected, f)
		}
	}
	room, err := dial.OpenRoom(families, redirected, addresses)
	switch {
	case errors.Is(err, syscall.EPERM):
		return nil, fmt.Errorf("make the client in a namespace: %w: run this as root, or use --from host", err)
	case err != nil:
		return nil, fmt.Errorf("make the client in a namespace: %w", err)
	}
	return room, nil
}

// oracle knows the frontends of a Service, and predicts what happens to connections.
type oracle struct {
	service model.ServiceName
	targets []conntest.Target
	notes   []string
	local   []netip.Addr // of the machine
	rules   *nft.Ruleset
	router  *model.Router // of the objects behind the rules; nil: these are the ones in the kernel
	results map[*conntest.Case]*explain.Result
}

// oracle returns the oracle of a Service: from the objects that flags name or the running
// nftproxy reads, else from the rules in the kernel.
func (o *testOptions) oracle(c *cobra.Command, name string) (p *oracle, err error) {
	if !o.NamesObjects() {
		o.Files = command.DaemonFiles()
	}
	if o.NamesObjects() {
		p, err = o.fromObjects(c, name)
	} else {
		p, err = fromRules(name)
	}
	if err != nil {
		return nil, err
	}
	if len(p.targets) == 0 {
		return nil, fmt.Errorf("%s has no frontend on this machine: \"nftproxy describe %s\" says why", p.service, p.service)
	}
	p.results = make(map[*conntest.Case]*explain.Result)
	return p, nil
}

func (o *testOptions) fromObjects(c *cobra.Command, name string) (*oracle, error) {
	cfg, log, err := o.Configure(c, true)
	if err != nil {
		return nil, err
	}
	side, err := o.ResolveObjects(c, cfg, log)
	if err != nil {
		return nil, err
	}
	o.Running.LogTaken(c.Context(), log)
	router := side.Snapshot.Route(cfg.Node)
	p := &oracle{router: router}
	if p.service, err = api.Resolve(name, router, router.Words()); err != nil {
		return nil, err
	}
	if p.local, err = host.InterfaceAddresses(); err != nil {
		return nil, err
	}
	for i := range side.Routing.Routes {
		r := &side.Routing.Routes[i]
		if r.Service.Name == p.service {
			p.targets = conntest.AddTarget(p.targets, served.Of(r, side.Routing.Scheduler), router.NodePortAddresses())
		}
	}
	have, err := command.ReadRules()
	if err != nil {
		return nil, err
	}
	p.rules = plan.Settle(have, render.Render(side.Routing)) // schedulers choose by the slots that endpoints have in the kernel
	return p, nil
}

func fromRules(name string) (*oracle, error) {
	rs, err := command.ReadRules()
	if err != nil {
		return nil, err
	}
	if len(rs.Tables) == 0 {
		return nil, errors.New("no daemon answers, and the kernel has no tables of nftproxy: start \"nftproxy run\" or \"nftproxy apply\" first")
	}
	p := &oracle{rules: rs, notes: []string{"predicted from the rules in the kernel, in which rules may be missing: name the objects with -f or --kubeconfig"}}
	if p.service, err = api.Resolve(name, api.NameList(common.ServicesIn(servedIn(rs))), served.Words(rs)); err != nil {
		return nil, err
	}
	if p.local, err = host.ServingAddresses(); err != nil {
		return nil, err
	}
	for _, t := range rs.Tables {
		for f := range served.Read(t).All() {
			if f.Port.Service == p.service {
				p.targets = conntest.AddTarget(p.targets, f, p.local)
			}
		}
	}
	return p, nil
}

// explain predicts a connection.
func (p *oracle) explain(packet explain.Packet) (r *explain.Result, err error) {
	if p.router != nil {
		r = explain.Explain(p.rules.Table(model.FamilyOf(packet.Destination)), packet, p.local)
		r.AddObjects(p.router)
		return r, nil
	}
	err = command.WithKernel(func(conn *kernel.Conn) error {
		r, err = explainRules(conn, p.rules, packet, p.local)
		return err
	})
	return r, err
}

// cases returns the cases of all frontends from origins, with their predictions.
func (p *oracle) cases(origins []string, room *dial.Room) (out []*conntest.Case, err error) {
	for _, t := range p.targets {
		for _, from := range origins {
			c := conntest.New(t.Frontend, t.To, conntest.Origin(from))
			packet := explain.Packet{Destination: t.To.Addr(), Protocol: t.Protocol, Port: t.To.Port()}
			if c.From == conntest.Namespace {
				packet.Source, packet.Interface = room.Client(model.FamilyOf(t.To.Addr())), room.Device
			} else {
				packet.FromNode, packet.Source = true, conntest.RoutedSource(t.To.Addr())
			}
			r, err := p.explain(packet)
			if err != nil {
				return nil, err
			}
			c.Predict(r, p.local)
			p.results[c] = r
			out = append(out, c)
		}
	}
	return out, nil
}
