package preflight

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// feature is something that rules need and that a kernel can lack. If the families
// have separate remedies, it has the one of IPv4.
type feature struct {
	name   string
	remedy Remedy
}

var (
	setModule = Remedy{Module: "nf_tables_set", Option: "NF_TABLES_SET"}

	tables             = feature{"tables and chains", Remedy{Module: "nf_tables", Option: "NF_TABLES_IPV4"}}
	natChains          = feature{"NAT chains", Remedy{Module: "nft_chain_nat", Option: "NFT_NAT"}}
	ranges             = feature{"sets of ranges", setModule}
	concatenatedRanges = feature{"sets of concatenated ranges", Remedy{Since: "5.6"}}
	verdictMaps        = feature{"verdict maps", setModule}
	dynamicMaps        = feature{"maps that packets fill", setModule}
	rateLimits         = feature{"connection rate limits", Remedy{Module: "nft_limit", Option: "NFT_LIMIT", Since: "5.7"}}
	connectionLimits   = feature{"connection limits", Remedy{Module: "nft_connlimit", Option: "NFT_CONNLIMIT", Since: "5.7"}}
	refusals           = feature{"counters and logs of refused connections", Remedy{Module: "nft_log and nfnetlink_log", Option: "NFT_LOG and CONFIG_NETFILTER_NETLINK_LOG", Since: "5.11"}}
	redirects          = feature{"redirecting to this machine", Remedy{Module: "nft_redir", Option: "NFT_REDIR"}}
	counters           = feature{"counters of set elements", Remedy{Module: "nft_counter", Option: "NFT_COUNTER", Since: "5.7"}}
)

// byExpression has the expressions that are separate modules. The others are part of
// nf_tables.
var byExpression = map[string]feature{
	"ct":     {"matches on connections", Remedy{Module: "nft_ct", Option: "NFT_CT", Since: "4.17"}},
	"nat":    {"destination NAT", Remedy{Module: "nft_nat", Option: "NFT_NAT"}},
	"masq":   {"masquerading", Remedy{Module: "nft_masq", Option: "NFT_MASQ"}},
	"redir":  redirects,
	"reject": {"rejecting", Remedy{Module: "nft_reject_ipv4", Option: "NFT_REJECT_IPV4"}},
	"numgen": {"round robin and random numbers", Remedy{Module: "nft_numgen", Option: "NFT_NUMGEN"}},
	"hash":   {"hashes of addresses", Remedy{Module: "nft_hash", Option: "NFT_HASH"}},
	"fib":    {"matches on addresses of the node", Remedy{Module: "nft_fib_ipv4", Option: "NFT_FIB_IPV4"}},
}

func missingOf(f model.Family, refused []kernel.Refusal) []Problem {
	m := missing{family: f}
	for _, r := range refused {
		if r.Data[0] != codec.FamilyNumber(f) {
			continue
		}
		m.add(r)
		if r.Type == unix.NFT_MSG_NEWTABLE {
			break // the rest follows from that
		}
	}
	return m.problems
}

type missing struct {
	family   model.Family
	problems []Problem
}

// add adds the problem behind a refused message. If every kernel with nf_tables has
// the feature, the cause is something that the message refers to, refused before.
func (m *missing) add(r kernel.Refusal) {
	f, ok := featureOf(r)
	if !ok && len(m.problems) > 0 {
		return
	}
	keyword := nft.FamilyKeyword(m.family)
	p := Problem{Feature: fmt.Sprintf("%s (%s)", f.name, keyword), Answer: r.Err, Limits: f == rateLimits || f == connectionLimits, Observe: f == refusals, Relay: f == redirects, Remedy: f.remedy}
	if m.family == model.IPv6 {
		own := strings.NewReplacer("ipv4", "ipv6", "IPV4", "IPV6")
		p.Module, p.Option = own.Replace(p.Module), own.Replace(p.Option)
	}
	if !slices.ContainsFunc(m.problems, func(o Problem) bool { return o.Feature == p.Feature }) {
		m.problems = append(m.problems, p)
	}
}

// featureOf returns the feature that a refused message needs, and whether a kernel with
// nf_tables can lack it.
func featureOf(r kernel.Refusal) (feature, bool) {
	switch r.Type {
	case unix.NFT_MSG_NEWTABLE:
		return tables, true
	case unix.NFT_MSG_NEWCHAIN:
		if r.Chain.Hook != nft.NoHook {
			return natChains, true
		}
		return tables, false
	case unix.NFT_MSG_NEWSET:
		return setFeature(r.Set)
	case unix.NFT_MSG_NEWRULE:
		// Old kernels answer without the expression that they do not know.
		if _, _, refuses := nft.ReasonOf(r.Chain.Name); refuses && r.Expression != "ct" && r.Expression != "reject" {
			return refusals, true
		}
		if f, ok := byExpression[r.Expression]; ok {
			return f, true
		}
	}
	return feature{r.String(), tables.remedy}, false
}

func setFeature(s *nft.Set) (feature, bool) {
	switch {
	case s.Limits == nft.RateLimits:
		return rateLimits, true
	case s.Limits == nft.ConnectionLimits:
		return connectionLimits, true
	case s.Counters:
		return counters, true
	case s.Interval && s.Concat():
		return concatenatedRanges, true
	case s.Interval:
		return ranges, true
	case s.Dynamic:
		return dynamicMaps, true
	case slices.Contains(s.Data, nft.Verdicts):
		return verdictMaps, true
	}
	return feature{"sets", setModule}, false
}
