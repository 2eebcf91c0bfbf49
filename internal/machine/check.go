// Package machine finds what on this machine keeps the rules from serving, or another
// program from working beside them: settings of the kernel, firewalls, other proxies.
//
// [Read] reads facts from the network namespace of the calling thread and changes
// nothing. [Check] decides from facts alone what they mean. docs/compatibility.md has
// the evidence: what was tried, and what to set.
package machine

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
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
	FastPath  *Trial // of the kernel for --fast-path; nil: that is off
	// ClosesTCP reports that connections of TCP end with their endpoint, unless their Service
	// keeps them.
	ClosesTCP bool
	// Words are the words for what is served.
	Words   words.Vocabulary
	Observe *Trial // of the kernel for --observe; nil: that is off
	// ObserveGroup is the group of nflog to which the rules log; zero: they do not.
	ObserveGroup uint16
}

// Trial is the result of a test of the kernel, which may take a second.
type Trial struct{ Err error }

// Pages that findings of several checks refer to.
const (
	pageBeside     = "docs/compatibility.md#what-to-set"
	pageStandalone = "docs/standalone.md#what-to-know"
	pageMachine    = "docs/runbooks.md#nftproxymachineproblem"
	pageMigration  = "docs/migration.md"
	pageOwnership  = "docs/ruleset.md#table-ownership"
	pageFlowTables = "docs/compatibility.md#flow-tables"
	pageFastPath   = "docs/fast-path.md"
	pageSources    = "docs/check.md#sources-of-masqueraded-connections"
	pageUntried    = "docs/compatibility.md#what-was-not-tried"
)

// check is one question about the machine.
type check struct {
	name  string
	needs []Group
	// ask returns its findings. One without a message is left out.
	ask func(*Facts, Use) []Finding
	// page is about its problems and warnings, unless these have another one.
	page string
	// fine is what is so if there is no finding; empty: nothing to say.
	fine string
	// reason names it in the status of a daemon, which asks it too; empty: a daemon does not.
	reason model.Reason
	// warns means that a daemon reports its warnings as well.
	warns bool
}

var checks = []check{
	{name: "kernel", needs: []Group{Features}, ask: kernelFeatures, page: "docs/ruleset.md#kernels-and-versions-of-nft"},
	{name: "table-owner", needs: []Group{Features}, ask: tableOwner},
	{name: "forwarding", needs: []Group{Settings, Links}, ask: checkForwarding, reason: model.ForwardingOff},
	{name: "forward-filter", needs: []Group{NFTables, Settings}, ask: forwardFilter, page: pageBeside, reason: model.ForwardingFiltered,
		fine: "no filter drops forwarded connections to endpoints"},
	{name: "forward-filter-legacy", needs: []Group{IPTables, Settings}, ask: forwardLegacy, page: pageBeside, reason: model.ForwardingFiltered},
	{name: "bridge-nf", needs: []Group{Settings, Links}, ask: bridgeNF, page: pageBeside, reason: model.BridgeNotFiltered,
		fine: "bridges do not keep replies from the rules"},
	{name: "conntrack", needs: []Group{Settings}, ask: conntrackUse, reason: model.ConntrackFull},
	{name: "masquerade-ports", needs: []Group{Settings}, ask: masqueradePorts, page: "docs/standalone.md#more-connections-to-a-server", reason: model.MasqueradePortsUsed,
		fine: fmt.Sprintf("no endpoint has nine tenths of the %d masqueraded connections that one address has ports for", conntrack.MasqueradePorts)},
	{name: "masquerade-from", needs: []Group{Links}, ask: masqueradeFrom, page: pageSources, reason: model.NoMasqueradeAddress,
		fine: "this machine has all addresses of --masquerade-from"},
	{name: "masquerade-source", needs: []Group{Routes, Settings}, ask: masqueradeSource, page: pageSources,
		fine: "masquerading takes the source that routes prefer"},
	{name: "endpoint-routes", needs: []Group{Routes}, ask: endpointRoutes, reason: model.NoRoute},
	{name: "service-addresses", needs: []Group{Links, Neighbours, Settings}, ask: serviceAddresses, page: "docs/check.md#addresses-of-services",
		fine:   "this machine answers for the addresses of Services in its networks; for others it needs a route to here",
		reason: model.AddressNotAnswered, warns: true},
	{name: "load-balancer-ranges", needs: []Group{Links}, ask: loadBalancerRanges, page: "docs/check.md#addresses-of-load-balancers",
		fine: "no other use of the ranges of load balancers is known", reason: model.RangeInUse, warns: true},
	{name: "rp-filter", needs: []Group{Settings, Routes}, ask: reversePath, page: pageBeside},
	{name: "nat-chains", needs: []Group{NFTables}, ask: natChains, page: "docs/compatibility.md#who-wins",
		fine: "no other program translates addresses before nftproxy"},
	{name: "notrack", needs: []Group{NFTables}, ask: noTrack, page: pageUntried, fine: "connection tracking sees the packets of Services"},
	{name: "flow-tables", needs: []Group{NFTables}, ask: flowTablesFound, page: pageFlowTables, fine: "no flow tables"},
	{name: "fast-path", needs: []Group{Routes}, ask: fastPath, page: pageFastPath},
	{name: "kube-proxy", needs: []Group{ProcessSet}, ask: kubeProxyRuns, page: pageMigration, fine: "no other proxy runs here"},
	{name: "kube-proxy-rules", needs: []Group{NFTables, Links}, ask: kubeProxyRules, page: pageMigration, fine: "there are no rules of kube-proxy"},
	{name: "other-proxies", needs: []Group{Links}, ask: otherProxies, page: pageUntried},
	{name: "observe", ask: checkObserve, page: "docs/observe.md#turn-it-on"},
	{name: "observe-group", ask: observeGroup, page: "docs/observe.md#beside-other-programs"},
	{name: "neighbours", needs: []Group{NFTables, Links}, ask: checkNeighbours},
}

// Check returns the findings of all checks, problems first.
func Check(f *Facts, u Use) []Finding {
	var out []Finding
	for _, c := range checks {
		out = append(out, c.run(f, u)...)
	}
	return sortFindings(out)
}

// Serving returns the problems that keep Services from being served, and a few warnings.
func Serving(f *Facts, u Use) (out []Finding) {
	for _, c := range checks {
		if c.reason == "" {
			continue
		}
		for _, found := range c.run(f, u) {
			if found.Level == Problem || found.Level == Warning && c.warns {
				out = append(out, found)
			}
		}
	}
	return out
}

func (c check) run(f *Facts, u Use) []Finding {
	for _, g := range c.needs {
		if err := f.Hidden[g]; err != nil {
			return []Finding{g.unseenFinding(c.name, err)}
		}
	}
	found := c.ask(f, u)
	if len(found) == 0 && c.fine != "" {
		found = u.okFinding(c.fine)
	}
	for i := range found {
		found[i].Check = c.name
		if found[i].Level <= Warning {
			found[i].Documentation = cmp.Or(found[i].Documentation, c.page)
		}
	}
	return found
}

// groupNames name the facts of a group in messages.
var groupNames = map[Group]string{
	Features: "the features of the kernel", Settings: "settings below /proc/sys", Links: "network interfaces",
	Routes: "routes", Neighbours: "for which addresses the machine answers", NFTables: "the rules of nf_tables",
	IPTables: "the rules of iptables-legacy", ProcessSet: "processes", LogGroups: "the readers of nflog",
}

func (g Group) unseenFinding(check string, err error) Finding {
	out := Finding{Check: check, Level: Unseen, Message: fmt.Sprintf("cannot read %s: %s", groupNames[g], strings.ReplaceAll(err.Error(), "\n", "; "))}
	switch g {
	case Features, NFTables, IPTables, LogGroups:
		out.Remedy = "run as root"
	}
	return out
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

func joinNames(all []string) string { return terminal.List(all, 5) }
