package nft

import (
	"slices"
	"strings"
)

// Contents is what the elements of a set are.
type Contents uint8

const (
	Facts         Contents = iota // frontends or addresses with a property
	Services                      // all frontends, with their class or verdict
	LocalServices                 // the same for clients outside of the cluster, where it differs
	Endpoints                     // the endpoints of frontends in numbered slots
	Lanes                         // what leads to chains that frontends share
	Shared                        // elements that several frontends may need
	Clients                       // addresses of clients, as objects list them
	Bindings                      // clients with their endpoints, which packets write
	Arrivals                      // connections, which packets write
)

// Row is what the project knows about a set, whatever a ruleset has in it. All columns
// are about its counterpart for ranges of ports, too.
type Row struct {
	Name     string // a prefix of names, if it ends with a hyphen
	Key      []Datatype
	Data     []Datatype // empty: a set
	Interval bool
	Contents Contents
	// Ranged sets have a counterpart with [RangePrefix], in which the number of a range takes
	// the place of the port.
	Ranged bool
	// Early elements must be there before a packet can be led to them, and as long as one
	// can: they are added before what packets see changes, and deleted after it.
	Early bool
	// Decides is the row whose reasons count for a packet that is found here. Empty: this
	// one.
	Decides string
	// Passing sets decide nothing: a packet is found there on its way to another one.
	Passing bool
	// Rejects and Drops are why a packet that was found here last is rejected or dropped.
	Rejects, Drops string
}

// Reasons of several rows. The first two are about lists of clients.
const (
	NotAdmitted = "the source is in none of the ranges that the Service admits"
	IsDenied    = "the source is in a range that the Service denies"

	noLocalEndpoint = "the Service wants endpoints of this node for clients outside of the cluster, and there is none"
)

var (
	frontendKey = []Datatype{Address, InetProto, Port}
	rangeKey    = []Datatype{Address, InetProto, RangeID}
	clientKey   = []Datatype{Address, InetProto, Port, Source}
	class       = []Datatype{ClassID}
	verdict     = []Datatype{Verdicts}
	address     = []Datatype{Address}
)

// Schema has a row for each set of our tables.
var Schema = []Row{
	{Name: ServicesMap, Key: frontendKey, Data: class, Contents: Services,
		Rejects: "no endpoint of the Service can take connections", Drops: "the Service wants endpoints of this node, which has none"},
	{Name: LocalServicesMap, Key: frontendKey, Data: class, Contents: LocalServices, Drops: noLocalEndpoint},
	{Name: LanesMap, Key: class, Data: verdict, Contents: Lanes, Early: true, Passing: true},
	{Name: EndpointsMap, Key: []Datatype{Address, InetProto, Port, ClassID}, Data: []Datatype{Address, Port}, Contents: Endpoints, Early: true},

	{Name: FirewalledSet, Key: frontendKey, Ranged: true, Drops: NotAdmitted},
	{Name: SourceRangesSet, Key: clientKey, Interval: true, Contents: Clients},
	{Name: AllowFrontendsSet, Key: frontendKey, Ranged: true, Drops: NotAdmitted},
	{Name: DenyFrontendsSet, Key: frontendKey, Ranged: true, Drops: IsDenied},
	{Name: allowedPrefix, Key: clientKey, Contents: Clients, Ranged: true, Early: true, Decides: AllowFrontendsSet},
	{Name: deniedPrefix, Key: clientKey, Contents: Clients, Ranged: true, Decides: DenyFrontendsSet},
	{Name: MasqFrontendsSet, Key: frontendKey, Ranged: true},
	{Name: LocalFrontendsSet, Key: frontendKey, Ranged: true},

	{Name: LimitedSet, Key: frontendKey, Ranged: true},
	{Name: RateLimitsSet, Key: frontendKey, Ranged: true},
	{Name: ConnectionLimitsSet, Key: frontendKey, Ranged: true},
	{Name: ClientRatesMap, Key: frontendKey, Data: verdict, Ranged: true, Passing: true},
	{Name: ClientConnectionsMap, Key: frontendKey, Data: verdict, Ranged: true, Passing: true},
	{Name: "clients-of-", Key: clientKey, Ranged: true},
	{Name: NodePrefix + "clients-of-", Key: clientKey},
	{Name: "over-", Key: frontendKey, Ranged: true},

	{Name: ClusterIPsSet, Key: address, Contents: Shared, Rejects: "the ClusterIP has no such port"},
	{Name: ServiceCIDRsSet, Key: address, Interval: true, Drops: "no Service has this address of a service CIDR"},
	{Name: LoadBalancerIPsSet, Key: address, Contents: Shared, Rejects: "no Service has this port of the address, which is in --load-balancer-cidrs"},
	{Name: LoadBalancerCIDRsSet, Key: address, Interval: true, Drops: "no Service has this address of --load-balancer-cidrs"},
	{Name: NodeAddressesSet, Key: address},
	{Name: SelfFrontendsSet, Key: frontendKey, Ranged: true},
	{Name: HairpinSet, Key: []Datatype{Source, Address, InetProto, Port}, Contents: Shared},

	{Name: EchoSet, Key: address},
	{Name: EchoInsideSet, Key: address, Drops: noLocalEndpoint},
	{Name: EchoFirewalledSet, Key: address, Drops: NotAdmitted},
	{Name: EchoSourcesSet, Key: []Datatype{Address, Source}, Interval: true, Contents: Clients},
	{Name: EchoDeniedSet, Key: []Datatype{Address, Source}, Interval: true, Contents: Clients, Drops: IsDenied},

	{Name: RangeAddressesSet, Key: address, Contents: Shared, Passing: true},
	{Name: RangesMap, Key: []Datatype{Address, InetProto, PortRange}, Data: class, Interval: true, Passing: true},
	{Name: RangeServicesMap, Key: rangeKey, Data: verdict, Contents: Services, Early: true, Decides: ServicesMap},
	{Name: RangeLocalServicesMap, Key: rangeKey, Data: verdict, Contents: LocalServices, Decides: LocalServicesMap},
	{Name: RangeEndpointsMap, Key: []Datatype{Address, InetProto, RangeID, SlotNumber}, Data: address, Contents: Endpoints, Early: true},
	{Name: RangePortEndpointsMap, Key: []Datatype{Address, InetProto, RangeID, SlotNumber}, Data: []Datatype{Address, Port}, Contents: Endpoints, Early: true},
	// nft writes numbers such as that of a range in another byte order where intervals are in
	// the key.
	{Name: RangePrefix + SourceRangesSet, Key: []Datatype{Address, InetProto, PortRange, Source}, Interval: true, Contents: Clients},
	{Name: RangePrefix + HairpinSet, Key: []Datatype{Source, Address, InetProto}, Contents: Shared},

	{Name: AffinityMap, Key: clientKey, Data: []Datatype{Address, Port}, Contents: Bindings},
	{Name: LocalAffinityMap, Key: clientKey, Data: []Datatype{Address, Port}, Contents: Bindings},
	// An endpoint must be in these as long as a client can get it: see render's affinityChains.
	{Name: AffinityEndpointsSet, Key: []Datatype{Address, InetProto, Port, EndpointAddress, EndpointPort}, Early: true},
	{Name: LocalPrefix + AffinityEndpointsSet, Key: []Datatype{Address, InetProto, Port, EndpointAddress, EndpointPort}, Early: true},
	{Name: AffinityTimeoutsMap, Key: frontendKey, Data: class, Early: true},
	{Name: LocalPrefix + AffinityTimeoutsMap, Key: frontendKey, Data: class, Early: true},
	// The key has no protocol: nft 1.0.6 loads no update of a longer one. The chain for a class
	// compares the protocol.
	{Name: ArrivalsMap, Key: []Datatype{Address, Source, ClientPort, Port}, Data: class, Contents: Arrivals},
	{Name: BindersMap, Key: class, Data: verdict, Contents: Lanes, Early: true},
}

var schemaIndex = indexSchema()

func indexSchema() map[string]*Row {
	out := make(map[string]*Row, 2*len(Schema))
	for i := range Schema {
		out[Schema[i].Name] = &Schema[i]
	}
	for i := range Schema {
		if r := &Schema[i]; r.Ranged {
			out[RangePrefix+r.Name] = r
		}
	}
	return out
}

// RowOf returns the row of a set, or of the one whose counterpart for ranges of ports it is;
// an empty row if the set is foreign. Callers must not modify it.
func RowOf(set string) *Row {
	if r := schemaIndex[set]; r != nil {
		return r
	}
	for i := len(set) - 1; i > 0; i-- {
		if set[i-1] == '-' {
			if r := schemaIndex[set[:i]]; r != nil {
				return r
			}
		}
	}
	return new(Row)
}

// SetsWith returns the names of all sets whose elements are of a kind.
func SetsWith(c Contents) (names []string) {
	for _, r := range Schema {
		if r.Contents != c {
			continue
		}
		names = append(names, r.Name)
		if r.Ranged {
			names = append(names, RangePrefix+r.Name)
		}
	}
	return names
}

// Declare returns an empty set as its row declares it.
func Declare(set string) *Set {
	r := RowOf(set)
	key := r.Key
	if r.Ranged && strings.HasPrefix(set, RangePrefix) {
		key = slices.Clone(key)
		key[slices.Index(key, Port)] = RangeID
	}
	return &Set{Name: set, Key: key, Data: r.Data, Interval: r.Interval}
}
