package model

import "errors"

// FastPathLevel says which established connections may go to a flow table of the kernel,
// which takes their packets past the rules.
type FastPathLevel uint8

const (
	FastPathOff      FastPathLevel = iota
	FastPathServices               // those of Services that ask for it
	FastPathAll                    // those of all Services that do not refuse it
	FastPathHardware               // the same, by network devices that can do it themselves
)

var FastPathLevels = []string{"off", "services", "all", "hardware"}

func (l FastPathLevel) String() string { return FastPathLevels[l] }

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
