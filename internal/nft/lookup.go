package nft

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Serving returns the frontend that serves an address and port: the one with that
// address and port, or else the NodePort with the unspecified address, or else the range
// of ports. The elements must be sorted.
func (t *Table) Serving(dialled model.Frontend) model.Frontend {
	has := func(set string, f model.Frontend) bool {
		_, ok := t.Set(set).Find(f)
		return ok
	}
	address := model.Frontend{Address: dialled.Address}
	if has(ServicesMap, dialled) {
		return dialled
	}
	isNode := has(NodeAddressesSet, address) && !has(ClusterIPsSet, address)
	if isNode && has(ServicesMap, dialled.OnNode()) {
		return dialled.OnNode()
	}
	if ranges := t.Set(RangesMap); ranges != nil {
		if e, ok := ranges.findRange(dialled); ok {
			dialled.Port, dialled.Last = e.Key.Port, uint16(e.Key.Slot)
			return dialled
		}
	}
	if isNode {
		return dialled.OnNode()
	}
	return dialled
}

// findRange returns the element of an interval map of ports that has the port of
// a frontend. The elements must be sorted, and none overlap.
func (s *Set) findRange(f model.Frontend) (*Element, bool) {
	// The last one that begins at this port or before it.
	i, _ := slices.BinarySearchFunc(s.Elements, f, func(e Element, f model.Frontend) int {
		return cmp.Or(e.Key.Address.Compare(f.Address), cmp.Compare(e.Key.Protocol, f.Protocol), cmp.Compare(int(e.Key.Port), int(f.Port)+1))
	})
	if i == 0 {
		return nil, false
	}
	e := &s.Elements[i-1]
	ok := e.Key.Address == f.Address && e.Key.Protocol == f.Protocol && e.Key.Slot >= uint32(f.Port)
	return e, ok
}

// MaxComment is the longest comment in bytes that nft accepts for an element
// (NFTNL_UDATA_COMMENT_MAXLEN). The kernel accepts longer ones, but nft could not
// load a listing with them.
const MaxComment = 128

// Comment names the service port behind a frontend, and the kind of the
// frontend unless it is the ClusterIP.
func Comment(r *model.Route) string { return truncatedComment(r.PortName().String(), r.Kind) }

// EchoComment names the Service whose echo requests are answered, and the kind of the
// address.
func EchoComment(r *model.Route) string { return truncatedComment(r.Service.Name.String(), r.Kind) }

func truncatedComment(name string, kind model.Kind) string {
	text := replaceUnquotable(name)
	if kind != model.ClusterIP {
		suffix := " " + kind.String()
		return truncateText(text, MaxComment-len(suffix)) + suffix
	}
	return truncateText(text, MaxComment)
}

// FrontendOf returns the frontend of a key in a set of a table: of a range, with its last
// port.
func (t *Table) FrontendOf(s *Set, k Key) model.Frontend {
	f := k.Frontend()
	if ranges := t.Set(RangesMap); ranges != nil && s.HasRanges() {
		if e, ok := ranges.findRange(f); ok {
			f.Last = uint16(e.Key.Slot)
		}
	}
	return f
}

// MapsOf returns the names of the maps that decide about a frontend, and about its clients
// outside of the cluster.
func MapsOf(f model.Frontend) (services, local string) {
	return SetFor(f, ServicesMap), SetFor(f, LocalServicesMap)
}

// Slots returns the elements of the slots of a frontend. The elements must be sorted.
func (t *Table) Slots(f model.Frontend) []Element {
	for _, name := range SlotMaps {
		s := t.Set(name)
		if s == nil || IDOf(name).Shape != ShapeOf(f).InSets() {
			continue
		}
		first, _ := slices.BinarySearchFunc(s.Elements, FrontendKey(f), func(e Element, k Key) int { return e.Key.Compare(k) })
		n := first
		for n < len(s.Elements) && FrontendKey(s.Elements[n].Key.Frontend()) == FrontendKey(f) {
			n++
		}
		if n > first {
			return s.Elements[first:n]
		}
	}
	return nil
}

// ParseComment reads the comment of an element. It has no protocol, and the name may
// be cut.
func ParseComment(text string) (model.PortName, model.Kind) {
	kind := model.ClusterIP
	for _, k := range []model.Kind{model.LoadBalancerIP, model.ExternalIP, model.NodePort} {
		if name, ok := strings.CutSuffix(text, " "+k.String()); ok {
			text, kind = name, k
		}
	}
	namespace, name, _ := strings.Cut(text, "/")
	name, port, _ := strings.Cut(name, ":")
	return model.PortName{Service: model.ServiceName{Namespace: namespace, Name: name}, Port: port}, kind
}

// replaceUnquotable replaces characters that a quoted nft string cannot hold. Names that an API server
// accepts have none of them; names in a file may.
func replaceUnquotable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '?'
		}
		return r
	}, s)
}

func truncateText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n-3] + "..."
}

// Limits returns the limits of a frontend.
func (t *Table) Limits(f model.Frontend) (l model.Limits) {
	for _, name := range []string{RateLimitsSet, ConnectionLimitsSet} {
		s := t.Set(SetFor(f, name))
		if e, ok := s.Find(f); ok {
			limit := e.Value.Limit(s.Limits)
			l.Rate, l.Connections = cmp.Or(l.Rate, limit.Rate), cmp.Or(l.Connections, limit.Connections)
		}
	}
	for _, name := range ClientLimitMaps {
		if e, ok := t.Set(SetFor(f, name)).Find(f); ok {
			limit := t.clientLimit(e.Value.Verdict.Chain)
			l.RatePerClient, l.ConnectionsPerClient = cmp.Or(l.RatePerClient, limit.Rate), cmp.Or(l.ConnectionsPerClient, limit.Connections)
		}
	}
	return l
}

// MasqueradeFrom returns the addresses with which a frontend masquerades in turn; none: as all
// others do.
func (t *Table) MasqueradeFrom(f model.Frontend) (from []netip.Addr) {
	if e, ok := t.Set(SetFor(f, SNATFrontendsMap)).Find(f); ok {
		from = t.SNATAddresses(e.Value.Verdict.Chain)
	}
	return from
}

func (t *Table) SNATAddresses(chain string) (out []netip.Addr) {
	if c := t.Chain(chain); c != nil {
		for _, s := range slices.Concat(c.Rules...) {
			if to, ok := s.(SNATTo); ok {
				out = append(out, to.Address)
			}
		}
	}
	return out
}

func (t *Table) clientLimit(chain string) Limit {
	if c := t.Chain(chain); c != nil {
		for _, s := range slices.Concat(c.Rules...) {
			if u, ok := s.(Update); ok && u.Limit != (Limit{}) {
				return u.Limit
			}
		}
	}
	return Limit{}
}
