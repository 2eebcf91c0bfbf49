package nft

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// LimitType is the quantity that the elements of a set limit. Each element has a limit of its
// own, and matches only packets that exceed it.
type LimitType uint8

const (
	NoLimits         LimitType = iota
	RateLimits                 // rates of new connections
	ConnectionLimits           // concurrent connections
)

// Limit is a limit of one [LimitType]: the other field is zero. It matches what exceeds it.
type Limit struct {
	Rate        model.Rate
	Connections uint32
}

// DefaultLimit is the limit in the declaration of a set, for elements without their own.
// We write none of these.
func DefaultLimit(t LimitType) Limit {
	if t == ConnectionLimits {
		return Limit{Connections: 1}
	}
	return Limit{Rate: model.Rate{Amount: 1, Burst: defaultBurst, Unit: model.PerSecond}}
}

// defaultBurst is the burst that nft does not print.
const defaultBurst = 5

func (l Limit) Text() string {
	switch r := l.Rate; {
	case r.Amount == 0:
		return fmt.Sprintf("ct count over %d", l.Connections)
	default:
		return rateText(r, true)
	}
}

func rateText(r model.Rate, over bool) string {
	text := "limit rate "
	if over {
		text += "over "
	}
	text += fmt.Sprintf("%d/%s", r.Amount, r.Unit)
	if r.Burst == defaultBurst {
		return text
	}
	return text + fmt.Sprintf(" burst %d packets", r.Burst)
}

func rateJSON(r model.Rate, over bool) object {
	out := object{"rate": r.Amount, "burst": r.Burst, "per": r.Unit.String()}
	if over {
		out["inv"] = true
	}
	return out
}

func (l Limit) limitJSON() object {
	if l.Rate.Amount == 0 {
		return object{"ct count": object{"val": l.Connections, "inv": true}}
	}
	return object{"limit": rateJSON(l.Rate, true)}
}

// A value holds the amount of its limit in place of a class, so that no element becomes
// larger. The unit of a rate is in the highest bits.
const unitShift = 30

// MaxRate is the highest amount of a rate that a value can hold.
const MaxRate = 1<<unitShift - 1

func LimitValue(l Limit) Value {
	if l.Rate.Amount == 0 {
		return Value{Class: Class(l.Connections)}
	}
	return Value{Class: Class(uint32(l.Rate.Unit)<<unitShift | l.Rate.Amount), burst: l.Rate.Burst}
}

// Limit returns the limit of an element in a set with limits. Limits that the kernel has
// and we never write may be others.
func (v Value) Limit(t LimitType) Limit {
	if t == ConnectionLimits {
		return Limit{Connections: uint32(v.Class)}
	}
	unit := min(model.RateUnit(v.Class>>unitShift), model.PerHour)
	return Limit{Rate: model.Rate{Amount: uint32(v.Class) & MaxRate, Burst: v.burst, Unit: unit}}
}

// Describe returns the admitted quantity of a frontend, or of a client, for example
// "20 connections per client".
func (l Limit) Describe(client bool) string {
	all := model.Limits{Rate: l.Rate, RatePerClient: l.Rate, Connections: l.Connections, ConnectionsPerClient: l.Connections}
	kinds := []model.LimitKind{model.LimitConnections, model.LimitRate}
	if client {
		kinds = []model.LimitKind{model.LimitClientConnections, model.LimitClientRate}
	}
	return cmp.Or(all.Text(kinds[0]), all.Text(kinds[1]))
}

// OverLimit matches packets that exceed the limit of their key. Each key has its own
// element in a dynamic set, which is added if it is missing. It renews the timeout of a rate for
// every packet: a key that was idle for so long may use its whole burst again, as a new one. Without
// connections, the kernel removes the element of a number of connections.
func OverLimit(set string, key Concat, l Limit) Update {
	if l.Rate.Amount == 0 {
		return Update{Op: "add", Set: set, Key: key, Limit: l}
	}
	return Update{Op: "update", Set: set, Key: key, Timeout: l.Rate.Refill(), Limit: l}
}

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
// is missing, and matches those that do not exceed the rate of their key.
func CountRefused(set string, key Concat, r model.Rate) Update {
	return Update{Op: "update", Set: set, Key: key, Counts: true, Limit: Limit{Rate: r}}
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
