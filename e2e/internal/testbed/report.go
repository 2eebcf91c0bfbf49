package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/bench/layout"
	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// Operations that only this comparison measures.
const (
	ColdStartCPU  results.Operation = "cold start, processor time"
	MemoryAtFirst results.Operation = "memory, nothing changed yet"
	PeakMemory    results.Operation = "memory, most of the process or its helpers"
	// The watch alone, at the same change, and how much later the kernel was.
	WatchAlone = "watch alone: "
	Lag        = "kernel behind watch: "
)

// ComparisonReport collects what a comparison finds.
type ComparisonReport struct {
	File results.File
}

func NewReport(t testing.TB) *ComparisonReport {
	t.Helper()
	machine, err := results.ThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	r := &ComparisonReport{results.File{Machine: machine, Versions: map[string]string{}}}
	for name, command := range map[string]*exec.Cmd{
		NFTProxy.Name: exec.Command(NFTProxy.Path, "--version"),
		// The programs themselves do not know, built as they are.
		KubeProxy.Name: exec.Command("go", "-C", filepath.Join(root, "tools"), "list", "-m", "k8s.io/kubernetes"),
		etcd.Name:      exec.Command("go", "-C", filepath.Join(root, "tools"), "list", "-m", "go.etcd.io/etcd/server/v3"),
	} {
		out, err := command.Output()
		words := strings.Fields(string(out))
		if err != nil || len(words) < 2 {
			t.Fatalf("%s: got %q, %v", command, out, err)
		}
		r.File.Versions[name] = words[1]
	}
	r.File.Versions[apiserver.Name] = r.File.Versions[KubeProxy.Name]
	if r.File.Layout, err = layout.Of(NFTProxy.Path); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *ComparisonReport) Find(p results.Program, services int, o results.Operation) *results.Record {
	i := slices.IndexFunc(r.File.Records, func(x results.Record) bool {
		return x.Program == p && x.Services == services && x.Operation == o
	})
	if i < 0 {
		return nil
	}
	return &r.File.Records[i]
}

// Table puts the proxies side by side.
func (r *ComparisonReport) Table(services int) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s services x %d endpoints; %s, %d cores, Linux %s\n", report.Count(float64(services)), LoadEndpoints,
		r.File.Machine.CPU, r.File.Machine.Cores, r.File.Machine.Kernel)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\tkube-proxy %s\tp95\tmax\tn\tnftproxy %s\tp95\tmax\tn\tratio\t\n",
		r.File.Versions[KubeProxy.Name], r.File.Versions[NFTProxy.Name])
	isMemory := func(k results.Record) bool { return k.Memory != nil }
	times := slices.DeleteFunc(slices.Clone(r.File.Records), isMemory)
	memory := slices.DeleteFunc(slices.Clone(r.File.Records), func(k results.Record) bool { return !isMemory(k) })
	for _, k := range slices.Concat(times, memory) {
		if k.Program != results.KubeProxy || k.Services != services {
			continue
		}
		if n := r.Find(results.Nftproxy, services, k.Operation); n != nil {
			writeRow(w, k, *n)
		}
	}
	_ = w.Flush() // to memory
	return text.String()
}

func writeRow(w *tabwriter.Writer, k, n results.Record) {
	switch {
	case k.Seconds != nil:
		writeDistributions(w, string(k.Operation), k.Seconds, n.Seconds, report.Seconds)
	case k.PerSecond != nil:
		writeDistributions(w, string(k.Operation), k.PerSecond, n.PerSecond, func(v float64) string { return fmt.Sprintf("%.1f", v) })
	case k.Memory.Resident != 0:
		writeBytes(w, string(k.Operation), k.Memory.Resident, n.Memory.Resident)
		writeBytes(w, string(k.Operation)+", peak", k.Memory.Peak, n.Memory.Peak)
	default:
		writeBytes(w, string(k.Operation), k.Memory.Peak, n.Memory.Peak)
	}
	if k.Work != nil {
		fmt.Fprintf(w, "transactions\t%.1f\t\t\t\t%.1f\t\t\t\t\t\n", k.Work.Transactions, n.Work.Transactions)
	}
}

func writeDistributions(w *tabwriter.Writer, name string, k, n *results.Distribution, format func(float64) string) {
	fmt.Fprintf(w, "%s", name)
	for _, d := range []*results.Distribution{k, n} {
		fmt.Fprintf(w, "\t%s\t%s\t%s\t%d", format(d.P50), format(d.P95), format(d.Max), d.N)
	}
	fmt.Fprintf(w, "\t%s\t\n", timesAsMuch(k.P50, n.P50))
}

func writeBytes(w *tabwriter.Writer, name string, k, n uint64) {
	fmt.Fprintf(w, "%s\t%s\t\t\t\t%s\t\t\t\t%s\t\n", name, report.Bytes(float64(k)), report.Bytes(float64(n)), timesAsMuch(float64(k), float64(n)))
}

// timesAsMuch returns how much more kube-proxy needs.
func timesAsMuch(k, n float64) string {
	if k <= 0 || n <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", k/n)
}

// Write writes everything to the file that RESULTS names.
func (r *ComparisonReport) Write(t testing.TB) {
	t.Helper()
	path := os.Getenv("RESULTS")
	if path == "" {
		return
	}
	r.File.Date, r.File.Load = time.Now().UTC().Truncate(time.Second), results.Load()
	if err := r.File.Write(path); err != nil {
		t.Fatal(err)
	}
}

const (
	// Calm is how long a proxy must be idle to count as done: longer than
	// the minimum time between two syncs of kube-proxy.
	Calm = 2 * time.Second
	// Endless is longer than anything that is compared takes.
	Endless = 30 * time.Minute
)
