package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

type explainOptions struct {
	options
	from, device, output string
}

func explainCommand() *cobra.Command {
	var o explainOptions
	c := &cobra.Command{
		Use:   "explain PROTO ADDR:PORT",
		Short: "Trace a connection and explain where it goes",
		Long: `Trace the first packet of a connection through the rules: which Service it is
for, which endpoints may receive it and with which share, whether its source is
masqueraded and by which rule, or why it is rejected or dropped; then every
rule and element that it meets.

With -f, --kubeconfig or --config the rules are those that "render" prints, and
endpoints that are left out are listed with the reason. Otherwise the rules are
read from the kernel, with the clients that session affinity remembers.

PROTO is tcp, udp, sctp, icmp, icmpv6 or a protocol number. ICMP has no ports:
give only the address. Names are not resolved. Without --from the node itself is
the client.

Exit code: 0 the connection was traced, whatever the result; 2 error.`,
		Example: `  nftproxy explain tcp 10.96.0.10:80                      # rules in the kernel
  nftproxy explain -f services.yaml tcp 10.96.0.10:80     # rules for the file
  nftproxy explain -f services.yaml --from 203.0.113.7 tcp 192.168.7.1:30080
  nftproxy explain -f services.yaml udp '[fd00:10:96::10]:53'
  nftproxy explain --from 10.128.0.5 --interface cni0 icmp 10.96.0.10
  nftproxy explain tcp 10.96.0.10:80 -o json | jq '.outcomes[] | .endpoint, .share'`,
		Args: explainArguments,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0], args[1]) },

		ValidArgsFunction: completeExplain,
	}
	o.addFlags(c)
	c.Flags().StringVar(&o.from, "from", "", "`address` of the client (default: the node itself)")
	c.Flags().StringVar(&o.device, "interface", "", "`name` of the interface that the packet arrives on; needed if pods are detected by it")
	c.Flags().StringVarP(&o.output, "output", "o", "text", "`format`: text or json")
	return c
}

func explainArguments(c *cobra.Command, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("expected a protocol and a destination, for example\n  %s tcp 10.96.0.10:80", c.CommandPath())
	}
	return nil
}

func (o *explainOptions) run(c *cobra.Command, protocol, target string) error {
	if err := checkOutput(o.output, "text"); err != nil {
		return err
	}
	packet, err := o.packet(protocol, target)
	if err != nil {
		return err
	}
	answer := fromKernel
	if o.namesObjects() {
		answer = o.fromObjects
	} else if err := onlyForObjects(c); err != nil {
		return err
	}
	result, err := answer(c, packet)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return explain.JSON(c.OutOrStdout(), result)
	}
	return explain.Print(c.OutOrStdout(), result)
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
		case "from", "interface", "output", "brief", "metrics-bind-address", "v", "logging-format":
		default:
			err = fmt.Errorf("--%s: has no effect on the rules in the kernel: name a file with -f, or an API server with --kubeconfig", f.Name)
		}
	})
	return err
}

func (o *explainOptions) packet(protocol, target string) (explain.Packet, error) {
	p, err := explain.Parse(protocol, target)
	if err != nil {
		return p, err
	}
	p.Interface = o.device
	if o.from == "" {
		if o.device != "" {
			return p, errors.New("--interface: packets of the node itself arrive on none: name the client with --from")
		}
		return p, nil
	}
	p.Source, err = netip.ParseAddr(o.from)
	p.Source = p.Source.Unmap()
	switch {
	case err != nil || p.Source.Zone() != "":
		return p, fmt.Errorf("--from: %q is not an IP address (no port, no brackets, no zone)", o.from)
	case model.FamilyOf(p.Source) != model.FamilyOf(p.Destination):
		return p, fmt.Errorf("--from: %s is an %s address, and the destination is %s: give two of one family", p.Source, model.FamilyOf(p.Source), p.Destination)
	}
	return p, nil
}

// fromObjects traces through the rules for files or a cluster.
func (o *explainOptions) fromObjects(c *cobra.Command, p explain.Packet) (*explain.Result, error) {
	cfg, log, err := o.start(c)
	if err != nil {
		return nil, err
	}
	snapshot, err := o.objects(c, cfg, log)
	if err != nil {
		return nil, err
	}
	config := cfg.Node
	local := explain.LocalAddresses(snapshot, config)
	if !p.Source.IsValid() {
		p = p.SentBy(local)
	}
	routing := model.Resolve(snapshot, config)
	result := explain.Explain(render.Render(routing).Table(model.FamilyOf(p.Destination)), p, local)
	result.AddObjects(snapshot, config, routing)
	return result, nil
}

// fromKernel traces through the rules in the kernel. The objects behind them are
// unknown.
func fromKernel(_ *cobra.Command, p explain.Packet) (result *explain.Result, err error) {
	return result, withKernel(func(conn *kernel.Conn) error {
		rs, _, err := conn.Read()
		if err != nil {
			return err
		}
		local, err := host.InterfaceAddresses()
		if err != nil {
			return err
		}
		if !p.Source.IsValid() {
			p.FromNode, p.Source = true, routedSource(p.Destination)
		}
		t := rs.Table(model.FamilyOf(p.Destination))
		if t != nil && p.Source.IsValid() {
			err = conn.AddBinding(t, p.Source, p.Frontend())
		}
		result = explain.Explain(t, p, local)
		return err
	})
}

// routedSource returns the source address of this machine for a destination, or
// the zero Addr if it has no route there. Connecting a datagram socket looks up
// the route and sends nothing.
func routedSource(to netip.Addr) netip.Addr {
	c, err := net.Dial("udp", netip.AddrPortFrom(to, 9).String())
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	own, _ := netip.ParseAddrPort(c.LocalAddr().String())
	return own.Addr().Unmap().WithZone("")
}
