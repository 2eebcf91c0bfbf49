package model

// ObserveLevel is what the rules count and log of connections. Each level includes the ones
// before it.
type ObserveLevel uint8

const (
	ObserveOff      ObserveLevel = iota
	ObserveRefusals              // connections that the rules refuse, with the reason
	ObserveFailures              // samples of connections that endpoints may not answer
	ObserveServed                // all connections, with their outcome
)

// ObserveLevels are the names of the levels, in their order.
var ObserveLevels = []string{"off", "refusals", "failures", "connections"}

func (l ObserveLevel) String() string { return ObserveLevels[l] }

// ParseObserveLevel parses the name of a level.
func ParseObserveLevel(name string) (ObserveLevel, error) {
	return parseName("level", name, ObserveLevels, ObserveOff)
}

// Prefixes of the log messages about connections that are served.
const (
	ChosenPrefix     = "chosen"     // the first packet of a sample, before the translation of its destination
	SamplePrefix     = "sample"     // the same, when it leaves the machine or has reached it
	ConnectionPrefix = "connection" // the first packet, behind the translation of its destination
	DialledPrefix    = "dialled"    // the same before it
	EndPrefix        = "end"        // of a TCP connection, from either side
)

// Samples of connections that are served, at most so many in a second: of a frontend, and of all.
const (
	SamplesOfFrontend = 5
	SamplesOfAll      = 200
)

// DefaultObserveGroup is the group of NFLOG to which the rules send packets.
const DefaultObserveGroup = 28272

// Observe is a level and a group of NFLOG. The zero value is off; with this level the group
// is zero, because no rule depends on it. It is comparable.
type Observe struct {
	Level ObserveLevel
	Group uint16
	// Untracked means that the kernel adds no connection to what rules log.
	Untracked bool
}

// Refusals reports whether refused connections are counted and logged.
func (o Observe) Refusals() bool { return o.Level >= ObserveRefusals }

// Failures reports whether samples of served connections are logged.
func (o Observe) Failures() bool { return o.Level >= ObserveFailures }

// Connections reports whether all connections are logged, and not only those of Services with
// this setting.
func (o Observe) Connections() bool { return o.Level >= ObserveServed }
