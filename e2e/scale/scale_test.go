package scale

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// account is the user that both proxies are in a cluster: a service account of
// kube-system, which decides about the priority of their requests.
const account = "system:serviceaccount:kube-system:proxy"

// BenchmarkWatchers measures what the API server pays for watchers. SCALE_WATCHERS
// has their numbers and SCALE_SERVICES the number of Services; RESULTS names a
// file to write the figures to.
func BenchmarkWatchers(b *testing.B) {
	r := testbed.NewReport(b)
	m := newMeasurement(b, number(b, "SCALE_SERVICES", 1000)[0], effort{replacements: 20, rolled: large, idle: time.Minute})
	for _, p := range []results.Program{results.Nftproxy, results.KubeProxy} {
		for _, n := range number(b, "SCALE_WATCHERS", 100, 1000) {
			m.program, m.n = p, n
			b.Run(fmt.Sprintf("%s-%d", p, n), func(b *testing.B) { m.measure(b) })
			if p == results.KubeProxy {
				break // the same requests
			}
		}
	}
	r.File.Records = m.records
	r.Write(b)
}

// number returns the numbers of an environment variable, separated by commas.
func number(b *testing.B, name string, otherwise ...int) (all []int) {
	b.Helper()
	if os.Getenv(name) == "" {
		return otherwise
	}
	for field := range strings.SplitSeq(os.Getenv(name), ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatalf("%s: %v: use numbers separated by commas", name, err)
		}
		all = append(all, n)
	}
	return all
}

// TestWatchers runs the measurement with few watchers.
func TestWatchers(t *testing.T) {
	m := newMeasurement(t, 10, effort{replacements: 2, rolled: 1})
	m.program, m.n = results.Nftproxy, 5
	m.measure(t)
	for _, r := range m.records {
		fmt.Fprintf(t.Output(), "%s: %+v, %v\n", r.Operation, *r.Server, r.Seconds)
		if r.Server.Bytes == 0 && r.Operation != results.WatchIdle || r.Server.CPU < 0 {
			t.Errorf("%s: the server did nothing: %+v", r.Operation, r.Server)
		}
	}
}

// TestSameRequests checks that nftproxy lists the objects that kube-proxy gets as
// streams, with the requests that are measured, and then watches the same.
func TestSameRequests(t *testing.T) {
	c := testbed.NewCluster(t, 1, testbed.WithoutOwnEndpoint)
	var want, got []string
	for _, r := range watchesOf(c, results.KubeProxy) {
		want = append(want, r.listURL(), r.url("7"))
	}
	for _, r := range requestsOf(c, results.Nftproxy) {
		if r.query.Has("watch") {
			got = append(got, r.url("7"))
		} else {
			got = append(got, r.to(r.query))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(got) != 8 {
		t.Errorf("nftproxy sends\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// effort says how much is measured.
type effort struct {
	replacements int           // of an endpoint
	rolled       int           // pods that a rolling update replaces
	idle         time.Duration // without a change
}

// measurement is the API server and what watchers cost it.
type measurement struct {
	effort
	*content
	t        testing.TB
	services int
	requests []request
	config   *rest.Config // of a proxy
	fleet    *fleet
	records  []results.Record

	program results.Program
	n       int // watchers
}
