package main

import (
	"fmt"
	"net/netip"
	"strings"
)

// byHand is rules that an administrator would write: a verdict map of services, and
// for each a chain with a counter over its endpoints.
type byHand struct{}

func (byHand) name() string       { return "nft by hand" }
func (byHand) program() string    { return "nft" }
func (byHand) version() string    { return version(1, "nft", "--version") }
func (byHand) measures() []string { return []string{"traffic", "services"} }

func (byHand) start(r *room, s setting) (running, error) {
	var chains, elements strings.Builder
	for i, own := range s.services {
		fmt.Fprintf(&chains, "\tchain service-%d { %s; }\n", i, dnat(own.endpoints))
		fmt.Fprintf(&elements, "%s . %d : goto service-%d, ", own.to.Addr(), own.to.Port(), i)
	}
	rules := fmt.Sprintf(`table ip balance {
%s	map services { type ipv4_addr . inet_service : verdict; elements = { %s }; }
	chain prerouting { type nat hook prerouting priority dstnat; ip daddr . tcp dport vmap @services; }
	chain postrouting { type nat hook postrouting priority srcnat; ct status dnat masquerade; }
}
`, chains.String(), elements.String())
	replace := func(s setting, i, _ int, _ netip.AddrPort) error {
		chain := fmt.Sprintf("ip balance service-%d", i)
		return r.run(r.Node, fmt.Sprintf("flush chain %s\nadd rule %s %s\n", chain, chain, dnat(s.services[i].endpoints)), "nft", "-f", "-")
	}
	return idle{[]way{{"nft -f", replace}}}, r.run(r.Node, rules, "nft", "-f", "-")
}

func dnat(endpoints []netip.AddrPort) string {
	var text strings.Builder
	for i, e := range endpoints {
		fmt.Fprintf(&text, "%d : %s . %d, ", i, e.Addr(), e.Port())
	}
	return fmt.Sprintf("meta l4proto tcp dnat ip to numgen inc mod %d map { %s }", len(endpoints), text.String())
}
