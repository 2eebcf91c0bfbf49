// Package bytecode interprets the rules of any program as the kernel runs them: it reads
// messages of nf_tables, from a transaction or from a listing, and follows the first packet of a
// connection through all chains. It knows no rule of nftproxy. What it does not understand it
// names, and never skips.
package bytecode

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Message is one message of nf_tables.
type Message struct {
	Type uint16 // NFT_MSG_*
	Data []byte // nfgenmsg header and attributes
}

// destroySetElement is NFT_MSG_DESTROYSETELEM of linux/netfilter/nf_tables.h.
const destroySetElement = 30

// Ruleset is the rules of a network namespace. The zero value has none. Methods that change it are
// not safe for concurrent use.
type Ruleset struct {
	tables   map[tableKey]*table
	compiled map[uint8]*[hooks][]*chain // base chains by family; nil: rules have changed
	changes  int                        // all so far
}

type tableKey struct {
	family uint8 // unix.NFPROTO_*
	name   string
}

type table struct {
	tableKey
	dormant bool
	born    int // the number of the change that has added it
	sets    map[string]*set
	chains  map[string]*chain
}

type chain struct {
	table    *table
	name     string
	isBase   bool
	hook     uint32 // unix.NF_INET_*
	priority int32
	isNAT    bool
	drops    bool // its policy
	rules    [][]op
	// The numbers of the changes that have added the chain, and that were the last to change its rules.
	born, changed int
}

const hooks = unix.NF_INET_POST_ROUTING + 1

// isIP reports whether a family has packets of IP at its hooks.
func isIP(family uint8) bool {
	return family == unix.NFPROTO_IPV4 || family == unix.NFPROTO_IPV6 || family == unix.NFPROTO_INET
}

// IsIP reports whether a message is about rules that see packets of IP.
func IsIP(message []byte) bool { return len(message) > 0 && isIP(message[0]) }

// Change carries out a message. Those about other families change nothing.
func (r *Ruleset) Change(m Message) error {
	if !IsIP(m.Data) {
		return nil
	}
	if r.tables == nil {
		r.tables = make(map[tableKey]*table)
	}
	r.compiled = nil
	r.changes++
	var err error
	c := change{ruleset: r, family: m.Data[0], attributes: collect(netlinkio.ReadMessage(m.Data, &err))}
	if err == nil {
		err = c.run(m.Type)
	}
	if err != nil {
		return fmt.Errorf("read message %d: %w", m.Type, err)
	}
	return nil
}

type change struct {
	attributes
	ruleset *Ruleset
	family  uint8
}

func (c *change) run(typ uint16) error {
	// The name of the table is the first attribute of each message.
	t := c.ruleset.tables[tableKey{c.family, c.text(unix.NFTA_TABLE_NAME)}]
	if typ == unix.NFT_MSG_NEWTABLE {
		c.addTable(t)
		return nil
	}
	if t == nil {
		return fmt.Errorf("there is no table %q", c.text(unix.NFTA_TABLE_NAME))
	}
	switch typ {
	case unix.NFT_MSG_DELTABLE:
		delete(c.ruleset.tables, t.tableKey)
	case unix.NFT_MSG_NEWCHAIN:
		return c.addChain(t)
	case unix.NFT_MSG_DELCHAIN:
		return t.deleteChain(c.text(unix.NFTA_CHAIN_NAME))
	case unix.NFT_MSG_NEWRULE:
		return c.addRule(t)
	case unix.NFT_MSG_DELRULE:
		if of := t.chains[c.text(unix.NFTA_RULE_CHAIN)]; of != nil {
			of.rules, of.changed = nil, c.ruleset.changes
		}
	case unix.NFT_MSG_NEWSET:
		return c.addSet(t)
	case unix.NFT_MSG_DELSET:
		return t.deleteSet(c.text(unix.NFTA_SET_NAME))
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM, destroySetElement:
		return c.changeElements(t, typ)
	default:
		return fmt.Errorf("the message is not understood")
	}
	return nil
}

// deleteSet deletes a set that no rule uses, as the kernel does.
func (t *table) deleteSet(name string) error {
	for _, c := range t.chains {
		for _, rule := range c.rules {
			if slices.ContainsFunc(rule, func(o op) bool { return o.setName == name }) {
				return fmt.Errorf("chain %q uses set %q, which is to be deleted", c.name, name)
			}
		}
	}
	delete(t.sets, name)
	return nil
}

// deleteChain deletes a chain to which no rule and no element of a map leads, as the kernel does.
func (t *table) deleteChain(name string) error {
	leads := func(o op) bool { return o.verdict.chain == name }
	for _, c := range t.chains {
		if slices.ContainsFunc(c.rules, func(rule []op) bool { return slices.ContainsFunc(rule, leads) }) {
			return fmt.Errorf("chain %q leads to chain %q, which is to be deleted", c.name, name)
		}
	}
	for _, s := range t.sets {
		for _, e := range s.all {
			if e.verdict.chain == name {
				return fmt.Errorf("an element of map %q leads to chain %q, which is to be deleted", s.name, name)
			}
		}
	}
	delete(t.chains, name)
	return nil
}

func (c *change) addTable(known *table) {
	k := tableKey{c.family, c.text(unix.NFTA_TABLE_NAME)}
	if known == nil {
		known = &table{tableKey: k, born: c.ruleset.changes, sets: make(map[string]*set), chains: make(map[string]*chain)}
		c.ruleset.tables[k] = known
	}
	known.dormant = c.number(unix.NFTA_TABLE_FLAGS)&unix.NFT_TABLE_F_DORMANT != 0
}

func (c *change) addChain(t *table) (err error) {
	out := &chain{table: t, name: c.text(unix.NFTA_CHAIN_NAME), born: c.ruleset.changes}
	if out.isBase = c.has(unix.NFTA_CHAIN_HOOK); out.isBase {
		hook := collect(netlinkio.Read(c.attributes[unix.NFTA_CHAIN_HOOK].Data, &err))
		out.hook, out.priority = hook.number(unix.NFTA_HOOK_HOOKNUM), int32(hook.number(unix.NFTA_HOOK_PRIORITY))
	}
	out.isNAT = c.text(unix.NFTA_CHAIN_TYPE) == "nat"
	out.drops = c.has(unix.NFTA_CHAIN_POLICY) && c.number(unix.NFTA_CHAIN_POLICY) == 0
	t.chains[out.name] = out
	return err
}

func (c *change) addRule(t *table) error {
	of := t.chains[c.text(unix.NFTA_RULE_CHAIN)]
	if of == nil {
		return fmt.Errorf("there is no chain %q", c.text(unix.NFTA_RULE_CHAIN))
	}
	rule, err := readRule(c.attributes[unix.NFTA_RULE_EXPRESSIONS].Data)
	for i := range rule {
		if o := &rule[i]; o.setName != "" && t.sets[o.setName] == nil || o.verdict.chain != "" && t.chains[o.verdict.chain] == nil {
			return fmt.Errorf("a rule of chain %q leads to %s, which is not there", of.name, o.setName+o.verdict.chain)
		} else if o.kind == opLookup && o.hasTo && o.isVerdict != (t.sets[o.setName].dataType == unix.NFT_DATA_VERDICT) {
			return fmt.Errorf("a rule of chain %q loads from %s what its register cannot hold", of.name, o.setName)
		}
	}
	of.rules, of.changed = append(of.rules, rule), c.ruleset.changes
	return err
}

// Has reports whether there is a table of a family, one of unix.NFPROTO_*.
func (r *Ruleset) Has(family uint8, table string) bool {
	return r.tables[tableKey{family, table}] != nil
}

// Clone returns a copy, to which other changes can be made.
func (r *Ruleset) Clone() *Ruleset { return r.only(func(string) bool { return true }) }

// Without returns a copy without the tables of some names.
func (r *Ruleset) Without(names ...string) *Ruleset {
	return r.only(func(name string) bool { return !slices.Contains(names, name) })
}

// Only returns a copy with no other tables than those of some names.
func (r *Ruleset) Only(names ...string) *Ruleset {
	return r.only(func(name string) bool { return slices.Contains(names, name) })
}

func (r *Ruleset) only(keeps func(table string) bool) *Ruleset {
	out := &Ruleset{tables: make(map[tableKey]*table), changes: r.changes}
	for k, t := range r.tables {
		if keeps(k.name) {
			out.tables[k] = t.clone()
		}
	}
	return out
}

func (t *table) clone() *table {
	out := &table{t.tableKey, t.dormant, t.born, make(map[string]*set, len(t.sets)), make(map[string]*chain, len(t.chains))}
	for name, s := range t.sets {
		other := *s
		other.all = make(map[string]*element, len(s.all))
		for k, e := range s.all { // which compile changes
			one := *e
			other.all[k] = &one
		}
		out.sets[name] = &other
	}
	for name, c := range t.chains {
		other := *c
		other.table, other.rules = out, make([][]op, len(c.rules))
		for i, rule := range c.rules {
			other.rules[i] = slices.Clone(rule)
		}
		out.chains[name] = &other
	}
	return out
}

// The kernel runs all nat chains of a hook together, at these priorities (NF_IP_PRI_NAT_DST and
// NF_IP_PRI_NAT_SRC of linux/netfilter_ipv4.h).
const priorityDNAT, prioritySNAT = -100, 100

// compile finds what rules refer to, and puts base chains into their order.
func (r *Ruleset) compile() {
	r.compiled = map[uint8]*[hooks][]*chain{unix.NFPROTO_IPV4: {}, unix.NFPROTO_IPV6: {}}
	for _, t := range r.tables {
		t.link()
		for _, c := range t.chains {
			if !c.isBase || t.dormant || c.hook >= hooks {
				continue
			}
			for family, all := range r.compiled {
				if t.family == family || t.family == unix.NFPROTO_INET {
					all[c.hook] = append(all[c.hook], c)
				}
			}
		}
	}
	for _, all := range r.compiled {
		for _, list := range all {
			slices.SortFunc(list, func(a, b *chain) int {
				return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(a.priority, b.priority),
					cmp.Compare(a.table.name, b.table.name), cmp.Compare(a.name, b.name))
			})
		}
	}
}

// place is the priority at which the kernel runs a chain.
func (c *chain) place() int32 {
	switch {
	case !c.isNAT:
		return c.priority
	case c.hook == unix.NF_INET_PRE_ROUTING || c.hook == unix.NF_INET_LOCAL_OUT:
		return priorityDNAT
	}
	return prioritySNAT
}

func (t *table) link() {
	for _, c := range t.chains {
		for _, rule := range c.rules {
			for i := range rule {
				o := &rule[i]
				o.set, o.verdict.to = t.sets[o.setName], t.chains[o.verdict.chain]
				if o.setName != "" && o.set == nil {
					o.kind, o.name = opUnknown, "lookup in @"+o.setName+", which is not there"
				}
			}
		}
	}
	for _, s := range t.sets {
		s.link(t)
	}
}
