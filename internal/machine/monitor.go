package machine

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Node knows the use of a machine.
type Node interface {
	// Use returns the use, or false as long as it is not known.
	Use() (Use, bool)
}

// Used is a node whose use does not change.
type Used struct{ Of Use }

// Use implements [Node].
func (u Used) Use() (Use, bool) { return u.Of, true }

// Forwarder makes the machine forward packets of a family.
type Forwarder interface {
	Forward(model.Family) ([]host.Change, error)
}

// Monitor keeps the problems of [Serving] current for a running daemon. It is safe for
// concurrent use.
type Monitor struct {
	Node Node
	// Log gets a warning for each new problem, and a line when it is gone.
	Log *slog.Logger
	// Forwarder is called when forwarding is needed and off; nil: it stays off.
	Forwarder Forwarder

	// Ports counts masqueraded connections; nil: they are not counted.
	Ports *conntrack.Ports

	managing atomic.Bool  // Manage is going to look
	managed  atomic.Int64 // when Manage looked last, in nanoseconds since 1970

	mu       sync.Mutex
	checked  time.Time
	facts    *Facts
	found    []Finding
	changed  []host.Change   // by the forwarder
	failed   string          // its last error
	reported map[string]bool // keys of problems
	rules    *Facts          // with those about nf_tables only
	version  uint32          // of the ruleset that rules was read from
}

// freshness is how long an answer is valid: several readers may come together.
const freshness = time.Second

// Problems returns the present problems. It reads some files below /proc/sys, and the rules
// only after a change.
func (m *Monitor) Problems() []Finding { return m.findingsOf(Problem) }

// Warnings returns possible problems, which depend on facts that cannot be seen from here.
func (m *Monitor) Warnings() []Finding { return m.findingsOf(Warning) }

func (m *Monitor) findingsOf(l Level) (out []Finding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.checked) >= freshness {
		m.check()
	}
	for _, f := range m.found {
		if f.Level == l {
			out = append(out, f)
		}
	}
	return out
}

// Check looks for problems now, and solves those that it may.
func (m *Monitor) Check() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.check()
}

// Manage solves the problems that it may, soon and in the background: it is for a caller
// that serves many changes a second, few of which concern the machine.
func (m *Monitor) Manage() {
	if m.Forwarder == nil || m.managing.Swap(true) {
		return
	}
	pause := freshness - time.Since(time.Unix(0, m.managed.Load()))
	time.AfterFunc(max(0, pause), func() {
		m.managed.Store(time.Now().UnixNano())
		m.managing.Store(false) // what changes from here on needs another look
		m.mu.Lock()
		defer m.mu.Unlock()
		if use, known := m.Node.Use(); known && m.enableForwarding(readForwarding(), use) {
			m.check()
		}
	})
}

func (m *Monitor) check() {
	use, known := m.Node.Use()
	if !known {
		return
	}
	f := readServing()
	if m.enableForwarding(f, use) {
		f = readServing()
	}
	if m.Ports != nil {
		f.Ports = m.Ports
	}
	m.addRules(f)
	m.facts, m.found = f, Serving(f, use)
	m.checked = time.Now()
	m.logChanges(use.Words)
}

// enableForwarding makes the machine forward for endpoints elsewhere. It reports whether settings
// have changed.
func (m *Monitor) enableForwarding(f *Facts, u Use) (changed bool) {
	if m.Forwarder == nil || u.Endpoints == nil || f.Hidden[Settings] != nil || f.Hidden[Links] != nil {
		return false
	}
	for _, family := range u.servedFamilies(f) {
		if f.Forwarding[family].On {
			continue
		}
		if _, needed := u.findElsewhere(f, family); !needed {
			continue
		}
		changes, err := m.Forwarder.Forward(family)
		if err != nil && err.Error() != m.failed {
			m.failed = err.Error()
			m.Log.Error("forwarding cannot be turned on (--manage-sysctl): allow the process to write below /proc/sys", "family", family, "error", err)
		}
		m.changed = append(m.changed, changes...)
		changed = changed || len(changes) > 0
	}
	return changed
}

// Changed returns the settings that the forwarder has changed.
func (m *Monitor) Changed() []host.Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.changed)
}

// Counts returns the number of problems of each check that a daemon asks, and of warnings
// of those that have any.
func (m *Monitor) Counts() (problems, warnings map[string]int) {
	problems, warnings = make(map[string]int), make(map[string]int)
	for _, c := range checks {
		switch {
		case c.warns:
			warnings[c.name] = 0
		case c.reason != "":
			problems[c.name] = 0
		}
	}
	for _, f := range m.Problems() {
		problems[f.Check]++
	}
	for _, f := range m.Warnings() {
		warnings[f.Check]++
	}
	return problems, warnings
}

// Filters returns what may drop forwarded connections to endpoints in a family, as a text for each chain, the
// likeliest first. It reads the rules only after a change.
func (m *Monitor) Filters(f model.Family) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.checked) >= freshness {
		m.check()
	}
	use, known := m.Node.Use()
	if !known || m.facts == nil {
		return nil
	}
	return findFilters(m.facts, use, f)
}

func (m *Monitor) addRules(f *Facts) {
	if version, ok := rulesetGeneration(); !ok || m.rules == nil || version != m.version {
		m.rules = &Facts{Hidden: make(map[Group]error)}
		m.rules.readNFTables()
		m.version = version
	}
	f.Chains = m.rules.Chains
	if err := m.rules.Hidden[NFTables]; err != nil {
		f.Hidden[NFTables] = err
	}
}

func rulesetGeneration() (uint32, bool) {
	conn, err := kernel.Open()
	if err != nil {
		return 0, false
	}
	number, err := conn.Generation()
	return number, errors.Join(err, conn.Close()) == nil
}

func (m *Monitor) logChanges(in words.Vocabulary) {
	now := make(map[string]bool)
	for _, f := range m.found {
		key := f.identityOf()
		message := "this machine keeps Services from being served"
		if f.Level != Problem {
			message = "this machine may keep Services from being served"
		}
		if now[key] = true; !m.reported[key] {
			m.Log.Warn(in.Text(message), "check", f.Check, "problem", f.Message, "remedy", f.Remedy)
		}
	}
	for key := range m.reported {
		if !now[key] {
			m.Log.Info("a problem of this machine is gone", "check", key)
		}
	}
	m.reported = now
}

// identityOf identifies a problem while its message changes.
func (f Finding) identityOf() string {
	if f.Subject == "" {
		return f.Check
	}
	return f.Check + " " + f.Subject
}

// ReadConntrack returns the use of connection tracking.
func ReadConntrack() (Conntrack, error) {
	var s settings
	c := s.conntrack()
	return c, errors.Join(s.errs...)
}
