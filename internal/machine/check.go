package machine

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Use says for which connections the machine is used.
type Use struct {
	// Cluster reports that this is a node of a Kubernetes cluster, with pods. Otherwise
	// the objects come from files.
	Cluster bool
	// BesideAnother reports that kube-proxy serves the other Services.
	BesideAnother bool
	MasqueradeAll bool
	// MasqueradeFrom are the addresses from which the node is to masquerade.
	MasqueradeFrom []netip.Addr
	Families       []model.Family // of Services; none: all that the kernel has
	PodRanges      []netip.Prefix // as far as they are known
	// Endpoints are the addresses that the rules of Services lead to. If they are not known (nil),
	// they are assumed to be on other machines or in pods.
	Endpoints iter.Seq[netip.Addr]
	// Relayed are the addresses to which a relay of this machine connects: nothing is forwarded to
	// these; nil: none.
	Relayed iter.Seq[netip.Addr]
	// Addresses are addresses of Services for clients outside of this machine, without
	// ones that another program announces; nil: not known.
	Addresses iter.Seq[netip.Addr]
	Ranges    Ranges
	// FastPath tests the kernel for --fast-path; nil: that is off.
	FastPath func() error
	// ClosesTCP reports that connections of TCP end with their endpoint, unless their Service
	// keeps them.
	ClosesTCP bool
	// Words are the words for what is served.
	Words words.Vocabulary
	// Observe tests the kernel for --observe; nil: that is off.
	Observe func() error
	// ObserveGroup is the group of nflog to which the rules log; zero: they do not.
	ObserveGroup uint16
}

// Pages that findings refer to.
const (
	pageBeside       = "docs/compatibility.md#what-to-set"
	pageStandalone   = "docs/standalone.md#what-to-know"
	pageRanges       = "docs/check.md#addresses-of-load-balancers"
	pageAddresses    = "docs/check.md#addresses-of-services"
	pageMachine      = "docs/runbooks.md#nftproxymachineproblem"
	pageMigration    = "docs/migration.md"
	pageKernels      = "docs/ruleset.md#kernels-and-versions-of-nft"
	pageOwnership    = "docs/ruleset.md#table-ownership"
	pageObserve      = "docs/observe.md#turn-it-on"
	pageGroup        = "docs/observe.md#beside-other-programs"
	pageFlowTables   = "docs/compatibility.md#flow-tables"
	pageFastPath     = "docs/fast-path.md"
	pageMarkedRoutes = "docs/fast-path.md#routes-that-depend-on-marks"
	pagePorts        = "docs/standalone.md#more-connections-to-a-server"
	pageSources      = "docs/check.md#sources-of-masqueraded-connections"
	pageUntried      = "docs/compatibility.md#what-was-not-tried"
)

// check is one question about the machine.
type check struct {
	name  string
	needs []Group
	// serving reports that a running daemon asks it too.
	serving bool
	// ask returns its findings. One without a message is left out.
	ask func(*Facts, Use) []Finding
}

var checks = []check{
	{"kernel", []Group{Features}, false, kernelFeatures},
	{"table-owner", []Group{Features}, false, tableOwner},
	{"forwarding", []Group{Settings, Links}, true, checkForwarding},
	{"forward-filter", []Group{NFTables, Settings}, true, forwardFilter},
	{"forward-filter-legacy", []Group{IPTables, Settings}, true, forwardLegacy},
	{"bridge-nf", []Group{Settings, Links}, true, bridgeNF},
	{"conntrack", []Group{Settings}, true, conntrackUse},
	{"masquerade-ports", []Group{Settings}, true, masqueradePorts},
	{"masquerade-from", []Group{Links}, true, masqueradeFrom},
	{"masquerade-source", []Group{Routes, Settings}, false, masqueradeSource},
	{"endpoint-routes", []Group{Routes}, true, endpointRoutes},
	{"service-addresses", []Group{Links, Neighbours, Settings}, true, serviceAddresses},
	{"load-balancer-ranges", []Group{Links}, true, loadBalancerRanges},
	{"rp-filter", []Group{Settings, Routes}, false, reversePath},
	{"nat-chains", []Group{NFTables}, false, natChains},
	{"notrack", []Group{NFTables}, false, noTrack},
	{"flow-tables", []Group{NFTables}, false, flowTablesFound},
	{"fast-path", []Group{Routes}, false, fastPath},
	{"kube-proxy", []Group{ProcessSet}, false, kubeProxyRuns},
	{"kube-proxy-rules", []Group{NFTables, Links}, false, kubeProxyRules},
	{"other-proxies", []Group{Links}, false, otherProxies},
	{"observe", nil, false, checkObserve},
	{"observe-group", nil, false, observeGroup},
	{"neighbours", []Group{NFTables, Links}, false, checkNeighbours},
}

// Names returns the names of all checks.
func Names() (names []string) {
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// Check returns the findings of all checks, problems first.
func Check(f *Facts, u Use) []Finding {
	var out []Finding
	for _, c := range checks {
		out = append(out, c.run(f, u)...)
	}
	return sortFindings(out)
}

// noted are the checks of a daemon that report warnings as well.
var noted = []string{"service-addresses", "load-balancer-ranges"}

// Serving returns the problems that keep Services from being served, and a few warnings.
func Serving(f *Facts, u Use) []Finding {
	var out []Finding
	for _, c := range checks {
		if c.serving {
			out = append(out, c.run(f, u)...)
		}
	}
	return slices.DeleteFunc(out, func(f Finding) bool {
		return f.Level != Problem && (f.Level != Warning || !slices.Contains(noted, f.Check))
	})
}

func (c check) run(f *Facts, u Use) []Finding {
	for _, g := range c.needs {
		if err := f.Hidden[g]; err != nil {
			return []Finding{g.unseenFinding(c.name, err)}
		}
	}
	found := c.ask(f, u)
	for i := range found {
		found[i].Check = c.name
	}
	return found
}

func (g Group) unseenFinding(check string, err error) Finding {
	return Finding{Check: check, Level: Unseen, Message: fmt.Sprintf("cannot read %s: %s", g.describeGroup(), strings.ReplaceAll(err.Error(), "\n", "; ")), Remedy: g.remedyFor()}
}

func (g Group) describeGroup() string {
	return map[Group]string{
		Features: "the features of the kernel", Settings: "settings below /proc/sys", Links: "network interfaces",
		Routes: "routes", Neighbours: "for which addresses the machine answers", NFTables: "the rules of nf_tables", IPTables: "the rules of iptables-legacy", ProcessSet: "processes", LogGroups: "the readers of nflog",
	}[g]
}

func (g Group) remedyFor() string {
	switch g {
	case Features, NFTables, IPTables, LogGroups:
		return "run as root"
	}
	return ""
}

// okFinding is the single finding of a check that has nothing to say against the machine.
func okFinding(format string, args ...any) []Finding {
	return []Finding{{Level: OK, Message: fmt.Sprintf(format, args...)}}
}

// okFinding is [okFinding] in the words for what is served.
func (u Use) okFinding(format string, args ...any) []Finding {
	return []Finding{{Level: OK, Message: u.Words.Sprintf(format, args...)}}
}

// servedFamilies returns those that Services may have here.
func (u Use) servedFamilies(f *Facts) (out []model.Family) {
	for _, family := range model.Families {
		if _, has := f.Forwarding[family]; has && (len(u.Families) == 0 || slices.Contains(u.Families, family)) {
			out = append(out, family)
		}
	}
	return out
}

// eachReached yields the addresses to which this machine needs a route.
func (u Use) eachReached(yield func(netip.Addr) bool) {
	for _, all := range []iter.Seq[netip.Addr]{u.Endpoints, u.Relayed} {
		if all == nil {
			continue
		}
		for e := range all {
			if !yield(e) {
				return
			}
		}
	}
}

// findElsewhere returns an endpoint that is not this machine. If endpoints are not known,
// there is one without an address.
func (u Use) findElsewhere(f *Facts, family model.Family) (endpoint netip.Addr, found bool) {
	if u.Endpoints == nil {
		return netip.Addr{}, true
	}
	for e := range u.Endpoints {
		if model.FamilyOf(e) == family && !e.IsLoopback() && !slices.Contains(f.Addresses, e) {
			return e, true
		}
	}
	return netip.Addr{}, false
}

// joinNames joins up to five names.
func joinNames(all []string) string {
	const most = 5
	if n := len(all) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), n)
	}
	return strings.Join(all, ", ")
}
