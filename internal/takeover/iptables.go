package takeover

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/xtables"
)

// iptablesTables are the tables of iptables that kube-proxy has chains in.
var iptablesTables = []string{"nat", "filter", "mangle"}

// Chains of kube-proxy in iptables and IPVS mode (12.59). KUBE-MARK-DROP,
// KUBE-FIREWALL, KUBE-KUBELET-CANARY and KUBE-IPTABLES-HINT are the kubelet's;
// network plugins have more names with the prefix KUBE.
var (
	chainNames = []string{
		"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", masqueradeChain, markChain,
		"KUBE-FORWARD", "KUBE-PROXY-FIREWALL", "KUBE-PROXY-CANARY",
		"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER",
	}
	chainPrefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"}
)

// markChain marks packets, and masqueradeChain masquerades those marked.
const (
	markChain       = "KUBE-MARK-MASQ"
	masqueradeChain = "KUBE-POSTROUTING"
)

// IsKubeProxy reports whether a chain of an iptables table is kube-proxy's.
func IsKubeProxy(chain string) bool {
	return slices.Contains(chainNames, chain) ||
		slices.ContainsFunc(chainPrefixes, func(p string) bool { return strings.HasPrefix(chain, p) })
}

// iptables is a table of iptables-nft.
type iptables struct {
	conn  *nftables.Conn
	table *nftables.Table
}

func (t iptables) chainNamed(name string) *nftables.Chain {
	return &nftables.Chain{Table: t.table, Name: name}
}

// jump is a rule that continues in another chain.
type jump struct {
	from, to string
	handle   uint64
}

func (t iptables) findJumps(chain string) ([]jump, error) {
	rules, err := t.conn.GetRules(t.table, t.chainNamed(chain))
	if err != nil {
		return nil, fmt.Errorf("list rules of chain %s: %w", chain, err)
	}
	var out []jump
	for _, r := range rules {
		for _, x := range r.Exprs {
			if v, ok := x.(*expr.Verdict); ok && v.Chain != "" {
				out = append(out, jump{chain, v.Chain, r.Handle})
			}
		}
	}
	return out, nil
}

// removeChains removes kube-proxy's chains from a table. The table and its base chains
// stay, as after "iptables -F".
func (r *report) removeChains(t iptables, f family) error {
	remove, err := t.planRemoval()
	if err != nil {
		return err
	}
	for _, j := range remove.jumps {
		if err := t.conn.DelRule(&nftables.Rule{Table: t.table, Chain: t.chainNamed(j.from), Handle: j.handle}); err != nil {
			return err
		}
	}
	for _, c := range remove.chains {
		t.conn.FlushChain(t.chainNamed(c))
	}
	for _, c := range remove.chains {
		t.conn.DelChain(t.chainNamed(c))
	}
	if err := t.conn.Flush(); err != nil {
		return err
	}
	if len(remove.jumps)+len(remove.chains) > 0 {
		r.addRemoved("%s and %s in table %s %s", terminal.Count(len(remove.chains), "chain"), terminal.Count(len(remove.jumps), "jump"), f.name, t.table.Name)
	}
	return remove.keptError()
}

type removal struct {
	jumps  []jump   // from base chains to chains of kube-proxy
	chains []string // with all of their rules
	// kept are rules of other programs that jump to chains of kube-proxy. These
	// chains stay, and so do those that they jump to.
	kept []jump
}

func (t iptables) planRemoval() (removal, error) {
	all, err := chainsOf(t.conn, t.table)
	if err != nil {
		return removal{}, err
	}
	own := make(map[string]bool)
	var others []*nftables.Chain
	for _, c := range all {
		if c.Hooknum == nil && IsKubeProxy(c.Name) {
			own[c.Name] = true
		} else {
			others = append(others, c)
		}
	}
	if len(own) == 0 {
		return removal{}, nil
	}
	var out removal
	for _, c := range others {
		jumps, err := t.findJumps(c.Name)
		if err != nil {
			return removal{}, err
		}
		jumps = slices.DeleteFunc(jumps, func(j jump) bool { return !own[j.to] })
		if c.Hooknum != nil { // a base chain
			out.jumps = append(out.jumps, jumps...)
		} else {
			out.kept = append(out.kept, jumps...)
		}
	}
	err = t.keepNeeded(&out, own)
	out.chains = slices.Sorted(maps.Keys(own))
	return out, err
}

// keepNeeded removes the chains that other programs need from own. With the chain
// that marks packets it keeps the one that masquerades them, and the jumps to it.
func (t iptables) keepNeeded(out *removal, own map[string]bool) error {
	for _, j := range out.kept {
		if err := t.keepChain(own, j.to); err != nil {
			return err
		}
	}
	if len(out.kept) == 0 || own[markChain] {
		return nil
	}
	out.jumps = slices.DeleteFunc(out.jumps, func(j jump) bool { return j.to == masqueradeChain })
	return t.keepChain(own, masqueradeChain)
}

// keepChain removes a chain, and all chains that it jumps to, from own.
func (t iptables) keepChain(own map[string]bool, name string) error {
	if !own[name] {
		return nil
	}
	delete(own, name)
	jumps, err := t.findJumps(name)
	if err != nil {
		return err
	}
	for _, j := range jumps {
		if err := t.keepChain(own, j.to); err != nil {
			return err
		}
	}
	return nil
}

// keptError says which chains stay because other programs need them.
func (r removal) keptError() error {
	if len(r.kept) == 0 {
		return nil
	}
	var texts []string
	for _, k := range r.kept {
		texts = append(texts, fmt.Sprintf("%s from %s", k.to, k.from))
	}
	slices.Sort(texts)
	return fmt.Errorf("rules of other programs jump to chains of kube-proxy: %s: remove these rules, and restart nftproxy",
		strings.Join(slices.Compact(texts), ", "))
}

// reportLegacy reports chains of kube-proxy in the tables of iptables-legacy, which are
// separate from nf_tables. The kernel accepts such a table only as a whole, in a
// format of the iptables commands, which the image does not contain.
func (r *report) reportLegacy(s system, f family) {
	tables, err := s.legacyTables(f)
	r.addFailure(err, "chains of kube-proxy from %stables-legacy", f.name)
	if len(tables) > 0 {
		r.addFailure(errors.New("nftproxy cannot change these tables: run \"kube-proxy --cleanup\" from the image of kube-proxy, or restart the node"),
			"chains of kube-proxy from %s of %stables-legacy", strings.Join(tables, ", "), f.name)
	}
}

// legacyTables returns the tables that have chains of kube-proxy.
func (s system) legacyTables(f family) (found []string, err error) {
	present, err := xtables.Tables(s.root, xtables.Family(f.name))
	if err != nil {
		return nil, err
	}
	for _, name := range iptablesTables {
		if !slices.Contains(present, name) {
			continue
		}
		t, readErr := xtables.Read(xtables.Family(f.name), name)
		if err = errors.Join(err, readErr); readErr == nil && slices.ContainsFunc(t.Chains(), IsKubeProxy) {
			found = append(found, name)
		}
	}
	return found, err
}
