package model

import "slices"

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

// RefusalReason is why the rules refuse a connection: an index of [Refusals].
type RefusalReason uint8

const (
	NoEndpoints RefusalReason = iota
	NoLocalEndpoints
	UnknownPort
	UnusedAddress
	SourceRanges
	NotAllowed
	Denied
	OverRate
	OverClientRate
	OverConnections
	OverClientConnections
	AffinityReleased
	InvalidDestination
	PingRefused
)

// CountedBy is by what the connections that are refused for a reason are counted.
type CountedBy uint8

const (
	ByFrontend CountedBy = iota // the address, protocol and port that the client dialled
	ByAddress                   // the address that the client dialled
	ByProtocol                  // and the unspecified address: clients could fill a set with others
)

// Refusal has the facts about a reason, and the words for it. Its name is the prefix of the
// messages that the rules log (--observe).
type Refusal struct {
	Name string
	// Rejected reports that the client gets an answer, an error; else its packets are dropped.
	Rejected  bool
	CountedBy CountedBy
	// Text says why, and Advice what to do: parts of sentences.
	Text, Advice string
}

// Refusals are all reasons, in the order of documentation.
var Refusals = [...]Refusal{
	NoEndpoints: {"no-endpoints", true, ByFrontend, "no endpoint of the Service can take connections", "see \"nftproxy describe\" for the state of each endpoint"},
	NoLocalEndpoints: {"no-local-endpoints", false, ByFrontend, "the traffic policy is Local, and no endpoint on this node can take connections",
		"send clients to nodes with an endpoint, or set the policy to Cluster"},
	UnknownPort:           {"unknown-port", true, ByAddress, "no Service has this port or protocol of the address", "use a port of the Service at the address, or add this one to it"},
	UnusedAddress:         {"unused-address", false, ByProtocol, "no Service has this address", "look the name of the Service up again, or remove what still uses the address"},
	SourceRanges:          {"source-ranges", false, ByFrontend, "the client is not in loadBalancerSourceRanges of the Service", "add its address there"},
	NotAllowed:            {"not-allowed", false, ByFrontend, "the client is not among the allowed clients of the Service", "add its address to " + SourceRangesAnnotation},
	Denied:                {"denied", false, ByFrontend, "the client is among the denied clients of the Service", "remove its address from " + DeniedSourcesAnnotation},
	OverRate:              {"rate", false, ByFrontend, "the connection rate of the Service is reached", "raise the limit, or find the client that opens so many"},
	OverClientRate:        {"client-rate", false, ByFrontend, "the connection rate of the client is reached", "raise the limit for each client, or have the client keep its connections"},
	OverConnections:       {"connections", false, ByFrontend, "the Service has as many connections as it may", "raise the limit, or add endpoints"},
	OverClientConnections: {"client-connections", false, ByFrontend, "the client has as many connections as it may", "raise the limit for each client, or have the client close connections"},
	AffinityReleased:      {"affinity-released", false, ByFrontend, "the endpoint that session affinity has chosen has just left the Service", "none: the client tries again, and gets another endpoint"},
	InvalidDestination: {"invalid-destination", false, ByProtocol, "the port of a NodePort, on an address that is none of this node",
		"use an address of the node; see whether a router sends packets to the wrong node"},
	PingRefused: {"ping-refused", false, ByAddress, "the address does not answer echo requests from there", "see \"nftproxy describe\" for who gets answers"},
}

func (r RefusalReason) String() string { return Refusals[r].Name }

// OverReason returns the reason of what exceeds a kind of limit.
func OverReason(k LimitKind) RefusalReason {
	return [...]RefusalReason{
		LimitClientRate: OverClientRate, LimitRate: OverRate,
		LimitClientConnections: OverClientConnections, LimitConnections: OverConnections,
	}[k]
}

func ReasonOf(name string) (r RefusalReason, ok bool) {
	i := slices.IndexFunc(Refusals[:], func(r Refusal) bool { return r.Name == name })
	return RefusalReason(max(i, 0)), i >= 0
}

// RefusalOf returns what is known about the reason of a name, or nil.
func RefusalOf(name string) *Refusal {
	r, ok := ReasonOf(name)
	if !ok {
		return nil
	}
	return &Refusals[r]
}

func RefusalNames() []string {
	names := make([]string, len(Refusals))
	for i := range Refusals {
		names[i] = Refusals[i].Name
	}
	return names
}

// Ends returns how the connection ends, in one word.
func (r *Refusal) Ends() string {
	if r.Rejected {
		return "rejected"
	}
	return "dropped"
}

type Outcome uint8

const (
	RefusedByRules    Outcome = iota // for the reason of a [Refusal]
	RefusedByEndpoint                // a reset in place of an answer
	NoAnswer                         // from the endpoint
	Served                           // the endpoint has answered
)

var OutcomeNames = []string{"refused", "endpoint-refused", "unanswered", "served"}

func (o Outcome) String() string { return OutcomeNames[o] }

// Failed reports whether the client got no answer.
func (o Outcome) Failed() bool { return o != Served }

// Course is how a connection that the rules have sent to an endpoint went on. Its name is no
// name of a [Refusal].
type Course struct {
	Name    string
	Outcome Outcome
	// Text says what happened, and Advice what to do, if anything: parts of sentences.
	Text, Advice string
}

// Names of courses.
const (
	EndpointRefused = "endpoint-refused"
	Unanswered      = "unanswered"
	AnsweredOpen    = "answered"
	ClientClosed    = "client-closed"
	ServerClosed    = "server-closed"
	ClientReset     = "client-reset"
	ServerReset     = "server-reset"
	Expired         = "expired"
)

// Courses are all courses, in the order of documentation.
var Courses = []Course{
	{EndpointRefused, RefusedByEndpoint, "the endpoint refuses the connection", "see whether a program listens on that port of the endpoint, and on which addresses"},
	{Unanswered, NoAnswer, "the endpoint has not answered within 2 seconds", "see whether a filter drops the packets, and whether the answers return through this node; UDP servers may answer nothing"},
	{AnsweredOpen, Served, "the endpoint has answered, and the connection goes on", ""},
	{ClientClosed, Served, "the client has ended the connection", ""},
	{ServerClosed, Served, "the endpoint has ended the connection", ""},
	{ClientReset, Served, "the client has reset the connection", ""},
	{ServerReset, Served, "the endpoint has reset the connection", ""},
	{Expired, Served, "connection tracking has removed the connection: it was idle for long, or deleted", ""},
}

// CourseOf returns the course of a name, or nil.
func CourseOf(name string) *Course {
	i := slices.IndexFunc(Courses, func(c Course) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &Courses[i]
}

func OutcomeOf(reason string) Outcome {
	if c := CourseOf(reason); c != nil {
		return c.Outcome
	}
	return RefusedByRules
}

// ReasonNames returns the names of all refusals and courses.
func ReasonNames() []string {
	names := RefusalNames()
	for i := range Courses {
		names = append(names, Courses[i].Name)
	}
	return names
}

// ReasonText returns what happened to a connection with a reason, and what to do; false: no
// refusal or course has this name.
func ReasonText(name string) (text, advice string, ok bool) {
	if r := RefusalOf(name); r != nil {
		return r.Text, r.Advice, true
	}
	if c := CourseOf(name); c != nil {
		return c.Text, c.Advice, true
	}
	return "", "", false
}
