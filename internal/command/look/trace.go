package look

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
	"github.com/nftproxy/nftproxy/internal/trace"
	"github.com/nftproxy/nftproxy/internal/xtables"
)

type traceOptions struct {
	from                string
	output              cli.Output
	kubeconfig, context string
	fromNode, probe     bool
	timeout             time.Duration
	brief, quiet        bool
}

func TraceCommand() *cobra.Command {
	var o traceOptions
	c := &cobra.Command{
		Use:   "trace [PROTO] ADDR:PORT | [PROTO] NAMESPACE/NAME[:PORT]",
		Short: "Follow a real connection through the rules of all programs",
		Long: `Wait for the next connection to a frontend, and follow its first packet and the
first answer through all tables of nf_tables, also those of other programs:
which rule of which program dropped, rejected, translated or marked it, and
whether the endpoint or server answered. The result is compared with what "nftproxy
explain" predicts.

The destination is named as for explain: a Service or Balance, or an address and a port as
clients dial it. PROTO is tcp, udp or sctp, and tcp if it is left out.

--from waits for the connections of one client: an address, or a pod of this node
as NAMESPACE/NAME, which the API server is asked for. --from-node waits for those
that the node itself opens, and --probe opens one.

The kernel's trace of nf_tables is on while this runs, for at most 20 packets per
second to the frontend. The table for that, nftproxy-trace-NUMBER, belongs to this
process: the kernel deletes it when the process ends in any way. Nothing else is
changed. The texts of rules of other programs are there if nft or iptables-nft is
installed; rules of iptables-legacy are not in the kernel's trace. It needs
CAP_NET_ADMIN and kernel 5.12.

Exit code: 0 the connection was answered; 1 it was not, or none came; 2 error.`,
		Example: `  nftproxy trace shop/web                          # the next connection to it
  nftproxy trace shop/web --from 203.0.113.7
  nftproxy trace shop/web --from shop/cart-5d8f7   # a pod of this node
  nftproxy trace 192.0.2.1:30080 --probe           # a connection of the node
  nftproxy trace udp kube-system/kube-dns --timeout 2m
  nftproxy trace 10.96.0.10:80 --probe -o json | jq -r .text`,
		Args:              common.ExplainArguments,
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, args) },
		ValidArgsFunction: command.CompleteExplain,
	}
	f := c.Flags()
	f.StringVar(&o.from, "from", "", "`client`: its address, or a pod of this node as NAMESPACE/NAME (default: any)")
	f.BoolVar(&o.fromNode, "from-node", false, "only connections that this node opens itself")
	f.BoolVar(&o.probe, "probe", false, "open a connection from this node")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "`time` to wait for a connection")
	f.BoolVar(&o.brief, "brief", false, "print the answer without the rules that the packets have met")
	declare.In(f, declare.APIServer, func() {
		f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the address and credentials of the API server, for --from (default: the service account of the pod)")
	})
	config.AddContext(f, &o.context)
	declare.In(f, declare.Output, func() {
		f.BoolVarP(&o.quiet, "quiet", "q", false, "do not say that it waits")
	})
	cli.AddCheck(c, o.check)
	o.output.Add(c, "")
	return c
}

func (o *traceOptions) run(c *cobra.Command, args []string) error {
	protocol, target := common.SplitQuestion(args)
	q, err := o.question(protocol, target)
	if err != nil {
		return err
	}
	if q.Packet.Source, err = o.client(c, q.Packet.Destination); err != nil {
		return err
	}
	report, err := o.follow(c, q)
	if err != nil {
		return err
	}
	return o.output.PrintJudged(c.OutOrStdout(), report, report.Outcome != trace.Answered, func(w io.Writer) error {
		return report.Print(w, o.brief, o.output.Paint)
	})
}

func (o *traceOptions) check(*cobra.Command, []string) error {
	switch {
	case o.from != "" && (o.fromNode || o.probe):
		return errors.New("--from: excludes --from-node and --probe: these are about connections of the node itself")
	case o.timeout <= 0:
		return fmt.Errorf("--timeout: %s is not a time to wait: give for example 30s", o.timeout)
	}
	return nil
}

func (o *traceOptions) question(protocol, target string) (q common.Question, err error) {
	if q, err = new(common.Asked).Question(protocol, target); err != nil {
		return q, err
	}
	if q.ByName && protocol != "" {
		q.Packet.Protocol, _ = explain.ParseProtocol(protocol) // it was parsed
	}
	switch p := q.Packet.Protocol; {
	case p != 0 && !slices.Contains(model.Protocols[:], p):
		return q, fmt.Errorf("%q: connections of tcp, udp and sctp can be followed", protocol)
	case o.probe && p == model.SCTP:
		return q, errors.New("--probe: opens connections of tcp and udp: for sctp, wait for one")
	}
	return q, nil
}

// follow turns the trace on, waits, and says what happened.
func (o *traceOptions) follow(c *cobra.Command, q common.Question) (*trace.Report, error) {
	remarks, err := o.resolve(&q)
	if err != nil {
		return nil, err
	}
	m := trace.Match{Protocol: q.Packet.Protocol, Frontend: netip.AddrPortFrom(q.Packet.Destination, q.Packet.Port), Client: q.Packet.Source, FromNode: o.fromNode || o.probe}
	session, err := trace.Open(m)
	if err != nil {
		return nil, err
	}
	defer session.Close() // the kernel deletes the table in any case
	timeout := o.timeout
	if o.probe {
		timeout = min(timeout, trace.Patience)
		go trace.Probe(m)
	} else if !o.quiet {
		fmt.Fprintf(c.ErrOrStderr(), "waiting up to %s for a connection to %s %s\n", o.timeout, m.Protocol, m.Frontend)
	}
	connection, err := session.Follow(c.Context(), timeout)
	if err != nil {
		return nil, fmt.Errorf("follow a connection: %w", err)
	}
	report, err := reportOn(connection, m)
	if err != nil {
		return nil, err
	}
	report.Notes = append(report.Notes, remarks...)
	report.Notes = append(report.Notes, fastPathNotes(q.Packet.Frontend())...)
	report.Notes = append(report.Notes, legacyNotes(model.FamilyOf(m.Frontend.Addr()))...)
	return report, nil
}

func (o *traceOptions) resolve(q *common.Question) (remarks []string, err error) {
	if !q.ByName {
		return nil, nil
	}
	rs, err := command.ReadRules()
	if err == nil {
		remarks, err = resolveIn(q, rs)
	}
	if err == nil && o.probe && q.Packet.Protocol == model.SCTP {
		err = errors.New("--probe: opens connections of tcp and udp: for sctp, wait for one")
	}
	return remarks, err
}

// reportOn says what happened, and compares it with the prediction of explain.
func reportOn(c *trace.Connection, m trace.Match) (report *trace.Report, err error) {
	err = command.WithKernel(func(conn *kernel.Conn) error {
		rs, _, err := conn.Read()
		if err != nil {
			return err
		}
		rules, err := trace.NewRules(rs)
		if err != nil {
			return fmt.Errorf("list chains: %w", err)
		}
		local, err := host.InterfaceAddresses()
		if err != nil {
			return err
		}
		result, err := explainRules(conn, rs, packetOf(c, m), local)
		if err != nil {
			return err
		}
		addMachine(result)
		report = trace.NewReport(c, m, rules, result.Words)
		report.Compare(c, result)
		return nil
	})
	return report, err
}

// packetOf returns the first packet in the words of explain.
func packetOf(c *trace.Connection, m trace.Match) explain.Packet {
	p := explain.Packet{Destination: m.Frontend.Addr(), Protocol: m.Protocol, Port: m.Frontend.Port(), Source: m.Client, FromNode: m.FromNode}
	if first := c.Packet(); first != nil {
		p.Source, p.Interface, p.FromNode = first.Source.Addr(), first.Interface(), first.In == 0
	}
	if !p.Source.IsValid() {
		p.FromNode, p.Source = true, conntest.RoutedSource(p.Destination)
	}
	return p
}

// legacyNotes names the tables of iptables-legacy, which the kernel's trace does not show.
func legacyNotes(f model.Family) (notes []string) {
	family := nft.FamilyKeyword(f)
	names, err := xtables.Tables("/", xtables.Family(family))
	if err != nil {
		return nil
	}
	for _, name := range names {
		notes = append(notes, fmt.Sprintf("%stables-legacy has rules in its table %s, which no trace shows", family, name))
	}
	return notes
}

// client returns the address of the client that --from names, of the family of the
// destination if that is known; the zero value: any client.
func (o *traceOptions) client(c *cobra.Command, to netip.Addr) (netip.Addr, error) {
	if o.from == "" {
		return netip.Addr{}, nil
	}
	if a, err := netip.ParseAddr(o.from); err == nil {
		return o.ofFamily([]netip.Addr{a.Unmap()}, to)
	}
	namespace, name, found := strings.Cut(o.from, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return netip.Addr{}, fmt.Errorf("--from: %q is neither an address nor a pod: write for example 10.128.0.5 or shop/cart-5d8f7", o.from)
	}
	access := cluster.Access{Context: o.context, UserAgent: command.UserAgent(c)}
	access.Kubeconfig = o.kubeconfig
	pod, err := access.Pod(c.Context(), slog.New(slog.NewTextHandler(io.Discard, nil)), namespace, name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("--from: %w", err)
	}
	own, err := host.InterfaceAddresses()
	if err != nil {
		return netip.Addr{}, err
	}
	switch {
	case !slices.ContainsFunc(pod.Hosts, func(a netip.Addr) bool { return slices.Contains(own, a) }):
		return netip.Addr{}, fmt.Errorf("--from: pod %s runs on node %q: trace its connections there", o.from, pod.Node)
	case slices.ContainsFunc(pod.Addresses, func(a netip.Addr) bool { return slices.Contains(own, a) }):
		return netip.Addr{}, fmt.Errorf("--from: pod %s has the addresses of this node: use --from-node", o.from)
	}
	return o.ofFamily(pod.Addresses, to)
}

// ofFamily returns the first address of the family of the destination.
func (o *traceOptions) ofFamily(all []netip.Addr, to netip.Addr) (netip.Addr, error) {
	i := slices.IndexFunc(all, func(a netip.Addr) bool { return !to.IsValid() || model.FamilyOf(a) == model.FamilyOf(to) })
	if i < 0 {
		return netip.Addr{}, fmt.Errorf("--from: %s has no %s address, and the destination is %s: give two of one family", o.from, model.FamilyOf(to), to)
	}
	return all[i], nil
}
