package model

import (
	"fmt"
	"time"
)

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

type RateUnit uint8

const (
	PerSecond RateUnit = iota
	PerMinute
	PerHour
)

var RateUnits = [...]string{"second", "minute", "hour"}

func (u RateUnit) String() string { return RateUnits[u] }

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

type LimitKind uint8

// The kinds, in the order in which they are checked.
const (
	LimitClientRate LimitKind = iota
	LimitRate
	LimitClientConnections
	LimitConnections
)

var LimitKinds = [...]string{"rate-per-client", "rate", "connections-per-client", "connections"}

func (k LimitKind) String() string { return LimitKinds[k] }

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
	return s.changeExtras(func(x *Extras) { x.Limits = Limits{} }), []Notice{newNotice(s.Object(), NoLimits, "connection limits do not apply: the kernel lacks nft_limit or nft_connlimit")}
}
