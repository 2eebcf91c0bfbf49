package nft

import (
	"cmp"
	"fmt"

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

// Text returns the limit as nft prints it.
func (l Limit) Text() string {
	switch r := l.Rate; {
	case r.Amount == 0:
		return fmt.Sprintf("ct count over %d", l.Connections)
	default:
		return rateText(r, true)
	}
}

// rateText returns the match of packets within a rate, or over it, as nft prints it.
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

// LimitValue returns the value of an element with a limit.
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
// element in a dynamic set, which is added if it is missing. It does not match if the
// set is full.
type OverLimit struct {
	Set   string
	Key   Concat
	Limit Limit
}

// Update renews the timeout of a rate for every packet: a key that was idle for so long
// may use its whole burst again, as a new one. Without connections, the kernel removes
// the element of a number of connections.
func (s OverLimit) Update() Update {
	if s.Limit.Rate.Amount == 0 {
		return Update{Op: "add", Set: s.Set, Key: s.Key, Limit: s.Limit}
	}
	return Update{Op: "update", Set: s.Set, Key: s.Key, Timeout: s.Limit.Rate.Refill(), Limit: s.Limit}
}

func (s OverLimit) Text(f model.Family) string { return s.Update().text(f) }
