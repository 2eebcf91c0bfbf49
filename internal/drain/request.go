package drain

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// Request is a change of servers of one Balance.
type Request struct {
	Action string // one of the constants
	Server Server // without a port: the server of this address, with any port
	All    bool   // to undo: all servers
	Weight *int
	Force  bool
	By     string
}

// The actions of a request.
const (
	ActionSet    = "set"    // the weight of a server
	ActionAdd    = "add"    // a server, if there is none
	ActionRemove = "remove" // a server, if there is one
	ActionUndo   = "undo"   // changes
)

// Step is a change of one server: from "weight 1" to "weight 3", for example.
type Step struct{ Server, Old, New string }

// Command is a request as a client writes it.
type Command struct {
	Action, Server string
	Weight         *int
	Force          bool
}

func ParseRequest(c Command, by string) (r Request, err error) {
	r = Request{Action: c.Action, Weight: c.Weight, Force: c.Force, By: by}
	if c.Weight != nil {
		if err := checkWeight(*c.Weight); err != nil {
			return r, fmt.Errorf("weight: %w", err)
		}
	}
	switch {
	case c.Action == ActionSet && c.Weight == nil:
		return r, errors.New("weight: missing: write for example weight=3")
	case c.Weight != nil && c.Action != ActionSet && c.Action != ActionAdd:
		return r, fmt.Errorf("weight: has no meaning for %s", c.Action)
	case c.Server == "" && c.Action == ActionUndo:
		r.All = true
		return r, nil
	}
	t, err := ParseServer(c.Server)
	if err != nil {
		return r, fmt.Errorf("server: %w", err)
	}
	r.Server = Server{t.Address, t.Port}
	return r, nil
}

// known is a server of a Balance: as the file has it, as it is now, or both.
type known struct {
	Server
	file, now int // weights
	change    *Change
}

// serversOf returns the servers of a Balance with changes, which all hold.
func serversOf(state model.ServiceState, changes []Change) (out []known) {
	for _, in := range state.Slices {
		for j := range in.Hosts {
			w := weightOf(&in.Hosts[j])
			out = append(out, known{serverOf(state.Service, in, j), w, w, nil})
		}
	}
	for i := range changes {
		c := &changes[i]
		if c.File == absent {
			out = append(out, known{c.Server, absent, c.Weight, c})
			continue
		}
		for j := range out {
			if out[j].Server == c.Server {
				out[j].now, out[j].change = c.Weight, c
			}
		}
	}
	return out
}

// matches reports whether a server is the one that a person names.
func (k known) matches(named Server) bool {
	return k.Address == named.Address && (named.Port == 0 || k.Port == named.Port)
}

type evaluation struct {
	Request
	name    model.ServiceName
	state   model.ServiceState // of the file
	servers []known
	now     time.Time
	steps   []Step
}

// evaluate returns the changes of a Balance after a request, and what that changes.
func (e *evaluation) evaluate(before []Change) ([]Change, error) {
	e.servers = serversOf(e.state, before)
	var err error
	switch e.Action {
	case ActionSet:
		err = e.each(func(k *known) { e.change(k, *e.Weight) })
	case ActionAdd:
		err = e.add()
	case ActionRemove:
		e.eachOf(func(k *known) { e.change(k, absent) })
	case ActionUndo:
		for i := range e.servers {
			if k := &e.servers[i]; k.change != nil && (e.All || k.matches(e.Server)) {
				e.change(k, k.file)
			}
		}
	default:
		err = fmt.Errorf("action: %q is not known", e.Action)
	}
	if err != nil {
		return nil, err
	}
	var after []Change
	for _, k := range e.servers {
		if k.change != nil && k.now != k.file {
			after = append(after, *k.change)
		}
	}
	slices.SortFunc(after, func(a, b Change) int { return a.compare(b.Server) })
	return after, nil
}

// eachOf calls f for the servers that the request names, and returns how many.
func (e *evaluation) eachOf(f func(*known)) (n int) {
	for i := range e.servers {
		if k := &e.servers[i]; k.now != absent && k.matches(e.Server) {
			f(k)
			n++
		}
	}
	return n
}

// each is eachOf for a request that needs a server.
func (e *evaluation) each(f func(*known)) error {
	if e.eachOf(f) > 0 {
		return nil
	}
	var names []string
	for _, k := range e.servers {
		switch {
		case k.now != absent && k.Address == e.Server.Address:
			return fmt.Errorf("server: %s of %s has another port: did you mean %s?", e.Server, e.name, k.Server)
		case k.now == absent && k.matches(e.Server):
			return fmt.Errorf("server: %s of %s is removed: \"nftproxy add\" or \"nftproxy undo\" returns it", k.Server, e.name)
		case k.now != absent:
			names = append(names, k.String())
		}
	}
	hint := suggest.DidYouMean(suggest.Similar(e.Server.String(), names))
	if hint == "" {
		hint = fmt.Sprintf(": \"nftproxy describe %s\" lists its servers, and \"nftproxy add\" adds one", e.name)
	}
	return fmt.Errorf("server: %s has no server %s%s", e.name, e.Server, hint)
}

// change sets the weight of a server, which may be absent.
func (e *evaluation) change(k *known, weight int) {
	if k.now == weight {
		return
	}
	e.steps = append(e.steps, Step{Server: k.String(), Old: weightText(k.now), New: weightText(weight)})
	k.now = weight
	k.change = &Change{Server: k.Server, Weight: weight, File: k.file, Since: e.now.UTC().Truncate(time.Second), By: e.By}
}

// add adds a server that is not there; one that is gets the weight, if one is given.
func (e *evaluation) add() error {
	there := e.eachOf(func(k *known) {
		if e.Weight != nil {
			e.change(k, *e.Weight)
		}
	})
	if there > 0 {
		return nil
	}
	weight := func(otherwise int) int { return *cmp.Or(e.Weight, &otherwise) }
	for i := range e.servers {
		if k := &e.servers[i]; k.matches(e.Server) { // removed
			e.change(k, weight(k.file))
			return nil
		}
	}
	if err := fits(e.state, e.Server); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	s := Server{e.Server.Address, portOf(e.state.Service, &model.EndpointSlice{Ports: endpointPorts(e.state.Service, e.Server.Port)})}
	e.servers = append(e.servers, known{Server: s, file: absent, now: absent})
	e.change(&e.servers[len(e.servers)-1], weight(1))
	return nil
}

func fits(state model.ServiceState, s Server) error {
	relayed := state.Service.Extra().Relay != model.NoRelay // which reaches servers of this machine itself
	if problem := unusable(s.Address); problem != "" && !(relayed && s.Address.IsLoopback()) {
		return fmt.Errorf("%s %s", s.Address, problem)
	}
	if !listens(state.Service, s.Address) {
		return fmt.Errorf("%s is of no use: %s has no address of its family, %s", s, state.Service.Name, model.FamilyOf(s.Address))
	}
	if isFrontend(state.Service, s) {
		return fmt.Errorf("%s is an address and port of %s itself: connections would come back to this machine; write the address of a server", s, state.Service.Name)
	}
	for _, r := range state.Service.Extra().Ranges {
		keeps := r.Target == 0 && (s.Port == 0 || r.Last == 0 && s.Port == r.Port)
		switch {
		case keeps, r.Target != 0 && s.Port == r.Target:
		case r.Target != 0:
			return fmt.Errorf("%s does not fit: all servers of %s take a range of ports at port %d: write %s", s, state.Service.Name, r.Target, Server{s.Address, r.Target})
		default:
			return fmt.Errorf("%s does not fit: all servers of %s keep the ports of a range: write %s", s, state.Service.Name, s.Address)
		}
	}
	return nil
}

// isFrontend reports whether clients dial the Balance at the address and a port of a server.
func isFrontend(of *model.Service, s Server) bool {
	if !of.Serves(s.Address) {
		return false
	}
	isPort := func(p model.ServicePort) bool { return s.Port == 0 || s.Port == p.Port }
	inRange := func(r model.PortRange) bool { return s.Port == 0 || r.Port <= s.Port && s.Port <= max(r.Port, r.Last) }
	return slices.ContainsFunc(of.Ports, isPort) || slices.ContainsFunc(of.Extra().Ranges, inRange)
}

// unusable returns why no server can have an address; empty: one can.
func unusable(a netip.Addr) string {
	switch {
	case a.IsUnspecified(), a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "is no address of a server: use a unicast address"
	case a.IsLoopback():
		return "is a loopback address, which only the machine itself reaches: use an address of one of its interfaces, or a Balance with relay"
	case a.IsLinkLocalUnicast():
		return "is a link-local address: use one that can be routed"
	}
	return ""
}

// stops returns an error if the request takes the last server of a family out of service.
// drained reports which servers take no connections for other reasons.
func (e *evaluation) stops(before []Change, drained func(Server) bool) error {
	if e.Force || len(e.steps) == 0 || e.Action == ActionUndo {
		return nil
	}
	var stopped []string
	for _, f := range model.Families {
		count := func(all []known) (n int) {
			for _, k := range all {
				if k.now > 0 && model.FamilyOf(k.Address) == f && !drained(k.Server) {
					n++
				}
			}
			return n
		}
		if count(serversOf(e.state, before)) > 0 && count(e.servers) == 0 {
			stopped = append(stopped, f.String())
		}
	}
	if len(stopped) == 0 {
		return nil
	}
	return fmt.Errorf("%s would have no server left that takes connections over %s: new ones would be rejected; nothing is changed, and --force does it all the same",
		e.name, strings.Join(stopped, " and "))
}
