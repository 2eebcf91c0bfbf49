package takeover

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// family is an IP family in the words of those who have rules for it.
type family struct {
	nft  nftables.TableFamily
	name string // in nft, and at the beginning of what iptables has of it
}

var families = []family{
	{nftables.TableFamilyIPv4, "ip"},
	{nftables.TableFamilyIPv6, "ip6"},
}

// kubeProxyTable is the table of nftables mode.
const kubeProxyTable = "kube-proxy"

// attempts is how often a removal is tried while others change the rules.
const attempts = 5

// nftables removes the tables of nftables mode, and the chains of the other
// modes where iptables keeps them in nf_tables. Each table goes in one
// transaction.
func (r *report) nftables(m Marker) {
	conn, err := nftables.New()
	if err != nil {
		r.left(err, "rules of kube-proxy: open netlink socket")
		return
	}
	for _, f := range families {
		err := retry(func() error { return r.nftTable(conn, f, m) })
		r.left(err, "table %s %s", f.name, kubeProxyTable)
		for _, t := range tables {
			err := retry(func() error { return r.nftChains(conn, f, t) })
			r.left(err, "chains of kube-proxy from table %s %s", f.name, t)
		}
	}
}

// raced reports whether an error may come from another program that changed the
// rules meanwhile.
func raced(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.EBUSY, unix.EINTR, unix.ERESTART} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// retry calls f again if another program was faster.
func retry(f func() error) error {
	var err error
	for range attempts {
		err = f()
		if !raced(err) {
			return err
		}
	}
	return err
}

// nftChains removes chains from a table of iptables-nft. Table and base chains
// stay, as after "iptables -F".
func (r *report) nftChains(conn *nftables.Conn, f family, name string) error {
	table := &nftables.Table{Family: f.nft, Name: name}
	chains, err := nftChainsOf(conn, table)
	if err != nil {
		return err
	}
	remove, err := plan(chains)
	if err != nil {
		return err
	}
	for _, rule := range remove.rules {
		err := conn.DelRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Table: table, Name: rule.chain}, Handle: rule.handle})
		if err != nil {
			return err
		}
	}
	for _, c := range remove.chains {
		conn.FlushChain(&nftables.Chain{Table: table, Name: c})
	}
	for _, c := range remove.chains {
		conn.DelChain(&nftables.Chain{Table: table, Name: c})
	}
	if err := conn.Flush(); err != nil {
		return err
	}
	if !remove.empty() {
		r.gone("%s in table %s %s", remove, f.name, name)
	}
	return remove.keptError()
}

// nftChainsOf returns the chains of a table; their rules are read on demand.
func nftChainsOf(conn *nftables.Conn, table *nftables.Table) ([]chain, error) {
	found, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	var out []chain
	for _, c := range found {
		if c.Table.Name == table.Name {
			out = append(out, chain{c.Name, c.Hooknum != nil, func() ([]rule, error) { return nftJumps(conn, c) }})
		}
	}
	return out, nil
}

// nftJumps returns the rules of a chain that jump or go to another chain.
func nftJumps(conn *nftables.Conn, c *nftables.Chain) ([]rule, error) {
	rules, err := conn.GetRules(c.Table, c)
	if err != nil {
		return nil, fmt.Errorf("list rules of chain %s: %w", c.Name, err)
	}
	var out []rule
	for _, r := range rules {
		for _, x := range r.Exprs {
			if v, ok := x.(*expr.Verdict); ok && v.Chain != "" {
				out = append(out, rule{chain: c.Name, to: v.Chain, handle: r.Handle})
			}
		}
	}
	return out, nil
}
