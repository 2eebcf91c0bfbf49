package look

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/conntest/dial"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/served"
)

// oracle knows the frontends of a Service, and predicts what happens to connections.
type oracle struct {
	service model.ServiceName
	targets []conntest.Target
	notes   []string
	local   []netip.Addr // of the machine
	explain func(explain.Packet) (*explain.Result, error)
	results map[*conntest.Case]*explain.Result
}

// oracle returns the oracle of a Service: from the objects that flags name or the running
// nftproxy reads, else from the rules in the kernel.
func (o *testOptions) oracle(c *cobra.Command, name string) (*oracle, error) {
	note := ""
	if !o.NamesObjects() {
		if o.Files = command.DaemonFiles(); len(o.Files) == 0 {
			note = "predicted from the rules in the kernel, in which rules may be missing: name the objects with -f or --kubeconfig"
		}
	}
	var p *oracle
	var err error
	if note == "" {
		p, err = o.fromObjects(c, name)
	} else {
		p, err = fromRules(name)
	}
	if err != nil {
		return nil, err
	}
	if note != "" {
		p.notes = append(p.notes, note)
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
	p := &oracle{}
	if p.service, err = api.Resolve(name, router.Names(), router.Words()); err != nil {
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
	rules := plan.Settle(have, render.Render(side.Routing)) // schedulers choose by the slots that endpoints have in the kernel
	p.explain = func(packet explain.Packet) (*explain.Result, error) {
		r := explain.Explain(rules.Table(model.FamilyOf(packet.Destination)), packet, p.local)
		r.AddObjects(router)
		return r, nil
	}
	return p, nil
}

func fromRules(name string) (*oracle, error) {
	p := &oracle{}
	rs, err := command.ReadRules()
	if err != nil {
		return nil, err
	}
	if len(rs.Tables) == 0 {
		return nil, errors.New("no daemon answers, and the kernel has no tables of nftproxy: start \"nftproxy run\" or \"nftproxy apply\" first")
	}
	if p.service, err = api.Resolve(name, common.ServicesIn(servedIn(rs)), served.Words(rs)); err != nil {
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
	p.explain = func(packet explain.Packet) (r *explain.Result, err error) {
		err = command.WithKernel(func(conn *kernel.Conn) error {
			r, err = explainRules(conn, rs, packet, p.local)
			return err
		})
		return r, err
	}
	return p, nil
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
