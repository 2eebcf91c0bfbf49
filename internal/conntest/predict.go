package conntest

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Prediction is what should happen to connections.
type Prediction struct {
	Outcomes []Expected `json:"outcomes"` // at least one, of connections
	// Addresses are what a name should be resolved to.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// AffinitySeconds is how long a client stays with its endpoint; zero: it does not.
	AffinitySeconds float64  `json:"affinitySeconds,omitempty"`
	Limits          []string `json:"limits,omitempty"` // on the number of connections
	Notes           []string `json:"notes,omitempty"`  // of explain: what may stop connections beside the rules

	words words.Vocabulary
}

// Expected is one possible result of a connection.
type Expected struct {
	Verdict     explain.Disposition `json:"verdict"`
	Reason      string              `json:"reason,omitempty"` // of everything but Forward
	Endpoint    netip.AddrPort      `json:"endpoint,omitzero"`
	Share       float64             `json:"share"` // of all connections
	Masqueraded bool                `json:"masqueraded,omitempty"`
	// Relay is the port at which nftproxy run accepts the connection for the endpoint; zero: none.
	Relay uint16 `json:"relay,omitempty"`
}

// Predict adds the prediction of explain. own has the addresses of the machine, or of the pod.
func (c *Case) Predict(r *explain.Result, own []netip.Addr) {
	c.Words = r.Words
	p := Prediction{Notes: r.Notes, words: r.Words}
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		e := Expected{Verdict: o.Verdict, Reason: r.Words.Text(o.Reason), Endpoint: o.Endpoint, Share: o.Share, Masqueraded: o.Masquerade != "", Relay: o.Relay}
		if o.List != "" && !strings.Contains(e.Reason, o.List) {
			e.Reason += " (" + o.List + ")"
		}
		p.Outcomes = append(p.Outcomes, e)
		p.AffinitySeconds = max(p.AffinitySeconds, o.Remember.Seconds())
		p.Limits = o.Limits
		c.Hairpin = c.Hairpin || (c.From == Host || c.From == Pod) && slices.Contains(own, o.Endpoint.Addr())
		if o.Verdict == explain.Unknown {
			c.Skip = "explain cannot predict it: " + o.Reason
		}
	}
	c.Client, c.Expected = r.Packet.Source, p
}

// Forwards returns the outcomes that reach an endpoint.
func (p *Prediction) Forwards() []Expected {
	return slices.DeleteFunc(slices.Clone(p.Outcomes), func(e Expected) bool { return e.Verdict != explain.Forward })
}

// Rejects reports whether connections may be rejected.
func (p *Prediction) Rejects() bool {
	return slices.ContainsFunc(p.Outcomes, func(e Expected) bool { return e.Verdict == explain.Reject })
}

// Relayed reports whether connections go to a relay, which alone knows the endpoint of each.
func (p *Prediction) Relayed() bool {
	return slices.ContainsFunc(p.Outcomes, func(e Expected) bool { return e.Relay != 0 })
}

const (
	// Patience is how long a client waits for an answer by default. Its second SYN comes after
	// one second.
	Patience = 3 * time.Second
	// ShortPatience is how long it waits for an answer that should not come, and for one to a
	// datagram, which need not come.
	ShortPatience = time.Second
	// Failures is after how many connections that are not as predicted a case ends.
	Failures = 3
	// Parallel is how many cases of a client are tried at the same time: most of the time they wait.
	Parallel = 8
	// LeastConnections are opened where connections should reach an endpoint.
	LeastConnections = 4
	// mostConnections limits the connections of a case.
	mostConnections = 240
	// certain is how many times an endpoint is due, until it is an error that it had no
	// connection. If the choice is random, that happens by chance once in e^12 cases (160,000).
	certain = 12
)

// Connections returns how many connections it takes at most to meet all endpoints, and whether
// an endpoint that none of them has met is an error.
func (p *Prediction) Connections() (most int, all bool) {
	forwards := p.Forwards()
	switch {
	case len(forwards) == 0, len(p.Limits) > 0:
		return 1, false
	case p.Relayed():
		return LeastConnections, false
	case p.AffinitySeconds > 0 || len(forwards) == 1 && len(p.Outcomes) == 1:
		return LeastConnections, false
	}
	least := 1.0
	for _, e := range p.Outcomes {
		if e.Share > 0 {
			least = min(least, e.Share)
		}
	}
	needed := int(math.Ceil(certain / least))
	return max(LeastConnections, min(needed, mostConnections)), needed <= mostConnections
}

// String returns the prediction in words.
func (p *Prediction) String() string {
	if len(p.Addresses) > 0 {
		return list(p.Addresses)
	}
	var parts, endpoints []string
	for _, e := range p.Forwards() {
		endpoints = append(endpoints, e.Endpoint.String())
	}
	switch {
	case len(endpoints) > 0 && p.AffinitySeconds > 0 && len(endpoints) > 1:
		parts = append(parts, p.words.Sprintf("the same one of %d endpoints for %s", len(endpoints), time.Duration(p.AffinitySeconds*float64(time.Second))))
	case len(endpoints) > 2:
		parts = append(parts, p.words.Count(len(endpoints), "endpoint"))
	case len(endpoints) > 0:
		parts = append(parts, strings.Join(endpoints, " or "))
	}
	for _, e := range p.Outcomes {
		if text := e.refusal(); text != "" && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ", or ")
}

// refusal returns in words why a connection does not reach an endpoint; empty: it does.
func (e *Expected) refusal() string {
	switch e.Verdict {
	case explain.Forward:
		return ""
	case explain.Reject:
		return "refused: " + e.Reason
	case explain.Drop:
		return "no answer: " + e.Reason
	}
	return e.Verdict.String() + ": " + e.Reason
}

// AllowAnyChoice lets a connection go to any endpoint of a frontend whose scheduler chooses by the
// order of the endpoints in the kernel, which is not known from objects.
func (c *Case) AllowAnyChoice(f *served.Frontend) {
	forwards := c.Expected.Forwards()
	if f.Scheduler != model.SourceHash || len(forwards) == 0 {
		return
	}
	endpoints := f.Outside.Endpoints
	if c.From == Host || c.From == Pod {
		endpoints = f.Inside.Endpoints
	}
	c.Loose, c.Expected.Outcomes = true, nil
	for _, e := range endpoints {
		c.Expected.Outcomes = append(c.Expected.Outcomes, Expected{Verdict: explain.Forward, Endpoint: e.Address})
	}
}
