package drain

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Server identifies a server of a Balance.
type Server struct {
	Address netip.Addr
	// Port is where the server takes all connections; zero: it keeps the ports of clients, or
	// has several.
	Port uint16
}

// String returns the address, with the port if there is one.
func (s Server) String() string { return Target{Address: s.Address, Port: s.Port}.Endpoint() }

func (s Server) compare(o Server) int {
	return cmp.Or(s.Address.Compare(o.Address), cmp.Compare(s.Port, o.Port))
}

// absent stands for the weight of a server that is not there.
const absent = -1

// Change is a change of one server of a Balance.
type Change struct {
	Server
	Weight int // now; absent: the server is removed
	File   int // in the file when the change was made; absent: the file has no such server
	Since  time.Time
	By     string // user and process
}

// Text returns for example "weight 3, in the file 1".
func (c Change) Text() string {
	switch {
	case c.File == absent:
		return "added with weight " + fmt.Sprint(c.Weight)
	case c.Weight == absent:
		return fmt.Sprintf("removed, in the file weight %d", c.File)
	}
	return fmt.Sprintf("weight %d, in the file %d", c.Weight, c.File)
}

// Undone returns the old and the new value of a change that ends, in words.
func (c Change) Undone() (old, now string) { return weightText(c.Weight), weightText(c.File) }

func weightText(weight int) string {
	if weight == absent {
		return "absent"
	}
	return fmt.Sprintf("weight %d", weight)
}

// Changes are changes by Balance, sorted by server. A list that is in use does not change.
type Changes map[model.ServiceName][]Change

// Len returns the number of changes.
func (l Changes) Len() (n int) {
	for _, all := range l {
		n += len(all)
	}
	return n
}

// Names returns the Balances, sorted.
func (l Changes) Names() []model.ServiceName {
	var names []model.ServiceName
	for name := range l {
		names = append(names, name)
	}
	slices.SortFunc(names, model.ServiceName.Compare)
	return names
}

// Entries returns the changes as entries.
func (l Changes) Entries() (out []model.RuntimeChange) {
	for _, name := range l.Names() {
		for _, c := range l[name] {
			out = append(out, c.entry(name))
		}
	}
	return out
}

func (c Change) entry(name model.ServiceName) model.RuntimeChange {
	r := model.RuntimeChange{Balance: name.String(), Server: c.String(), Since: c.Since, By: c.By}
	if c.Weight != absent {
		r.Weight = &c.Weight
	}
	if c.File != absent {
		r.FileWeight = &c.File
	}
	return r
}

// ChangesOf returns the list of some entries.
func ChangesOf(all []model.RuntimeChange) (Changes, error) {
	out := make(Changes)
	for i := range all {
		if field, err := out.add(&all[i]); err != nil {
			return nil, fmt.Errorf("changes[%d].%s: %w", i, field, err)
		}
	}
	return out, nil
}

// add adds an entry. The error is about a field.
func (l Changes) add(r *model.RuntimeChange) (field string, err error) {
	name, err := ParseService(r.Balance)
	if err != nil {
		return "balance", err
	}
	t, err := ParseServer(r.Server)
	if err != nil {
		return "server", err
	}
	c := Change{Server: Server{t.Address, t.Port}, Weight: absent, File: absent, Since: r.Since, By: r.By}
	for _, w := range []struct {
		field string
		from  *int
		to    *int
	}{{"weight", r.Weight, &c.Weight}, {"fileWeight", r.FileWeight, &c.File}} {
		if w.from == nil {
			continue
		}
		if err := checkWeight(*w.from); err != nil {
			return w.field, err
		}
		*w.to = *w.from
	}
	if c.Weight == c.File {
		return "weight", fmt.Errorf("changes nothing: it is as in fileWeight")
	}
	i, found := slices.BinarySearchFunc(l[name], c, func(a, b Change) int { return a.compare(b.Server) })
	if found {
		return "server", fmt.Errorf("%s of %s is changed already by an entry above: remove one of them", c.Server, name)
	}
	l[name] = slices.Insert(l[name], i, c)
	return "", nil
}

// MaxWeight is the highest weight of a server.
const MaxWeight = 100

func checkWeight(w int) error {
	if w < 0 || w > MaxWeight {
		return fmt.Errorf("%d is not a weight: use 0 to %d", w, MaxWeight)
	}
	return nil
}

// Texts returns the changes as text, such as "default/web 10.1.1.2: weight 3, in the file 1".
func (l Changes) Texts() (out []string) {
	for _, name := range l.Names() {
		for _, c := range l[name] {
			out = append(out, fmt.Sprintf("%s %s: %s", name, c.Server, c.Text()))
		}
	}
	return out
}

type changesItem struct {
	Balance    string `json:"balance"`
	Server     string `json:"server"`
	Weight     *int   `json:"weight,omitempty" yaml:",omitempty"`
	FileWeight *int   `json:"fileWeight,omitempty" yaml:"fileWeight,omitempty"`
	Since      string `json:"since,omitempty" yaml:",omitempty"`
	By         line   `json:"by,omitempty" yaml:",omitempty"`
}

// line is a text that is written on one line: the file is not read with tabs in its indentation.
type line string

func (l line) MarshalYAML() (any, error) {
	if strings.ContainsFunc(string(l), unicode.IsControl) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: string(l)}, nil
	}
	return string(l), nil
}

func (l Changes) addItem(it changesItem) (field string, err error) {
	r := model.RuntimeChange{Balance: it.Balance, Server: it.Server, Weight: it.Weight, FileWeight: it.FileWeight, By: string(it.By)}
	if r.Since, err = parseSince(it.Since); err != nil {
		return "since", err
	}
	return l.add(&r)
}

func (l Changes) items() (out []changesItem) {
	for _, r := range l.Entries() {
		out = append(out, changesItem{r.Balance, r.Server, r.Weight, r.FileWeight, sinceText(r.Since), line(strings.ToValidUTF8(r.By, "\ufffd"))})
	}
	return out
}

// with returns the changes and those of another list, which replace changes of the same servers.
func (l Changes) with(o Changes) Changes {
	out := maps.Clone(o)
	for name, all := range l {
		rest := append(without(all, o[name]), o[name]...)
		slices.SortFunc(rest, func(a, b Change) int { return a.compare(b.Server) })
		out = out.replaced(name, rest)
	}
	return out
}

// replaced returns the list with these changes of a Balance in place of others.
func (l Changes) replaced(name model.ServiceName, all []Change) Changes {
	out := maps.Clone(l)
	if out == nil {
		out = make(Changes)
	}
	if len(all) == 0 {
		delete(out, name)
	} else {
		out[name] = all
	}
	return out
}

// differing returns the Balances whose changes two lists have in different ways.
func (l Changes) differing(o Changes) (names []model.ServiceName) {
	for _, list := range []Changes{l, o} {
		for name := range list {
			if !slices.Equal(l[name], o[name]) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// serverOf returns what identifies the server that a host of a slice is.
func serverOf(s *model.Service, slice *model.EndpointSlice, host int) Server {
	return Server{slice.Hosts[host].Address, portOf(s, slice)}
}

// portOf returns the one port that all ports and ranges of a Balance lead to at the hosts of a
// slice; zero: there are several, or these hosts keep the ports of a range.
func portOf(s *model.Service, slice *model.EndpointSlice) uint16 {
	var port uint16
	for i, p := range slice.Ports {
		if i > 0 && p.Port != port {
			return 0
		}
		port = p.Port
	}
	for i, r := range s.Extra().Ranges {
		target := r.Target
		if target == 0 && r.Last == 0 {
			target = r.Port
		}
		if target == 0 || (i > 0 || len(slice.Ports) > 0) && target != port {
			return 0
		}
		port = target
	}
	return port
}

// weightOf returns the weight of a host as the file gives it.
func weightOf(h *model.Host) int {
	if h.Drain && !h.DrainedByOperator() {
		return 0
	}
	return max(1, int(h.Weight))
}

func setWeight(h *model.Host, weight int) { h.Weight, h.Drain = uint16(weight), weight == 0 }

// find returns the host of a server in slices, or -1.
func find(s model.ServiceState, server Server) (slice, host int) {
	for i, in := range s.Slices {
		for j := range in.Hosts {
			if in.Hosts[j].Address == server.Address && serverOf(s.Service, in, j) == server {
				return i, j
			}
		}
	}
	return -1, -1
}

// Edit returns the state of a Balance with the changes that hold, and the others: those whose
// server is in the file in another way than when they were made. The file wins then.
func (l Changes) Edit(name model.ServiceName, state model.ServiceState) (edited model.ServiceState, ended []Change) {
	all := l[name]
	if len(all) == 0 || state.Service == nil {
		return state, nil // a Balance without a file may return
	}
	edited = state
	for _, c := range all {
		i, j := find(state, c.Server)
		in := absent
		if i >= 0 {
			in = weightOf(&state.Slices[i].Hosts[j])
		}
		if in != c.File || c.File == absent && fits(state, c.Server) != nil {
			ended = append(ended, c)
			continue
		}
		edited.Slices = c.apply(state, edited.Slices)
	}
	return edited, ended
}

// apply returns slices with the change. state is the one of the file.
func (c Change) apply(state model.ServiceState, all []*model.EndpointSlice) []*model.EndpointSlice {
	if c.File == absent {
		return append(slices.Clip(all), c.slice(state.Service))
	}
	i, j := find(model.ServiceState{Service: state.Service, Slices: all}, c.Server)
	changed := *all[i]
	changed.Hosts = slices.Clone(changed.Hosts)
	if c.Weight == absent {
		changed.Hosts = slices.Delete(changed.Hosts, j, j+1)
	} else {
		setWeight(&changed.Hosts[j], c.Weight)
	}
	out := slices.Clone(all)
	out[i] = &changed
	return out
}

func (c Change) slice(s *model.Service) *model.EndpointSlice {
	out := &model.EndpointSlice{
		Namespace: s.Name.Namespace, Name: s.Name.Name + "-runtime", Service: s.Name.Name,
		Family: model.FamilyOf(c.Address), Ports: endpointPorts(s, c.Port),
		Hosts: []model.Host{{Address: c.Address, Ready: true, Serving: true}},
	}
	setWeight(&out.Hosts[0], c.Weight)
	return out
}

// endpointPorts returns the ports of a server that takes all connections at a port; zero: at the
// ports of clients.
func endpointPorts(s *model.Service, port uint16) (out []model.EndpointPort) {
	for _, p := range s.Ports {
		to := port
		if to == 0 {
			to = p.Port
		}
		out = append(out, model.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: to})
	}
	return out
}

// EditSnapshot returns a snapshot with the changes that hold, and these.
func (l Changes) EditSnapshot(s *model.Snapshot) (edited *model.Snapshot, held Changes) {
	if len(l) == 0 {
		return s, nil
	}
	held = make(Changes)
	return s.Edit(func(name model.ServiceName, state model.ServiceState) model.ServiceState {
		edited, ended := l.Edit(name, state)
		if rest := without(l[name], ended); len(rest) > 0 {
			held[name] = rest
		}
		return edited
	}), held
}

func without(all, ended []Change) []Change {
	return slices.DeleteFunc(slices.Clone(all), func(c Change) bool {
		return slices.ContainsFunc(ended, func(e Change) bool { return e.Server == c.Server })
	})
}

// listens reports whether a Balance listens on an address of a family.
func listens(s *model.Service, a netip.Addr) bool {
	if s.External == nil {
		return false
	}
	return slices.ContainsFunc(s.External.LoadBalancerIPs, func(l netip.Addr) bool { return model.FamilyOf(l) == model.FamilyOf(a) })
}
