package explain

import (
	"net/netip"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Verdict is what becomes of a connection.
type Verdict uint8

const (
	// NotOurs passes on as it came.
	NotOurs Verdict = iota
	// Forward goes to an endpoint.
	Forward
	// Reject is answered with a TCP reset or port unreachable.
	Reject
	// Drop is not answered.
	Drop
	// Unknown cannot be told from the rules and the packet.
	Unknown
)

func (v Verdict) String() string {
	return [...]string{"not ours", "forward", "reject", "drop", "unknown"}[v]
}

// Result is all that may become of a packet.
type Result struct {
	Packet  Packet // with its source and FromNode filled in
	Service string // of the frontend, as the rules name it; empty: none
	Kind    string // of the frontend: ClusterIP, NodePort...
	// Outcomes holds at least one. Several of them differ in the endpoint or
	// in the verdict, and their shares add up to 1.
	Outcomes []Outcome
	Notes    []string // what was assumed
}

// Outcome is one thing that may become of a packet.
type Outcome struct {
	Verdict  Verdict
	Reason   string         // of everything but Forward
	Endpoint netip.AddrPort // of Forward
	Share    float64        // of all connections with such a packet
	// Slots are those of the endpoint, out of Of. There are none where nothing
	// was to be chosen.
	Slots []uint32
	Of    int
	// Masquerade is the rule that rewrites the source; empty: none does.
	Masquerade string
	// Remember is for how long a client is bound to the endpoint from now on;
	// zero: it is not.
	Remember time.Duration
	// Bound tells that the client was bound to the endpoint before.
	Bound bool
	// Stale means that the endpoint to which the client was bound has left the
	// Service: the client is released.
	Stale bool
	Path  []Step
}

// likeness is what outcomes have in common that differ in nothing but slots,
// share and path.
type likeness struct {
	verdict    Verdict
	reason     string
	endpoint   netip.AddrPort
	of         int
	masquerade string
	remember   time.Duration
	bound      bool
}

func (o *Outcome) likeness() likeness {
	return likeness{o.Verdict, o.Reason, o.Endpoint, o.Of, o.Masquerade, o.Remember, o.Bound}
}

// Step is a rule that the packet met.
type Step struct {
	Chain   string `json:"chain"`
	Rule    string `json:"rule"`
	Matched bool   `json:"matched"`
	// Details are the elements found, or what did not match.
	Details []string `json:"details,omitempty"`
	sets    []string // in which an element was found
}

func (s Step) same(o Step) bool {
	return s.Chain == o.Chain && s.Rule == o.Rule && s.Matched == o.Matched &&
		strings.Join(s.Details, "\n") == strings.Join(o.Details, "\n")
}

// Verdict returns the verdict of all outcomes, if there is one.
func (r *Result) Verdict() (v Verdict, ok bool) {
	for _, o := range r.Outcomes {
		if o.Verdict != r.Outcomes[0].Verdict {
			return Unknown, false
		}
	}
	return r.Outcomes[0].Verdict, true
}

// met tells whether the packet found an element in a set.
func (r *Result) met(set string) bool {
	for _, o := range r.Outcomes {
		for _, s := range o.Path {
			for _, name := range s.sets {
				if name == set {
					return true
				}
			}
		}
	}
	return false
}

// name finds out whose frontend was dialled: the comment in a map of verdicts
// tells.
func (r *Result) name(t *nft.Table) {
	f := t.Serving(r.Packet.Frontend())
	for _, s := range t.Sets {
		if len(s.Data) != 1 || s.Data[0] != nft.Verdicts {
			continue
		}
		if e, ok := s.Find(f); ok && e.Comment != "" {
			var named bool
			if r.Service, r.Kind, named = strings.Cut(e.Comment, " "); !named {
				r.Kind = model.ClusterIP.String()
			}
			return
		}
	}
}
