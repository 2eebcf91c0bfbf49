package changes

import (
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
)

// settings describes what frontends do in another way. A setting of a Service shows at
// each of its frontends, and is described once.
func (s *subject) settings() (out []Detail) {
	note := func(d Detail) {
		if !slices.ContainsFunc(out, func(o Detail) bool { return o.Text == d.Text }) {
			out = append(out, d)
		}
	}
	for _, p := range s.stays {
		for _, d := range p.settings() {
			note(d)
		}
	}
	return out
}

func (p pair) settings() (out []Detail) {
	change := func(kind Kind, name, old, now, connections string) {
		if old != now {
			out = append(out, Detail{Kind: kind, Text: name + " " + old + " → " + now, Old: old, New: now, Connections: connections})
		}
	}
	a, b := p.before, p.after
	if p.know(served.Affinity) {
		change(KindAffinity, "affinity", seconds(a.Affinity), seconds(b.Affinity), rebinding(a.Affinity, b.Affinity))
	}
	if p.know(served.Scheduler) {
		change(KindScheduler, "scheduler", a.Scheduler.String(), b.Scheduler.String(), "")
	}
	if m, n := a.table, b.table; a.Scheduler == b.Scheduler && m > 0 && n > 0 {
		change(KindScheduler, "table of "+a.Scheduler.String(), slotsText(m), slotsText(n), "most clients get another endpoint with their next connection")
	}
	if p.know(served.InternalPolicy) {
		change(KindPolicy, "internal traffic policy", a.InternalPolicy.String(), b.InternalPolicy.String(), "")
	}
	if p.know(served.ExternalPolicy) {
		change(KindPolicy, "external traffic policy", a.ExternalPolicy.String(), b.ExternalPolicy.String(), "")
	}
	if p.know(served.Affinity) && a.ExternalPolicy == b.ExternalPolicy && a.Kind == b.Kind { // else it follows from that
		change(KindClientAddresses, "client addresses", clients(a.Masquerading), clients(b.Masquerading), "established connections keep theirs")
	}
	for k := range model.LimitKinds {
		kind := model.LimitKind(k)
		change(KindLimits, limitNames[kind], a.Limits.Value(kind), b.Limits.Value(kind), "they stay, and are not counted")
	}
	return append(out, p.sources()...)
}

var limitNames = [...]string{
	model.LimitClientRate: "connection rate per client", model.LimitRate: "connection rate",
	model.LimitClientConnections: "connections per client", model.LimitConnections: "connections",
}

func slotsText(n int) string { return fmt.Sprintf("%d slots", n) }

// rebinding returns what a changed timeout means for clients (5.9, 5.10).
func rebinding(before, after time.Duration) string {
	switch {
	case before == 0:
		return "clients are bound with their next connection"
	case after == 0:
		return "clients are no longer bound"
	}
	return "clients are bound for the new time with their next connection"
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return fmt.Sprintf("%d s", int64(d.Seconds()))
}

// clients says which source address endpoints see.
func clients(m model.Masquerading) string {
	if m == model.MasqueradeAll {
		return "masqueraded"
	}
	return "kept"
}
