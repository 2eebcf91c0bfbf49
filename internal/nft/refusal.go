package nft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Reason is why the rules refuse a connection.
type Reason uint8

const (
	NoEndpoints Reason = iota
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

// ReasonRow has the facts about a reason. [model.Refusals] has the words for it.
type ReasonRow struct {
	Name      string // also the prefix of log messages
	Rejects   bool   // the client gets an answer
	CountedBy CountedBy
}

// Reasons has the rows of all reasons.
var Reasons = [...]ReasonRow{
	NoEndpoints:           {"no-endpoints", true, ByFrontend},
	NoLocalEndpoints:      {"no-local-endpoints", false, ByFrontend},
	UnknownPort:           {"unknown-port", true, ByAddress},
	UnusedAddress:         {"unused-address", false, ByProtocol},
	SourceRanges:          {"source-ranges", false, ByFrontend},
	NotAllowed:            {"not-allowed", false, ByFrontend},
	Denied:                {"denied", false, ByFrontend},
	OverRate:              {"rate", false, ByFrontend},
	OverClientRate:        {"client-rate", false, ByFrontend},
	OverConnections:       {"connections", false, ByFrontend},
	OverClientConnections: {"client-connections", false, ByFrontend},
	AffinityReleased:      {"affinity-released", false, ByFrontend},
	InvalidDestination:    {"invalid-destination", false, ByProtocol},
	PingRefused:           {"ping-refused", false, ByAddress},
}

func (r Reason) String() string { return Reasons[r].Name }

// OverReason returns the reason of what exceeds a kind of limit.
func OverReason(k model.LimitKind) Reason {
	return [...]Reason{
		model.LimitClientRate: OverClientRate, model.LimitRate: OverRate,
		model.LimitClientConnections: OverClientConnections, model.LimitConnections: OverConnections,
	}[k]
}

// refusedPrefix begins the names of the chains and sets of reasons.
const refusedPrefix = "refused-"

// RefusalOf returns the name of the chain that counts and refuses the connections with
// a reason, to frontends of a shape, and of the set of their counters, for example
// "range-refused-denied". NodePorts with the unspecified address are counted by the address
// that the client dialled, like frontends with one address.
func RefusalOf(r Reason, s Shape) string { return s.Set(refusedPrefix + r.String()) }

// ReasonOf returns the reason of a chain, or of a set, that [RefusalOf] names.
func ReasonOf(name string) (r Reason, s Shape, ok bool) {
	for _, s = range []Shape{OfPort, OfRange} {
		if reason, found := strings.CutPrefix(name, s.prefix()+refusedPrefix); found {
			i := slices.IndexFunc(Reasons[:], func(r ReasonRow) bool { return r.Name == reason })
			return Reason(max(i, 0)), s, i >= 0
		}
	}
	return 0, OfPort, false
}

// Refuses reports whether a verdict refuses connections, in the chain of a reason or not,
// and whether their clients get an answer.
func (v Verdict) Refuses() (rejects, ok bool) {
	switch {
	case v.Action == Drop:
		return false, true
	case v.Action == Goto && v.Chain == RefuseChain:
		return true, true
	case v.Action == Goto:
		r, _, ok := ReasonOf(v.Chain)
		return ok && Reasons[r].Rejects, ok
	}
	return false, false
}

// Limits of what is logged. A frontend that is flooded does not keep the refusals of others
// from being logged, and all of them together cost a reader a bounded share of its time.
var (
	SampleRate = model.Rate{Amount: 10, Burst: 10, Unit: model.PerSecond}   // of a key
	LogRate    = model.Rate{Amount: 500, Burst: 500, Unit: model.PerSecond} // of a reason
)

// Limits of the samples of connections that are served: of a frontend, and of all.
var (
	FrontendSamples = Limit{Rate: model.Rate{Amount: 5, Burst: 5, Unit: model.PerSecond}}
	AllSamples      = model.Rate{Amount: 200, Burst: 200, Unit: model.PerSecond}
)

// Snaplen is how many bytes of a packet are logged: the headers of IPv6, of two extensions
// and of a transport protocol.
const Snaplen = 96

// CountRefused counts the packets of a key in an element of a dynamic set, which is added if it
// is missing, and matches those that do not exceed the rate of their key. It does not match if
// the set is full.
type CountRefused struct {
	Set  string
	Key  Concat
	Rate model.Rate
}

func (s CountRefused) Text(f model.Family) string {
	return fmt.Sprintf("update @%s { %s counter %s }", s.Set, s.Key.Text(f), rateText(s.Rate, false))
}

func (s CountRefused) json(f model.Family) object {
	return object{"set": object{"op": "update", "elem": s.Key.json(f), "set": "@" + s.Set,
		"stmt": []object{{"counter": nil}, {"limit": rateJSON(s.Rate, false)}}}}
}

// Within matches packets that do not exceed a rate.
type Within struct{ Rate model.Rate }

func (s Within) Text(model.Family) string { return rateText(s.Rate, false) }

// Log sends the first bytes of a packet to a group of NFLOG, with a prefix. Without a
// program that listens there, the kernel does nothing.
type Log struct {
	Prefix  string
	Group   uint16
	Snaplen uint32
}

func (s Log) Text(model.Family) string {
	return fmt.Sprintf("log prefix %q group %d snaplen %d", s.Prefix, s.Group, s.Snaplen)
}
