package nft

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

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
	Refusals                      // counters of refused connections, which packets write
)

// Row has the facts about a set that hold for every ruleset. All columns are
// about its counterpart for ranges of ports, too.
type Row struct {
	Name     string // without the prefix of its shape; itself a prefix of names, if it ends with a hyphen
	Shape    Shape
	Key      []Datatype
	Data     []Datatype // empty: a set
	Interval bool
	Contents Contents
	// Ranged sets have a counterpart for ranges of ports, in which the number of a range
	// takes the place of the port.
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
	{Name: SourceRangesSet, Key: clientKey, Interval: true, Contents: Clients, Early: true},
	{Name: AllowFrontendsSet, Key: frontendKey, Ranged: true, Drops: NotAdmitted},
	{Name: DenyFrontendsSet, Key: frontendKey, Ranged: true, Drops: IsDenied},
	{Name: AllowedPrefix, Key: clientKey, Contents: Clients, Ranged: true, Early: true, Decides: AllowFrontendsSet},
	{Name: DeniedPrefix, Key: clientKey, Contents: Clients, Ranged: true, Decides: DenyFrontendsSet},
	{Name: MasqFrontendsSet, Key: frontendKey, Ranged: true},
	{Name: LocalFrontendsSet, Key: frontendKey, Ranged: true},
	{Name: SNATFrontendsMap, Key: frontendKey, Data: verdict, Ranged: true, Passing: true},

	{Name: LimitedSet, Key: frontendKey, Ranged: true},
	{Name: RateLimitsSet, Key: frontendKey, Ranged: true},
	{Name: ConnectionLimitsSet, Key: frontendKey, Ranged: true},
	{Name: ClientRatesMap, Key: frontendKey, Data: verdict, Ranged: true, Passing: true},
	{Name: ClientConnectionsMap, Key: frontendKey, Data: verdict, Ranged: true, Passing: true},
	{Name: "clients-of-", Key: clientKey, Ranged: true},
	{Name: "clients-of-", Shape: OfNode, Key: clientKey},
	{Name: "over-", Key: frontendKey, Ranged: true},
	{Name: "full-", Key: frontendKey, Ranged: true, Passing: true},

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

	{Name: "addresses", Shape: OfRange, Key: address, Contents: Shared, Passing: true},
	{Name: RangesMap, Key: []Datatype{Address, InetProto, PortRange}, Data: class, Interval: true, Passing: true},
	{Name: ServicesMap, Shape: OfRange, Key: rangeKey, Data: verdict, Contents: Services, Early: true},
	{Name: LocalServicesMap, Shape: OfRange, Key: rangeKey, Data: verdict, Contents: LocalServices},
	{Name: EndpointsMap, Shape: OfRange, Key: []Datatype{Address, InetProto, RangeID, SlotNumber}, Data: address, Contents: Endpoints, Early: true},
	{Name: "port-endpoints", Shape: OfRange, Key: []Datatype{Address, InetProto, RangeID, SlotNumber}, Data: []Datatype{Address, Port}, Contents: Endpoints, Early: true},
	// nft writes numbers such as the number of a range in another byte order where intervals
	// are in the key.
	{Name: SourceRangesSet, Shape: OfRange, Key: []Datatype{Address, InetProto, PortRange, Source}, Interval: true, Contents: Clients, Early: true},
	{Name: HairpinSet, Shape: OfRange, Key: []Datatype{Source, Address, InetProto}, Contents: Shared},

	{Name: AffinityMap, Key: clientKey, Data: []Datatype{Address, Port}, Contents: Bindings},
	{Name: LocalAffinityMap, Key: clientKey, Data: []Datatype{Address, Port}, Contents: Bindings},
	{Name: SharedAffinityMap, Key: []Datatype{Address, ClassID, Source}, Data: class, Contents: Bindings},
	{Name: GroupsMap, Key: frontendKey, Data: class, Early: true},
	{Name: ServersMap, Key: []Datatype{Address, ClassID, InetProto, Port}, Data: []Datatype{Address, Port}},
	{Name: SharedPrefix + AffinityEndpointsSet, Key: []Datatype{Address, InetProto, Port, EndpointAddress, EndpointPort}, Data: class, Early: true},
	{Name: SharedPrefix + AffinityTimeoutsMap, Key: frontendKey, Data: class, Early: true},
	// An endpoint must be in these as long as a client can get it: see render's affinityChains.
	{Name: AffinityEndpointsSet, Key: []Datatype{Address, InetProto, Port, EndpointAddress, EndpointPort}, Early: true},
	{Name: LocalPrefix + AffinityEndpointsSet, Key: []Datatype{Address, InetProto, Port, EndpointAddress, EndpointPort}, Early: true},
	{Name: AffinityTimeoutsMap, Key: frontendKey, Data: class, Early: true},
	{Name: LocalPrefix + AffinityTimeoutsMap, Key: frontendKey, Data: class, Early: true},
	// The key has no protocol: nft 1.0.6 loads no update of a longer one. The chain for a class
	// compares the protocol.
	{Name: ArrivalsMap, Key: []Datatype{Address, Source, ClientPort, Port}, Data: class, Contents: Arrivals},
	{Name: BindersMap, Key: class, Data: verdict, Contents: Lanes, Early: true},

	{Name: SampledSet, Key: frontendKey},
	{Name: SampledConnectionsSet, Key: []Datatype{Address, Source, ClientPort, Port}}, // of TCP; nft 1.0.6 loads no update of a longer key
	{Name: ObservedSet, Key: frontendKey, Passing: true},
	{Name: ObservedAddressesSet, Key: address, Contents: Shared, Passing: true},
	{Name: refusedPrefix, Key: frontendKey, Contents: Refusals, Ranged: true},
	{Name: RefusalOf(model.UnknownPort, OfPort), Key: address, Contents: Refusals},
	{Name: RefusalOf(model.PingRefused, OfPort), Key: address, Contents: Refusals},
	{Name: RefusalOf(model.UnusedAddress, OfPort), Key: frontendKey[:2], Contents: Refusals},
	{Name: RefusalOf(model.InvalidDestination, OfPort), Key: frontendKey[:2], Contents: Refusals},
}

// place is where a set is in the schema.
type place struct {
	row   *Row
	shape Shape
}

var schemaIndex = indexSchema()

func indexSchema() map[string]place {
	out := make(map[string]place, 2*len(Schema))
	for i := range Schema {
		r := &Schema[i]
		for _, id := range r.Sets() {
			out[id.String()] = place{r, id.Shape}
		}
	}
	return out
}

// Sets returns the set of a row, and its counterpart for ranges.
func (r *Row) Sets() []SetID {
	own := SetID{r.Name, r.Shape}
	if r.Ranged {
		return []SetID{own, {r.Name, OfRange}}
	}
	return []SetID{own}
}

// placeOf returns an empty row if the set is foreign.
func placeOf(set string) place {
	if p, ok := schemaIndex[set]; ok {
		return p
	}
	for i := len(set) - 1; i > 0; i-- {
		if set[i-1] == '-' {
			if p, ok := schemaIndex[set[:i]]; ok {
				return p
			}
		}
	}
	return place{new(Row), OfPort}
}

// RowOf returns the row of a set, or of the one whose counterpart for ranges of ports it is;
// an empty row if the set is foreign. Callers must not modify it.
func RowOf(set string) *Row { return placeOf(set).row }

// IDOf returns the identity of a set. A foreign one is of no other shape than its name.
func IDOf(set string) SetID {
	shape := placeOf(set).shape
	return SetID{set[len(shape.namePrefix()):], shape}
}

// OfRanges reports whether a set of this name is for ranges of ports. If it has intervals,
// its ports are intervals, and not single ones beside a prefix.
func OfRanges(set string) bool { return set == RangesMap || IDOf(set).Shape == OfRange }

func SetsWith(c Contents) (names []string) {
	for i := range Schema {
		if r := &Schema[i]; r.Contents == c {
			for _, id := range r.Sets() {
				names = append(names, id.String())
			}
		}
	}
	return names
}

func Declare(set string) *Set {
	p := placeOf(set)
	key := p.row.Key
	if p.row.Ranged && p.shape == OfRange {
		key = slices.Clone(key)
		key[slices.Index(key, Port)] = RangeID
	}
	return &Set{Name: set, Key: key, Data: p.row.Data, Interval: p.row.Interval}
}

// Shape is which frontends a set or chain is for. Chains and sets of the same purpose have
// the same name in all shapes, with a prefix.
type Shape uint8

const (
	OfPort  Shape = iota // those with one port
	OfNode               // NodePorts with the unspecified address
	OfRange              // ranges of ports
)

// Shapes are all of them, in the order in which packets pass them.
var Shapes = [...]Shape{OfPort, OfNode, OfRange}

func ShapeOf(f model.Frontend) Shape {
	switch {
	case f.IsRange():
		return OfRange
	case f.Address.IsUnspecified():
		return OfNode
	}
	return OfPort
}

func (s Shape) namePrefix() string { return [...]string{"", "node-", "range-"}[s] }

func (s Shape) Chain(name string) string { return s.namePrefix() + name }

// InSets returns the shape of the sets that have the frontends: the elements of NodePorts
// are in the same sets as elements of other frontends with one port.
func (s Shape) InSets() Shape {
	if s == OfNode {
		return OfPort
	}
	return s
}

// Set returns the name of a set that has the frontends.
func (s Shape) Set(name string) string { return SetID{name, s.InSets()}.String() }

func SetFor(f model.Frontend, set string) string { return ShapeOf(f).Set(set) }

// SetID is the identity of a set. It is comparable.
type SetID struct {
	Name  string // the name of its counterpart for frontends with one port, if there is one
	Shape Shape
}

func (id SetID) String() string { return id.Shape.namePrefix() + id.Name }
