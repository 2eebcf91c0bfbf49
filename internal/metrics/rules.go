package metrics

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// ruleMetrics describe the rules and the transactions that change them.
type ruleMetrics struct {
	duration, bytes, messages, changes   prometheus.Observer
	failures, touched                    *prometheus.CounterVec
	drift                                prometheus.Counter
	processes                            map[string]bool // with series of touched
	elements, notices, clients, capacity *series
}

func newRuleMetrics(m maker) ruleMetrics {
	histogram := func(name, help string, buckets []float64) prometheus.Observer {
		return m.newHistogram(name, help, buckets).WithLabelValues()
	}
	return ruleMetrics{
		duration: histogram("nftproxy_transaction_duration_seconds",
			"Duration of nftables transactions, with their encoding, up to the kernel's answer.",
			prometheus.ExponentialBuckets(0.0001, 4, 10)), // up to 26 s
		bytes: histogram("nftproxy_transaction_size_bytes",
			"Bytes in nftables transactions.", prometheus.ExponentialBuckets(100, 10, 7)), // up to 100 MB
		messages: histogram("nftproxy_transaction_messages",
			"Netlink messages in nftables transactions.", prometheus.ExponentialBuckets(1, 10, 6)),
		changes: histogram("nftproxy_transaction_changes",
			"Changed tables, chains, sets and elements in nftables transactions.", prometheus.ExponentialBuckets(1, 10, 7)),
		failures: m.newCounter("nftproxy_transaction_failures_total",
			"Transactions that the kernel refused or whose answer was lost. Many of them are retried within the sync.", "error"),
		drift: m.newCounter("nftproxy_drift_changes_total", "Changes that repaired rules after changes by other programs.").WithLabelValues(),
		touched: m.newCounter("nftproxy_drift_objects_total",
			"Objects of our tables that other programs have changed, by their kind and the name of the process.", "kind", "process"),
		processes: make(map[string]bool),
		elements: m.newSeries("nftproxy_set_elements",
			"Elements of the sets and maps since the last successful sync.", familyLabel, "set"),
		notices: m.newSeries("nftproxy_notices",
			"Remarks about objects that cannot be served as they ask; the log has them in words.", "reason"),
		clients: m.newSeries("nftproxy_affinity_clients",
			"Bindings of clients to endpoints, read once a minute.", familyLabel, "map"),
		capacity: m.newSeries("nftproxy_affinity_capacity", "Maximum of bindings of clients to endpoints.", familyLabel, "map"),
	}
}

func (m *ruleMetrics) observeSync(s *agent.Sync) {
	if s.NewNotices {
		m.notices.set(countNotices(s.Notices()))
	}
	if s.Err != nil {
		return
	}
	if s.NewSizes {
		m.elements.set(countElements(s.Sizes))
	}
	if s.Cause == agent.Check || s.Cause == agent.Drift {
		m.drift.Add(float64(len(s.Plan.Changes)))
	}
	for _, i := range s.Interventions {
		m.countIntervention(i)
	}
}

// maxProcesses is how many names of processes get series of their own: a process
// chooses its name.
const maxProcesses = 20

func (m *ruleMetrics) countIntervention(i kernel.Intervention) {
	name := strings.ToValidUTF8(i.By.Name, "?")
	switch {
	case i.Missed || name == "":
		name = "unknown"
	case !m.processes[name] && len(m.processes) == maxProcesses:
		name = "other"
	default:
		m.processes[name] = true
	}
	if i.Missed {
		m.touched.WithLabelValues("unknown", name).Inc()
	}
	for kind, n := range i.Counts {
		m.touched.WithLabelValues(kind, name).Add(float64(n))
	}
}

func countNotices(all []model.Notice) []sample {
	n := make(map[model.Reason]int)
	for i := range all {
		n[all[i].Reason]++
	}
	var out []sample
	for reason, count := range n {
		out = append(out, sample{[]string{string(reason)}, float64(count)})
	}
	return out
}

// countElements returns the sizes of sets by the names of their series.
func countElements(sizes []render.SetSize) []sample {
	type set struct {
		family model.Family
		name   string
	}
	sums := make(map[set]int)
	for _, s := range sizes {
		sums[set{s.Family, s.Set}] += s.Elements
	}
	out := make([]sample, 0, len(sums))
	for s, n := range sums {
		out = append(out, sample{[]string{s.family.String(), s.name}, float64(n)})
	}
	return out
}

// Committed counts a transaction: see [apply.Observer].
func (s *Set) Committed(c apply.Commit) {
	if c.Err != nil {
		s.rules.failures.WithLabelValues(errorName(c.Err)).Inc()
		return
	}
	s.rules.duration.Observe(c.Duration.Seconds())
	s.rules.bytes.Observe(float64(c.Size.Bytes))
	s.rules.messages.Observe(float64(c.Size.Messages))
	s.rules.changes.Observe(float64(len(c.Plan.Changes)))
}

// errorName returns the kernel's name for an error, for example EBUSY, or
// "other".
func errorName(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) && unix.ErrnoName(errno) != "" {
		return unix.ErrnoName(errno)
	}
	return "other"
}

// Affinity exports each result of another one.
type Affinity struct {
	*Set
	From agent.Affinity
}

// AffinityUse implements [agent.Affinity].
func (a Affinity) AffinityUse() ([]kernel.AffinityUse, error) {
	maps, err := a.From.AffinityUse()
	if err != nil {
		return nil, err
	}
	var clients, capacity []sample
	for _, m := range maps {
		labels := []string{m.Family.String(), m.Map}
		clients = append(clients, sample{labels, float64(m.Used)})
		capacity = append(capacity, sample{labels, float64(m.Size)})
	}
	a.rules.clients.set(clients)
	a.rules.capacity.set(capacity)
	return maps, nil
}
