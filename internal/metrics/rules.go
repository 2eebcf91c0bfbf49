package metrics

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// ruleMetrics tell of the rules and of how they get into the kernel.
type ruleMetrics struct {
	duration, bytes, messages, changes prometheus.Histogram
	failures                           *prometheus.CounterVec
	drift                              prometheus.Counter
	elements                           *wholeGauge
	notices                            *wholeGauge
	clients, capacity                  *wholeGauge
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
		elements: newWholeGauge(registry, "nftproxy_set_elements",
			"Elements of the sets and maps since the last successful sync.", familyLabel, "set"),
		notices: newWholeGauge(registry, "nftproxy_notices",
			"Remarks about objects that cannot be served as they ask; the log has them in words.", "reason"),
		clients: newWholeGauge(registry, "nftproxy_affinity_clients",
			"Bindings of clients to endpoints, looked at once a minute.", familyLabel),
		capacity: newWholeGauge(registry, "nftproxy_affinity_capacity",
			"Most bindings of clients to endpoints.", familyLabel),
	}
}

func (m *ruleMetrics) observe(s *agent.Sync) {
	if s.Routing != nil {
		m.notices.set(countNotices(s.Routing.Notices))
	}
	if s.Err != nil {
		return
	}
	m.elements.set(countElements(s.Rules))
	if s.Cause == agent.Check {
		m.drift.Add(float64(len(s.Plan.Changes)))
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

// affinityTimeouts stands for all sets of frontends with the same time-out:
// users choose how many there are.
const affinityTimeouts = render.AffinityMap + "-*"

// countElements counts what the rules of each table hold. What the packet path
// fills in is not part of them.
func countElements(r *render.Ruleset) []sample {
	var out []sample
	for _, t := range r.Tables {
		timeouts, sticky := 0, false
		for _, s := range t.Sets {
			switch {
			case s.Dynamic:
			case strings.HasPrefix(s.Name, render.AffinityMap+"-"):
				timeouts, sticky = timeouts+len(s.Elements), true
			default:
				out = append(out, sample{[]string{t.Family.String(), s.Name}, float64(len(s.Elements))})
			}
		}
		if sticky {
			out = append(out, sample{[]string{t.Family.String(), affinityTimeouts}, float64(timeouts)})
		}
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
func (s *Set) Affinity(read func() ([]apply.AffinityUse, error)) func() ([]apply.AffinityUse, error) {
	return func() ([]apply.AffinityUse, error) {
		maps, err := read()
		if err != nil {
			return nil, err
		}
		var clients, capacity []sample
		for _, m := range maps {
			family := []string{m.Family.String()}
			clients = append(clients, sample{family, float64(m.Used)})
			capacity = append(capacity, sample{family, float64(m.Size)})
		}
		s.rules.clients.set(clients)
		s.rules.capacity.set(capacity)
		return maps, nil
	}
}
