package changes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// describeService describes a Service. What clients notice most comes first.
func (s *subject) describeService() []Detail {
	var out []Detail
	switch s.actionOf() {
	case Added:
		out = append(out, describeWhole(s.in, s.added, s.gained, func(p pair) *frontend { return p.after }))
	case Removed:
		d := describeWhole(s.in, s.removed, s.ceded, func(p pair) *frontend { return p.before })
		d.Added, d.Removed, d.Connections = nil, d.Added, s.goneWith(s.removed)
		out = append(out, d)
	default:
		out = append(out, s.describeFrontends()...)
	}
	out = append(out, s.describeMoves()...)
	out = append(out, s.describeVerdicts()...)
	if s.actionOf() != Changed {
		return out
	}
	out = append(out, s.describeEndpoints()...)
	out = append(out, s.describeZones()...)
	if !s.edits.changed[s.name] {
		return append(out, s.describeSettings()...)
	}
	out = append(out, s.describeUnused()...)
	out = append(out, s.describeSettings()...)
	return append(out, s.edits.describeFields(s.name)...)
}

func describeWhole(in words.Vocabulary, own []*frontend, others []pair, side func(pair) *frontend) Detail {
	all := slices.Clone(own)
	for _, p := range others {
		all = append(all, side(p))
	}
	endpoints := make(map[address]bool)
	var list []string
	for _, f := range all {
		list = append(list, f.String())
		for _, e := range f.endpoints {
			endpoints[e.address] = true
		}
	}
	return Detail{Kind: KindFrontends, Text: terminal.Count(len(all), "frontend") + ", " + in.Count(len(endpoints), "endpoint"), Added: list}
}

// String returns for example "tcp 10.96.0.1:80", and the kind unless it is the
// ClusterIP, or the Service has one kind.
func (f *frontend) String() string {
	if f.Kind == model.ClusterIP || f.in == words.Balance {
		return f.addressText()
	}
	return f.addressText() + " (" + f.Kind.String() + ")"
}

// addressText returns for example "tcp 10.96.0.1:80", or "tcp *:30080" for a NodePort on all
// addresses that serve NodePorts.
func (f *frontend) addressText() string {
	if f.Address.IsUnspecified() {
		return fmt.Sprintf("%s *:%d", f.Protocol, f.Frontend.Port)
	}
	return f.Frontend.String()
}

// describeFrontends describes frontends that come and go. One that takes the place of another
// one of its port, kind and family is a change.
func (s *subject) describeFrontends() (out []Detail) {
	successor := s.findSuccessors()
	replaces := make(map[*frontend]bool)
	var added, removed []*frontend
	for _, f := range s.removed {
		now := successor[f]
		if now == nil {
			removed = append(removed, f)
			continue
		}
		replaces[now] = true
		out = append(out, Detail{Kind: KindFrontends, Old: f.addressText(), New: now.addressText(), Connections: s.goneWith([]*frontend{f}),
			Text: fmt.Sprintf("%s%s → %s", s.portPrefix(f.Port)+s.kindPrefix(f), f.addressText(), now.addressText())})
	}
	for _, f := range s.added {
		if !replaces[f] {
			added = append(added, f)
		}
	}
	out = append(out, listDetails(KindFrontends, "frontend", "", textsOf(added), textsOf(removed), s.goneWith(removed))...)
	return append(out, s.describeRanges()...)
}

func (s *subject) kindPrefix(f *frontend) string {
	if s.in == words.Balance {
		return ""
	}
	return f.Kind.String() + " "
}

// describeRanges describes ranges that get or lose ports. Connections through the ports that they
// keep are left alone (4.61).
func (s *subject) describeRanges() (out []Detail) {
	for _, p := range s.stays {
		before, after := p.before, p.after
		if before.Frontend == after.Frontend {
			continue
		}
		d := Detail{Kind: KindFrontends, Old: before.addressText(), New: after.addressText(), Text: fmt.Sprintf("%s%s → %s", s.kindPrefix(after), before.addressText(), after.addressText())}
		if before.Frontend.Port < after.Frontend.Port || after.Last < before.Last {
			d.Connections = byProtocol([]*frontend{before}, "TCP connections continue", "UDP flows through other ports end")
		}
		out = append(out, d)
	}
	return out
}

// findSuccessors returns the frontends that take the place of others: each is the only one
// of its port, kind and family that comes, and the other one the only one that goes.
func (s *subject) findSuccessors() map[*frontend]*frontend {
	type place struct {
		port   model.PortName
		kind   model.Kind
		family model.Family
	}
	group := func(all []*frontend) map[place][]*frontend {
		out := make(map[place][]*frontend)
		for _, f := range all {
			p := place{f.Port, f.Kind, model.FamilyOf(f.Address)}
			out[p] = append(out[p], f)
		}
		return out
	}
	out, are := make(map[*frontend]*frontend), group(s.added)
	for p, were := range group(s.removed) {
		if now := are[p]; len(were) == 1 && len(now) == 1 {
			out[were[0]] = now[0]
		}
	}
	return out
}

func textsOf[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.String()
		if a, ok := any(e).(address); ok {
			out[i] = model.EndpointText(a)
		}
	}
	return out
}

func (s *subject) portPrefix(port model.PortName) string {
	ports := make(map[model.PortName]bool)
	for _, f := range slices.Concat(s.added, s.removed) {
		ports[f.Port] = true
	}
	for _, p := range s.stays {
		ports[p.after.Port] = true
	}
	if len(ports) < 2 {
		return ""
	}
	return portLabel(port)
}

func portLabel(port model.PortName) string {
	return cmp.Or(port.Port, port.Protocol.String()) + ": "
}

func (s *subject) describeMoves() (out []Detail) {
	note := func(pairs []pair, direction string, other func(pair) model.ServiceName) {
		byService := make(map[model.ServiceName][]string)
		for _, p := range pairs {
			byService[other(p)] = append(byService[other(p)], p.after.addressText())
		}
		for _, name := range slices.SortedFunc(maps.Keys(byService), model.ServiceName.Compare) {
			list := byService[name]
			d := Detail{Kind: KindMoved, Text: joinFew(list) + " " + direction + " " + name.String(), Connections: s.describeLost(pairs, s.name)}
			if direction == "moves to" {
				d.New, d.Removed, d.Connections = name.String(), list, s.describeLost(pairs, name)
			} else {
				d.Old, d.Added = name.String(), list
			}
			out = append(out, d)
		}
	}
	note(s.gained, "moves from", func(p pair) model.ServiceName { return p.before.Port.Service })
	note(s.ceded, "moves to", func(p pair) model.ServiceName { return p.after.Port.Service })
	return append(out, s.describeRenames()...)
}

// describeRenames describes frontends whose port has another name, or whose address another
// origin.
func (s *subject) describeRenames() (out []Detail) {
	for _, p := range s.stays {
		if a, b := p.before.Port.Port, p.after.Port.Port; a != b && p.before.Frontend == p.after.Frontend {
			out = addNew(out, Detail{Kind: KindFrontends, Old: a, New: b, Text: fmt.Sprintf("name of port %d: %q → %q", p.after.Frontend.Port, a, b)})
		}
		if a, b := p.before.Kind, p.after.Kind; a != b {
			out = addNew(out, Detail{Kind: KindFrontends, Old: a.String(), New: b.String(), Text: fmt.Sprintf("%s: %s → %s", p.after.addressText(), a, b)})
		}
	}
	return out
}

var effects = map[string]string{
	model.Reject.String():  "rejects connections: no endpoint can take them",
	model.Drop.String():    "drops connections: no endpoint on this node",
	model.Forward.String(): "takes connections again",
}

func (s *subject) describeVerdicts() (out []Detail) {
	groups := make(map[verdictKey][]string)
	forwards := &frontend{serving: &serving{Inside: served.Decision{Verdict: model.Forward}, Outside: served.Decision{Verdict: model.Forward}}}
	for _, f := range s.added {
		for _, key := range changedVerdicts(forwards, f) {
			key.old = "" // it was not there
			groups[key] = append(groups[key], f.String())
		}
	}
	for _, p := range slices.Concat(s.stays, s.gained) {
		for _, key := range changedVerdicts(p.before, p.after) {
			groups[key] = append(groups[key], p.after.String())
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(groups), verdictKey.compare) {
		out = append(out, s.verdictDetail(key, groups[key]))
	}
	return out
}

// changedVerdicts returns the changes for clients inside and outside of the cluster,
// as one if it is the same for both in the end.
func changedVerdicts(before, after *frontend) (out []verdictKey) {
	inside := verdictKey{"inside", before.Inside.Verdict.String(), after.Inside.Verdict.String()}
	outside := verdictKey{"outside", before.Outside.Verdict.String(), after.Outside.Verdict.String()}
	switch {
	case inside.hasChanged() && after.Inside.Verdict == after.Outside.Verdict:
		return []verdictKey{{"", inside.old, inside.new}}
	case inside.hasChanged():
		out = append(out, inside)
	}
	if outside.hasChanged() {
		out = append(out, outside)
	}
	return out
}

type verdictKey struct{ who, old, new string }

func (k verdictKey) hasChanged() bool { return k.old != k.new }

func (k verdictKey) compare(o verdictKey) int {
	return cmp.Or(cmp.Compare(k.who, o.who), cmp.Compare(k.old, o.old), cmp.Compare(k.new, o.new))
}

func (s *subject) verdictDetail(k verdictKey, frontends []string) Detail {
	text := s.in.Text(effects[k.new])
	switch k.who {
	case "inside":
		text += ", from pods and the node"
	case "outside":
		text += ", from outside"
	}
	if len(frontends) < s.total[s.name].after {
		text += " (" + joinFew(frontends) + ")"
	}
	return Detail{Kind: KindVerdict, Text: text, Old: k.old, New: k.new, Added: frontends}
}

// joinFew joins a few texts, and counts the others.
func joinFew(list []string) string { return terminal.List(list, 3) }

// addNew adds a detail, unless another one says the same.
func addNew(all []Detail, d Detail) []Detail {
	if slices.ContainsFunc(all, func(o Detail) bool { return o.Text == d.Text }) {
		return all
	}
	return append(all, d)
}

// listDetails describes things that come and go, such as "2 names of servers added (a, b)". lost says what
// happens to connections through these that go.
func listDetails(kind Kind, noun, of string, added, removed []string, lost string) (out []Detail) {
	if len(added) > 0 {
		out = append(out, Detail{Kind: kind, Text: terminal.Count(len(added), noun) + of + " added (" + joinFew(added) + ")", Added: added})
	}
	if len(removed) > 0 {
		out = append(out, Detail{Kind: kind, Text: terminal.Count(len(removed), noun) + of + " removed (" + joinFew(removed) + ")", Removed: removed, Connections: lost})
	}
	return out
}

// goneWith says whether connections of frontends that are gone continue (9.3, 9.6).
func (s *subject) goneWith(frontends []*frontend) string {
	tcp := "TCP connections continue"
	if s.edits.closesConnections(s.name) {
		tcp = "TCP connections end"
	}
	return byProtocol(frontends, tcp, "UDP flows end")
}

// closesConnections reports whether a Service is known to close connections to endpoints that are gone
// (9.28): as its object says now, or said last.
func (e *edits) closesConnections(name model.ServiceName) bool {
	state, ok := e.after[name]
	if !ok {
		state, ok = e.before[name]
	}
	return ok && state.Service != nil && state.Service.Extra().OnFailure == model.CloseOnFailure
}

// byProtocol returns the texts for the protocols of frontends. SCTP counts as TCP.
func byProtocol(frontends []*frontend, tcp, udp string) string {
	isUDP := func(f *frontend) bool { return f.Protocol == model.UDP }
	isOther := func(f *frontend) bool { return f.Protocol != model.UDP }
	var out []string
	if slices.ContainsFunc(frontends, isOther) {
		out = append(out, tcp)
	}
	if slices.ContainsFunc(frontends, isUDP) {
		out = append(out, udp)
	}
	return strings.Join(out, ", ")
}
