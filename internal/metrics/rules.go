package metrics

import (
	"errors"
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// ruleMetrics tell of the rules and of how they get into the kernel.
type ruleMetrics struct {
	duration, bytes, messages, changes prometheus.Histogram
	failures                           *prometheus.CounterVec
	drift                              prometheus.Counter
	touched                            *prometheus.CounterVec
	processes                          map[string]bool // that touched has
	elements                           *seriesGauge
	notices                            *seriesGauge
	clients, capacity                  *seriesGauge
}

func newRuleMetrics(factory promauto.Factory, registry *prometheus.Registry) ruleMetrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return factory.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
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
		failures: factory.NewCounterVec(prometheus.CounterOpts{Name: "nftproxy_transaction_failures_total",
			Help: "Transactions that the kernel refused or whose answer was lost. Many of them are tried again within the sync."}, []string{"error"}),
		drift: factory.NewCounter(prometheus.CounterOpts{Name: "nftproxy_drift_changes_total",
			Help: "Changes that repaired what others had done to the rules."}),
		touched: factory.NewCounterVec(prometheus.CounterOpts{Name: "nftproxy_drift_objects_total",
			Help: "Objects of our tables that others have changed, by their kind and the name of the process."}, []string{"kind", "process"}),
		processes: make(map[string]bool),
		elements: newSeriesGauge(registry, "nftproxy_set_elements",
			"Elements of the sets and maps since the last successful sync.", familyLabel, "set"),
		notices: newSeriesGauge(registry, "nftproxy_notices",
			"Remarks about objects that cannot be served as they ask; the log has them in words.", "reason"),
		clients: newSeriesGauge(registry, "nftproxy_affinity_clients",
			"Bindings of clients to endpoints, looked at once a minute.", familyLabel, "map"),
		capacity: newSeriesGauge(registry, "nftproxy_affinity_capacity",
			"Most bindings of clients to endpoints.", familyLabel, "map"),
	}
}

func (m *ruleMetrics) observe(s *agent.Sync) {
	if s.NewNotices {
		m.notices.set(countNotices(s.Router.Notices()))
	}
	if s.Err != nil {
		return
	}
	m.elements.set(countElements(s.Sizes))
	if s.Cause == agent.Check || s.Cause == agent.Drift {
		m.drift.Add(float64(len(s.Plan.Changes)))
	}
	for _, i := range s.Interventions {
		m.intervention(i)
	}
}

// maxProcesses is how many names of processes make series of their own: a
// process can call itself what it likes.
const maxProcesses = 20

func (m *ruleMetrics) intervention(i kernel.Intervention) {
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

// affinityTimeouts stands for all sets of frontends with the same timeout: users
// choose how many there are.
const affinityTimeouts = "affinity-*"

// affinitySet is the name of such a set.
var affinitySet = regexp.MustCompile(`^(local-)?affinity-[0-9]+$`)

// countElements adds the sizes of sets that have one name for people.
func countElements(sizes []render.SetSize) []sample {
	type set struct {
		family model.Family
		name   string
	}
	sums := make(map[set]int)
	for _, s := range sizes {
		name := s.Set
		if affinitySet.MatchString(name) {
			name = affinityTimeouts
		}
		sums[set{s.Family, name}] += s.Elements
	}
	out := make([]sample, 0, len(sums))
	for s, n := range sums {
		out = append(out, sample{[]string{s.family.String(), s.name}, float64(n)})
	}
	return out
}

// Committed takes a transaction in: see [apply.Applier.Observe].
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

// Affinity returns a function that reads the use of the affinity maps and
// passes on what it saw.
func (s *Set) Affinity(read func() ([]kernel.AffinityUse, error)) func() ([]kernel.AffinityUse, error) {
	return func() ([]kernel.AffinityUse, error) {
		maps, err := read()
		if err != nil {
			return nil, err
		}
		var clients, capacity []sample
		for _, m := range maps {
			labels := []string{m.Family.String(), m.Map}
			clients = append(clients, sample{labels, float64(m.Used)})
			capacity = append(capacity, sample{labels, float64(m.Size)})
		}
		s.rules.clients.set(clients)
		s.rules.capacity.set(capacity)
		return maps, nil
	}
}
