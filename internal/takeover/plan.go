package takeover

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// chain is one of an iptables table.
type chain struct {
	name  string
	base  bool // packets come here without a jump
	rules func() ([]rule, error)
}

// rule is one that goes on in another chain.
type rule struct {
	chain, to string
	handle    uint64 // in nftables
	spec      string // as iptables-save prints it
}

// removal is what to remove of a table.
type removal struct {
	rules  []rule   // that lead from the base chains into the chains
	chains []string // with all of their rules
	// kept are rules of others that go to chains of kube-proxy. These chains
	// stay, with what they go on to.
	kept []rule
}

func (r removal) empty() bool { return len(r.rules) == 0 && len(r.chains) == 0 }

func (r removal) String() string {
	return count(len(r.chains), "chain") + " and " + count(len(r.rules), "jump")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// plan finds what is kube-proxy's among the chains of a table.
func plan(chains []chain) (removal, error) {
	var out removal
	own := make(map[string]chain)
	for _, c := range chains {
		if !c.base && isKubeProxys(c.name) {
			own[c.name] = c
		}
	}
	if len(own) == 0 {
		return out, nil
	}
	if err := out.findJumps(chains, own); err != nil {
		return removal{}, err
	}
	for _, r := range out.kept {
		if err := keep(own, r.to); err != nil {
			return removal{}, err
		}
	}
	if _, removed := own[markChain]; !removed && len(out.kept) > 0 {
		if err := out.keepMasquerading(own); err != nil {
			return removal{}, err
		}
	}
	out.chains = slices.Sorted(maps.Keys(own))
	return out, nil
}

// findJumps finds the rules of other chains that go to those in own.
func (r *removal) findJumps(chains []chain, own map[string]chain) error {
	for _, c := range chains {
		if _, ok := own[c.name]; ok {
			continue
		}
		rules, err := c.rules()
		if err != nil {
			return err
		}
		for _, jump := range rules {
			switch _, ok := own[jump.to]; {
			case ok && c.base:
				r.rules = append(r.rules, jump)
			case ok:
				r.kept = append(r.kept, jump)
			}
		}
	}
	return nil
}

// Packets get a mark in one chain, and are masqueraded by it in the other one.
const (
	markChain       = "KUBE-MARK-MASQ"
	masqueradeChain = "KUBE-POSTROUTING"
)

// keepMasquerading keeps the chain that acts on the mark, and the jumps to it: the
// chain that sets the mark stays. own are the chains to remove.
func (r *removal) keepMasquerading(own map[string]chain) error {
	r.rules = slices.DeleteFunc(r.rules, func(j rule) bool { return j.to == masqueradeChain })
	return keep(own, masqueradeChain)
}

// keep takes a chain, and all that it goes on to, out of those to remove.
func keep(own map[string]chain, name string) error {
	c, ok := own[name]
	if !ok {
		return nil
	}
	delete(own, name)
	rules, err := c.rules()
	if err != nil {
		return err
	}
	for _, r := range rules {
		if err := keep(own, r.to); err != nil {
			return err
		}
	}
	return nil
}

// keptError says which chains stay because of others.
func (r removal) keptError() error {
	if len(r.kept) == 0 {
		return nil
	}
	var texts []string
	for _, k := range r.kept {
		texts = append(texts, fmt.Sprintf("%s from %s", k.to, k.chain))
	}
	slices.Sort(texts)
	return fmt.Errorf("others jump to chains of kube-proxy: %s: remove these rules, and restart nftproxy",
		strings.Join(slices.Compact(texts), ", "))
}
