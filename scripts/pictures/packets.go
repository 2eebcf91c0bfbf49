package main

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

// services are served in the picture: one is plain, and one has session affinity.
const services = `
{kind: Service, apiVersion: v1, metadata: {name: web}, spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}}
---
{kind: Service, apiVersion: v1, metadata: {name: cart}, spec: {clusterIP: 10.96.0.11, ports: [{port: 80}], sessionAffinity: ClientIP}}
---
{kind: EndpointSlice, apiVersion: discovery.k8s.io/v1, metadata: {name: web-1, labels: {kubernetes.io/service-name: web}},
 addressType: IPv4, ports: [{port: 8080}],
 endpoints: [{addresses: [10.128.0.2]}, {addresses: [10.128.0.3]}, {addresses: [10.128.0.4]}]}
---
{kind: EndpointSlice, apiVersion: discovery.k8s.io/v1, metadata: {name: cart-1, labels: {kubernetes.io/service-name: cart}},
 addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.128.0.5]}]}
`

func table() (*nft.Table, error) {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags := config.NewFlags(set)
	flags.AddRules()
	flags.AddCluster()
	flags.AddLogging()
	if err := set.Parse([]string{"--hostname-override=node-1", "--cluster-cidr=10.128.0.0/9"}); err != nil {
		return nil, err
	}
	cfg, err := flags.Load()
	if err != nil {
		return nil, err
	}
	reader := &files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(services)}
	snapshot, err := reader.Snapshot(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		return nil, err
	}
	return render.Render(model.Resolve(snapshot, cfg.Node)).Table(model.IPv4), nil
}

// packets draws the path of a packet through the chains of a rendered table.
func packets() ([]byte, error) {
	t, err := table()
	if err != nil {
		return nil, err
	}
	d := newDrawing("The first packet of a connection", 1350, 650)
	d.text("small muted", 440, 34, "Later packets are translated by connection tracking, and pass none of these rules.")
	hooks(d, t)
	if err := lookup(d, t); err != nil {
		return nil, err
	}
	return d.end(), nil
}

// hooks draws the hooks of netfilter with the base chains of the table.
func hooks(d *drawing, t *nft.Table) {
	const w, h, upper, lower = 226, 92, 66, 200
	hook := func(x, y float64, h nft.Hook, title string) {
		var chains []*nft.Chain
		for _, c := range t.Chains {
			if c.Hook == h {
				chains = append(chains, c)
			}
		}
		slices.SortFunc(chains, func(a, b *nft.Chain) int { return int(a.Priority - b.Priority) })
		lines := []string{"*" + title}
		for _, c := range chains {
			lines = append(lines, fmt.Sprintf("`%d %s", c.Priority, c.Name))
		}
		class := "ours"
		if len(chains) == 0 {
			class, lines = "box", append(lines, "~no chain of nftproxy")
		}
		d.box(class, x, y, w, 92, lines...)
	}
	d.box("box", 24, upper+16, 146, 60, "*packet arrives", "~client or pod")
	hook(210, upper, nft.Prerouting, "prerouting")
	d.box("box", 500, upper+16, 100, 60, "routing")
	d.box("box", 664, upper, w, h, "*forward", "~no chain of nftproxy:", "~firewalls filter here")
	hook(954, upper, nft.Postrouting, "postrouting")
	d.box("box", 1236, upper+16, 92, 60, "*endpoint")
	d.box("box", 24, lower+16, 146, 60, "*process", "~of the node")
	hook(210, lower, nft.Output, "output")
	hook(664, lower, nft.Input, "input")
	d.box("box", 954, lower+16, 156, 60, "*endpoint", "~on the node itself")
	mid, low := float64(upper+h/2), float64(lower+h/2)
	d.arrow("", 170, mid, 208, mid)
	d.arrow("", 436, mid, 498, mid)
	d.arrow("", 600, mid, 662, mid)
	d.arrow("", 890, mid, 952, mid)
	d.arrow("", 1180, mid, 1234, mid)
	d.arrow("", 170, low, 208, low)
	d.arrow("", 436, low, 580, low, 580, upper+78)
	d.arrow("", 600, mid, 632, mid, 632, low, 662, low)
	d.arrow("", 890, low, 952, low)
}

// lookup draws the lookups of the chains of priority -101, with the elements of a frontend.
func lookup(d *drawing, t *nft.Table) error {
	const frontend = "10.96.0.10 . tcp . 80"
	class, err := value(t, nft.ServicesMap, frontend)
	if err != nil {
		return err
	}
	lane, err := value(t, nft.LanesMap, class)
	if err != nil {
		return err
	}
	endpoint, err := value(t, nft.EndpointsMap, frontend+" . 0:2")
	if err != nil {
		return err
	}
	d.text("name", 24, 338, "What happens at priority -101 to a connection to 10.96.0.10:80")
	const y, h, below, less = 356.0, 100.0, 496.0, 80.0
	boxes := []struct {
		x, w  float64
		lines []string
		class string
		under []string
	}{
		{24, 206, []string{"*may this client?", "`set firewalled", "`set source-ranges"},
			"bad", []string{"*drop", "~outside of the ranges", "~of a load balancer"}},
		{256, 236, []string{"*which Service?", "`map services", "`" + frontend, "`: " + class},
			"box", []string{"*none", "~other programs' chains, then", "~unserved: refuse or drop"}},
		{518, 232, []string{"*what to do?", "`map lanes", "`" + class + " : " + lane},
			"bad", []string{"*refuse or drop", "~no endpoints: a TCP reset or", "~ICMP error; Local: silence"}},
		{776, 236, []string{"*which slot?", "`chain " + strings.TrimPrefix(lane, "goto "), "~counts, draws a number or", "~hashes the client: slot 0:2"},
			"ours", []string{"*session affinity, first:", "`map affinity", "~the endpoint that it had"}},
		{1038, 288, []string{"*which endpoint?", "`map endpoints", "`" + frontend + " . 0:2", "`: " + endpoint},
			"good", []string{"*dnat", "~to " + strings.ReplaceAll(endpoint, " . ", ":"), "~the reply is translated back"}},
	}
	for i, b := range boxes {
		d.box("ours", b.x, y, b.w, h, b.lines...)
		d.box(b.class, b.x, below, b.w, less, b.under...)
		d.arrow("", b.x+b.w/2, y+h, b.x+b.w/2, below-2)
		if i > 0 {
			d.arrow("", boxes[i-1].x+boxes[i-1].w, y+h/2, b.x-2, y+h/2)
		}
	}
	d.text("small muted", 24, 608, "postrouting masquerades a translated connection if the endpoint reached itself (set hairpin), if the client is no pod and used a ClusterIP (cluster-ips),")
	d.text("small muted", 24, 630, "or if it used a NodePort or an external address (masq-frontends; local-frontends for the node itself). No packet marks are used.")
	return nil
}

// value returns the value of an element of a map.
func value(t *nft.Table, name, key string) (string, error) {
	if s := t.Set(name); s != nil {
		for i := range s.Elements {
			if s.KeyText(s.Elements[i].Key) == key {
				return s.ValueText(s.Elements[i].Value), nil
			}
		}
	}
	return "", fmt.Errorf("map %s has no element %s", name, key)
}
