package nft

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Names of the sets and maps, which docs/ruleset.md describes.
const (
	ServicesMap      = "services"
	LocalServicesMap = "local-services"
	LanesMap         = "lanes"
	EndpointsMap     = "endpoints"
	FirewalledSet    = "firewalled"
	SourceRangesSet  = "source-ranges"
	// AllowFrontendsSet and DenyFrontendsSet hold the frontends with a list of allowed or
	// denied clients; see AllowedPrefix for the sets of the ranges.
	AllowFrontendsSet = "allow-frontends"
	DenyFrontendsSet  = "deny-frontends"
	MasqFrontendsSet  = "masq-frontends"
	LocalFrontendsSet = "local-frontends"
	// SNATFrontendsMap leads from frontends that masquerade with addresses of their own to the
	// chain that does so.
	SNATFrontendsMap = "snat-frontends"
	ClusterIPsSet    = "cluster-ips"
	ServiceCIDRsSet  = "service-cidrs"
	HairpinSet       = "hairpin"
	// SelfFrontendsSet holds the frontends that are their own endpoint.
	SelfFrontendsSet = "self-frontends"
	// LoadBalancerCIDRsSet holds ranges of external addresses, and LoadBalancerIPsSet the
	// addresses in these that Services have.
	LoadBalancerCIDRsSet = "load-balancer-cidrs"
	LoadBalancerIPsSet   = "load-balancer-ips"
	// EchoSet holds the addresses of Services whose echo requests the node answers, and
	// EchoInsideSet the ones that do not answer clients outside of the cluster.
	EchoSet       = "echo"
	EchoInsideSet = "echo-inside"
	// EchoFirewalledSet holds the addresses with source ranges, and EchoSourcesSet and
	// EchoDeniedSet those and the denied sources.
	EchoFirewalledSet = "echo-firewalled"
	EchoSourcesSet    = "echo-source-ranges"
	EchoDeniedSet     = "echo-denied-sources"
	NodeAddressesSet  = "node-addresses"
	// AffinityMap holds clients and their endpoints, and LocalAffinityMap those outside of
	// the cluster of frontends with policy Local. Both are dynamic.
	AffinityMap      = "affinity"
	LocalAffinityMap = LocalPrefix + AffinityMap
	// SharedAffinityMap holds clients and the numbers of their servers, for frontends that bind a
	// client together. It is dynamic, too.
	SharedAffinityMap = SharedPrefix + AffinityMap
	// GroupsMap holds these frontends with the class of their group, and ServersMap the endpoint
	// of each server by its number in the group.
	GroupsMap  = SharedPrefix + "affinity-groups"
	ServersMap = SharedPrefix + "affinity-servers"
	// AffinityEndpointsSet holds the endpoints that frontends with affinity have.
	AffinityEndpointsSet = "affinity-endpoints"
	// AffinityTimeoutsMap holds frontends with the class of their affinity, and BindersMap
	// leads from a class to the chain that binds their clients.
	AffinityTimeoutsMap = "affinity-timeouts"
	BindersMap          = "binders"
	// ArrivalsMap is dynamic. It holds the connections that lanes with affinity have just
	// sent on, with the class of their frontend.
	ArrivalsMap = "affinity-arrivals"
	// RangesMap holds the ranges of ports, which [RangeAddressesSet] has the addresses of.
	// Other sets and maps name a range by its first port.
	RangesMap         = "ranges"
	RangeAddressesSet = "range-addresses"
	// RangeServicesMap holds the verdicts of ranges, and RangeLocalServicesMap those for
	// clients outside of the cluster, where they differ.
	RangeServicesMap      = "range-services"
	RangeLocalServicesMap = "range-local-services"
	// The endpoints in RangeEndpointsMap get the port that the client dialled, and those
	// in RangePortEndpointsMap one port.
	RangeEndpointsMap     = "range-endpoints"
	RangePortEndpointsMap = "range-port-endpoints"
	// SampledSet is dynamic. It holds the frontends whose connections were logged within the
	// last second.
	SampledSet = "sampled"
	// SampledConnectionsSet is dynamic. It holds the sampled connections of the last second.
	SampledConnectionsSet = "sampled-connections"
	// ObservedSet holds the frontends whose connections are logged, and ObservedAddressesSet the
	// addresses of ranges of ports.
	ObservedSet          = "observed"
	ObservedAddressesSet = "observed-addresses"
)

// SlotMaps are the maps of endpoints in numbered slots.
var SlotMaps = SetsWith(Endpoints)

// ServiceMaps are the maps of all frontends with their class or verdict, and
// LocalServiceMaps those for clients outside of the cluster, where that differs.
var (
	ServiceMaps      = SetsWith(Services)
	LocalServiceMaps = SetsWith(LocalServices)
)

// SharedSets hold elements that several frontends may need.
var SharedSets = SetsWith(Shared)

// Names of the sets for connection limits. All are optional.
const (
	LimitedSet          = "limited"           // frontends with a limit
	RateLimitsSet       = "rate-limits"       // of frontends
	ConnectionLimitsSet = "connection-limits" // of frontends
	// The following maps lead from frontends to the chains that limit their clients.
	ClientRatesMap       = "client-rates"
	ClientConnectionsMap = "client-connections"
)

var ClientLimitMaps = []string{ClientRatesMap, ClientConnectionsMap}

// OverSet returns the name of the set that counts packets dropped by a kind of limit.
func OverSet(k model.LimitKind) string { return "over-" + model.OverReason(k).String() }

// FullSet returns the name of the set that counts packets of clients for which the set of a limit of clients had no
// room; empty: the limit is none of clients.
func FullSet(k model.LimitKind) string {
	if k.OfClients() {
		return "full-" + model.OverReason(k).String()
	}
	return ""
}

var AffinityMaps = SetsWith(Bindings)

// LocalPrefix is the name prefix of sets, maps and chains for clients outside of the
// cluster and frontends with policy Local.
const LocalPrefix = "local-"

// SharedPrefix is the same for frontends that bind a client together.
const SharedPrefix = "shared-"

// EndpointsOf returns the name of the set of the endpoints to which a map may bind clients.
func EndpointsOf(bindings string) string { return prefixLike(bindings, AffinityEndpointsSet) }

// TimeoutsOf returns the name of the map of frontends whose clients are in a map.
func TimeoutsOf(bindings string) string { return prefixLike(bindings, AffinityTimeoutsMap) }

// prefixLike returns the name of what belongs to a map of clients.
func prefixLike(bindings, name string) string {
	switch bindings {
	case LocalAffinityMap:
		return LocalPrefix + name
	case SharedAffinityMap:
		return SharedPrefix + name
	}
	return name
}

// LaneMaps lead to chains that frontends share.
var LaneMaps = SetsWith(Lanes)

// Names of chains that others lead to.
const (
	RefuseChain   = "refuse"
	DispatchChain = "dispatch"
	ChooseChain   = "choose"
	UnservedChain = "unserved"
	LimitChain    = "limits" // "limit" is a word of nft
	RememberChain = "remember"
	AllowChain    = "allow"
	DenyChain     = "deny"
	EchoChain     = "echo"
	RelayChain    = "relay"
	SNATChain     = "snat-node" // which masquerades with the addresses of the node
	// RelayInputChain rejects connections to the port of the relay that [RelayTable] does not let
	// pass.
	RelayInputChain = "relay-input"
)

// RelayTable is the table that lets connections pass to the relay, in either family. It belongs to
// the process that listens at the port, and ends with it; no plan has it.
const RelayTable = TableName + "-relay"

// Admitted is the class of packets that [RelayTable] lets pass. No program sets such a
// priority: interfaces and types of service give one of a few bits.
const Admitted Class = 0x7265_6c61

// AllowedPrefix and DeniedPrefix begin the names of the sets of frontends and ranges of allowed or denied
// clients, which end with the length of the ranges.
const AllowedPrefix, DeniedPrefix = "allowed-", "denied-"

// ClientSet returns the length of the ranges in a set of clients, and whether they are
// denied.
func ClientSet(set string) (bits int, denied, ok bool) {
	digits, allowed := strings.CutPrefix(IDOf(set).Name, AllowedPrefix)
	if !allowed {
		digits, denied = strings.CutPrefix(digits, DeniedPrefix)
	}
	bits, err := strconv.Atoi(digits)
	return bits, denied, (allowed || denied) && err == nil
}

// allRecallChains are the chains that a lane may jump to.
var allRecallChains = []string{
	RecallChain(AffinityMap, OfPort), RecallChain(LocalAffinityMap, OfPort),
	RecallChain(AffinityMap, OfNode), RecallChain(LocalAffinityMap, OfNode),
	RecallChain(SharedAffinityMap, OfPort),
}

// IsLane reports whether rules belong to a chain that frontends share: they choose an
// endpoint by slot, look up the client's endpoint first, or bind the client to one.
func IsLane(rules []Rule) bool {
	if _, binds := findRemember(&Chain{Rules: rules}); binds {
		return true
	}
	return slices.ContainsFunc(rules, func(r Rule) bool {
		if slices.ContainsFunc(r, func(s Statement) bool {
			note, ok := s.(Update)
			return ok && note.Op == "update" && note.Set == SharedAffinityMap
		}) {
			return true
		}
		switch s := r[len(r)-1].(type) {
		case DNAT:
			_, chooses := s.Slots()
			return chooses
		case Verdict:
			_, chooses := r[0].(Choose)
			return chooses || s.Action == Jump && slices.Contains(allRecallChains, s.Chain)
		}
		return false
	})
}

// RecallChain names the chain that translates to the endpoint to which a map binds
// the client.
func RecallChain(bindings string, of Shape) string { return of.Chain(prefixLike(bindings, "recall")) }

// Slots of a frontend in the map of endpoints.
const (
	FirstSlot = 1         // nft has a word for 0, "none"
	MaxSlots  = 1<<20 - 1 // of the clients that share them
	// OwnSlots is the first slot of clients outside of the cluster that have endpoints
	// of their own. It is behind all others.
	OwnSlots = FirstSlot + MaxSlots
)
