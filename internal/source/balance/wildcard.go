package balance

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

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

func (l *listening) wildcardPorts(text string) *misread {
	port := text[strings.LastIndexByte(text, ':')+1:]
	var problem string
	switch {
	case port == convert.AllPorts:
		problem = "would take all ports of this machine, also those of its own programs: name ports"
	case port == "":
		problem = "has a ':' and no port: add the port, or remove it"
	default:
		l.ports, problem = convert.ParsePorts(port)
	}
	if problem != "" {
		return &misread{text, problem}
	}
	return nil
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
