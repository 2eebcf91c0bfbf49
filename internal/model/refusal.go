package model

import "slices"

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

// ReasonOf returns the reason of a name.
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

// RefusalNames returns the names of all reasons.
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
