package changes

import (
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
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
	if a.shows() && b.shows() {
		change(KindAffinity, "affinity", seconds(a.affinity), seconds(b.affinity), rebinding(a.affinity, b.affinity))
	}
	if a.scheduler != model.DefaultScheduler && b.scheduler != model.DefaultScheduler {
		change(KindScheduler, "scheduler", a.scheduler.String(), b.scheduler.String(), "")
	}
	if a.scheduler == b.scheduler && a.maglevSize > 1 && b.maglevSize > 1 {
		change(KindScheduler, "table of "+a.scheduler.String(), slotsText(a.maglevSize), slotsText(b.maglevSize), "most clients get another endpoint with their next connection")
	}
	change(KindPolicy, "internal traffic policy", policy(a.internalLocal), policy(b.internalLocal), "")
	if !a.localUnknown && !b.localUnknown {
		change(KindPolicy, "external traffic policy", policy(a.local), policy(b.local), "")
	}
	if a.shows() && b.shows() && a.local == b.local && a.kind == b.kind { // else it follows from that
		change(KindClientAddresses, "client addresses", clients(a.masquerading), clients(b.masquerading), "established connections keep theirs")
	}
	for k := range model.LimitKinds {
		kind := model.LimitKind(k)
		change(KindLimits, limitNames[kind], a.limits.Value(kind), b.limits.Value(kind), "they stay, and are not counted")
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

func policy(local bool) string {
	if local {
		return model.PolicyLocal.String()
	}
	return model.PolicyCluster.String()
}

// clients says which source address endpoints see.
func clients(m model.Masquerading) string {
	if m == model.MasqueradeAll {
		return "masqueraded"
	}
	return "kept"
}
