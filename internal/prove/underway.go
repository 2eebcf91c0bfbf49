package prove

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/model"
)

// ProveUnderWay is for packets that are under way while the kernel commits one transaction of a change. A
// packet of which something is promised must experience what the objects before ask for, or what these
// do. Of several endpoints it may reach any, because one part of its choice may be before and another after.
func (w *World) ProveUnderWay(before *World, commit *bytecode.Commit) *Report {
	report := &Report{}
	provers := map[*World]*prover{before: newProver(before, nil, report), w: newProver(w, nil, report)}
	for of, c := range w.classesSince(before) {
		var u *underWay
		p := provers[of]
		p.machine.FollowThrough(commit, c.Packet, func(got []bytecode.Result) {
			if u == nil { // most packets meet nothing that changes
				u = w.promises(before, commit, c)
			}
			u.check(p, got)
		})
	}
	return report
}

// underWay is what is promised of a class of packets during a commit.
type underWay struct {
	Class
	wants       []expectation // before and after; nil: nothing is promised
	masquerades bool          // as the wants say, and not by a setting of one and an endpoint of the other
}

// promises returns what is promised of a class of packets during a commit: something, if no frontend serves
// them before and after, and they are treated alike; or if one of the same Service does at the same address
// (13.14), with endpoints, or for other clients alone by the same lists. Echo requests are answered for an
// address, and not for a frontend.
func (w *World) promises(before *World, commit *bytecode.Commit, c Class) *underWay {
	old, now := before.servingPacket(&c.Packet), w.servingPacket(&c.Packet)
	wants := []expectation{before.expect(&c.Packet), w.expect(&c.Packet)}
	u := &underWay{Class: c}
	u.Client += ", while the kernel commits"
	switch {
	case old == nil && now == nil:
		if !model.Protocol(c.Protocol).IsEcho() && wants[0].verdict == wants[1].verdict {
			u.wants = append(wants, expectation{unchanged: true}) // what bridges tables refuses nothing
		}
	case old == nil || now == nil || old.service.Name != now.service.Name || old.kind != now.kind || old.addr != now.addr:
	case old.isRange() != now.isRange() && (commit.Exchanges || before.isShared(&c.Packet) || w.isShared(&c.Packet)), old.isRange() && now.isRange() && old.target != now.target:
	case commit.Replaces && (old.ranged || now.ranged || before.isShared(&c.Packet) || w.isShared(&c.Packet) || len(old.lists())+len(now.lists()) > 0): // a new table has no intervals for a moment
	case !before.admits(old, c.Source) && !w.admits(now, c.Source):
		if slices.Equal(old.lists(), now.lists()) {
			u.wants = wants
		}
	case len(wants[0].targets) > 0 && len(wants[1].targets) > 0:
		u.wants = wants
		u.masquerades = old.service.ExternalPolicy == now.service.ExternalPolicy && old.service.ClientAddresses == now.service.ClientAddresses
		for i := range wants {
			wants[i].loosen(&c, before, w)
			for _, t := range wants[i].targets {
				u.masquerades = u.masquerades && before.masquerades(old, &c.Packet, t.at) == w.masquerades(now, &c.Packet, t.at)
			}
		}
		if old.service.ExternalPolicy != model.PolicyLocal && now.service.ExternalPolicy == model.PolicyLocal {
			for _, e := range w.inside(now) { // in the slots that all clients have before
				wants[1].targets = append(wants[1].targets, target{at: now.endpointFor(e.at, &c.Packet)})
			}
		}
		if commit.Redeclares && wants[0].remembers > 0 && old.service.ExternalPolicy == model.PolicyLocal && before.isOutside(&c.Packet) && !w.isOutside(&c.Packet) {
			u.wants = append(u.wants, expectation{verdict: bytecode.Drop}) // the old rules bind it to endpoints of this node, and the new ones choose any
		}
	}
	return u
}

// isShared reports whether a range would serve a packet if the frontend of its port did not.
func (w *World) isShared(p *bytecode.Packet) bool {
	f := w.servingPacket(p)
	return !f.isRange() && slices.ContainsFunc(w.ranges[f.address], func(r *frontend) bool { return r.port <= p.Port && p.Port <= r.end() })
}

// servingPacket returns the frontend that serves a packet; nil: none does.
func (w *World) servingPacket(p *bytecode.Packet) *frontend {
	return w.serving(at{address{p.Destination, model.Protocol(p.Protocol)}, p.Port})
}

// check notes what a packet experiences of which a part is before the commit.
func (u *underWay) check(p *prover, got []bytecode.Result) {
	if u.wants == nil {
		return
	}
	why := ""
	for _, r := range got {
		r.Priority = 0 // it may be left of before
		if !slices.ContainsFunc(u.wants, func(e expectation) bool { return u.allows(&e, r) }) {
			why = "neither"
		}
	}
	p.add(u.Class, u.wants[0].String()+", or "+u.wants[1].String(), got, why)
}

// allows reports whether an outcome is one that is expected.
func (u *underWay) allows(e *expectation, r bytecode.Result) bool {
	switch {
	case len(e.targets) == 0:
		return e.differs(&u.Class, []bytecode.Result{r}, tolerance{}) == ""
	case !u.masquerades:
		return r.Verdict == bytecode.Pass && slices.ContainsFunc(e.targets, func(t target) bool { return t.at == r.To })
	}
	_, why := e.reaches(&u.Class, &r)
	return why == ""
}
