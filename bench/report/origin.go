package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

// Origin is where figures come from: a file of results.
type Origin struct {
	Date       string
	Machine    string  // model of the processor
	Version    string  // of nftproxy
	Kubernetes string  // version of kube-proxy and the API server; empty: not among the programs
	Layout     string  // of the rules of nftproxy
	Load       float64 // average of the machine; 0: not known
}

// unknown stands for the layout of files that do not have it.
const unknown = "unknown"

func originOf(f *results.File) Origin {
	return Origin{
		Date: f.Date.Format(time.DateOnly), Machine: f.Machine.CPU, Version: cmp.Or(f.Versions[string(results.Nftproxy)], unknown),
		Kubernetes: strings.TrimPrefix(f.Versions[string(results.KubeProxy)], "v"), Layout: cmp.Or(f.Layout, unknown), Load: f.Load,
	}
}

// Origins returns where the figures of each table come from, in the order of the files.
func Origins(files []*results.File) map[string][]Origin {
	out := make(map[string][]Origin)
	for name, build := range builders {
		if name == machines || name == watchedMachines {
			continue // they say it themselves
		}
		all := build(files).markdown()
		for i, f := range files {
			// A file contributes if the table is another one without it.
			if without := slices.Delete(slices.Clone(files), i, i+1); build(without).markdown() != all {
				out[name] = append(out[name], originOf(f))
			}
		}
	}
	return out
}

// caption is the line below a table.
func caption(origins []Origin) string {
	var all []string
	for _, o := range origins {
		of := []string{o.Date, o.Machine, "nftproxy " + o.Version, "rules " + o.Layout}
		if o.Kubernetes != "" {
			of = append(of, "Kubernetes "+o.Kubernetes)
		}
		if o.Load > 0 {
			of = append(of, "load "+significant(o.Load))
		}
		all = append(all, strings.Join(of, ", "))
	}
	return fmt.Sprintf("Measured: %s.", strings.Join(all, "; "))
}
