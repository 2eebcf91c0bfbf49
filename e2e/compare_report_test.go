package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// What is measured here besides the operations that others measure as well.
const (
	coldStartCPU  results.Operation = "cold start, processor time"
	memoryAtFirst results.Operation = "memory, nothing changed yet"
	peakMemory    results.Operation = "memory, most of the process or its helpers"
	idleSwitches  results.Operation = "idle, context switches per second"
	// The watch alone, at the same change, and how much later the kernel was.
	watchAlone = "watch alone: "
	lag        = "kernel behind watch: "
)

// comparisonReport collects what a comparison finds.
type comparisonReport struct {
	file results.File
}

func newReport(t testing.TB) *comparisonReport {
	t.Helper()
	machine, err := results.ThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	r := &comparisonReport{results.File{Machine: machine, Versions: map[string]string{}}}
	for name, command := range map[string]*exec.Cmd{
		nftproxy.name: exec.Command(nftproxy.path, "--version"),
		// The programs themselves do not know, built as they are.
		kubeProxy.name: exec.Command("go", "-C", "tools", "list", "-m", "k8s.io/kubernetes"),
		etcd.name:      exec.Command("go", "-C", "tools", "list", "-m", "go.etcd.io/etcd/server/v3"),
	} {
		out, err := command.Output()
		words := strings.Fields(string(out))
		if err != nil || len(words) < 2 {
			t.Fatalf("%s: got %q, %v", command, out, err)
		}
		r.file.Versions[name] = words[1]
	}
	r.file.Versions[apiserver.name] = r.file.Versions[kubeProxy.name]
	return r
}

func (c *comparison) record(operation results.Operation, r results.Record) {
	r.Program, r.Services, r.Endpoints, r.Operation = c.name, c.services, loadEndpoints, operation
	c.report.file.Records = append(c.report.file.Records, r)
}

// recordTimes records changes of a kind.
func (c *comparison) recordTimes(operation results.Operation, all []times) {
	var kernel, watch, behind []time.Duration
	var transactions int
	for _, x := range all {
		kernel, watch, behind = append(kernel, x.kernel), append(watch, x.watch), append(behind, x.kernel-x.watch)
		transactions += x.transactions
	}
	work := &results.Work{Transactions: float64(transactions) / float64(len(all))}
	c.record(operation, results.Record{From: results.FromWrite, Seconds: results.Durations(kernel), Work: work})
	c.record(watchAlone+operation, results.Record{From: results.FromWrite, Seconds: results.Durations(watch)})
	c.record(lag+operation, results.Record{From: results.FromWrite, Seconds: results.Durations(behind)})
}

// recordPeak records the most memory that was used, over all processes of a
// proxy.
func (c *comparison) recordPeak(peak uint64) {
	if old := c.report.find(c.name, c.services, peakMemory); old != nil {
		old.Memory.Peak = max(old.Memory.Peak, peak)
		return
	}
	c.record(peakMemory, results.Record{Memory: &results.Memory{Peak: peak}})
}

func (r *comparisonReport) find(p results.Program, services int, o results.Operation) *results.Record {
	i := slices.IndexFunc(r.file.Records, func(x results.Record) bool {
		return x.Program == p && x.Services == services && x.Operation == o
	})
	if i < 0 {
		return nil
	}
	return &r.file.Records[i]
}

// table puts the proxies side by side.
func (r *comparisonReport) table(services int) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s services x %d endpoints; %s, %d cores, Linux %s\n", report.Count(float64(services)), loadEndpoints,
		r.file.Machine.CPU, r.file.Machine.Cores, r.file.Machine.Kernel)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\tkube-proxy %s\tp95\tmax\tn\tnftproxy %s\tp95\tmax\tn\tratio\t\n",
		r.file.Versions[kubeProxy.name], r.file.Versions[nftproxy.name])
	isMemory := func(k results.Record) bool { return k.Memory != nil }
	times := slices.DeleteFunc(slices.Clone(r.file.Records), isMemory)
	memory := slices.DeleteFunc(slices.Clone(r.file.Records), func(k results.Record) bool { return !isMemory(k) })
	for _, k := range slices.Concat(times, memory) {
		if k.Program != results.KubeProxy || k.Services != services {
			continue
		}
		if n := r.find(results.Nftproxy, services, k.Operation); n != nil {
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

// write writes everything to the file that RESULTS names.
func (r *comparisonReport) write(t testing.TB) {
	t.Helper()
	path := os.Getenv("RESULTS")
	if path == "" {
		return
	}
	r.file.Date = time.Now().UTC().Truncate(time.Second)
	if err := r.file.Write(path); err != nil {
		t.Fatal(err)
	}
}
