package daemon

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
	"github.com/nftproxy/nftproxy/internal/source/join"
)

// emptySource has no objects.
type emptySource struct{ source.Source }

func (emptySource) String() string                          { return "files" }
func (emptySource) State() source.State                     { return source.State{} }
func (emptySource) Run(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }
func (emptySource) Await(context.Context) error             { return nil }
func (emptySource) Node() *model.Node                       { return nil }

// withEverything returns the work of a process that was asked for all features. It has no connection to a kernel.
func withEverything(t *testing.T) *work {
	t.Helper()
	dir := t.TempDir()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	settings := config.NewFlags(set)
	settings.AddRules()
	settings.AddCluster()
	settings.AddLogging()
	settings.AddDaemon()
	args := []string{
		"--observe=failures", "--nodeport-addresses=127.0.0.0/8", "--fast-path=all", "--service-metrics", "--endpoint-metrics", "--feature-gates=KubeProxyNFTablesLocalhostNodePorts=true",
		"--drain-file=" + filepath.Join(dir, "drain.yaml"), "--changes-file=" + filepath.Join(dir, "changes.yaml"),
		"--health-directory=" + dir, "--control-socket=" + filepath.Join(dir, "control.sock"),
	}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	c, err := settings.Load()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	d := &Daemon{Config: c, Version: "v1", Source: emptySource{}, Cluster: new(cluster.Cluster), Joined: new(join.Joined), RuntimeDirectory: dir, StateDirectory: dir, Log: log}
	d.findSocket()
	d.addFeatures(t.Context())
	w := d.newWork(t.Context(), model.Families[:], sockets{rules: new(kernel.Conn), scrapes: new(kernel.Conn)})
	w.metrics.ExportRequests(metrics.CountRequests())
	return w
}

// described returns the labels of each metric that a set registers, also of those without a series yet.
func described(t *testing.T, s *metrics.Set) map[string]string {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() { s.Describe(descs); close(descs) }()
	form := regexp.MustCompile(`^Desc{fqName: "([^"]*)", help: ".*", constLabels: {([^}]*)}, variableLabels: {([^}]*)}}$`)
	found := make(map[string]string)
	for d := range descs {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Errorf("cannot read %s", d)
			continue
		}
		labels := make(map[string]struct{})
		for l := range strings.SplitSeq(m[2]+","+m[3], ",") {
			if name, _, _ := strings.Cut(l, "="); name != "" {
				labels[name] = struct{}{}
			}
		}
		found[m[1]] = strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
	}
	return found
}
