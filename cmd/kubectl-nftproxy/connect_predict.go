package main

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/fleet/peers"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/words"
)

// applied reports whether an nftproxy has the endpoints of all Services of a namespace.
func applied(ctx context.Context, client *api.Client, namespace string, want map[string][]netip.Addr) (*bool, error) {
	yes, no := true, false
	for name, addresses := range want {
		d, err := client.DescribeRules(ctx, namespace+"/"+name)
		if err != nil {
			return nil, err
		}
		have := []netip.Addr{}
		for i := range d.Ports {
			for j := range d.Ports[i].Endpoints {
				at, err := netip.ParseAddrPort(d.Ports[i].Endpoints[j].Address)
				if err == nil && !slices.Contains(have, at.Addr()) {
					have = append(have, at.Addr())
				}
			}
		}
		slices.SortFunc(have, netip.Addr.Compare)
		if d.Unsynced != "" || !slices.Equal(have, addresses) {
			return &no, nil
		}
	}
	return &yes, nil
}

type nodeOracle struct {
	targets []conntest.Target
	local   []netip.Addr // of the node
	rules   *nft.Ruleset
	router  *model.Router

	node   string
	pods   string // interface that packets of pods arrive on, if they are detected by it
	guess  bool   // the nftproxy of the node has not told its settings
	blind  bool   // none has
	prefix string // of the names of Services that is left out
}

func (t *clusterTest) jobs(ctx context.Context, all []*peers.Peer) (jobs []job, err error) {
	oracles := make(map[string]*nodeOracle)
	var nodes []string
	for _, p := range all {
		if oracles[p.Node] != nil {
			continue
		}
		if oracles[p.Node], err = t.oracleOf(ctx, p.Node); err != nil {
			return nil, err
		}
		nodes = append(nodes, p.Node)
	}
	for _, p := range all {
		j := job{peer: p}
		sources := func(to []netip.Addr) ([]netip.Addr, error) { return p.Sources(ctx, to) }
		if err := j.add(oracles[p.Node], p.From, sources, p.Addresses); err != nil {
			t.untested = append(t.untested, conntest.Reason{Node: p.Node, Reason: "ask the " + string(p.From) + " client: " + err.Error()})
			continue
		}
		if p.From == conntest.Pod && t.Services {
			names, err := t.lab.Names(ctx, p.Node)
			if err != nil {
				return nil, err
			}
			j.cases = append(j.cases, names...)
		}
		if next := nodes[(slices.Index(nodes, p.Node)+1)%len(nodes)]; p.From == conntest.Host && next != p.Node {
			if err := j.add(oracles[next], conntest.AnotherNode, sources, nil); err != nil {
				return nil, err
			}
		}
		jobs = append(jobs, j)
	}
	if t.outside {
		j := job{}
		for _, node := range nodes {
			if err := j.add(oracles[node], conntest.Outside, routedSources, nil); err != nil {
				return nil, err
			}
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func routedSources(to []netip.Addr) (from []netip.Addr, err error) {
	for _, a := range to {
		from = append(from, conntest.RoutedSource(a))
	}
	return from, nil
}

func (t *clusterTest) oracleOf(ctx context.Context, node string) (*nodeOracle, error) {
	basis, guess := t.basisOf(ctx, node)
	cfg, err := configOf(node, basis)
	if err != nil {
		return nil, err
	}
	side, err := t.intents.of(ctx, cfg, basis)
	if err != nil {
		return nil, err
	}
	router := side.Snapshot.Route(cfg.Node)
	p := &nodeOracle{
		node: node, guess: guess, blind: guess && len(t.settings.Settings) == 0, pods: cfg.Node.PodInterface,
		local: explain.LocalAddresses(side.Snapshot, cfg.Node), rules: render.Render(side.Routing), router: router,
	}
	var isTested func(model.ServiceName) bool
	if t.Services {
		p.prefix = t.lab.Name + "/"
		isTested = func(name model.ServiceName) bool { return name.Namespace == t.lab.Name }
	} else {
		service, err := api.Resolve(t.service, router, words.Kubernetes)
		if err != nil {
			return nil, err
		}
		isTested = func(name model.ServiceName) bool { return name == service }
	}
	nodePorts := router.NodePortAddresses()
	if len(nodePorts) == 0 {
		nodePorts = p.local
	}
	for i := range side.Routing.Routes {
		if r := &side.Routing.Routes[i]; isTested(r.Service.Name) {
			p.targets = conntest.AddTarget(p.targets, served.Of(r, side.Routing.Scheduler), nodePorts)
		}
	}
	return p, nil
}

// basisOf returns what the nftproxy of a node says about its settings. Without an answer, the ones of
// another node are taken, else the defaults.
func (t *clusterTest) basisOf(ctx context.Context, node string) (basis *api.Basis, guess bool) {
	why := "no nftproxy is ready there"
	if agent := fleet.ReadyOn(t.members.agents, node); agent != nil {
		answer := fleet.AskOne(ctx, t.fleet, *agent, askBasis)
		if answer.Err == nil {
			t.settings = answer.Document
			return answer.Document, false
		}
		why = answer.Err.Error()
	}
	if t.settings == nil {
		t.settings = &api.Basis{Version: api.BasisVersion, Cluster: true, Families: []string{"IPv4", "IPv6"}}
		for _, a := range t.members.agents {
			if answer := fleet.AskOne(ctx, t.fleet, a, askBasis); answer.Err == nil {
				t.settings = answer.Document
				break
			}
		}
	}
	if len(t.settings.Settings) == 0 {
		t.note("node " + node + " is judged as with nftproxy's defaults: " + why)
	} else {
		t.note("node " + node + " is judged by the settings of another node: " + why)
	}
	basis = &api.Basis{Version: t.settings.Version, Cluster: true, Families: t.settings.Families, NoLimits: t.settings.NoLimits, Settings: make(map[string]string)}
	maps.Copy(basis.Settings, t.settings.Settings)
	delete(basis.Settings, "bind-address") // of the other node
	basis.Settings["hostname-override"] = node
	return basis, true
}

func (t *clusterTest) note(text string) {
	if !slices.Contains(t.notes, text) {
		t.notes = append(t.notes, text)
	}
}

// add adds the cases from an origin to the frontends of a node. own are addresses of the client.
func (j *job) add(p *nodeOracle, from conntest.Origin, sources func([]netip.Addr) ([]netip.Addr, error), own []netip.Addr) error {
	targets := p.targets
	if from == conntest.AnotherNode || from == conntest.Outside {
		targets = slices.DeleteFunc(slices.Clone(targets), func(t conntest.Target) bool { return t.Kind != model.NodePort })
	}
	if from == conntest.Host {
		own = p.local
	}
	to := make([]netip.Addr, len(targets))
	for i, t := range targets {
		to[i] = t.To.Addr()
	}
	clients, err := sources(to)
	if err != nil {
		return err
	}
	for i, t := range targets {
		c := conntest.New(t.Frontend, t.To, from)
		c.Node, c.Loose, c.Service = p.node, p.guess, strings.TrimPrefix(c.Service, p.prefix)
		packet := explain.Packet{Source: clients[i], Destination: to[i], Protocol: t.Protocol, Port: t.To.Port(), FromNode: from == conntest.Host}
		if from == conntest.Pod {
			packet.Interface = p.pods
		}
		r := explain.Explain(p.rules.Table(model.FamilyOf(to[i])), packet, p.local)
		r.AddObjects(p.router)
		c.Predict(r, own)
		if !clients[i].IsValid() && t.Kind != model.ClusterIP && t.Kind != model.NodePort {
			c.Skip = "the client has no route to " + to[i].String()
		}
		if p.blind && from == conntest.Pod && t.Kind != model.ClusterIP && t.ExternalPolicy == model.PolicyLocal {
			c.Skip = "it is not known which clients the service proxy takes for pods"
		}
		c.AllowAnyChoice(t.Frontend)
		j.cases = append(j.cases, c)
	}
	return nil
}
