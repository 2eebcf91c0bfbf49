package model

import "slices"

// Refusal is a reason for which the rules refuse a connection. Its name is the prefix of the
// messages that the rules log (--observe).
type Refusal struct {
	Name string
	// Rejected reports that the client gets an answer, an error; else its packets are dropped.
	Rejected bool
	// Text says why, and Advice what to do: parts of sentences.
	Text, Advice string
}

// Refusals are all reasons, in the order of documentation.
var Refusals = []Refusal{
	{"no-endpoints", true, "no endpoint of the Service can take connections", "see \"nftproxy describe\" for the state of each endpoint"},
	{"no-local-endpoints", false, "the traffic policy is Local, and no endpoint on this node can take connections",
		"send clients to nodes with an endpoint, or set the policy to Cluster"},
	{"unknown-port", true, "no Service has this port or protocol of the address", "use a port of the Service at the address, or add this one to it"},
	{"unused-address", false, "no Service has this address", "look the name of the Service up again, or remove what still uses the address"},
	{"source-ranges", false, "the client is not in loadBalancerSourceRanges of the Service", "add its address there"},
	{"not-allowed", false, "the client is not among the allowed clients of the Service", "add its address to " + SourceRangesAnnotation},
	{"denied", false, "the client is among the denied clients of the Service", "remove its address from " + DeniedSourcesAnnotation},
	{"rate", false, "the connection rate of the Service is reached", "raise the limit, or find the client that opens so many"},
	{"client-rate", false, "the connection rate of the client is reached", "raise the limit for each client, or have the client keep its connections"},
	{"connections", false, "the Service has as many connections as it may", "raise the limit, or add endpoints"},
	{"client-connections", false, "the client has as many connections as it may", "raise the limit for each client, or have the client close connections"},
	{"affinity-released", false, "the endpoint that session affinity has chosen has just left the Service", "none: the client tries again, and gets another endpoint"},
	{"invalid-destination", false, "the port of a NodePort, on an address that is none of this node",
		"use an address of the node; see whether a router sends packets to the wrong node"},
	{"ping-refused", false, "the address does not answer echo requests from there", "see \"nftproxy describe\" for who gets answers"},
}

// RefusalOf returns the reason of a name, or nil.
func RefusalOf(name string) *Refusal {
	i := slices.IndexFunc(Refusals, func(r Refusal) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &Refusals[i]
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
