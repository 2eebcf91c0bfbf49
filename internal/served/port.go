package served

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Port is a service port of a Service as a node serves it.
type Port struct {
	Claims    []model.ViewedClaim
	Frontends []*Frontend // of the claims
}

// PortsOf returns the service ports of a Service.
func PortsOf(v *model.View) (out []Port) {
	for claims := v.Claims; len(claims) > 0; {
		n := 1
		for n < len(claims) && claims[n].Route.PortName() == claims[0].Route.PortName() {
			n++
		}
		p := Port{Claims: claims[:n]}
		for _, c := range p.Claims {
			p.Frontends = append(p.Frontends, Of(c.Route, v.Scheduler))
		}
		out, claims = append(out, p), claims[n:]
	}
	return out
}

// In returns the frontends of a family.
func (p *Port) In(f model.Family) (out []*Frontend) {
	for _, o := range p.Frontends {
		if model.FamilyOf(o.Address) == f {
			out = append(out, o)
		}
	}
	return out
}

// Candidate is a host of a service port, with its part of the new connections.
type Candidate struct {
	Host     netip.Addr
	Endpoint model.Endpoint // the zero value: the host has no port for the service port
	Inside   Share          // of pods and this node
	Outside  *Share         // of other clients, if they get other endpoints
	// Checked is the result of its health check; nil: it is not checked, or the result is not known.
	Checked *model.CheckResult
}

// Share is the slots that an endpoint gets of all slots. LeftOut is why it gets none; empty: it may.
type Share struct {
	Slots, Of int
	LeftOut   string
}

// Candidates returns the hosts of the service port in a family, in which it has frontends. Shares inside
// hold for the first frontend, which is the ClusterIP if there is one.
func (p *Port) Candidates(v *model.View, f model.Family) (out []Candidate) {
	frontends := p.In(f)
	if len(frontends) == 0 {
		return nil
	}
	first, other := frontends[0], (*Frontend)(nil) // other has clients outside
	for _, o := range frontends {
		if o.Kind != model.ClusterIP && (other == nil || o.ExternalPolicy == model.PolicyLocal) {
			other = o
		}
	}
	all := model.Endpoints(first.Port, f, v.Slices)
	inside := model.NewSelection(v.Service, all, v.Node, first.InternalPolicy)
	outside := inside
	if other != nil {
		outside = model.NewSelection(v.Service, all, v.Node, other.ExternalPolicy)
	}
	for _, e := range all {
		c := Candidate{Host: e.Host.Address, Endpoint: e, Checked: checkedOf(v, e.Host), Inside: first.Inside.share(e, v.Reason(inside, e.Host))}
		if other != nil && first.InternalPolicy != other.ExternalPolicy {
			share := other.Outside.share(e, v.Reason(outside, e.Host))
			c.Outside = &share
		}
		out = append(out, c)
	}
	for _, o := range model.NotCandidates(first.Port, f, v.Slices) {
		if o.Endpoint.Port() == 0 { // the others have an entry, in this family or another one
			out = append(out, Candidate{Host: o.Endpoint.Addr(), Inside: Share{LeftOut: o.Reason}})
		}
	}
	return out
}

// share returns the share of an endpoint, unless there is a reason why it has none.
func (d Decision) share(e model.Endpoint, leftOut string) Share {
	if leftOut != "" {
		return Share{LeftOut: leftOut}
	}
	return Share{Slots: d.Of(e.Address()), Of: d.Slots()}
}

func checkedOf(v *model.View, h *model.Host) *model.CheckResult {
	r, ok := v.CheckResult(h.Address)
	if !ok || v.Service.Check == nil {
		return nil
	}
	return &r
}

// Serving is how many servers of a Service clients from outside reach: a server is a host, with all its ports.
type Serving struct{ Usable, Servers int }

// ServingOf counts the servers of a Service (11.24). Those that fail their health check are not usable even
// where all are used because all fail.
func ServingOf(v *model.View) (out Serving) {
	usable := make(map[netip.Addr]bool)
	for _, p := range PortsOf(v) {
		for _, f := range model.Families {
			reached := p.forwards(f)
			for _, c := range p.Candidates(v, f) {
				usable[c.Host] = usable[c.Host] || reached && c.isUsable()
			}
		}
	}
	for _, is := range usable {
		if out.Servers++; is {
			out.Usable++
		}
	}
	return out
}

// forwards reports whether the Service has a frontend of a family that forwards connections.
func (p *Port) forwards(f model.Family) bool {
	return slices.ContainsFunc(p.Claims, func(c model.ViewedClaim) bool {
		return c.Winner == nil && model.FamilyOf(c.Route.Frontend.Address) == f &&
			(c.Route.Inside().Verdict == model.Forward || c.Route.Outside().Verdict == model.Forward)
	})
}

// isUsable reports whether clients from outside may get an endpoint, and its health check does not fail.
func (c *Candidate) isUsable() bool {
	share := c.Inside
	if c.Outside != nil {
		share = *c.Outside
	}
	return share.Slots > 0 && (c.Checked == nil || c.Checked.Healthy)
}
