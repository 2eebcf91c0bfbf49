package balance

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

type server struct {
	index            int
	address          netip.Addr        // the zero value: it is a name
	name             string            // of DNS
	records          bool              // the name has SRV records
	ports            convert.PortRange // none: those of the frontend
	weight, priority int32
}

// describeServer names a server in a text: by its entry, or by the pool that it is from.
func (e *expander) describeServer(i int) string {
	if e.from == nil {
		return fmt.Sprintf("%s[%d]", cmp.Or(e.list, "backends"), i)
	}
	o := e.from[i]
	if o.pool == "" {
		return fmt.Sprintf("backends[%d]", o.entry)
	}
	return fmt.Sprintf("%s of %s %s", e.Backends[i].Address, PoolKind, o.pool)
}

// reportServer adds a finding about a server, or about one of its fields: where it is from a pool, about the entry that
// names the pool.
func (e *expander) reportServer(i int, field string, value any, problem string, report func(field string, value any, problem string)) {
	if e.from != nil && e.from[i].pool != "" {
		o := e.from[i]
		report(fmt.Sprintf("backends[%d].servers", o.entry), nil, fmt.Sprintf("server %s of %s %s: %s", manifest.Quote(e.Backends[i].Address), PoolKind, o.pool, problem))
		return
	}
	report(e.describeServer(i)+field, value, problem)
}

func (e *expander) addServer(i int, field string, value any, problem string) {
	e.reportServer(i, field, value, problem, e.Add)
}

// portFor returns the port that serves a port of the frontend: the same one, the only one,
// or that at the same place of the range.
func (s server) portFor(p balancePort) uint16 {
	switch {
	case s.ports == convert.PortRange{}:
		return p.number
	case s.ports.Count() == 1:
		return s.ports.First
	}
	return s.ports.First + p.number - p.of.First
}

// keepsPort reports whether the server serves a port of a range at the same port.
func (s server) keepsPort(r convert.PortRange) bool {
	switch {
	case s.ports == convert.PortRange{}:
		return true
	case s.ports.Count() == 1:
		return r.First <= s.ports.First && s.ports.First <= r.Last
	}
	return s.ports.First == r.First
}

func (e *expander) readBackends() {
	if e.Backends == nil && e.BackendsFrom == "" {
		e.Add("backends", nil, "missing: write the addresses of the servers, like 10.0.0.2:8443")
		return
	}
	type target struct {
		address netip.Addr
		name    string
		ports   convert.PortRange
	}
	seen := make(map[target]server)
	for i := range e.Backends {
		before := e.Count
		s := e.readServer(i)
		if e.Count > before {
			continue
		}
		t := target{s.address, s.name, s.ports}
		if first, twice := seen[t]; twice {
			e.addServer(i, ".address", e.Backends[i].Address, "is also "+e.describeServer(first.index)+": remove one of them, or give one a weight")
			continue
		}
		seen[t] = s
		e.servers = append(e.servers, s)
	}
	if len(e.listened) > 0 && len(e.servers) == len(e.Backends) {
		e.settlePorts()
		e.reviewServers()
	}
}

func (e *expander) readServer(i int) server {
	b := &e.Backends[i]
	s := server{index: i, weight: 1}
	if b.Servers != "" {
		e.addServer(s.index, ".servers", b.Servers, "is a list in a list: write the addresses of its servers")
		return s
	}
	if b.Address == "" {
		e.addServer(s.index, ".address", nil, "missing: write the address of the server, like 10.0.0.2:8443")
		return s
	}
	if wrong := e.readAddress(b, &s); wrong != nil {
		e.addServer(s.index, ".address", wrong.text, wrong.problem)
		return s
	}
	if b.Port != nil {
		ports, problem := convert.ParsePorts(b.Port.String())
		switch {
		case problem != "":
			e.addServer(s.index, ".port", portValue(b.Port), problem)
		case s.ports != convert.PortRange{}:
			e.addServer(s.index, ".port", portValue(b.Port), "is given in the address, too: remove one of them")
		}
		s.ports = ports
	}
	e.readNumbers(b, &s)
	for _, r := range e.listened {
		if s.ports.Count() > 1 && r.Count() != s.ports.Count() {
			e.addServer(s.index, "", nil, fmt.Sprintf("has %d ports for %d of listen: give a range of the same length, one port for all, or none to keep the port",
				s.ports.Count(), r.Count()))
			break
		}
	}
	return s
}

func portValue(p *intstr.IntOrString) any {
	if p.Type == intstr.Int {
		return p.IntVal
	}
	return p.StrVal
}

func (e *expander) readNumbers(b *Backend, s *server) {
	if b.Weight != nil {
		if s.weight = *b.Weight; s.weight < 0 || s.weight > int32(convert.Weights.Highest) {
			e.addServer(s.index, ".weight", s.weight, fmt.Sprintf("is not a weight: use 0 to %d", convert.Weights.Highest))
		}
	}
	if b.Drain {
		s.weight = 0
	}
	if b.Backup {
		s.priority = 1
	}
	if b.Priority == nil {
		return
	}
	switch s.priority = *b.Priority; {
	case s.priority < 0 || s.priority > int32(convert.Priorities.Highest):
		e.addServer(s.index, ".priority", s.priority, fmt.Sprintf("is not a priority: use 0 to %d, where 0 comes first", convert.Priorities.Highest))
	case b.Backup && s.priority != 1:
		e.addServer(s.index, ".priority", s.priority, "contradicts backup, which is priority 1: remove one of them")
	}
}

func (e *expander) reviewServers() {
	for _, f := range model.Families {
		listens := e.listensIn(f)
		i := slices.IndexFunc(e.servers, func(s server) bool { return s.name != "" || model.FamilyOf(s.address) == f })
		switch {
		case listens >= 0 && e.addresses[listens].wildcard && i < 0: // most machines have both
		case listens >= 0 && i < 0 && e.BackendsFrom == "" && len(e.servers) > 0:
			l := e.addresses[listens]
			e.Warn(l.fieldPath(), l.text, fmt.Sprintf("has no backend of its family, %s: connections are refused; add one", f))
		case listens < 0 && i >= 0 && e.servers[i].name == "":
			s := e.servers[i]
			e.reportServer(s.index, ".address", e.Backends[s.index].Address, fmt.Sprintf("is not used: listen has no address of its family, %s", f), e.Warn)
		}
	}
	switch {
	case e.BackendsFrom != "":
	case len(e.servers) == 0:
		e.Warn("backends", nil, "has no entry: connections are refused")
	case !slices.ContainsFunc(e.servers, func(s server) bool { return s.weight > 0 }):
		e.Warn("backends", nil, "has no entry that takes connections: all are drained or have weight 0")
	}
	e.reviewLoops()
}

// reviewLoops warns of servers that are the Balance itself.
func (e *expander) reviewLoops() {
	own := make(map[netip.Addr]bool)
	for _, l := range e.addresses {
		own[l.address] = !l.wildcard
	}
	for _, s := range e.servers {
		if own[s.address] && slices.ContainsFunc(e.listened, func(r listening) bool { return s.keepsPort(r.PortRange) }) {
			found := e.Warn
			if e.isRelayed() { // without end
				found = e.Add
			}
			e.reportServer(s.index, ".address", e.Backends[s.index].Address,
				"is an address and port of listen, not of a server: connections would come back to this machine; write the address of the server", found)
		}
	}
}
