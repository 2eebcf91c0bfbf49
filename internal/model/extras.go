package model

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Extras are settings beyond Kubernetes, from our annotations, in an object of its own
// because few Services have any. They must not be changed.
type Extras struct {
	// EndpointsFrom is the Service of a cluster whose endpoints a Service of files has
	// in addition to its own; nil: none.
	EndpointsFrom *ServiceName
	// Limits of new connections.
	Limits Limits
	// Ranges are ports in addition to the Service's own. No two of a protocol overlap,
	// and a single port is none of the Service's ports.
	Ranges []PortRange
	// Sources are the clients of all frontends of the Service, of both families (4.75).
	Sources *Sources
	// OnFailure decides over established TCP connections to an endpoint that fails or leaves.
	OnFailure OnFailure
	// Description is a line of text for people. It is printable.
	Description string
	// MaglevSize is one of [MaglevSizes]; zero: [DefaultMaglevSize].
	MaglevSize uint32
	// ZoneFloor is the share of all ready endpoints, in percent, from which on the endpoints
	// of a zone serve its clients alone (3.61); zero: none.
	ZoneFloor uint32
	// Observe reports that the connections of the Service are logged, if the node observes any.
	Observe bool
	// FastPath says whether established connections may go to a flow table of the kernel.
	FastPath FastPathUse
	// SlowStart is the time in which an endpoint gets its whole weight when it begins to take
	// connections while the Service is served; zero: it has its weight at once.
	SlowStart time.Duration
	// Starting are the endpoints that start slowly at present, sorted by address. A source has
	// none; what follows the time adds them.
	Starting []Starting
	// Relay says that a process of this machine relays the connections, of a Service of files.
	Relay RelayUse
	// RelayTimeout is the time without data after which a relayed connection is closed; zero:
	// [DefaultRelayTimeout].
	RelayTimeout time.Duration
	// Announce is the interface that has the addresses while a server is usable; empty: none.
	Announce string
	// MasqueradeFrom are the addresses of this machine with which connections that are masqueraded
	// for all clients go on, in turn, of a Service of files; none in a family: as all others.
	MasqueradeFrom []netip.Addr
	// Names are servers by names of DNS, of a Service of files.
	Names []NamedServer
	// Listeners stand for addresses of the machine, of a Service of files.
	Listeners []Listener
}

// OnFailure is the treatment of established TCP connections to an endpoint that fails its
// health check or leaves the Service.
type OnFailure uint8

const (
	DefaultOnFailure OnFailure = iota // as the configuration of the node says
	KeepOnFailure                     // they continue
	CloseOnFailure                    // their conntrack entries are deleted (9.28)
)

// OnFailureNames are the names of the values, from [KeepOnFailure] on.
var OnFailureNames = []string{"keep", "close"}

// String returns the name, or "default".
func (o OnFailure) String() string { return nameOf(o, KeepOnFailure, OnFailureNames, "default") }

// Closes reports whether the connections end on a node whose configuration closes them or not.
func (o OnFailure) Closes(node bool) bool {
	return o == CloseOnFailure || o == DefaultOnFailure && node
}

var noExtras Extras

// Extra returns the extras of a Service, never nil.
func (s *Service) Extra() *Extras {
	if s.Extras == nil {
		return &noExtras
	}
	return s.Extras
}

// Limits are the most new connections that a Service admits at each of its frontends,
// on each node by itself. Zero values are no limits. It is comparable.
type Limits struct {
	Connections          uint32 // concurrent
	ConnectionsPerClient uint32
	Rate                 Rate // of new connections
	RatePerClient        Rate
}

// Rate is a number of new connections in a unit of time. Burst of them may come
// together: those that are missing are added at the rate.
type Rate struct {
	Amount uint32 // zero: no limit
	Burst  uint32 // at least 1
	Unit   RateUnit
}

// RateUnit is the unit of time of a rate.
type RateUnit uint8

const (
	PerSecond RateUnit = iota
	PerMinute
	PerHour
)

// RateUnits lists the units by name.
var RateUnits = [...]string{"second", "minute", "hour"}

func (u RateUnit) String() string { return RateUnits[u] }

// Duration returns the length of the unit.
func (u RateUnit) Duration() time.Duration {
	return [...]time.Duration{time.Second, time.Minute, time.Hour}[u]
}

// String returns for example "100/second burst 20", as in annotations.
func (r Rate) String() string {
	if r.Amount == r.Burst {
		return fmt.Sprintf("%d/%s", r.Amount, r.Unit)
	}
	return fmt.Sprintf("%d/%s burst %d", r.Amount, r.Unit, r.Burst)
}

// Refill returns the time in which a whole burst is added, in whole seconds.
func (r Rate) Refill() time.Duration {
	seconds := uint64(r.Unit.Duration() / time.Second)
	return time.Duration((uint64(r.Burst)*seconds+uint64(r.Amount)-1)/uint64(r.Amount)) * time.Second
}

// LimitKind is one of the limits of a Service.
type LimitKind uint8

// The kinds, in the order in which they are checked.
const (
	LimitClientRate LimitKind = iota
	LimitRate
	LimitClientConnections
	LimitConnections
)

// LimitKinds lists the kinds by name, as in metrics.
var LimitKinds = [...]string{"rate-per-client", "rate", "connections-per-client", "connections"}

func (k LimitKind) String() string { return LimitKinds[k] }

// OfClients reports whether each client has the limit.
func (k LimitKind) OfClients() bool { return k == LimitClientRate || k == LimitClientConnections }

// Of returns the limit of a kind, a rate or a number of connections.
func (l Limits) Of(k LimitKind) (rate Rate, connections uint32) {
	switch k {
	case LimitClientRate:
		rate = l.RatePerClient
	case LimitRate:
		rate = l.Rate
	case LimitClientConnections:
		connections = l.ConnectionsPerClient
	default:
		connections = l.Connections
	}
	return rate, connections
}

// Value returns the value of a limit as in annotations, or "none".
func (l Limits) Value(k LimitKind) string {
	switch rate, n := l.Of(k); {
	case n > 0:
		return fmt.Sprint(n)
	case rate.Amount > 0:
		return rate.String()
	}
	return "none"
}

// Text describes a limit, for example "100 new connections per second (burst 20)", or
// returns nothing without one.
func (l Limits) Text(k LimitKind) string {
	whose := ""
	if k.OfClients() {
		whose = " per client"
	}
	rate, n := l.Of(k)
	if n > 0 {
		return describeCount(n, "connection", whose)
	}
	return rate.describeRate(whose)
}

func (r Rate) describeRate(whose string) string {
	text := describeCount(r.Amount, "new connection", " per "+r.Unit.String()+whose)
	if r.Amount != r.Burst {
		text += fmt.Sprintf(" (burst %d)", r.Burst)
	}
	return text
}

// describeCount returns for example "2 connections per client", or nothing for none.
func describeCount(n uint32, what, whose string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "1 " + what + whose
	}
	return fmt.Sprintf("%d %ss%s", n, what, whose)
}

func (s *Service) withoutLimits() (*Service, []Notice) {
	if s.Extra().Limits == (Limits{}) {
		return s, nil
	}
	out, extras := *s, *s.Extras
	extras.Limits, out.Extras = Limits{}, &extras
	return &out, []Notice{newNotice(s.Object(), NoLimits, "connection limits do not apply: the kernel lacks nft_limit or nft_connlimit")}
}

// FastPathLevel says which established connections may go to a flow table of the kernel,
// which takes their packets past the rules.
type FastPathLevel uint8

const (
	FastPathOff      FastPathLevel = iota
	FastPathServices               // those of Services that ask for it
	FastPathAll                    // those of all Services that do not refuse it
	FastPathHardware               // the same, by network devices that can do it themselves
)

// FastPathLevels are the names of the levels.
var FastPathLevels = []string{"off", "services", "all", "hardware"}

func (l FastPathLevel) String() string { return FastPathLevels[l] }

// ParseFastPathLevel returns the level with a name.
func ParseFastPathLevel(name string) (FastPathLevel, error) {
	return parseName("level", name, FastPathLevels, FastPathOff)
}

// FastPath says what a node knows about its fast path.
type FastPath struct {
	Level FastPathLevel
	// Closes reports that TCP connections to endpoints that are gone are closed, unless their
	// Service keeps them.
	Closes bool
}

// FastPathUse is what a Service says about its fast path.
type FastPathUse uint8

const (
	DefaultFastPath FastPathUse = iota // as the configuration of the node says
	UseFastPath
	AvoidFastPath
)

// FastPathUses are the names of the values, from [UseFastPath] on.
var FastPathUses = []string{"use", "avoid"}

// String returns the name, or "default".
func (u FastPathUse) String() string { return nameOf(u, UseFastPath, FastPathUses, "default") }

// Reasons why the packets of a connection stay with the rules.
var (
	errFastPathOff      = errors.New("it is off on this node (--fast-path)")
	errFastPathUnwanted = errors.New("the Service does not ask for it")
	errFastPathAvoided  = errors.New("the Service avoids it")
	errFastPathProtocol = errors.New("only TCP and UDP have one")
	errFastPathRange    = errors.New("ranges of ports have none")
	errFastPathAnyNode  = errors.New("NodePorts on several addresses have none")
	errFastPathRelay    = errors.New("a process relays the connections of the Service")
	errFastPathClients  = errors.New("the frontend has lists of clients")
	errFastPathLimits   = errors.New("the Service has limits")
	errFastPathCloses   = errors.New("connections to endpoints that are gone are closed")
	errFastPathObserved = errors.New("the connections of the Service are observed")
)

// NoFastPath returns why established connections to a frontend stay with the rules on a
// node with this configuration; nil: they take the fast path. The reason is for people.
func (c *Config) NoFastPath(r *Route) error {
	own := r.Service.Extra()
	switch p := &c.FastPath; {
	case p.Level == FastPathOff:
		return errFastPathOff
	case own.FastPath == AvoidFastPath:
		return errFastPathAvoided
	case own.FastPath != UseFastPath && p.Level < FastPathAll:
		return errFastPathUnwanted
	}
	return c.staysWithRules(r)
}

// staysWithRules returns what keeps connections with the rules although they are to take the
// fast path: settings that must see, count or cut each packet, and what it has no key for.
func (c *Config) staysWithRules(r *Route) error {
	own := r.Service.Extra()
	switch {
	case r.Frontend.Protocol != TCP && r.Frontend.Protocol != UDP:
		return errFastPathProtocol
	case r.Frontend.IsRange():
		return errFastPathRange
	case r.Frontend.Address.IsUnspecified():
		return errFastPathAnyNode
	case r.Relayed():
		return errFastPathRelay
	case r.Sources != nil:
		return errFastPathClients
	case own.Limits != Limits{}:
		return errFastPathLimits
	case r.Frontend.Protocol == TCP && own.OnFailure.Closes(c.FastPath.Closes):
		return errFastPathCloses
	case c.Observe.Connections(), c.Observe.Refusals() && own.Observe:
		return errFastPathObserved
	}
	return nil
}
