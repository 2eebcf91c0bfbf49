package main

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestMain makes the test binary the process that does one job, as the program
// itself is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == jobCommand {
		main()
		return
	}
	os.Exit(netlab.Run(m.Run))
}

// TestEverything takes small scenarios from the measurement to the page.
func TestEverything(t *testing.T) {
	c := benchConfig{
		scenarios: []scenario{{Services: 50, Endpoints: 4}, {Name: "AM", Services: 60, Endpoints: 2, Exposed: true}},
		runs:      2, repeats: repeats{Each: 5, Random: 40},
		versions: map[string]string{"nftproxy": "v1.0.0"},
	}
	var printed strings.Builder
	file, err := c.bench(context.Background(), &printed)
	if err != nil {
		t.Fatal(err)
	}
	checkRecords(t, file)
	for _, want := range []string{"50 services x 4 endpoints", "AM: 60 services x 2", "cold start", "resident"} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("%q is not printed:\n%s", want, printed.String())
		}
	}

	dir := t.TempDir()
	data, page := filepath.Join(dir, "results.json"), filepath.Join(dir, "page.md")
	if err := file.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, []byte("<!-- bench:times -->\n<!-- /bench -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"plot", dir, data}, {"table", "-w", page, data}} {
		if err := run(context.Background(), args); err != nil {
			t.Fatal(err)
		}
	}
	pictures, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil || len(pictures) != 4 {
		t.Errorf("pictures are %v, want 4; %v", pictures, err)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "| replace an endpoint ") {
		t.Errorf("the page is:\n%s, %v", text, err)
	}
}

// checkRecords checks what must hold of every measurement.
func checkRecords(t *testing.T, file *results.File) {
	t.Helper()
	samples := map[results.Operation]int{
		results.KernelAlone: 2, results.KernelAloneReplace: 20, results.ColdStart: 2, results.Restart: 2, results.Resume: 2, results.ReplaceEndpoint: 10, results.ScaleUp: 10, results.ScaleDown: 10,
		results.DeleteService: 10, results.AddService: 10, results.RandomChange: 80,
	}
	if want := 2 * (len(samples) + 1); len(file.Records) != want {
		t.Errorf("%d records, want %d", len(file.Records), want)
	}
	for _, r := range file.Records {
		if r.Operation == results.MemoryUse {
			if m := r.Memory; m.Live == 0 || m.HeapInUse < m.Live || m.Resident < m.HeapInUse || m.Started == 0 || m.Peak < m.Resident {
				t.Errorf("memory is %+v", m)
			}
			continue
		}
		if s := r.Seconds; s.N != samples[r.Operation] || s.P50 <= 0 || s.P95 < s.P50 || s.Max < s.P95 {
			t.Errorf("%s: times are %+v, want %d", r.Operation, s, samples[r.Operation])
		}
		starts := r.Operation == results.Restart || r.Operation == results.Resume
		if written := r.Work.NetlinkBytes > 0; written == starts {
			t.Errorf("%s: work is %+v", r.Operation, r.Work)
		}
		if r.Operation == results.KernelAlone || r.Operation == results.KernelAloneReplace {
			continue
		}
		if written := r.Work.Changes > 0; written == starts || r.Work.Allocations == 0 {
			t.Errorf("%s: work is %+v", r.Operation, r.Work)
		}
		if base, ok := bases[r.Operation]; ok && (r.Ratios[base] == nil || r.Ratios[base].N != 2 || r.Ratios[base].P50 <= 0) {
			t.Errorf("%s: ratios are %v, want two to %s", r.Operation, r.Ratios, base)
		}
	}
}

// TestReplay proves that a replay has the effect of the recorded start, and that it
// fails if the kernel refuses something.
func TestReplay(t *testing.T) {
	m := &measurer{world: newWorld(scenario{Services: minServices, Endpoints: 2})}
	batches, err := m.recordStart()
	if err != nil {
		t.Fatal(err)
	}
	ns := netlab.TestNamespace(t)
	if _, err := replay(ns, batches); err != nil {
		t.Fatal(err)
	}
	if err := verify(ns, m.world); err != nil {
		t.Error(err)
	}
	if _, err := replay(ns, batches); !errors.Is(err, unix.EEXIST) {
		t.Errorf("the second replay says %v, want that the chains exist", err)
	}
	m.closeOthers()
}

// TestVerify proves that verify notices a kernel with other rules than wanted.
func TestVerify(t *testing.T) {
	for name, spoil := range map[string]func(*changer){
		"":                 func(*changer) {},
		"another endpoint": func(c *changer) { c.replaceEndpoint(2) },
		"an endpoint less": func(c *changer) {
			s := c.services[serviceName(3)]
			c.set(3, withHosts(s, hosts(s)[1:]))
		},
		"a service less":  func(c *changer) { c.set(4, model.ServiceState{}) },
		"a load balancer": func(c *changer) { c.set(5, c.exposeOrHide(5, c.services[serviceName(5)])) },
	} {
		t.Run(name, func(t *testing.T) {
			ns := netlab.TestNamespace(t)
			w := newWorld(scenario{Services: minServices, Endpoints: 2})
			n, err := newNode(ns, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := n.start(w.snapshot()); err != nil {
				t.Fatal(err)
			}
			if err := n.stop(); err != nil {
				t.Fatal(err)
			}
			spoil(newChanger(w))
			if err := verify(ns, w); (err == nil) != (name == "") {
				t.Errorf("verify says %v", err)
			}
		})
	}
}

// TestChanges proves that every run makes the same changes, and that a change
// never modifies an object in place: comparing with the previous state must
// find it.
func TestChanges(t *testing.T) {
	s := scenario{Services: minServices, Endpoints: 3, Exposed: true}
	first, second := newWorld(s), newWorld(s)
	untouched := newWorld(s).services
	before := first.snapshot().Services
	comparable := cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, model.Place{})
	a, b := newChanger(first), newChanger(second)
	for range 200 {
		if diff := cmp.Diff(a.randomChange(), b.randomChange(), comparable); diff != "" {
			t.Fatalf("the second run is another one:\n%s", diff)
		}
	}
	if diff := cmp.Diff(untouched, before, comparable); diff != "" {
		t.Errorf("objects were changed:\n%s", diff)
	}
	if cmp.Equal(before, first.services, comparable) {
		t.Error("nothing was changed")
	}
}

func TestSelect(t *testing.T) {
	got, err := selectScenarios("A,300x4")
	want := []scenario{{Name: "A", Services: 10_000, Endpoints: 4}, {Services: 300, Endpoints: 4}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, names := range []string{"", "Z", "A,", "300", "300x4x", "10x4", "300x0", "100000x100", "-300x4"} {
		if got, err := selectScenarios(names); err == nil {
			t.Errorf("%q selects %v", names, got)
		}
	}
	if got := sweepScenarios(3000); len(got) != 4 || got[3].Services != 3000 {
		t.Errorf("the sweep up to 3000 is %v", got)
	}
}

// TestFailedJob proves that a run that went wrong is an error.
func TestFailedJob(t *testing.T) {
	if err := runJob(strings.NewReader("{"), &bytes.Buffer{}); err == nil {
		t.Error("half a job is no error")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := delegate(ctx, job{scenario{Services: 50, Endpoints: 1}, repeats{1, 1}}); err == nil {
		t.Error("a job that was cut short is no error")
	}
}
