package conntest

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/words"
)

// State is the result of a case.
type State string

// States of cases.
const (
	Passed      State = "passed"
	NotPassed   State = "failed"
	NotTried    State = "skipped"
	MostReasons       = 5 // reasons of a case
)

// Result is what happened in a case.
type Result struct {
	Case
	State       State     `json:"result"`
	Connections int       `json:"connections"`
	Endpoints   []Reached `json:"endpoints,omitempty"` // sorted by address
	Got         string    `json:"got,omitempty"`       // in words
	Reasons     []string  `json:"reasons,omitempty"`   // why it has not passed, or was not tried
	Seconds     float64   `json:"seconds"`
}

// Reached is an endpoint that connections have met.
type Reached struct {
	Endpoint    netip.AddrPort  `json:"endpoint"`
	Connections map[Outcome]int `json:"connections"`
}

// Judge compares connections with the prediction. complete says that an endpoint without a
// connection is an error.
func (c *Case) Judge(attempts []Attempt, complete bool) *Result {
	if slices.ContainsFunc(attempts, func(a Attempt) bool { return a.Outcome == Unsupported }) {
		c.Skip, attempts = "the kernel of the client has no sockets of "+c.Protocol, nil
	}
	r := &Result{Case: *c, State: Passed, Connections: len(attempts)}
	if c.Skip != "" {
		r.State, r.Reasons = NotTried, []string{c.Skip}
		return r
	}
	r.Endpoints = reached(attempts)
	r.Got = got(c.Words, attempts, r.Endpoints)
	if c.HostName != "" && len(attempts) == 1 && len(attempts[0].Addresses) > 0 {
		r.Got = list(attempts[0].Addresses)
	}
	counts := make(map[string]int)
	for i := range attempts {
		if why := c.Mismatch(&attempts[i]); why != "" {
			if counts[why]++; counts[why] == 1 {
				r.Reasons = append(r.Reasons, why)
			}
		}
	}
	for i, why := range r.Reasons {
		if len(attempts) > 1 {
			r.Reasons[i] = fmt.Sprintf("%d of %d connections: %s", counts[why], len(attempts), why)
		}
	}
	if len(r.Reasons) == 0 {
		known := !slices.ContainsFunc(attempts, func(a Attempt) bool { return !a.Endpoint.IsValid() })
		r.Reasons = c.choices(r.Endpoints, len(attempts), complete && known)
	}
	r.Reasons = r.Reasons[:min(len(r.Reasons), MostReasons)]
	if len(r.Reasons) > 0 {
		r.State = NotPassed
	}
	return r
}

// Fail adds reasons why the case has not passed; none change nothing.
func (r *Result) Fail(reasons []string) {
	if len(reasons) > 0 {
		r.State, r.Reasons = NotPassed, append(r.Reasons, reasons...)
	}
}

// choices returns what is wrong with the choice of endpoints. complete says that each has to have a connection.
func (c *Case) choices(met []Reached, n int, complete bool) (wrong []string) {
	if c.Expected.AffinitySeconds > 0 && len(met) > 1 {
		return []string{c.Words.Sprintf("one client met %d endpoints, and affinity should keep it with one", len(met))}
	}
	if !complete {
		return nil
	}
	for _, e := range c.Expected.Forwards() {
		if e.Share > 0 && !slices.ContainsFunc(met, func(r Reached) bool { return r.Endpoint == e.Endpoint }) {
			wrong = append(wrong, c.Words.Sprintf("endpoint %s got none of %d connections, and its share is %.0f %%", e.Endpoint, n, e.Share*100))
		}
	}
	return wrong
}

func reached(attempts []Attempt) (out []Reached) {
	for _, a := range attempts {
		if !a.Endpoint.IsValid() {
			continue
		}
		i, found := slices.BinarySearchFunc(out, a.Endpoint, func(r Reached, e netip.AddrPort) int { return r.Endpoint.Compare(e) })
		if !found {
			out = slices.Insert(out, i, Reached{a.Endpoint, make(map[Outcome]int)})
		}
		out[i].Connections[a.Outcome]++
	}
	return out
}

// got says in words what happened, such as "12 answered (3 endpoints)".
func got(in words.Vocabulary, attempts []Attempt, met []Reached) string {
	counts := make(map[Outcome]int)
	for _, a := range attempts {
		counts[a.Outcome]++
	}
	var parts []string
	for _, o := range []Outcome{Answered, Sent, Refused, Silent, Failed} {
		switch {
		case counts[o] == 0:
		case counts[o] == len(attempts) && len(attempts) == 1:
			parts = append(parts, string(o))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", counts[o], o))
		}
	}
	text := strings.Join(parts, ", ")
	switch len(met) {
	case 0:
		return text
	case 1:
		return fmt.Sprintf("%s (%s)", text, met[0].Endpoint)
	}
	return fmt.Sprintf("%s (%s)", text, in.Count(len(met), "endpoint"))
}

// Compare orders results: failed ones first, then by Service, frontend and origin.
func (r *Result) Compare(o *Result) int {
	order := []State{NotPassed, Passed, NotTried}
	return cmp.Or(cmp.Compare(slices.Index(order, r.State), slices.Index(order, o.State)), cmp.Compare(r.Node, o.Node),
		cmp.Compare(r.Service, o.Service), cmp.Compare(r.Kind, o.Kind), r.To.Compare(o.To), cmp.Compare(r.Protocol, o.Protocol),
		cmp.Compare(r.From, o.From))
}
