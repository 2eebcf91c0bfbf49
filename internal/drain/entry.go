// Package drain has what operators change at run time. It takes endpoints out of service for maintenance: a
// drained endpoint gets no new connections, and keeps those that it has. The list of drained endpoints is a
// file, which the command "nftproxy drain" writes and a daemon follows. And it changes servers of
// Balances: their weight, a server more or less. Such a change is temporary: the file of
// the Balance does not have it, and an edit of the same server in the file ends it. The list
// of changes outlasts restarts in a file of its own.
package drain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Target is an endpoint, in all Services or in one, as a person names it.
type Target struct {
	Address netip.Addr
	Port    uint16            // zero: all ports
	Service model.ServiceName // the zero value: all Services
}

// Entry is a drained endpoint.
type Entry struct {
	Target
	Since time.Time // zero: not known
}

// List are the drained endpoints, sorted.
type List []Entry

// Facts returns the list as documents have it; not nil.
func (l List) Facts() []model.DrainEntry {
	out := make([]model.DrainEntry, len(l))
	for i, e := range l {
		out[i] = model.DrainEntry{Endpoint: e.Endpoint(), Service: e.serviceText(), Since: e.Since}
	}
	return out
}

// ListOf returns the list of a document.
func ListOf(all []model.DrainEntry) (l List, err error) {
	for _, d := range all {
		e := Entry{Since: d.Since}
		if e.Target, err = Decode(strings.TrimSpace(d.Endpoint + " " + d.Service)); err != nil {
			return nil, err
		}
		l = append(l, e)
	}
	return l, nil
}

// serviceText returns the name of the Service; empty: all have it.
func (t Target) serviceText() string {
	if t.Service == (model.ServiceName{}) {
		return ""
	}
	return t.Service.String()
}

func ParseEndpoint(text string) (Target, error) { return parseTarget(text, words.Kubernetes) }

func ParseServer(text string) (Target, error) { return parseTarget(text, words.Balance) }

func parseTarget(text string, in words.Vocabulary) (Target, error) {
	bare := text
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		bare = text[1 : len(text)-1]
	}
	if a, err := netip.ParseAddr(bare); err == nil {
		return newTarget(text, a, 0, in)
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil || at.Port() == 0 {
		return Target{}, in.Errorf("%s is not an endpoint: write it like 10.128.0.2, 10.128.0.2:8080 or [fd00::2]:8080", strconv.Quote(text))
	}
	return newTarget(text, at.Addr(), at.Port(), in)
}

func newTarget(text string, a netip.Addr, port uint16, in words.Vocabulary) (Target, error) {
	if a.Zone() != "" {
		return Target{}, in.Errorf("%s has a zone: endpoints have none", strconv.Quote(text))
	}
	return Target{Address: a.Unmap(), Port: port}, nil
}

// ParseService parses "namespace/name"; a name alone is in the namespace default.
func ParseService(text string) (model.ServiceName, error) {
	namespace, name, found := strings.Cut(text, "/")
	if !found {
		namespace, name = "default", text
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return model.ServiceName{}, fmt.Errorf("%s is not the name of a Service: write it like shop/web", strconv.Quote(text))
	}
	return model.ServiceName{Namespace: namespace, Name: name}, nil
}

// Endpoint returns the address, with the port if there is one.
func (t Target) Endpoint() string {
	if t.Port == 0 {
		return t.Address.String()
	}
	return netip.AddrPortFrom(t.Address, t.Port).String()
}

// String returns for example "10.128.0.2:8080 of Service shop/web".
func (t Target) String() string { return t.Text(words.Kubernetes) }

// Text returns the target in the words for its Service.
func (t Target) Text(in words.Vocabulary) string {
	if t.Service == (model.ServiceName{}) {
		return t.Endpoint()
	}
	return t.Endpoint() + " of " + t.Service.ObjectAs(in == words.Balance).String()
}

// Encode returns a target as [Decode] reads it: the endpoint, and the Service after a space.
func (t Target) Encode() string {
	if t.Service == (model.ServiceName{}) {
		return t.Endpoint()
	}
	return t.Endpoint() + " " + t.Service.String()
}

func Decode(text string) (Target, error) {
	endpoint, service, found := strings.Cut(text, " ")
	t, err := ParseEndpoint(endpoint)
	if err == nil && found {
		t.Service, err = ParseService(service)
	}
	return t, err
}

func (t Target) Compare(o Target) int {
	return cmp.Or(t.Address.Compare(o.Address), cmp.Compare(t.Port, o.Port), t.Service.Compare(o.Service))
}

// includes reports whether everything that o names is named by t.
func (t Target) includes(o Target) bool {
	return t.Address == o.Address && (t.Port == 0 || t.Port == o.Port) && (t.Service == model.ServiceName{} || t.Service == o.Service)
}

// Equal reports whether two lists are equal, also in the times.
func (l List) Equal(o List) bool { return Content{Drained: l}.text() == Content{Drained: o}.text() }

// Includes reports whether an endpoint is drained as a whole.
func (l List) Includes(t Target) bool {
	return slices.ContainsFunc(l, func(e Entry) bool { return e.includes(t) })
}

// With returns the list with these targets. An entry that becomes superfluous is
// removed, and one that exists keeps its time.
func (l List) With(now time.Time, targets ...Target) List {
	out := slices.Clone(l)
	for _, t := range targets {
		if out.Includes(t) {
			continue
		}
		out = slices.DeleteFunc(out, func(e Entry) bool { return t.includes(e.Target) })
		out = append(out, Entry{t, now.UTC().Truncate(time.Second)})
	}
	out.sort()
	return out
}

// Without returns the list without the entries that a target includes. It fails if there is
// none; the error, in these words, names an entry that includes the target, or others of its address.
func (l List) Without(in words.Vocabulary, targets ...Target) (List, error) {
	out := slices.Clone(l)
	for _, t := range targets {
		out = slices.DeleteFunc(out, func(e Entry) bool { return t.includes(e.Target) })
		if i := slices.IndexFunc(out, func(e Entry) bool { return e.includes(t) }); i >= 0 {
			return nil, fmt.Errorf("%s is drained as a part of %s: undrain that", t.Text(in), out[i].Text(in))
		}
		if !slices.ContainsFunc(l, func(e Entry) bool { return t.includes(e.Target) }) {
			return nil, l.notDrained(in, t)
		}
	}
	return out, nil
}

// notDrained returns an error that names the drained entries of the address of a target.
func (l List) notDrained(in words.Vocabulary, t Target) error {
	var same []string
	for _, e := range l {
		if e.Address == t.Address {
			same = append(same, e.Text(in))
		}
	}
	switch {
	case len(same) > 0:
		return fmt.Errorf("%s is not drained; drained is %s", t.Text(in), strings.Join(same, ", "))
	case len(l) == 0:
		return fmt.Errorf("%s is not drained: nothing is", t.Text(in))
	}
	return fmt.Errorf("%s is not drained: \"nftproxy drain --list\" shows what is", t.Text(in))
}

func (l List) sort() {
	slices.SortFunc(l, func(a, b Entry) int { return a.Target.Compare(b.Target) })
}

// Edit returns the state of a Service in which the endpoints of the list are drained: an
// edited copy, or the state itself if the list has none of its endpoints.
func (l List) Edit(name model.ServiceName, state model.ServiceState) model.ServiceState {
	if !l.Concerns(name, state) {
		return state
	}
	var edited []*model.EndpointSlice
	for _, s := range state.Slices {
		edited = append(edited, l.slice(name, s, hasRanges(state.Service))...)
	}
	state.Slices = edited
	return state
}

// EditSnapshot returns a snapshot in which the endpoints of the list are drained.
func (l List) EditSnapshot(s *model.Snapshot) *model.Snapshot {
	if len(l) == 0 {
		return s
	}
	return s.Edit(l.Edit)
}

func hasRanges(s *model.Service) bool { return s != nil && len(s.Extra().Ranges) > 0 }

// Concerns reports whether the list has an address of a Service.
func (l List) Concerns(name model.ServiceName, state model.ServiceState) bool {
	return len(l) > 0 && slices.ContainsFunc(state.Slices, func(s *model.EndpointSlice) bool { return l.has(name, s) })
}

func (l List) has(name model.ServiceName, s *model.EndpointSlice) bool {
	for i := range s.Hosts {
		if len(l.of(name, s.Hosts[i].Address)) > 0 {
			return true
		}
	}
	return false
}

// of returns the entries of an address that hold for a Service.
func (l List) of(name model.ServiceName, a netip.Addr) List {
	first, found := slices.BinarySearchFunc(l, a, func(e Entry, a netip.Addr) int { return e.Address.Compare(a) })
	if !found {
		return nil
	}
	n := first
	for n < len(l) && l[n].Address == a {
		n++
	}
	same := l[first:n]
	none := func(e Entry) bool { return e.Service != model.ServiceName{} && e.Service != name }
	if slices.ContainsFunc(same, none) {
		same = slices.DeleteFunc(slices.Clone(same), none)
	}
	return same
}

// slice returns a slice with drained hosts. A host is drained for all ports of its slice:
// ports with other drained hosts get a slice of their own. Ranges of ports have the best
// record of a host (1.57), of any port: if only entries with a port name the host, the
// best record is one in a slice without ports.
func (l List) slice(name model.ServiceName, s *model.EndpointSlice, ranges bool) (out []*model.EndpointSlice) {
	if !l.has(name, s) {
		return []*model.EndpointSlice{s}
	}
	var groups [][]int // drained hosts of the slices in out
	group := func(port uint16) *model.EndpointSlice {
		drained := l.hosts(name, s, port)
		i := slices.IndexFunc(groups, func(g []int) bool { return slices.Equal(g, drained) })
		if i < 0 {
			i = len(groups)
			groups, out = append(groups, drained), append(out, drainHosts(s, drained))
		}
		return out[i]
	}
	for _, p := range s.Ports {
		edited := group(p.Port)
		edited.Ports = append(edited.Ports, p)
	}
	if ranges || len(s.Ports) == 0 {
		group(0)
	}
	return out
}

// hosts returns the indices of the hosts of a slice that are drained at a port, or, for
// port 0, as a whole.
func (l List) hosts(name model.ServiceName, s *model.EndpointSlice, port uint16) (out []int) {
	for i := range s.Hosts {
		if slices.ContainsFunc(l.of(name, s.Hosts[i].Address), func(e Entry) bool { return e.Port == 0 || e.Port == port }) {
			out = append(out, i)
		}
	}
	return out
}

// drainHosts returns a copy of a slice without ports, in which these hosts are drained.
func drainHosts(s *model.EndpointSlice, hosts []int) *model.EndpointSlice {
	edited := *s
	edited.Ports = nil
	if len(hosts) > 0 {
		edited.Hosts = slices.Clone(s.Hosts)
		for _, i := range hosts {
			edited.Hosts[i].DrainByOperator()
		}
	}
	return &edited
}
