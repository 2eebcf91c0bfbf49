package health

import "time"

// Programmed is whether the node has rules that follow the objects. Its texts name no object
// and no number, so that they change with the reason alone.
type Programmed struct {
	Yes             bool
	Reason, Message string
}

// Reasons of [Programmed].
const (
	RulesApplied   = "RulesApplied"
	NotSynced      = "NotSynced"
	ChangesPending = "ChangesPending"
)

// Programmed judges a progress by the time that /healthz and /livez allow for a sync (10.5).
// inherited reports whether the kernel had rules of an earlier run at the start: then nothing
// is known before the first sync, or before that time is over (10.28).
func (p *Proxy) Programmed(at Progress, inherited bool) (verdict Programmed, known bool) {
	healthy := p.healthyAt(time.Now(), at)
	switch {
	case !at.LastSync.IsZero() && healthy:
		return Programmed{true, RulesApplied, "the rules follow Services and EndpointSlices"}, true
	case !at.LastSync.IsZero():
		return Programmed{false, ChangesPending, `changes of Services or EndpointSlices wait for too long; "nftproxy status" on the node says why`}, true
	case inherited && healthy:
		return Programmed{}, false
	}
	return Programmed{false, NotSynced, `no rules were applied yet; "nftproxy status" on the node says why`}, true
}
