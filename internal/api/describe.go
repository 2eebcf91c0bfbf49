package api

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Description is a Service as a node serves it.
type Description struct {
	APIVersion Version `json:"apiVersion"`
	From       string  `json:"from"`
	Balance    bool    `json:"balance,omitempty"` // it comes from a Balance
	Namespace  string  `json:"namespace"`
	Name       string  `json:"name"`
	Node       string  `json:"node,omitempty"`
	Zone       string  `json:"zone,omitempty"` // of the node
	// InternalPolicy is for the ClusterIP, absent without one, ExternalPolicy for other
	// addresses.
	InternalPolicy  string         `json:"internalTrafficPolicy,omitempty"`
	ExternalPolicy  string         `json:"externalTrafficPolicy,omitempty"`
	AffinitySeconds float64        `json:"affinitySeconds,omitempty"`  // after the last new connection of a client
	AllPorts        bool           `json:"affinityAllPorts,omitempty"` // it stays with one server for all ports
	Clients         *Clients       `json:"clients,omitempty"`
	Scheduler       string         `json:"scheduler,omitempty"`
	Maglev          *Maglev        `json:"maglev,omitempty"`       // absent with another scheduler
	SourceRanges    []netip.Prefix `json:"sourceRanges,omitempty"` // for the load balancer addresses
	// AllowedSources and DeniedSources are for all addresses. An empty list of allowed
	// clients admits none; without one, all are allowed.
	AllowedSources []netip.Prefix `json:"allowedSources,omitzero"`
	DeniedSources  []netip.Prefix `json:"deniedSources,omitempty"`
	Limits         []Limit        `json:"limits,omitempty"`
	// Refused are connections that the rules refused, by reason; absent without --observe, and
	// if there are none.
	Refused map[string]uint64 `json:"refused,omitempty"`
	// ClientAddresses is keep or masquerade; absent: that depends on the kind of frontend
	// and on the policies.
	ClientAddresses string       `json:"clientAddresses,omitempty"`
	HealthCheck     *HealthCheck `json:"healthCheck,omitempty"`
	// Ping has the addresses whose echo requests the node may answer; absent without
	// --answer-ping.
	Ping []Ping `json:"ping,omitempty"`
	// Stated are facts of the objects that no rule shows; absent if the Service is read from the
	// kernel.
	setting.Stated
	Slices []string        `json:"endpointSlices,omitempty"`
	Ports  []DescribedPort `json:"ports"`
	// Notices are requests that cannot be served, Warnings remarks of the source on its
	// objects.
	Notices  []string `json:"notices,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Runtime are changes of servers by commands, which no file has.
	Runtime []model.RuntimeChange `json:"runtimeChanges,omitempty"`
	// RelayFailures are the reasons why the relay refuses connections, one for each family.
	RelayFailures []string `json:"relayFailures,omitempty"`
	// Unsynced is why the rules in the kernel may not be those that are described; absent:
	// they are.
	Unsynced string `json:"unsynced,omitempty"`
	// Changed is the last change of the rules; with a zero time, there was none since
	// the daemon remembers.
	Changed *LastChange `json:"changed,omitempty"`
	// Unknown names facts that are missing here, and where to find them.
	Unknown []string `json:"unknown,omitempty"`
}

// Maglev is the table of the schedulers maglev and maglev-port.
type Maglev struct {
	Slots int `json:"slots"`
	// Note says by how much the shares of endpoints differ, if that is more than a
	// hundredth.
	Note string `json:"note,omitempty"`
}

// Ping is who gets answers to echo requests from an address.
type Ping struct {
	Address   string `json:"address"`
	Inside    bool   `json:"inside"`              // pods and this node
	Outside   bool   `json:"outside"`             // other clients
	DecidedBy string `json:"decidedBy,omitempty"` // another Service with the address
}

// Clients is the number of clients that session affinity binds.
type Clients struct {
	Bound   int  `json:"bound"`
	AtLeast bool `json:"atLeast,omitempty"` // not all bindings were read
}

// HealthCheck is the answer to load balancers about the Service.
type HealthCheck struct {
	Port uint16 `json:"port"`
	// Endpoints is the number of ready endpoints on this node by family.
	Endpoints map[string]int `json:"endpoints"`
}

// LastChange is a change of the rules of the Service.
type LastChange struct {
	Time time.Time `json:"time,omitzero"`
	What string    `json:"what"`
	// AgeSeconds is the time since the kernel has the change, by a clock that is never set;
	// absent without a time, and from versions before 0.2.0.
	AgeSeconds float64 `json:"ageSeconds,omitempty"`
	// OnlyEndpoint is the endpoint that takes the connections to the ClusterIP after the change,
	// with the port; absent: there is none, or more than one.
	OnlyEndpoint string `json:"onlyEndpoint,omitempty"`
}

// DescribedPort is a service port.
type DescribedPort struct {
	Name      string              `json:"name,omitempty"`
	Protocol  string              `json:"protocol"`
	Port      uint16              `json:"port,omitempty"`     // of all addresses except NodePorts
	LastPort  uint16              `json:"lastPort,omitempty"` // of a range of ports, which begins at Port
	NodePort  uint16              `json:"nodePort,omitempty"`
	Frontends []DescribedFrontend `json:"frontends"`
	Endpoints []DescribedEndpoint `json:"endpoints,omitempty"`
	// ZoneFloors says how the zone floor applies in each family; absent without one.
	ZoneFloors []ZoneFloor `json:"zoneFloors,omitempty"`
}

// ZoneFloor is how the zone floor of a Service applies to the clients of the node.
type ZoneFloor struct {
	Family string `json:"family"`
	Counts bool   `json:"counts"` // the node has a zone, and nothing takes precedence
	// Endpoints are the ready ones of the zone, and Of those of all zones.
	Endpoints int `json:"endpoints"`
	Of        int `json:"of"`
	// Elsewhere is the part of the connections that other zones get, from 0 to 1.
	Elsewhere float64 `json:"elsewhere"`
	Rule      string  `json:"rule"` // in words, with the reason
}

// DescribedFrontend is an address that clients dial.
type DescribedFrontend struct {
	Kind    string `json:"kind"` // ClusterIP, NodePort, external IP or load balancer IP
	Address string `json:"address"`
	// Inside is the verdict for pods and this node, Outside for other clients: forward,
	// reject or drop.
	Inside      string   `json:"inside,omitempty"`
	Outside     string   `json:"outside,omitempty"`
	ConnectsTo  string   `json:"connectsTo,omitempty"` // the frontend that the listener of a NodePort on localhost connects to
	ServedBy    string   `json:"servedBy,omitempty"`   // another Service has the address
	AlsoClaimed []string `json:"alsoClaimedBy,omitempty"`
	Connections *uint64  `json:"connections,omitempty"` // new ones, since the daemon started or the rules were made
	// Dropped are connections that exceeded a limit, by its kind.
	Dropped map[string]uint64 `json:"dropped,omitempty"`
}

// DescribedEndpoint is a host that answers for the service port.
type DescribedEndpoint struct {
	Address string `json:"address"` // without a port if it has none for the service port
	// Name is the name of DNS that has the address; absent: files name the address.
	Name   string   `json:"name,omitempty"`
	Family string   `json:"family"`
	Node   string   `json:"node,omitempty"`
	Zones  []string `json:"forZones,omitempty"` // topology hints
	Nodes  []string `json:"forNodes,omitempty"`
	Weight int      `json:"weight,omitempty"` // absent: not known, or 0
	State  string   `json:"state,omitempty"`  // ready, not ready, terminating or terminated
	// Checked is the result of the health check, absent if there is none yet.
	Checked *Checked `json:"checked,omitempty"`
	// Starting says how far the endpoint is that starts slowly; absent: it has its whole weight.
	Starting *Starting `json:"starting,omitempty"`
	// Inside is for pods and this node, Outside for other clients, if they get others.
	Inside  Share  `json:"inside"`
	Outside *Share `json:"outside,omitempty"`
	Clients *int   `json:"clients,omitempty"` // bound to it
	// Connections are new ones of the frontends, except from clients that are bound
	// already, since the daemon started or the rules were made; absent unless they are counted.
	Connections *uint64 `json:"connections,omitempty"`
	// Open are the connections through the frontends that are open now, if they were
	// counted.
	Open *int `json:"openConnections,omitempty"`
	// Sampled has the outcomes of the last minute, absent without samples.
	Sampled *Sampled `json:"sampled,omitempty"`
}

// Sampled are the outcomes of sampled connections.
type Sampled struct {
	Answered   int `json:"answered"`
	Refused    int `json:"refused"`
	Unanswered int `json:"unanswered"`
}

// Checked is the result of a health check.
type Checked struct {
	Healthy bool      `json:"healthy"`
	Since   time.Time `json:"since,omitzero"`    // absent: it was not checked yet
	Message string    `json:"message,omitempty"` // why the last check failed, or was not made
}

// Starting is the state of an endpoint that starts slowly.
type Starting struct {
	Part float64   `json:"part"`          // of its weight, from 0.1 to 0.9
	Full time.Time `json:"full,omitzero"` // when it has its whole weight
}

// Share is the part of the new connections that an endpoint gets.
type Share struct {
	Part    float64 `json:"share"`           // from 0 to 1
	Slots   int     `json:"slots,omitempty"` // of the rules' choice
	LeftOut string  `json:"leftOut,omitempty"`
}

// Reason returns why an endpoint takes no connections to the ClusterIP, or else to
// another address, from clients inside or outside of the cluster; empty: it is not known.
func (e *DescribedEndpoint) Reason(clusterIP, outside bool) string {
	switch {
	case clusterIP || e.Outside == nil:
		return e.Inside.LeftOut
	case outside:
		return e.Outside.LeftOut
	case e.Inside.LeftOut == e.Outside.LeftOut:
		return e.Inside.LeftOut
	}
	return "" // clients inside have another policy there
}

// ServiceName returns the name of the Service.
func (s *Description) ServiceName() model.ServiceName {
	return model.ServiceName{Namespace: s.Namespace, Name: s.Name}
}

// Object returns the object that the Service comes from, as messages name it.
func (s *Description) Object() model.Object {
	return s.ServiceName().ObjectAs(s.Balance)
}

// Words are the words for the Service.
func (s *Description) Words() words.Vocabulary { return words.Of(s.Balance) }

// ConnectsTo returns the frontend that the listener of a NodePort on localhost connects to;
// false: there is no listener.
func (s *Description) ConnectsTo(f model.Frontend) (netip.AddrPort, bool) {
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Frontends {
			if p.Frontend(&p.Frontends[j]) == f {
				to, err := netip.ParseAddrPort(p.Frontends[j].ConnectsTo)
				return to, err == nil
			}
		}
	}
	return netip.AddrPort{}, false
}

// Limit is a connection limit of each frontend.
type Limit struct {
	Kind string `json:"kind"` // rate-per-client, rate, connections-per-client or connections
	// Admits is the admitted quantity, for example "100 new connections per second".
	Admits string `json:"admits"`
	// Dropped are connections to all frontends, since the limit was switched on.
	Dropped *uint64 `json:"dropped,omitempty"`
	// Passed are those of clients that a limit per client had no room for.
	Passed uint64 `json:"passed,omitempty"`
}

// Frontend returns the address that clients dial; the zero value if it is malformed.
func (p *DescribedPort) Frontend(f *DescribedFrontend) model.Frontend {
	key, _ := model.ParseFrontend(p.Protocol, f.Address)
	return key
}

// AddrPort returns the address of an endpoint, with port 0 if it has none: then it keeps the
// port that the client dials.
func (e *DescribedEndpoint) AddrPort() netip.AddrPort {
	if at, err := netip.ParseAddrPort(e.Address); err == nil {
		return at
	}
	a, _ := netip.ParseAddr(e.Address)
	return netip.AddrPortFrom(a, 0)
}

// Host returns the address without the port.
func (e *DescribedEndpoint) Host() string {
	if at, err := netip.ParseAddrPort(e.Address); err == nil {
		return at.Addr().String()
	}
	return e.Address
}

// SourceLists returns the lists of clients for the frontends of a kind in one family.
func (s *Description) SourceLists(kind string, f model.Family) []model.SourceList {
	of := &model.Service{
		Balance: s.Balance, External: &model.External{SourceRanges: s.SourceRanges},
		Extras: &model.Extras{Sources: model.NewSources(s.AllowedSources != nil, s.AllowedSources, s.DeniedSources)},
	}
	if kind == model.LoadBalancerIP.String() {
		return of.SourceLists(model.LoadBalancerIP, f)
	}
	return of.SourceLists(model.ClusterIP, f)
}

// Serving says whether a node serves a Service: whether clients from outside reach a server
// that is usable, which means that it takes new connections and does not fail its health
// check. A server is a host, with all its ports.
type Serving struct {
	APIVersion Version `json:"apiVersion"`
	Service    string  `json:"service"` // namespace/name
	Serves     bool    `json:"serves"`
	Usable     int     `json:"usableServers"`
	Servers    int     `json:"servers"`
	// Reason is why one of the others is not usable; empty: all are, or there is none.
	Reason string `json:"reason,omitempty"`
	// Unsynced is the reason why the rules in the kernel may differ from the description,
	// so that the answer is not known; empty: they do not differ.
	Unsynced string `json:"unsynced,omitempty"`
}

// Serving returns whether the node serves a Service. Servers that fail their health check
// are not usable even where all are used because all fail.
func (s *Description) Serving() Serving {
	out := Serving{Service: s.ServiceName().String(), Unsynced: s.Unsynced}
	usable, why := make(map[string]bool), make(map[string]string)
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Endpoints {
			e := &p.Endpoints[j]
			reason := p.unusable(e)
			usable[e.Host()] = usable[e.Host()] || reason == ""
			if why[e.Host()] == "" {
				why[e.Host()] = reason
			}
		}
	}
	var others []string
	for host, ok := range usable {
		if ok {
			out.Usable++
		} else {
			others = append(others, host+": "+why[host])
		}
	}
	if len(others) > 0 {
		out.Reason = slices.Min(others)
	}
	out.Servers, out.Serves = len(usable), out.Usable > 0
	return out
}

// unusable returns why clients from outside do not reach an endpoint, or should not; empty:
// it is usable.
func (p *DescribedPort) unusable(e *DescribedEndpoint) string {
	share := e.Inside
	if e.Outside != nil {
		share = *e.Outside
	}
	switch {
	case share.Part == 0 && share.LeftOut != "":
		return share.LeftOut
	case share.Part == 0:
		return "it takes no connections"
	case e.Checked != nil && !e.Checked.Healthy:
		return "its health check fails: " + e.Checked.Message
	case !slices.ContainsFunc(p.Frontends, func(f DescribedFrontend) bool { return f.forwards(p.Protocol, e.Family) }):
		return "no address leads to it"
	}
	return ""
}

// forwards reports whether a frontend is of a family and of this Service, and forwards
// connections.
func (f *DescribedFrontend) forwards(protocol, family string) bool {
	at, err := model.ParseFrontend(protocol, f.Address) // as we print it
	return err == nil && model.FamilyOf(at.Address).String() == family && f.ServedBy == "" &&
		(f.Inside == model.Forward.String() || f.Outside == model.Forward.String())
}
