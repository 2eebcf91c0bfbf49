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
	AffinityMap       = "affinity" // of clients and their endpoints, dynamic
)

// Names of chains that others look for.
const (
	refuseChain   = "refuse"
	RememberChain = "remember"
)
