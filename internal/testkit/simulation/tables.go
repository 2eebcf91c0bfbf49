package simulation

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// Tables is nf_tables of a network namespace, which outlives the processes that use it. It carries out
// the messages of each transaction, all or none, and keeps what a process reads back beside that.
type Tables struct {
	Owners bool // this kernel has tables that outlive their owner
	// Strict refuses messages about things that are not there, which no process should send. It takes a copy for each
	// transaction; without it, such a message is a failure.
	Strict bool

	// Seen, if set, is called for each transaction of a process that was carried out.
	Seen func(*plan.Plan)

	mu         sync.Mutex
	current    nft.Ruleset
	rules      bytecode.Ruleset
	generation uint32
	owners     map[model.Family]*Conn // of the tables with an owner; nil: it has ended
	watcher    *Conn                  // gets the transactions of other programs
	faults     []Fault                // of the next transactions
	refused    model.ServiceName      // whose elements the kernel refuses
	rival      *Conn                  // another process that owns the tables; nil: none
	vandalized bool                   // another program has changed the tables
	trace      []uint64               // a hash of each transaction of a process
	expected   bool                   // a refusal is no surprise: other programs or faults have been at work
	broken     error                  // the models disagree
}

// Fault is what happens to a transaction. The zero value: nothing.
type Fault struct {
	Before, After error // instead of the transaction, and after it
	Removal       error // instead of a transaction that removes chains or sets
	CrashBefore   bool
	CrashAfter    bool
}

// NewTables returns nf_tables without tables.
func NewTables(owners bool) *Tables {
	return &Tables{Owners: owners, generation: 1, owners: make(map[model.Family]*Conn)}
}

// Fail adds a fault for the next transaction that has none.
func (t *Tables) Fail(f Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults, t.expected = append(t.faults, f), true
}

// Heal removes all faults.
func (t *Tables) Heal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults, t.refused = nil, model.ServiceName{}
	if t.rival != nil {
		t.rival.end()
		t.rival = nil
	}
}

// rivalize makes another process the owner of tables that have lost theirs, until faults end.
func (t *Tables) rivalize() {
	c := t.Connect(func() {})
	if _, err := c.Claim(); err == nil {
		t.mu.Lock()
		t.rival = c
		t.mu.Unlock()
	}
}

func (t *Tables) isRivalled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rival != nil
}

// expectNothing begins to report transactions that the kernel refuses, while no fault makes it do so.
func (t *Tables) expectNothing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expected, t.vandalized = false, false
}

// Refuse makes the kernel refuse the elements of a Service.
func (t *Tables) Refuse(name model.ServiceName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused, t.expected = name, true
}

// Conn is the connection of one process.
type Conn struct {
	*Tables
	crash func() // ends the process in the middle of a transaction
	dead  bool
	owns  bool
	// Drifted is called for each transaction of another program that the process sees.
	drifted func(kernel.Intervention)
}

// Connect returns a connection for a new process.
func (t *Tables) Connect(crash func()) *Conn { return &Conn{Tables: t, crash: crash} }

// End ends the process: it changes nothing from now on, and its tables lose their owner.
func (c *Conn) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
}

func (c *Conn) end() {
	c.dead = true
	for f, owner := range c.owners {
		if owner == c {
			c.owners[f] = nil
		}
	}
	if c.watcher == c {
		c.watcher = nil
	}
	for _, t := range c.current.Tables {
		for s := range bindingsOf(t) { // only this process knew which endpoints have left: packets release the clients
			s.Elements = slices.DeleteFunc(s.Elements, func(e nft.Element) bool { return isDangling(t, s, &e) })
		}
	}
}

// isDangling reports whether a binding leads to an endpoint that the frontend does not have.
func isDangling(t *nft.Table, bindings *nft.Set, e *nft.Element) bool {
	endpoints := t.Set(nft.EndpointsOf(bindings.Name))
	if bindings.Name == nft.SharedAffinityMap || endpoints == nil {
		return false
	}
	key := e.Key
	key.Source, key.Slot = e.Value.Endpoint.Addr(), uint32(e.Value.Endpoint.Port())
	return !slices.ContainsFunc(endpoints.Elements, func(o nft.Element) bool { return o.Key == key })
}

// checkBindings looks for clients that are bound to endpoints that have left.
func (t *Tables) checkBindings() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, table := range t.current.Tables {
		for s := range bindingsOf(table) {
			for i := range s.Elements {
				if isDangling(table, s, &s.Elements[i]) {
					return fmt.Errorf("a client is bound to an endpoint that has left: %s", s.ElementText(&s.Elements[i]))
				}
			}
		}
	}
	return nil
}

// Watch reports the transactions of other programs from now on.
func (c *Conn) Watch(drifted func(kernel.Intervention)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drifted, c.watcher = drifted, c
}

// errEnded answers a process that has crashed. Its answer makes no difference any more.
var errEnded = fmt.Errorf("the process has ended: %w", unix.EPERM)

func (c *Conn) lock() error {
	c.mu.Lock()
	if c.dead {
		return errEnded
	}
	return nil
}

// ReadExpecting implements [apply.Kernel].
func (c *Conn) ReadExpecting(*nft.Ruleset) (*nft.Ruleset, uint32, error) {
	err := c.lock()
	defer c.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	r := workload.Clone(&c.current)
	workload.ForgetBindings(r)
	return r, c.generation, nil
}

// Empty implements [apply.Kernel].
func (c *Conn) Empty() (bool, error) {
	err := c.lock()
	defer c.mu.Unlock()
	return len(c.current.Tables) == 0, err
}

// Generation returns the number of the last transaction.
func (c *Conn) Generation() (uint32, error) {
	err := c.lock()
	defer c.mu.Unlock()
	return c.generation, err
}

// Commit implements [apply.Kernel].
func (c *Conn) Commit(p kernel.Prepared, generation uint32) (codec.Size, error) {
	err := c.lock()
	defer c.mu.Unlock()
	if err != nil {
		return codec.Size{}, err
	}
	var fault Fault
	if len(c.faults) > 0 {
		fault, c.faults = c.faults[0], c.faults[1:]
	}
	switch {
	case fault.CrashBefore:
		return codec.Size{}, c.crashNow()
	case fault.Before != nil:
		return codec.Size{}, fmt.Errorf("commit: %w", fault.Before)
	case fault.Removal != nil && p.Removes():
		return codec.Size{}, fmt.Errorf("commit: %w", fault.Removal)
	case generation != kernel.AnyGeneration && generation != c.generation:
		return codec.Size{}, fmt.Errorf("commit: %w", unix.ERESTART)
	}
	if err := c.mayChange(p.Plan); err != nil {
		return codec.Size{}, err
	}
	if err := c.carryOut(p.Plan); err != nil {
		if !c.expected && c.broken == nil {
			c.broken = fmt.Errorf("the process did not know what the kernel holds: %w", err)
		}
		return codec.Size{}, err
	}
	c.noteOwners(p.Plan)
	c.trace = append(c.trace, hashOf(p.Plan))
	if c.Seen != nil {
		c.Seen(p.Plan)
	}
	if fault.CrashAfter {
		return codec.Size{}, c.crashNow()
	}
	if fault.After != nil {
		return codec.Size{}, fmt.Errorf("commit: %w", fault.After)
	}
	return codec.Size{}, nil
}

func (c *Conn) crashNow() error {
	c.end()
	c.crash()
	return errEnded
}

// mayChange returns the error for tables that belong to another process, and for elements that the kernel
// refuses.
func (c *Conn) mayChange(p *plan.Plan) error {
	for i := range p.Changes {
		change := &p.Changes[i]
		if owner, owned := c.owners[change.Family]; owned && owner != nil && owner != c {
			return &kernel.OwnedError{Table: nft.TableName, Port: 1}
		}
		if e := change.New; e != nil && c.refused != (model.ServiceName{}) && plan.NamesOneOf(map[model.ServiceName]bool{c.refused: true}, e.Comment) {
			return &kernel.CommitError{Object: change.Text(), Set: change.Set, Element: e, Err: unix.EINVAL}
		}
	}
	return nil
}

// noteOwners notes who owns the tables that a transaction adds.
func (c *Conn) noteOwners(p *plan.Plan) {
	for i := range p.Changes {
		if change := &p.Changes[i]; change.Kind() == "table" {
			if delete(c.owners, change.Family); change.Verb == plan.Add && c.owns {
				c.owners[change.Family] = c
			}
		}
	}
}

// Check implements [apply.Kernel].
func (c *Conn) Check(p *plan.Plan) error {
	err := c.lock()
	defer c.mu.Unlock()
	if err != nil {
		return err
	}
	if err := c.mayChange(p); err != nil && !errors.As(err, new(*kernel.OwnedError)) {
		return err
	}
	return NewTables(false).carryOut(p)
}

// Bindings implements [apply.Kernel].
func (c *Conn) Bindings(f model.Family, limit int) ([]*nft.Set, error) {
	err := c.lock()
	defer c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var out []*nft.Set
	for s := range bindingsOf(c.current.Table(f)) {
		o := *s
		o.Elements = slices.Clone(s.Elements[:min(limit, len(s.Elements))])
		out = append(out, &o)
	}
	return out, nil
}

// bindingsOf yields the maps of a table that bind clients to endpoints.
func bindingsOf(t *nft.Table) func(func(*nft.Set) bool) {
	return func(yield func(*nft.Set) bool) {
		if t == nil {
			return
		}
		for _, s := range t.Sets {
			if s.Dynamic && len(s.Data) > 0 && !yield(s) {
				return
			}
		}
	}
}

// Unbind implements [apply.Kernel].
func (c *Conn) Unbind(f model.Family, s *nft.Set) error {
	err := c.lock()
	defer c.mu.Unlock()
	if err != nil {
		return err
	}
	if t := c.current.Table(f); t != nil && t.Set(s.Name) != nil {
		there := t.Set(s.Name)
		there.Elements = slices.DeleteFunc(there.Elements, func(e nft.Element) bool { return slices.Contains(s.Elements, e) })
		c.generation++
	}
	return nil
}

// Own makes the connection the owner of tables that it adds, if the kernel has owners.
func (c *Conn) Own() bool {
	c.owns = c.Owners
	return c.owns
}

// Claim takes over tables without an owner.
func (c *Conn) Claim() (outdated []model.Family, err error) {
	err = c.lock()
	defer c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for _, t := range c.current.Tables {
		switch owner, owned := c.owners[t.Family]; {
		case !owned:
			outdated = append(outdated, t.Family)
		case owner != nil && owner != c:
			return nil, &kernel.OwnedError{Table: nft.TableName, Port: 1}
		case owner == nil:
			c.owners[t.Family] = c
			c.generation++
		}
	}
	return outdated, nil
}

// Reclaim takes over tables that have lost their owner, and have not changed since a generation.
func (c *Conn) Reclaim(generation uint32) bool {
	if err := c.lock(); err != nil {
		c.mu.Unlock()
		return false
	}
	for _, t := range c.current.Tables {
		if owner, owned := c.owners[t.Family]; !owned || owner != nil {
			c.mu.Unlock()
			return false
		}
	}
	same := generation == c.generation && len(c.current.Tables) > 0
	c.mu.Unlock()
	if same {
		_, _ = c.Claim() // of tables without an owner
	}
	return same
}

// Disturb changes the tables as another program does: edit changes a copy, and reports whether connections fail then.
// missed means that the process loses the message about it. The result is within which time the process repairs that if
// nothing else is wrong; zero: it need not, or only when all rules are compared.
func (t *Tables) Disturb(missed bool, edit func(*nft.Ruleset) (urgent bool)) time.Duration {
	t.mu.Lock()
	for _, owner := range t.owners {
		if owner != nil {
			t.mu.Unlock()
			return 0
		}
	}
	t.expected, t.vandalized = true, true
	next := workload.Clone(&t.current)
	urgent := edit(next)
	p := plan.Diff(&t.current, next)
	touched := !p.Empty()
	for _, phase := range p.Phases() {
		if err := t.carryOut(phase); err != nil && t.broken == nil {
			t.broken = fmt.Errorf("change by another program: %w", err)
		}
	}
	for _, f := range model.Families {
		if t.current.Table(f) == nil {
			delete(t.owners, f)
		}
	}
	var drifted func(kernel.Intervention)
	if t.watcher != nil {
		drifted = t.watcher.drifted
	}
	t.mu.Unlock()
	if !touched || drifted == nil {
		return 0
	}
	drifted(kernel.Intervention{Missed: missed, Urgent: urgent && !missed, Touched: []string{"a table"}})
	if urgent && !missed {
		return time.Second
	}
	return longestRepair
}

// longestRepair is more than the longest pause before a repair, a minute.
const longestRepair = 2 * time.Minute

// Held returns a copy of the tables.
func (t *Tables) Held() *nft.Ruleset {
	t.mu.Lock()
	defer t.mu.Unlock()
	return workload.Clone(&t.current)
}
