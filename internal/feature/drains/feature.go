// Package drains keeps new connections away from the endpoints that the operator drains on this machine.
package drains

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

type Kind struct{}

// New implements [feature.Kind]: it follows the file with drained endpoints and changes of servers, which are for files.
func (Kind) New(n *feature.Node) feature.Feature {
	own := &n.Config.Own
	file := drain.File{Path: own.DrainFile, State: n.StateDirectory}
	switch {
	case n.Files && file.Path == "":
		file.Path = own.ChangesFile
	case n.Files:
		file.Older = own.ChangesFile
	}
	if file.Path == "" {
		return nil
	}
	return drains{drain.Follow(file, n.Machine.Watch(file.Path), serving{n}, n.Log), n}
}

// serving is what the node serves at a time.
type serving struct{ *feature.Node }

func (s serving) Changed()                { s.Serving().Changed() }
func (s serving) Words() words.Vocabulary { return s.Serving().Words() }

func (Kind) Plan(s *model.Snapshot, k *feature.Known) (feature.Planned, error) {
	return feature.Planned{Snapshot: k.Drained.EditSnapshot(s)}, nil
}

type drains struct {
	*drain.Follower
	node *feature.Node
}

func (d drains) Drains() *drain.Follower { return d.Follower }

func (d drains) AddTo(k *feature.Known) { k.Drained = d.List() }

// Problems implements [feature.Reporter]: it returns why the list of drained endpoints cannot be used.
func (d drains) Problems(time.Time) []model.Notice {
	p := d.Problem()
	if p == nil {
		return nil
	}
	reason := model.DrainFileUnusable
	if p.Unknown {
		reason = model.DrainsUnknown
	}
	return []model.Notice{{Object: model.Object{Kind: "Drain file"}, Reason: reason, Message: strings.ReplaceAll(p.Err.Error(), "\n", "; ")}}
}

// Notes implements [feature.Noter]: it returns the drained endpoints.
func (d drains) Notes() (out []model.Notice) {
	serving := d.node.Serving()
	for _, e := range d.List() {
		in := serving.Words()
		if e.Service != (model.ServiceName{}) {
			in = words.Of(serving.IsBalance(e.Service))
		}
		out = append(out, model.Notice{
			Object: model.Object{Kind: serving.Words().Text("Endpoint"), Name: e.Text(in)}, Reason: model.EndpointDrained,
			Message: "no new connections, from nftproxy drain" + feature.SinceText(e.Since),
		})
	}
	return out
}

func (d drains) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		feature.Gauge("nftproxy_drained_endpoints", "Endpoints that the operator drains on this machine.", func() float64 { return float64(len(d.List())) }),
		feature.Gauge("nftproxy_drain_file_usable", "1 if the list of drained endpoints can be used, else 0; its last list stays in force, if one is known.",
			func() float64 { return scraped.Yes(d.Problem() == nil) }),
	}
}
