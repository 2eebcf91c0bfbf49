package main

import (
	"errors"
	"fmt"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// change draws the life of a changed EndpointSlice, with measured times.
func change(performance string) ([]byte, error) {
	t, err := timesOf(performance)
	if err != nil {
		return nil, err
	}
	const w, h, top = 150, 96, 96
	d := newDrawing("A pod is replaced: the life of a changed EndpointSlice", 1350, 336)
	hops := []struct{ class, name, line1, line2, cost string }{
		{"box", "API server", "sends the slice", "to every node", ""},
		{"ours", "source", "decodes and", "notes its Service", "this slice"},
		{"ours", "model", "decides the routes", "again", "these Services"},
		{"ours", "render", "elements before", "and after", "these routes"},
		{"ours", "plan", "keeps other slots,", "lists the changes", "this difference"},
		{"ours", "kernel", "encodes one", "netlink batch", t.bytes},
		{"kernel", "nf_tables", "commits all of it", "or nothing", t.changes},
	}
	const gap = 40
	for i, hop := range hops {
		x := 24 + float64(i)*(w+gap)
		d.box(hop.class, x, top, w, h, "*"+hop.name, hop.line1, hop.line2)
		if hop.cost != "" {
			d.centre("small muted", x+w/2, top+h+20, hop.cost)
		}
		if i > 0 {
			d.arrow("", x-gap, top+h/2, x-2, top+h/2)
		}
	}
	d.text("small muted", 24, top+h+20, "cost depends on:")
	span := func(y, from, to float64, text string) {
		d.arrow("", (from+to)/2, y, to, y)
		d.arrow("", (from+to)/2, y, from, y)
		d.centre("name", (from+to)/2, y-8, text)
	}
	modelX := 24.0 + 2*(w+gap)
	end := 24.0 + 7*(w+gap) - gap
	span(74, modelX, end, fmt.Sprintf("%s with 10,000 Services, %s with 100,000", t.work10k, t.work100k))
	span(258, 24, end, fmt.Sprintf("from the write to the API server until the kernel has it: %s with 10,000 Services; kube-proxy %s", t.api, t.kubeProxy))
	d.text("small muted", 24, 296, "Established connections are not affected. What follows does not delay the next change: metrics, status, health checks and conntrack cleanup.")
	d.text("small muted", 24, 318, "Medians of the measurements in docs/performance.md, with 4 endpoints for each Service.")
	return d.end(), nil
}

// times are the measured medians of replacing an endpoint.
type times struct{ work10k, work100k, api, kubeProxy, bytes, changes string }

func timesOf(performance string) (t times, err error) {
	files, err := results.Read(performance+"/nftproxy.json", performance+"/compare.json")
	if err != nil {
		return t, err
	}
	find := func(p results.Program, services int, from results.From) *results.Record {
		for _, f := range files {
			for i := range f.Records {
				r := &f.Records[i]
				if r.Program == p && r.Operation == results.ReplaceEndpoint && r.Services == services && r.Endpoints == 4 && r.From == from && r.Scenario != "AM" {
					return r
				}
			}
		}
		err = errors.New("docs/performance lacks a measurement")
		return &results.Record{Seconds: &results.Distribution{}, Work: &results.Work{}}
	}
	a := find(results.Nftproxy, 10_000, results.FromSnapshot)
	t.work10k = report.Seconds(a.Seconds.P50)
	t.bytes = fmt.Sprintf("%.0f bytes", a.Work.NetlinkBytes)
	t.changes = fmt.Sprintf("%.0f element", a.Work.Changes)
	t.work100k = report.Seconds(find(results.Nftproxy, 100_000, results.FromSnapshot).Seconds.P50)
	t.api = report.Seconds(find(results.Nftproxy, 10_000, results.FromWrite).Seconds.P50)
	t.kubeProxy = report.Seconds(find(results.KubeProxy, 10_000, results.FromWrite).Seconds.P50)
	return t, err
}
