package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// AddObjects adds what follows from the objects behind the rules: the service port, the
// endpoints that take no new connections, and the Services that claim the frontend, too.
func (r *Result) AddObjects(router *model.Router) {
	dialled := r.Packet.Frontend()
	route := router.Serves(dialled)
	if route == nil {
		r.Speak(router.Words())
		return
	}
	r.setName(served.NameOf(route))
	view := router.View(route.Service.Name)
	r.Speak(view.Service.Words())
	for i := range r.Outcomes {
		r.Outcomes[i].Name = view.Service.NameOf(r.Outcomes[i].Endpoint.Addr())
	}
	if route.Frontend.IsRange() && view.Service.AffinityTimeout > 0 {
		r.Notes = append(r.Notes, r.Words.Text("the Service has session affinity, but its ranges of ports use the scheduler source-hash instead"))
	}
	r.Notes = append(r.Notes, model.LoopTexts(view.Loops, r.Words)...)
	family := model.FamilyOf(route.Frontend.Address)
	r.AddSources(view.Service.SourceLists(route.Kind, family))
	f := served.Of(route, view.Scheduler)
	policy := f.InternalPolicy
	if r.Outside() {
		policy = f.ExternalPolicy
	}
	endpoints := model.Endpoints(f.Port, family, view.Slices)
	if rule := model.NewSelection(view.Service, endpoints, view.Node, policy).Zone(); rule != nil {
		r.AddZoneRule(rule.String())
	}
	for _, o := range slices.Concat(model.LeftOut(view.Service, endpoints, view.Node, policy), model.NotCandidates(f.Port, family, view.Slices)) {
		r.LeftOut = append(r.LeftOut, Omission{o.Endpoint, terminal.Printable(o.Reason)})
	}
	router.Rivals(dialled, route, func(o *model.Route) {
		r.Conflicts = append(r.Conflicts, Claim{o.PortName().String(), o.Kind.String()})
	})
	slices.SortFunc(r.Conflicts, func(a, b Claim) int { return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Kind, b.Kind)) })
	r.Conflicts = slices.Compact(r.Conflicts)
	if len(view.Slices) == 0 && len(view.Service.Extra().Names) > 0 {
		r.Notes = append(r.Notes, view.Service.Object().String()+" has servers by name, of which no address is known here")
	} else if len(view.Slices) == 0 && view.Service.Balance {
		r.Notes = append(r.Notes, view.Service.Object().String()+" has no backends")
	} else if len(view.Slices) == 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("no EndpointSlice has the label kubernetes.io/service-name: %s in namespace %s", view.Service.Name.Name, view.Service.Name.Namespace))
	}
}

// AddZoneRule says which zones take connections, and why.
func (r *Result) AddZoneRule(rule string) {
	r.Notes = append(r.Notes, setting.ZoneFloor.Label+": "+terminal.Printable(rule))
}

// emptySlot is why a connection falls out of its lane.
const emptySlot = "the slot has no endpoint"

// AddSources names the list of clients that keeps the source from connecting.
func (r *Result) AddSources(lists []model.SourceList) {
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		if o.Reason != nft.NotAdmitted && o.Reason != nft.IsDenied || !r.Packet.Source.IsValid() {
			continue
		}
		for _, l := range lists {
			if l.Denies == (o.Reason == nft.IsDenied) && l.Excludes(r.Packet.Source) {
				o.List = l.Field
				o.Reason += ": " + l.Field
				break
			}
		}
	}
}

// decidingRow returns the row of the reasons for a packet that is found in a set: of a list of
// clients, the row of the frontends that have the list. The counterpart for ranges of ports
// has the row for frontends with one port.
func decidingRow(set string) *nft.Row {
	row := nft.RowOf(set)
	return nft.RowOf(cmp.Or(row.Decides, row.Name))
}

// reasonFor returns why an outcome is not Forward. It depends on the last set in which
// the packet was found.
func reasonFor(o *Outcome) string {
	if o.Reason != "" || o.Verdict == Forward {
		return o.Reason
	}
	if o.Stale {
		return "the endpoint to which the client was bound has left the Service; its next packet gets another one"
	}
	row, served := new(nft.Row), false
	for _, s := range o.Path {
		for _, set := range s.sets {
			if !nft.RowOf(set).Passing {
				row = decidingRow(set)
				served = served || row.Name == nft.ServicesMap
			}
		}
	}
	if row.Name == nft.ClusterIPsSet {
		switch {
		case o.echo:
			return "this node does not answer, because no endpoint of the Service can take connections"
		case o.portless:
			return "a ClusterIP answers on the ports of its Service only, and this protocol has none"
		case served: // fell out of its lane
			return emptySlot
		}
	}
	switch text := map[Disposition]string{Reject: row.Rejects, Drop: row.Drops}[o.Verdict]; {
	case text != "":
		return text
	case o.Verdict != NotOurs:
		return fmt.Sprintf("by the rule %q", o.Path[len(o.Path)-1].Rule)
	case row.Contents == nft.Services || row.Contents == nft.LocalServices:
		return emptySlot
	}
	return "no rule matches"
}

// Outside reports whether rules for clients outside of the cluster applied.
func (r *Result) Outside() bool {
	return slices.ContainsFunc(r.Outcomes, func(o Outcome) bool {
		return slices.ContainsFunc(o.Path, func(s Step) bool {
			return slices.ContainsFunc(s.sets, func(set string) bool { return decidingRow(set).Contents == nft.LocalServices })
		})
	})
}

// AddOmission adds an endpoint, with a port or without, that takes no new connections. It
// does nothing without a reason.
func (r *Result) AddOmission(at netip.AddrPort, reason string) {
	if reason != "" && at.Addr().IsValid() {
		r.LeftOut = append(r.LeftOut, Omission{at, terminal.Printable(reason)})
	}
}

// NameEndpoint notes the name of DNS that has an address.
func (r *Result) NameEndpoint(a netip.Addr, name string) {
	for i := range r.Outcomes {
		if r.Outcomes[i].Endpoint.Addr() == a {
			r.Outcomes[i].Name = name
		}
	}
}
