package results_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/bench/results"
)

func TestDistribution(t *testing.T) {
	var samples []time.Duration
	for i := range 100 {
		samples = append(samples, time.Duration((i*37)%100+1)*time.Second) // 1 to 100, in disorder
	}
	for _, c := range []struct {
		name    string
		samples []time.Duration
		want    *results.Distribution
	}{
		{"none", nil, nil},
		{"one", samples[:1], &results.Distribution{N: 1, P50: 1, P95: 1, Max: 1}},
		{"two", []time.Duration{2 * time.Second, time.Second}, &results.Distribution{N: 2, P50: 1, P95: 2, Max: 2}},
		{"hundred", samples, &results.Distribution{N: 100, P50: 50, P95: 95, Max: 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, results.Durations(c.samples)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []uint64
		want   uint64
	}{{[]uint64{7}, 7}, {[]uint64{9, 1, 5}, 5}, {[]uint64{4, 1, 3, 2}, 2}} {
		if got := results.Median(c.values...); got != c.want {
			t.Errorf("median of %v is %d, want %d", c.values, got, c.want)
		}
	}
}

// TestFile writes a file and reads it.
func TestFile(t *testing.T) {
	machine, err := results.ThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	if machine.CPU == "" || machine.Cores < 1 || machine.Memory < 1<<20 || machine.Kernel == "" {
		t.Errorf("machine is %+v", machine)
	}
	memory, err := results.MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if memory.Resident < 1<<20 || memory.Peak < memory.Resident {
		t.Errorf("memory is %+v", memory)
	}
	f := &results.File{
		Machine:  machine,
		Date:     time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		Versions: map[string]string{"nftproxy": "v1"},
		Records: []results.Record{
			{
				Program: results.Nftproxy, Scenario: "A", Services: 10000, Endpoints: 4, Operation: results.ReplaceEndpoint,
				From: results.FromSnapshot, Seconds: results.Durations([]time.Duration{time.Millisecond}), Work: &results.Work{Changes: 1},
			},
			{Program: results.KubeProxy, Services: 10000, Endpoints: 4, Operation: results.MemoryUse, Memory: &memory},
		},
	}
	path := filepath.Join(t.TempDir(), "results.json")
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := results.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]*results.File{f}, got); diff != "" {
		t.Errorf("read otherwise than written (-want +got):\n%s", diff)
	}
}

func TestUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	if _, err := results.Read(path); err == nil {
		t.Error("a missing file is no error")
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := results.Read(path); err == nil {
		t.Error("a broken file is no error")
	}
	if _, err := results.MemoryOf(-1); err == nil {
		t.Error("a missing process has memory")
	}
}
