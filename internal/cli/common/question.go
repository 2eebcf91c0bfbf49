// Package common has the parts of commands that the program of a node and the one of an operator share: questions to
// explain, what selects events, archives for support, and the report of a test.
package common

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/words"
)

var Protocols = []string{"tcp", "udp", "sctp", "icmp", "icmpv6"}

func ExplainArguments(c *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	if len(args) == 1 && args[0] != "" && !slices.Contains(Protocols, args[0]) {
		return nil
	}
	return fmt.Errorf("expected a protocol and a destination, or a Service or Balance, for example\n  %s tcp 10.96.0.10:80\n  %s shop/web", c.CommandPath(), c.CommandPath())
}

// SplitQuestion returns the protocol and the destination. Without a protocol, a Service has any
// of its own, and an address is for TCP.
func SplitQuestion(args []string) (protocol, target string) {
	if len(args) == 2 {
		return args[0], args[1]
	}
	if _, isName := explain.ParseName("", args[0]); isName {
		return "", args[0]
	}
	return "tcp", args[0]
}

// Asked are the flags of a question to explain.
type Asked struct {
	From, Device string
	Brief, Full  bool
}

// AddFlags adds the flags, but not --from, which differs between programs.
func (o *Asked) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Device, "interface", "", "`name` of the interface that the packet arrives on; needed if pods are detected by it")
	f.BoolVar(&o.Brief, "brief", false, "print the answer without the rules that lead to it")
	f.BoolVar(&o.Full, "full", false, "also print rules for other Protocols, and the numbers of slots")
}

// Detail returns how much of the trace is printed.
func (o *Asked) Detail() (explain.Detail, error) {
	switch {
	case o.Brief && o.Full:
		return explain.Normal, errors.New("--brief and --full exclude each other")
	case o.Brief:
		return explain.Brief, nil
	case o.Full:
		return explain.Full, nil
	}
	return explain.Normal, nil
}

// Question is a packet, or the name of a Service to which it goes.
type Question struct {
	Packet explain.Packet // without a destination if there is a name
	Name   explain.Name
	ByName bool
}

// Question returns the question about a protocol and a destination.
func (o *Asked) Question(protocol, target string) (q Question, err error) {
	if q.Name, q.ByName = explain.ParseName(protocol, target); q.ByName {
		if protocol != "" {
			_, err = explain.ParseProtocol(protocol)
		}
	} else {
		q.Packet, err = explain.Parse(protocol, target)
	}
	if err != nil {
		return q, err
	}
	q.Packet.Interface = o.Device
	if o.From == "" {
		if o.Device != "" {
			return q, errors.New("--interface: packets of the node itself arrive on none: name the client with --from")
		}
		return q, nil
	}
	q.Packet.Source, err = netip.ParseAddr(o.From)
	q.Packet.Source = q.Packet.Source.Unmap()
	from := q.Packet.Source
	switch {
	case err != nil || from.Zone() != "":
		return q, fmt.Errorf("--from: %q is not an IP address (no port, no brackets, no zone)", o.From)
	case !q.ByName && model.FamilyOf(from) != model.FamilyOf(q.Packet.Destination):
		return q, fmt.Errorf("--from: %s is an %s address, and the destination is %s: give two of one family", from, model.FamilyOf(from), q.Packet.Destination)
	}
	return q, nil
}

// Resolve sets the destination of a question by name, and returns other possible meanings.
func (q *Question) Resolve(all []served.Named, in words.Vocabulary) (remarks []string, err error) {
	if !q.ByName {
		return nil, nil
	}
	name, err := api.Resolve(q.Name.Service, api.NameList(ServicesIn(all)), in)
	if err != nil {
		return nil, err
	}
	q.Name.Service = name.String()
	prefer := model.IPv4
	if q.Packet.Source.IsValid() {
		prefer = model.FamilyOf(q.Packet.Source)
	}
	to, remarks, err := q.Name.Packet(in, slices.DeleteFunc(all, func(s served.Named) bool { return s.Port.Service != name }), prefer)
	if err != nil {
		return nil, err
	}
	if q.Packet.Source.IsValid() && prefer != model.FamilyOf(to.Destination) {
		return nil, fmt.Errorf("--from: %s is an %s address, and %s has none", q.Packet.Source, prefer, name)
	}
	q.Packet.Destination, q.Packet.Protocol, q.Packet.Port = to.Destination, to.Protocol, to.Port
	return remarks, nil
}

// ServicesIn returns the Services of frontends, each once and sorted.
func ServicesIn(all []served.Named) (names []model.ServiceName) {
	for _, s := range all {
		if !slices.Contains(names[max(0, len(names)-1):], s.Port.Service) {
			names = append(names, s.Port.Service)
		}
	}
	slices.SortFunc(names, model.ServiceName.Compare)
	return slices.Compact(names)
}

// ExplainObjects traces through the rules that objects lead to on a node.
func ExplainObjects(q Question, snapshot *model.Snapshot, node model.Config) (*explain.Result, error) {
	router := snapshot.Route(node)
	routing := router.Routing()
	var all []served.Named
	for i := range routing.Routes {
		all = append(all, served.NameOf(&routing.Routes[i]))
	}
	remarks, err := q.Resolve(all, router.Words())
	if err != nil {
		return nil, err
	}
	p, local := q.Packet, explain.LocalAddresses(snapshot, node)
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

// TakesFastPath says what the rules do not show, and a trace does not see.
const TakesFastPath = "once established, connections that this machine forwards take the fast path: they skip the rules of all programs"

// addFastPath says whether established connections take the fast path on a node with this
// configuration, and why not.
func addFastPath(r *explain.Result, routing *model.Routing, node *model.Config) {
	if node.FastPath.Level == model.FastPathOff {
		return
	}
	i := slices.IndexFunc(routing.Routes, func(route model.Route) bool { return route.Frontend == r.Frontend })
	if i < 0 {
		return
	}
	note := TakesFastPath
	if err := node.NoFastPath(&routing.Routes[i]); err != nil {
		note = "connections do not take the fast path: " + err.Error()
	}
	r.Notes = append(r.Notes, note)
}

// PrintTrace prints a result.
func PrintTrace(w io.Writer, r *explain.Result, output *cli.Output, detail explain.Detail) error {
	return output.Print(w, cli.JSONFunc(func(w io.Writer) error { return explain.JSON(w, r) }), func(w io.Writer) error {
		return explain.Print(w, r, detail, output.Paint)
	})
}

// PrintTest prints the report of a test, which may not be complete. As text, it has all cases, or these that have
// not passed.
func PrintTest(w io.Writer, r *conntest.Report, output *cli.Output, all bool) error {
	return output.PrintJudged(w, r, !r.Complete(), func(w io.Writer) error {
		if output.Format == JUnit {
			return r.JUnit(w)
		}
		return r.Print(w, all, output.Paint)
	})
}

// JUnit is the format of test for CI.
const JUnit = "junit"
