package machine

import (
	"log/slog"
	"sync"
	"time"

	"github.com/google/nftables"
)

// Monitor keeps the problems of [Serving] current for a running daemon. It is safe for
// concurrent use.
type Monitor struct {
	// Use returns what the machine is used for, or false as long as that is not known.
	Use func() (Use, bool)
	// Log gets a warning for each new problem, and a line when it is gone.
	Log *slog.Logger

	mu       sync.Mutex
	checked  time.Time
	found    []Finding
	reported map[string]bool // keys of problems
	rules    *Facts          // with those about nf_tables only
	version  uint32          // of the ruleset that rules was read from
}

// freshness is how long an answer is valid: several readers may come together.
const freshness = time.Second

// Problems returns the present problems. Their cost is that of some files below
// /proc/sys; the rules are read again only after a change.
func (m *Monitor) Problems() []Finding {
	m.mu.Lock()
	defer m.mu.Unlock()
	use, known := m.Use()
	if !known || time.Since(m.checked) < freshness {
		return m.found
	}
	f := readServing()
	m.addRules(f)
	m.found = Serving(f, use)
	m.checked = time.Now()
	m.report()
	return m.found
}

// Counts returns the number of problems of each check that a daemon asks.
func (m *Monitor) Counts() map[string]int {
	counts := make(map[string]int)
	for _, c := range checks {
		if c.serving {
			counts[c.name] = 0
		}
	}
	for _, f := range m.Problems() {
		counts[f.Check]++
	}
	return counts
}

func (m *Monitor) addRules(f *Facts) {
	if version, ok := generation(); !ok || m.rules == nil || version != m.version {
		m.rules = &Facts{Hidden: make(map[Group]error)}
		m.rules.readNFTables()
		m.version = version
	}
	f.Chains = m.rules.Chains
	if err := m.rules.Hidden[NFTables]; err != nil {
		f.Hidden[NFTables] = err
	}
}

// generation returns the number of the last change of the ruleset.
func generation() (uint32, bool) {
	conn, err := nftables.New()
	if err != nil {
		return 0, false
	}
	g, err := conn.GetGen()
	if err != nil {
		return 0, false
	}
	return g.ID, true
}

// report logs what is new, and what is gone.
func (m *Monitor) report() {
	now := make(map[string]bool)
	for _, f := range m.found {
		key := f.key()
		if now[key] = true; !m.reported[key] {
			m.Log.Warn("this machine keeps Services from being served", "check", f.Check, "problem", f.Message, "remedy", f.Remedy)
		}
	}
	for key := range m.reported {
		if !now[key] {
			m.Log.Info("a problem of this machine is gone", "check", key)
		}
	}
	m.reported = now
}

// key identifies a problem while its message changes.
func (f Finding) key() string {
	if f.Subject == "" {
		return f.Check
	}
	return f.Check + " " + f.Subject
}

// ReadConntrack returns the use of connection tracking.
func ReadConntrack() (Conntrack, error) {
	f := &Facts{}
	err := f.readConntrack()
	return f.Conntrack, err
}
