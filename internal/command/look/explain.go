// Package look has the commands that show what a node serves, and follow connections: status, describe, explain, trace, test, top and observe.
package look

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/fastpath"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/served"
)

type explainOptions struct {
	command.Options
	common.Asked
	daemon command.Finder
	output cli.Output
}

func ExplainCommand() *cobra.Command {
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
		Args:              common.ExplainArguments,
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, args) },
		ValidArgsFunction: command.CompleteExplain,
	}
	o.Options.AddFlags(c)
	o.daemon.AddAddress(c.Flags())
	o.Settings.AddFastPath()
	f := c.Flags()
	f.StringVar(&o.From, "from", "", "`address` of the client (default: the node itself)")
	o.Asked.AddFlags(f)
	o.output.Add(c, "")
	return c
}

func (o *explainOptions) run(c *cobra.Command, args []string) error {
	protocol, target := common.SplitQuestion(args)
	detail, err := o.Detail()
	if err != nil {
		return err
	}
	q, err := o.Question(protocol, target)
	if err != nil {
		return err
	}
	result, err := answer(&o.Options, c, q, common.ExplainObjects, o.fromKernel)
	if err != nil {
		return err
	}
	return common.PrintTrace(c.OutOrStdout(), result, &o.output, detail)
}

// answer answers a question from the files or the cluster that the flags name, else from
// what this node serves.
func answer[Q, A any](o *command.Options, c *cobra.Command, q Q, fromObjects func(Q, *model.Snapshot, model.Config) (A, error), fromNode func(*cobra.Command, Q) (A, error)) (a A, err error) {
	if !o.NamesObjects() {
		if err := onlyForObjects(c); err != nil {
			return a, err
		}
		return fromNode(c, q)
	}
	cfg, log, err := o.LoadConfig(c)
	if err != nil {
		return a, err
	}
	snapshot, err := o.ReadObjects(c, cfg, log)
	if err != nil {
		return a, err
	}
	return fromObjects(q, snapshot, cfg.Node)
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

// fromKernel traces through the rules in the kernel. The running nftproxy has the objects
// behind them.
func (o *explainOptions) fromKernel(c *cobra.Command, q common.Question) (result *explain.Result, err error) {
	var remarks []string
	err = command.WithKernel(func(conn *kernel.Conn) error {
		rs, _, err := conn.Read()
		if err != nil {
			return err
		}
		if remarks, err = resolveIn(&q, rs); err != nil {
			return err
		}
		if len(rs.Tables) == 0 {
			remarks = append(remarks, noTables)
		}
		p := q.Packet
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
		if result, err = explainRules(conn, rs, p, local); err == nil {
			result.Asked = asked
		}
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

// explainRules traces a packet through rules in the kernel, with the clients that session affinity remembers.
func explainRules(conn *kernel.Conn, rs *nft.Ruleset, p explain.Packet, local []netip.Addr) (*explain.Result, error) {
	t := rs.Table(model.FamilyOf(p.Destination))
	if t != nil && p.Source.IsValid() {
		if err := conn.AddBinding(t, p.Source, p.Frontend()); err != nil {
			return nil, err
		}
	}
	r := explain.Explain(t, p, local)
	r.Speak(served.WordsAt(rs, t, p.Frontend()))
	return r, nil
}

// noTables says why nothing is served.
const noTables = "the kernel has no tables of nftproxy: start \"nftproxy run\" or \"nftproxy apply\""

// resolveIn is resolve with the rules in the kernel.
func resolveIn(q *common.Question, rs *nft.Ruleset) (remarks []string, err error) {
	if q.ByName && len(rs.Tables) == 0 {
		return nil, errors.New(noTables)
	}
	return q.Resolve(servedIn(rs), served.Words(rs))
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
	d, err := command.Fetch(&o.daemon, func(client *api.Client) (*api.Description, error) { return client.Describe(c.Context(), service) })
	switch verdict, ok := r.Verdict(); {
	case err == nil:
		addDescription(r, d)
	case o.daemon.Address != "" || ok && (verdict == explain.Reject || verdict == explain.Drop):
		r.Notes = append(r.Notes, r.Words.Text("which endpoints are left out is not known: ")+command.OneLine(err))
	}
}

// listener returns where the running nftproxy connects to for clients of a NodePort on
// localhost; false: it does not listen there, or there is none. Rules need not have the
// NodePort: it may be served on localhost alone.
func (o *explainOptions) listener(c *cobra.Command, f model.Frontend) (to netip.AddrPort, listens bool) {
	_ = o.daemon.Ask(func(client *api.Client) error {
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

// fastPathNotes says whether established connections to a frontend take the fast path of the
// kernel now. Without a fast path there is nothing to say.
func fastPathNotes(f model.Frontend) []string {
	switch takes, err := fastpath.Takes(f); {
	case err != nil:
		return []string{"whether established connections take the fast path is not known: " + err.Error()}
	case takes:
		return []string{common.TakesFastPath}
	}
	return nil
}

// addMachine adds what stops the connection outside of the tables: no route to an
// endpoint, no forwarding, a filter of another program.
func addMachine(r *explain.Result) {
	own, err := host.InterfaceAddresses()
	if err != nil {
		return
	}
	if !r.Packet.FromNode && !slices.Contains(own, r.Packet.Destination) {
		use := machine.Use{Endpoints: slices.Values([]netip.Addr(nil)), Addresses: slices.Values([]netip.Addr{r.Packet.Destination}), Words: r.Words}
		for _, f := range monitor(use).Warnings() { // clients do not reach the address of the Service
			r.Notes = append(r.Notes, f.String())
		}
	}
	var elsewhere []netip.Addr
	for _, o := range r.Outcomes {
		if a := o.Endpoint.Addr(); a.IsValid() && !slices.Contains(own, a) {
			elsewhere = append(elsewhere, a)
		}
	}
	if len(elsewhere) == 0 {
		return
	}
	const most = 3 // notes about routes
	missing := 0
	for _, a := range elsewhere {
		if !conntest.RoutedSource(a).IsValid() && missing < most {
			r.Notes = append(r.Notes, fmt.Sprintf("this machine has no route to %s", a))
			missing++
		}
	}
	if r.Packet.FromNode {
		return // the packet is sent, not forwarded
	}
	use := machine.Use{Families: []model.Family{model.FamilyOf(r.Packet.Destination)}, Endpoints: slices.Values(elsewhere), Words: r.Words}
	for _, f := range monitor(use).Problems() {
		r.Notes = append(r.Notes, f.String())
	}
}

// monitor finds what keeps this machine from serving, as a daemon does.
func monitor(use machine.Use) *machine.Monitor {
	return &machine.Monitor{Node: machine.Used{Of: use}, Log: slog.New(slog.DiscardHandler)}
}

// addDescription adds the endpoints and claims that a daemon describes. What is noted so far stays: it
// may name what others have named, such as tables of a firewall.
func addDescription(r *explain.Result, d *api.Description) {
	r.Words = d.Words()
	_, port, _ := strings.Cut(r.Service, ":")
	r.AddSources(d.SourceLists(r.Kind, model.FamilyOf(r.Packet.Destination)))
	used := make(map[netip.AddrPort]bool)
	for _, o := range r.Outcomes {
		used[o.Endpoint] = true
	}
	for i := range d.Ports {
		p := &d.Ports[i]
		if p.Name != port || p.Protocol != r.Packet.Protocol.String() {
			continue
		}
		for _, e := range p.Endpoints {
			r.NameEndpoint(e.AddrPort().Addr(), e.Name)
			if used[e.AddrPort()] && e.Checked != nil && !e.Checked.Healthy {
				r.Notes = append(r.Notes, r.Words.Sprintf("endpoint %s fails its health check: %s; it is used because no other endpoint passes", e.Address, e.Checked.Message))
			}
			if e.Family == model.FamilyOf(r.Packet.Destination).String() && !used[e.AddrPort()] {
				r.AddOmission(e.AddrPort(), e.Reason(r.Kind == model.ClusterIP.String(), r.Outside()))
			}
		}
		for _, z := range p.ZoneFloors {
			if z.Family == model.FamilyOf(r.Packet.Destination).String() {
				r.AddZoneRule(z.Rule)
			}
		}
		for j := range p.Frontends {
			if f := &p.Frontends[j]; p.Frontend(f) == r.Packet.Frontend() {
				for _, loser := range f.AlsoClaimed {
					r.Conflicts = append(r.Conflicts, explain.Claim{Service: loser})
				}
			}
		}
	}
}
