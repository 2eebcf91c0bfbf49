package render

// Names of the sets and maps; docs/ruleset.md says what each one holds.
const (
	ServicesMap       = "services"
	LocalServicesMap  = "local-services"
	EndpointsMap      = "endpoints"
	FirewalledSet     = "firewalled"
	SourceRangesSet   = "source-ranges"
	MasqFrontendsSet  = "masq-frontends"
	LocalFrontendsSet = "local-frontends"
	ClusterIPsSet     = "cluster-ips"
	ServiceCIDRsSet   = "service-cidrs"
	HairpinSet        = "hairpin"
	NodeAddressesSet  = "node-addresses"
	// AffinityMap holds clients and their endpoints, and LocalAffinityMap those of
	// frontends with policy Local. Both are dynamic.
	AffinityMap      = "affinity"
	LocalAffinityMap = "local-affinity"
	// AffinityEndpointsSet holds the endpoints that frontends with affinity have.
	AffinityEndpointsSet = "affinity-endpoints"
)

// AffinityMaps are the names of the dynamic maps.
var AffinityMaps = []string{AffinityMap, LocalAffinityMap}

// Names of chains that others lead to.
const (
	refuseChain   = "refuse"
	dispatchChain = "dispatch"
	unservedChain = "unserved"
	rememberChain = "remember"
)
