package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/explain"
)

// Prediction compares what explain says about the packet with what the kernel did.
type Prediction struct {
	Predicts string `json:"predicts"` // in words
	Kernel   string `json:"kernel"`   // likewise
	// Agrees reports that the kernel did what explain predicts, and that no other program
	// has interfered.
	Agrees bool `json:"agrees"`
}

// Compare adds what explain says about the first packet.
func (r *Report) Compare(c *Connection, p *explain.Result) {
	if p.Service != "" {
		r.Service = p.Service + p.Words.Kind(p.Kind)
	}
	if c.First == nil {
		return
	}
	did := r.didOf(c)
	at, err := netip.ParseAddrPort(did.endpoint)
	did.relay = err == nil && slices.ContainsFunc(p.Outcomes, func(o explain.Outcome) bool { return o.Relay != 0 && o.Relay == at.Port() })
	if did.relay {
		r.Text = strings.Replace(r.Text, r.Words.Text("the endpoint ")+r.Endpoint, "the relay of nftproxy run", 1)
		r.Notes = append(r.Notes, p.Words.Text("the relay makes a connection of its own to an endpoint, which this trace does not follow"))
	}
	r.Prediction = &Prediction{Predicts: p.Summary(), Kernel: did.describeDid(), Agrees: did.agreesWith(p)}
	if r.Outcome != Answered {
		r.Notes = append(r.Notes, p.Notes...)
	}
}

// did is what nftproxy's rules did with the first packet, and others after that.
type did struct {
	verdict     explain.Disposition
	endpoint    string // of Forward
	masqueraded string // the new source, by nftproxy; empty: it was kept
	relay       bool   // the endpoint is the port of the relay
	passed      bool   // it came to the end of the hooks, so that the source is final
	unseen      bool   // nftproxy's rules did not see it
	others      string // what another program did; empty: nothing
}

func (r *Report) didOf(c *Connection) did {
	d := did{verdict: explain.NotOurs, passed: c.First.left || c.First.arrived, unseen: true}
	for _, p := range c.First.Passes {
		d.unseen = d.unseen && !isOurs(p.Place)
	}
	for _, t := range r.Translations {
		switch {
		case t.Ours && t.Field == "destination":
			d.verdict, d.endpoint = explain.Forward, t.To
		case t.Ours:
			d.masqueraded = t.To
		default:
			d.others = fmt.Sprintf("another program set the %s to %s", t.Field, t.To)
		}
	}
	ended := c.First.ended
	switch {
	case ended == nil && r.Outcome == Lost:
		d.others = "it disappeared"
	case ended == nil:
	case !isOurs(ended.Place):
		d.others = fmt.Sprintf("%s %s it", ended.Place, r.Outcome)
	case r.Outcome == Rejected:
		d.verdict = explain.Reject
	default:
		d.verdict = explain.Drop
	}
	return d
}

func (d did) describeDid() string {
	var parts []string
	switch {
	case d.relay:
		parts = append(parts, "redirected to the relay of nftproxy run")
	case d.verdict == explain.Forward:
		parts = append(parts, "forwarded to "+d.endpoint)
		if d.masqueraded != "" {
			parts = append(parts, "source masqueraded to "+d.masqueraded)
		} else if d.passed {
			parts = append(parts, "source kept")
		}
	case d.verdict == explain.Reject:
		parts = append(parts, "rejected by nftproxy")
	case d.verdict == explain.Drop:
		parts = append(parts, "dropped by nftproxy")
	case d.unseen:
		parts = append(parts, "nftproxy's rules did not see it")
	default:
		parts = append(parts, "not changed by nftproxy")
	}
	if d.others != "" {
		parts = append(parts, d.others)
	}
	return strings.Join(parts, "; ")
}

func (d did) agreesWith(p *explain.Result) bool {
	if d.others != "" {
		return false
	}
	for _, o := range p.Outcomes {
		switch {
		case o.Verdict != d.verdict:
		case d.verdict != explain.Forward, d.relay:
			return true
		case o.Endpoint.String() == d.endpoint && (!d.passed || (o.Masquerade != "") == (d.masqueraded != "")):
			return true
		}
	}
	return false
}
