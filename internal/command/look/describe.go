package look

import (
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/show"
)

type describeOptions struct {
	command.Options
	daemon command.Finder
	output cli.Output
	count  bool // open connections
}

func DescribeCommand() *cobra.Command {
	var o describeOptions
	c := &cobra.Command{
		Use:   "describe NAMESPACE/NAME",
		Short: "Show how a Service or Balance is served: each server, its share, or why it has none",
		Long: `Show how this node serves a Service or Balance: its addresses, and each endpoint or
server with its state, its weight and its share of new connections, or why it is left
out; traffic policies and all other settings, with the clients that affinity binds;
conflicts with others, warnings about the objects, and the last change. Where
traffic policies treat clients differently, "from inside" stands for pods and this
node, "from outside" for other clients.

The namespace can be omitted if only one has that name.

The running nftproxy is asked, as by "nftproxy status". If none runs, the result is
read from the tables in the kernel, which needs root; these do not have what is
left out. With -f, --kubeconfig or --config it is what the objects lead to.

Exit code: 0 described; 2 nothing has that name, or another error.`,
		Example: `  nftproxy describe shop/web
  nftproxy describe web
  nftproxy describe web --connections
  nftproxy describe shop/web -f services.yaml --hostname-override node-1
  nftproxy describe shop/web --kubeconfig ~/.kube/config --hostname-override node-1
  nftproxy describe shop/web -o json | jq -r '.ports[].endpoints[] | "\(.address) \(.inside.share)"'`,
		Args:              cli.DescribeArguments,
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
		ValidArgsFunction: command.CompleteServices,
	}
	o.AddFlags(c)
	o.daemon.AddAddress(c.Flags())
	o.output.Add(c, "")
	c.Flags().BoolVar(&o.count, "connections", false, "count the connections to each endpoint or server that are open now; needs root")
	return c
}

// countDescribed adds the number of open connections to each endpoint. Endpoints of a range
// of ports have any port, so what leads through its frontends is counted by itself.
func countDescribed(s *api.Description) error {
	var all []model.Frontend // but those of ranges
	for i := range s.Ports {
		if p := &s.Ports[i]; !keepsPorts(p) {
			all = append(all, frontendsOf(p)...)
		}
	}
	var targets []conntrack.Target
	var relays []netip.Addr
	if s.Relay != "" {
		relays, _ = host.ServingAddresses() // without them the connections of the relay are not counted
	}
	for i := range s.Ports {
		p, frontends := &s.Ports[i], all
		if keepsPorts(p) {
			frontends = frontendsOf(p)
		}
		for j := range p.Endpoints {
			at := p.Endpoints[j].AddrPort()
			targets = append(targets, conntrack.Target{Address: at.Addr(), Port: at.Port(), Frontends: frontends, Relays: relays})
		}
	}
	counts, err := conntrack.CountTargets(targets)
	if err != nil {
		return err
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		protocol, _ := model.ParseProtocol(p.Protocol)
		for j := range p.Endpoints {
			open := counts[j][protocol]
			p.Endpoints[j].Open = &open
		}
		counts = counts[len(p.Endpoints):]
	}
	return nil
}

// keepsPorts reports whether endpoints have the port that the client dials.
func keepsPorts(p *api.DescribedPort) bool {
	return len(p.Endpoints) > 0 && p.Endpoints[0].AddrPort().Port() == 0
}

func frontendsOf(p *api.DescribedPort) (out []model.Frontend) {
	for i := range p.Frontends {
		out = append(out, p.Frontend(&p.Frontends[i]))
	}
	return out
}

func (o *describeOptions) run(c *cobra.Command, name string) error {
	s, err := answer(&o.Options, c, name, describeObjects, o.running)
	if err != nil {
		return err
	}
	if o.count {
		if err := countDescribed(s); err != nil {
			return err
		}
	}
	return o.output.Print(c.OutOrStdout(), s, func(w io.Writer) error { return show.Description(w, s, time.Now(), o.output.Paint) })
}

func describeObjects(question string, snapshot *model.Snapshot, node model.Config) (*api.Description, error) {
	router := snapshot.Route(node)
	name, err := api.Resolve(question, router, router.Words())
	if err != nil {
		return nil, err
	}
	s := report.FromView(router.View(name))
	s.From = api.FromInput
	return s, nil
}

func (o *describeOptions) running(c *cobra.Command, question string) (*api.Description, error) {
	s, noDaemon, err := command.FetchOrRead(&o.daemon, func(client *api.Client) (*api.Description, error) {
		return client.Describe(c.Context(), question)
	}, func(conn *kernel.Conn) (*api.Description, error) {
		return report.DescribeKernel(conn, question)
	}, ", name the address of a running one with --metrics-bind-address, or a file with -f")
	if noDaemon != "" {
		s.Unknown = append([]string{noDaemon + "; this is from the kernel's tables"}, s.Unknown...)
	}
	return s, err
}
