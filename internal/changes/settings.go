package changes

import (
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// describeSettings describes what frontends do in another way. A setting of a Service shows at
// each of its frontends, and is described once.
func (s *subject) describeSettings() (out []Detail) {
	for _, p := range s.stays {
		for _, d := range p.describeSettings() {
			out = addNew(out, d)
		}
	}
	return out
}

func (p pair) describeSettings() (out []Detail) {
	change := func(d Detail, name string) {
		if d.Old != d.New {
			d.Text = name + " " + d.Old + " → " + d.New
			out = append(out, d)
		}
	}
	set := func(s *setting.Setting, old, now string) { change(settingDetail(s, old, now), s.Label) }
	a, b := p.before, p.after
	if p.bothKnow(served.Affinity) {
		d := settingDetail(setting.Affinity, secondsText(a.Affinity), secondsText(b.Affinity))
		d.Connections = rebindingEffect(a.Affinity, b.Affinity)
		change(d, setting.Affinity.Label)
	}
	if p.bothKnow(served.Scheduler) {
		set(setting.Scheduler, a.Scheduler.String(), b.Scheduler.String())
	}
	if m, n := a.table, b.table; a.Scheduler == b.Scheduler && m > 0 && n > 0 {
		set(setting.MaglevSize, slotsText(m), slotsText(n))
	}
	if p.bothKnow(served.InternalPolicy) {
		change(Detail{Kind: KindPolicy, Old: a.InternalPolicy.String(), New: b.InternalPolicy.String()}, "internal traffic policy")
	}
	if p.bothKnow(served.ExternalPolicy) {
		change(Detail{Kind: KindPolicy, Old: a.ExternalPolicy.String(), New: b.ExternalPolicy.String()}, "external traffic policy")
	}
	if p.bothKnow(served.Affinity) && a.ExternalPolicy == b.ExternalPolicy && a.Kind == b.Kind { // else it follows from that
		set(setting.ClientAddresses, clientAddresses(a), clientAddresses(b))
	}
	for k := range model.LimitKinds {
		kind := model.LimitKind(k)
		set(setting.OfLimit(kind), a.Limits.Value(kind), b.Limits.Value(kind))
	}
	return append(out, p.describeSources()...)
}

// settingDetail returns a detail about a setting, without the text.
func settingDetail(s *setting.Setting, old, now string) Detail {
	return Detail{Kind: Kind(s.Kind), Old: old, New: now, Connections: s.Connections}
}

func slotsText(n int) string { return fmt.Sprintf("%d slots", n) }

// rebindingEffect returns the effect of a changed timeout on clients (5.9, 5.10).
func rebindingEffect(before, after time.Duration) string {
	switch {
	case before == 0:
		return "clients are bound with their next connection"
	case after == 0:
		return "clients are no longer bound"
	}
	return "clients are bound for the new time with their next connection"
}

func secondsText(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return fmt.Sprintf("%d s", int64(d.Seconds()))
}

func clientAddresses(f *frontend) string {
	switch {
	case f.Relayed:
		return "those of this machine, which relays"
	case f.Masquerading == model.MasqueradeAll:
		return "masqueraded"
	}
	return "kept"
}
