package explain

import (
	"encoding/json"
	"io"
)

// resultJSON is the form of a result for programs.
type resultJSON struct {
	From      string         `json:"from,omitempty"` // empty: an unknown address of the node
	FromNode  bool           `json:"fromNode"`
	Interface string         `json:"interface,omitempty"`
	Protocol  string         `json:"protocol"`
	To        string         `json:"to"`
	Verdict   string         `json:"verdict"` // that of the outcomes, or mixed
	Service   string         `json:"service,omitempty"`
	Kind      string         `json:"kind,omitempty"` // of the frontend
	Path      []Step         `json:"path"`           // of all outcomes
	Outcomes  []outcomeJSON  `json:"outcomes"`
	LeftOut   []omissionJSON `json:"leftOut,omitempty"`
	Conflicts []claimJSON    `json:"conflicts,omitempty"`
	Notes     []string       `json:"notes,omitempty"`
}

type outcomeJSON struct {
	Verdict      string   `json:"verdict"`
	Reason       string   `json:"reason,omitempty"`
	Endpoint     string   `json:"endpoint,omitempty"`
	Share        float64  `json:"share"` // from 0 to 1
	Slots        []uint32 `json:"slots,omitempty"`
	OfSlots      int      `json:"ofSlots,omitempty"`
	Masquerade   string   `json:"masquerade,omitempty"`      // the rule
	AffinityTime float64  `json:"affinitySeconds,omitempty"` // from now on
	Bound        bool     `json:"bound,omitempty"`           // by affinity, from before
	Path         []Step   `json:"path"`                      // after the one of all
}

type omissionJSON struct {
	Endpoint string `json:"endpoint"`
	Reason   string `json:"reason"`
}

type claimJSON struct {
	Service string `json:"service"`
	Kind    string `json:"kind"`
}

// JSON writes a result as one JSON object, with what the objects tell unless b
// is nil.
func JSON(w io.Writer, r *Result, b *Background) error {
	out := resultJSON{
		FromNode:  r.Packet.FromNode,
		Interface: r.Packet.Interface,
		Protocol:  r.Packet.protocol(),
		To:        r.Packet.target(),
		Verdict:   "mixed",
		Notes:     r.Notes,
	}
	if r.Packet.Source.IsValid() {
		out.From = r.Packet.Source.String()
	}
	if v, ok := r.Verdict(); ok {
		out.Verdict = v.String()
	}
	out.Service, out.Kind = serviceOf(r, b)
	n := commonSteps(r.Outcomes)
	out.Path = append([]Step{}, r.Outcomes[0].Path[:n]...)
	for i := range r.Outcomes {
		out.Outcomes = append(out.Outcomes, r.Outcomes[i].json(n))
	}
	if b != nil {
		out.add(b)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

// json returns the form of an outcome, without the first n steps of its path.
func (o *Outcome) json(n int) outcomeJSON {
	return outcomeJSON{
		Verdict:      o.Verdict.String(),
		Reason:       o.Reason,
		Endpoint:     endpointText(o.Endpoint),
		Share:        o.Share,
		Slots:        o.Slots,
		OfSlots:      o.Of,
		Masquerade:   o.Masquerade,
		AffinityTime: o.Remember.Seconds(),
		Bound:        o.Bound,
		Path:         append([]Step{}, o.Path[n:]...),
	}
}

func (j *resultJSON) add(b *Background) {
	for _, o := range b.LeftOut {
		j.LeftOut = append(j.LeftOut, omissionJSON{o.Endpoint.Address.String(), o.Reason})
	}
	for _, c := range b.Losers {
		j.Conflicts = append(j.Conflicts, claimJSON{c.Port.String(), c.Kind.String()})
	}
}
