package balance

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

const (
	// maxName and maxLabel are the lengths of names and their labels in DNS (RFC 1035, 2.3.4).
	maxName  = 253
	maxLabel = 63

	thisMachine = "stands for this machine itself, where packets of clients do not get: let the server listen on an address of an interface, and write that address; or write relay: true, and 127.0.0.1 or ::1"
)

// nameOf returns the name of DNS in the address of a backend, in lower case; empty: it is an address.
func nameOf(text string) (name, problem string) {
	if !looksLikeName(text) {
		return "", ""
	}
	name = strings.ToLower(text)
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	for _, l := range labels {
		if l == "" || len(l) > maxLabel || l[0] == '-' || l[len(l)-1] == '-' {
			return name, "is neither an address nor a name: a name has labels of 1 to 63 letters, digits and '-', between dots"
		}
	}
	last := labels[len(labels)-1]
	switch {
	case len(name) > maxName:
		return name, "is longer than names may be, which have at most 253 characters"
	case last == "localhost":
		return name, thisMachine
	case isNumber(last), len(labels) == 4 && !slices.ContainsFunc(labels[:3], func(l string) bool { return !isNumber(l) }):
		return name, convert.NotAnAddress + ", or a name like app.example.com"
	}
	return name, ""
}

func isNumber(s string) bool { return strings.Trim(s, "0123456789") == "" }

// isRecordName reports whether a name has SRV records: it begins with a service and a protocol (RFC 2782).
func isRecordName(name string) bool {
	labels := strings.SplitN(name, ".", 3)
	return len(labels) == 3 && strings.HasPrefix(labels[0], "_") && slices.Contains([]string{"_tcp", "_udp", "_sctp"}, labels[1])
}

func (e *expander) readAddress(b *Backend, s *server) *misread {
	if problem := urlProblem(b.Address); problem != "" {
		return &misread{b.Address, problem}
	}
	address, port, problem := cutPort(b.Address)
	if problem != "" {
		a, wrong := e.parseServer(b.Address)
		if s.address = a; b.Port == nil || wrong != "" { // else the IPv6 address is not ambiguous
			return &misread{b.Address, problem}
		}
		return nil
	}
	if s.name, problem = nameOf(address); s.name == "" {
		s.address, problem = e.parseServer(address)
	}
	if problem != "" {
		return &misread{address, problem}
	}
	if port != "" {
		if s.ports, problem = convert.ParsePorts(port); problem != "" {
			return &misread{port, problem}
		}
	}
	if isRecordName(s.name) {
		return e.checkRecord(b, s)
	}
	return nil
}

// checkRecord checks a backend with SRV records, which have ports, weights and priorities.
func (e *expander) checkRecord(b *Backend, s *server) *misread {
	s.records = true
	given := ""
	switch {
	case s.ports != convert.PortRange{} || b.Port != nil:
		given = "port"
	case b.Weight != nil:
		given = "weight"
	case b.Priority != nil || b.Backup:
		given = "priority"
	}
	if given != "" {
		return &misread{b.Address, "has SRV records, which say the port, the weight and the priority: leave out the " + given}
	}
	if i := slices.IndexFunc(e.listened, func(r listening) bool { return r.Count() > 1 }); i >= 0 {
		return &misread{b.Address, fmt.Sprintf("has SRV records, which lead to one port, and %s has a range: write single ports", e.listened[i].fieldPath())}
	}
	return nil
}

func (e *expander) namedServers() (out []model.NamedServer) {
	for _, s := range e.servers {
		if s.name == "" {
			continue
		}
		n := model.NamedServer{Text: e.Backends[s.index].Address, Name: s.name, Records: s.records, Priority: uint8(s.priority), Weight: uint16(s.weight), Drain: s.weight == 0}
		for _, p := range e.ports {
			port := s.portFor(p)
			if s.records {
				port = 0
			}
			n.Ports = append(n.Ports, model.EndpointPort{Name: e.portName(p), Protocol: p.protocol, Port: port})
		}
		out = append(out, n)
	}
	return out
}

const (
	isName = "is a name: listen has addresses of this machine, or an interface; write one"
	isURL  = "is a URL: write "
)

func parseServer(s string) (netip.Addr, string) {
	a, problem := parseStrict(s, convert.ParseEndpoint)
	if problem != "" && a.IsLoopback() {
		problem = thisMachine
	}
	return a, problem
}

// parseStrict reads an address without leading zeros, which Kubernetes' own fields may
// have: other programs read them as octal.
func parseStrict(s string, parse func(string) (netip.Addr, string)) (netip.Addr, string) {
	a, problem := parse(s)
	switch {
	case problem == convert.NotAnAddress && looksLikeName(s):
		return a, isName
	case problem != "":
		return a, problem
	}
	return a, zeroProblem(s, a.String())
}

func zeroProblem(s, plain string) string {
	text, _, _ := strings.Cut(s, "/")
	if _, err := netip.ParseAddr(text); err != nil {
		return "has leading zeros, which other programs read as octal: write " + plain
	}
	return ""
}

func looksLikeName(s string) bool {
	letters := false
	for _, c := range strings.ToLower(s) {
		switch {
		case 'a' <= c && c <= 'z':
			letters = true
		case '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return letters
}

func urlProblem(text string) string {
	_, rest, found := strings.Cut(text, "://")
	if !found {
		return ""
	}
	host, _, _ := strings.Cut(rest, "/")
	return isURL + host
}

// maxInterface is the length of the name of an interface (IFNAMSIZ without the final zero).
const maxInterface = 15

// where is where an entry of listen is served: an address, or addresses of interfaces.
type where struct {
	address  netip.Addr
	wildcard bool   // all addresses
	link     string // of this interface; empty: of the machine
	family   string // of them; empty: both
}

func (w where) String() string {
	switch {
	case !w.wildcard:
		return w.address.String()
	case w.link != "":
		return "interface " + w.link
	}
	return strings.Join(strings.Fields("all "+w.family+" addresses"), " ")
}

func (w where) servedFamilies() (out []model.Family) {
	for _, f := range model.Families {
		if w.wildcard && (w.family == "" || w.family == f.String()) || !w.wildcard && model.FamilyOf(w.address) == f {
			out = append(out, f)
		}
	}
	return out
}

// listensIn returns the first address that is served in a family; -1: none is.
func (e *expander) listensIn(f model.Family) int {
	return slices.IndexFunc(e.addresses, func(l listening) bool { return slices.Contains(l.servedFamilies(), f) })
}

// parseWildcard reads the addresses of an entry such as ":80", "*:80", "0.0.0.0:80", "[::]:80" or
// "eth0:80"; false: it has an address.
func (l *listening) parseWildcard(text string) bool {
	last := strings.LastIndexByte(text, ':')
	if last < 0 {
		return false
	}
	switch address := text[:last]; {
	case address == "", address == "*":
		l.where = where{wildcard: true}
	case address == "0.0.0.0":
		l.where = where{wildcard: true, family: model.IPv4.String()}
	case address == "[::]":
		l.where = where{wildcard: true, family: model.IPv6.String()}
	case isInterface(address):
		l.where = where{wildcard: true, link: address}
	default:
		return false
	}
	return true
}

func (l *listening) wildcardPorts(text string) (problem string) {
	switch port := text[strings.LastIndexByte(text, ':')+1:]; port {
	case convert.AllPorts:
		return "would take all ports of this machine, also those of its own programs: name ports"
	case "":
		return "has a ':' and no port: add the port, or remove it"
	default:
		l.PortRange, problem = convert.ParsePorts(port)
		return problem
	}
}

// isInterface reports whether a text may be the name of an interface, such as eth0 or the VLAN
// eth0.100, and not one of DNS.
func isInterface(text string) bool {
	if !looksLikeName(text) || len(text) > maxInterface {
		return false
	}
	_, domain, dotted := strings.Cut(text, ".")
	return !dotted || isNumber(domain)
}

func (e *expander) findListeners() (out []model.Listener) {
	for _, l := range e.addresses {
		if l.wildcard {
			out = append(out, model.Listener{Text: l.text, Interface: l.link, Families: l.servedFamilies()})
		}
	}
	return out
}
