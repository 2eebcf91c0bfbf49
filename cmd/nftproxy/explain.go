package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/words"
)

type explainOptions struct {
	options
	daemon       daemonFinder
	from, device string
	output       cli.Output
	brief, full  bool
}

func explainCommand() *cobra.Command {
	var o explainOptions
	c := &cobra.Command{
		Use:   "explain [PROTO] ADDR:PORT | [PROTO] NAMESPACE/NAME[:PORT]",
		Short: "Trace a connection and explain where it goes",
		Long: `Trace the first packet of a connection through the rules: which Service or
Balance it is for, which endpoints or servers may receive it and with which share,
whether its source is masqueraded and by which rule, or why it is rejected or dropped; then the rules
and elements that it meets.

A Service can be named in place of an address: that is its ClusterIP, and a Balance is
its first address, of IPv4 unless --from is an IPv6 address. PORT is a name or a number; without it the lowest port is
explained, and the others are named. The namespace can be omitted if only one has
that name. DNS names are not resolved.

With -f, --kubeconfig or --config the rules are those that "render" prints, and
endpoints that are left out are listed with the reason. Otherwise the rules are
read from the kernel, with the clients that session affinity remembers; the running
nftproxy, if any, knows which endpoints are left out, and settings of this machine
that would stop the connection are named.

PROTO is tcp, udp, sctp, icmp, icmpv6 or a protocol number, and tcp if it is left out.
ICMP has no ports: give only the address or the name. Without --from the node itself is the client.

Exit code: 0 the connection was traced, whatever the result; 2 error.`,
		Example: `  nftproxy explain shop/web                               # rules in the kernel
  nftproxy explain 10.96.0.10:80
  nftproxy explain tcp shop/web:http --from 10.128.0.5 --brief
  nftproxy explain -f services.yaml tcp 10.96.0.10:80     # rules for the file
  nftproxy explain -f services.yaml --from 203.0.113.7 tcp 192.168.7.1:30080
  nftproxy explain -f services.yaml udp '[fd00:10:96::10]:53'
  nftproxy explain --from 10.128.0.5 --interface cni0 icmp 10.96.0.10
  nftproxy explain tcp 10.96.0.10:80 -o json | jq '.outcomes[] | .endpoint, .share'`,
		Args: explainArguments,
		RunE: func(c *cobra.Command, args []string) error {
			protocol, target := split(args)
			return o.run(c, protocol, target)
		},
		ValidArgsFunction: completeExplain,
	}
	o.addFlags(c)
	o.daemon.addAddress(c.Flags())
	o.settings.AddFastPath()
	f := c.Flags()
	f.StringVar(&o.from, "from", "", "`address` of the client (default: the node itself)")
	f.StringVar(&o.device, "interface", "", "`name` of the interface that the packet arrives on; needed if pods are detected by it")
	f.BoolVar(&o.brief, "brief", false, "print the answer without the rules that lead to it")
	f.BoolVar(&o.full, "full", false, "also print rules for other protocols, and the numbers of slots")
	o.output.Add(f, "")
	return c
}

func explainArguments(c *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	if len(args) == 1 && args[0] != "" && !slices.Contains(protocols, args[0]) {
		return nil
	}
	return fmt.Errorf("expected a protocol and a destination, or a Service or Balance, for example\n  %s tcp 10.96.0.10:80\n  %s shop/web", c.CommandPath(), c.CommandPath())
}

// split returns the protocol and the destination. Without a protocol, a Service has any
// of its own, and an address is for TCP.
func split(args []string) (protocol, target string) {
	if len(args) == 2 {
		return args[0], args[1]
	}
	if _, isName := explain.ParseName("", args[0]); isName {
		return "", args[0]
	}
	return "tcp", args[0]
}

func (o *explainOptions) run(c *cobra.Command, protocol, target string) error {
	detail, err := o.detail()
	if err := errors.Join(err, o.output.Check(c.OutOrStdout())); err != nil {
		return err
	}
	q, err := o.question(protocol, target)
	if err != nil {
		return err
	}
	result, err := answer(&o.options, c, q, o.fromObjects, o.fromKernel)
	if err != nil {
		return err
	}
	return o.print(c.OutOrStdout(), result, detail)
}

func (o *explainOptions) print(w io.Writer, r *explain.Result, detail explain.Detail) error {
	return o.output.Print(w, cli.JSONFunc(func(w io.Writer) error { return explain.JSON(w, r) }), func(w io.Writer) error {
		return explain.Print(w, r, detail, o.output.Paint)
	})
}

func (o *explainOptions) detail() (explain.Detail, error) {
	switch {
	case o.brief && o.full:
		return explain.Normal, errors.New("--brief and --full exclude each other")
	case o.brief:
		return explain.Brief, nil
	case o.full:
		return explain.Full, nil
	}
	return explain.Normal, nil
}

// answer answers a question from the files or the cluster that the flags name, else from
// what this node serves.
func answer[Q, A any](o *options, c *cobra.Command, q Q, fromObjects, fromNode func(*cobra.Command, Q) (A, error)) (a A, err error) {
	if o.namesObjects() {
		return fromObjects(c, q)
	}
	if err := onlyForObjects(c); err != nil {
		return a, err
	}
	return fromNode(c, q)
}

// namesObjects reports whether the flags name files or a cluster. The service account
// of a pod is not sufficient.
func (o *options) namesObjects() bool {
	return len(o.files) > 0 || o.settings.ConfigFile != "" || o.settings.Given("kubeconfig") || o.settings.Given("master")
}

// onlyForObjects refuses flags without an effect on the rules in the kernel.
func onlyForObjects(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "from", "interface", "connections", "output", "color", "brief", "full", "metrics-bind-address", "v", "logging-format":
		default:
			err = fmt.Errorf("--%s: has no effect on the rules in the kernel: name a file with -f, or an API server with --kubeconfig", f.Name)
		}
	})
	return err
}

// question is a packet, or the name of a Service to which it goes.
type question struct {
	packet explain.Packet // without a destination if there is a name
	name   explain.Name
	byName bool
}

func (o *explainOptions) question(protocol, target string) (q question, err error) {
	if q.name, q.byName = explain.ParseName(protocol, target); q.byName {
		if protocol != "" {
			_, err = explain.ParseProtocol(protocol)
		}
	} else {
		q.packet, err = explain.Parse(protocol, target)
	}
	if err != nil {
		return q, err
	}
	q.packet.Interface = o.device
	if o.from == "" {
		if o.device != "" {
			return q, errors.New("--interface: packets of the node itself arrive on none: name the client with --from")
		}
		return q, nil
	}
	q.packet.Source, err = netip.ParseAddr(o.from)
	q.packet.Source = q.packet.Source.Unmap()
	from := q.packet.Source
	switch {
	case err != nil || from.Zone() != "":
		return q, fmt.Errorf("--from: %q is not an IP address (no port, no brackets, no zone)", o.from)
	case !q.byName && model.FamilyOf(from) != model.FamilyOf(q.packet.Destination):
		return q, fmt.Errorf("--from: %s is an %s address, and the destination is %s: give two of one family", from, model.FamilyOf(from), q.packet.Destination)
	}
	return q, nil
}

// resolve sets the destination of a question by name, and returns other possible meanings.
func (q *question) resolve(all []served.Named, in words.Vocabulary) (remarks []string, err error) {
	if !q.byName {
		return nil, nil
	}
	name, err := api.Resolve(q.name.Service, servicesIn(all), in)
	if err != nil {
		return nil, err
	}
	q.name.Service = name.String()
	prefer := model.IPv4
	if q.packet.Source.IsValid() {
		prefer = model.FamilyOf(q.packet.Source)
	}
	to, remarks, err := q.name.Packet(in, slices.DeleteFunc(all, func(s served.Named) bool { return s.Port.Service != name }), prefer)
	if err != nil {
		return nil, err
	}
	if q.packet.Source.IsValid() && prefer != model.FamilyOf(to.Destination) {
		return nil, fmt.Errorf("--from: %s is an %s address, and %s has none", q.packet.Source, prefer, name)
	}
	q.packet.Destination, q.packet.Protocol, q.packet.Port = to.Destination, to.Protocol, to.Port
	return remarks, nil
}

// servicesIn returns the Services of frontends, each once and sorted.
func servicesIn(all []served.Named) (names []model.ServiceName) {
	for _, s := range all {
		if !slices.Contains(names[max(0, len(names)-1):], s.Port.Service) {
			names = append(names, s.Port.Service)
		}
	}
	slices.SortFunc(names, model.ServiceName.Compare)
	return slices.Compact(names)
}

// fromObjects traces through the rules for files or a cluster.
func (o *explainOptions) fromObjects(c *cobra.Command, q question) (*explain.Result, error) {
	cfg, log, err := o.start(c)
	if err != nil {
		return nil, err
	}
	snapshot, err := o.objects(c, cfg, log)
	if err != nil {
		return nil, err
	}
	return explainObjects(q, snapshot, cfg.Node)
}

// explainObjects traces through the rules that objects lead to on a node.
func explainObjects(q question, snapshot *model.Snapshot, node model.Config) (*explain.Result, error) {
	router := snapshot.Route(node)
	routing := router.Routing()
	var all []served.Named
	for i := range routing.Routes {
		all = append(all, served.NameOf(&routing.Routes[i]))
	}
	remarks, err := q.resolve(all, router.Words())
	if err != nil {
		return nil, err
	}
	p, local := q.packet, explain.LocalAddresses(snapshot, node)
	if !p.Source.IsValid() {
		p = p.SentBy(local)
	}
	p, asked := p.Through(func(f model.Frontend) (netip.AddrPort, bool) { return explain.Listener(router, f) }, local)
	result := explain.Explain(render.Render(routing).Table(model.FamilyOf(p.Destination)), p, local)
	result.Asked = asked
	result.AddObjects(router)
	addFastPath(result, routing, &node)
	result.Notes = append(result.Notes, remarks...)
	return result, nil
}

// fromKernel traces through the rules in the kernel. The running nftproxy has the objects
// behind them.
func (o *explainOptions) fromKernel(c *cobra.Command, q question) (result *explain.Result, err error) {
	var remarks []string
	err = withKernel(func(conn *kernel.Conn) error {
		rs, _, err := conn.Read()
		if err != nil {
			return err
		}
		if remarks, err = q.resolveIn(rs); err != nil {
			return err
		}
		if len(rs.Tables) == 0 {
			remarks = append(remarks, noTables)
		}
		p := q.packet
		local, err := host.InterfaceAddresses()
		if err != nil {
			return err
		}
		if !p.Source.IsValid() {
			p.FromNode, p.Source = true, conntest.RoutedSource(p.Destination)
		}
		p, asked := p.Through(func(f model.Frontend) (netip.AddrPort, bool) { return o.listener(c, f) }, local)
		if asked != nil {
			p.Source = conntest.RoutedSource(p.Destination)
		}
		t := rs.Table(model.FamilyOf(p.Destination))
		if t != nil && p.Source.IsValid() {
			err = conn.AddBinding(t, p.Source, p.Frontend())
		}
		result = explain.Explain(t, p, local)
		result.Speak(served.WordsAt(rs, t, p.Frontend()))
		result.Asked = asked
		return err
	})
	if err != nil {
		return nil, err
	}
	addMachine(result)
	o.addRunning(c, result)
	if result.Frontend != (model.Frontend{}) {
		result.Notes = append(result.Notes, fastPathNotes(result.Frontend)...)
	}
	result.Notes = append(result.Notes, remarks...)
	return result, nil
}

// noTables says why nothing is served.
const noTables = "the kernel has no tables of nftproxy: start \"nftproxy run\" or \"nftproxy apply\""

// resolveIn is resolve with the rules in the kernel.
func (q *question) resolveIn(rs *nft.Ruleset) (remarks []string, err error) {
	if q.byName && len(rs.Tables) == 0 {
		return nil, errors.New(noTables)
	}
	return q.resolve(servedIn(rs), served.Words(rs))
}

// servedIn returns the frontends of the rules, with the names in their comments.
func servedIn(rs *nft.Ruleset) (out []served.Named) {
	for _, t := range rs.Tables {
		out = slices.AppendSeq(out, served.Read(t).Names())
	}
	return out
}

// addRunning adds what only the running nftproxy knows: who is left out, and who claims
// the frontend too. Without one the answer lacks only these.
func (o *explainOptions) addRunning(c *cobra.Command, r *explain.Result) {
	service, _, _ := strings.Cut(r.Service, ":")
	if service == "" {
		return
	}
	var d *api.Description
	err := o.daemon.ask(func(client *api.Client) (err error) {
		d, err = client.Describe(c.Context(), service)
		return err
	})
	switch verdict, ok := r.Verdict(); {
	case err == nil:
		addDescription(r, d)
	case o.daemon.address != "" || ok && (verdict == explain.Reject || verdict == explain.Drop):
		r.Notes = append(r.Notes, r.Words.Text("which endpoints are left out is not known: ")+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// listener returns where the running nftproxy connects to for clients of a NodePort on
// localhost; false: it does not listen there, or there is none. Rules need not have the
// NodePort: it may be served on localhost alone.
func (o *explainOptions) listener(c *cobra.Command, f model.Frontend) (to netip.AddrPort, listens bool) {
	_ = o.daemon.ask(func(client *api.Client) error {
		r, err := client.Status(c.Context(), &api.Filter{})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(r.ServicePorts, func(p api.ServicePort) bool {
			return p.Protocol == f.Protocol.String() && slices.ContainsFunc(p.Frontends, func(on api.Frontend) bool { return on.Address == f.Target() })
		})
		if i < 0 {
			return nil
		}
		d, err := client.Describe(c.Context(), r.ServicePorts[i].Namespace+"/"+r.ServicePorts[i].Name)
		if err == nil {
			to, listens = d.ConnectsTo(f)
		}
		return err
	})
	return to, listens
}
