package nft

import (
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// refusedPrefix begins the names of the chains and sets of reasons.
const refusedPrefix = "refused-"

// RefusalOf returns the name of the chain that counts and refuses the connections with
// a reason, to frontends of a shape, and of the set of their counters, for example
// "range-refused-denied". NodePorts with the unspecified address are counted by the address
// that the client dialled, like frontends with one address.
func RefusalOf(r model.RefusalReason, s Shape) string { return s.Set(refusedPrefix + r.String()) }

// ReasonOf returns the reason of a chain, or of a set, that [RefusalOf] names.
func ReasonOf(name string) (r model.RefusalReason, s Shape, ok bool) {
	for _, s = range []Shape{OfPort, OfRange} {
		if reason, found := strings.CutPrefix(name, s.namePrefix()+refusedPrefix); found {
			r, ok = model.ReasonOf(reason)
			return r, s, ok
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
		return ok && model.Refusals[r].Rejected, ok
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
	FrontendSamples = Limit{Rate: model.Rate{Amount: model.SamplesOfFrontend, Burst: model.SamplesOfFrontend, Unit: model.PerSecond}}
	AllSamples      = model.Rate{Amount: model.SamplesOfAll, Burst: model.SamplesOfAll, Unit: model.PerSecond}
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

func (s CountRefused) Update() Update {
	return Update{Op: "update", Set: s.Set, Key: s.Key, Counts: true, Limit: Limit{Rate: s.Rate}}
}

func (s CountRefused) Text(f model.Family) string { return s.Update().text(f) }

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
