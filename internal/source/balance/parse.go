package balance

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

// listening is an entry of listen in one protocol.
type listening struct {
	index int
	text  string
	where // it is served
	convert.PortRange
	protocol model.Protocol
}

func (l listening) fieldPath() string { return fmt.Sprintf("listen[%d]", l.index) }

type portKey struct {
	protocol model.Protocol
	number   uint16
}

func (k portKey) String() string { return fmt.Sprintf("%s %d", k.protocol, k.number) }

func (k portKey) apiProtocol() corev1.Protocol {
	return corev1.Protocol(strings.ToUpper(k.protocol.String()))
}

// balancePort is a port that all addresses have.
type balancePort struct {
	portKey
	of convert.PortRange // of the entry that it comes from
}

func (e *expander) listen() {
	protocols := e.readProtocols()
	if len(e.Listen) == 0 {
		e.Add("listen", nil, "missing: write where clients connect to, like 203.0.113.10:443")
		return
	}
	unused, before := len(e.Protocol) > 0, e.Count
	for i, text := range e.Listen {
		l, given, wrong := parseListen(text)
		if l.index, l.text = i, text; wrong != nil {
			e.Add(l.fieldPath(), wrong.text, wrong.problem)
			continue
		}
		switch {
		case given != nil:
		case l.PortRange == convert.EveryPort && len(e.Protocol) == 0:
			given = model.Protocols[:]
		default:
			given, unused = protocols, false
		}
		for _, l.protocol = range given {
			e.entries = append(e.entries, l)
		}
	}
	if e.Count > before {
		return
	}
	if unused {
		e.Warn("protocol", nil, "has no effect: every entry of listen has its own protocol")
	}
	e.join()
}

// readProtocols returns the protocols of entries that name none.
func (e *expander) readProtocols() (out []model.Protocol) {
	for i, text := range e.Protocol {
		for word := range strings.SplitSeq(text, ",") {
			p, problem := convert.ParseProtocol(strings.TrimSpace(word))
			if problem == "" && slices.Contains(out, p) {
				problem = "is given twice: remove one of them"
			}
			if problem != "" {
				e.Add(fmt.Sprintf("protocol[%d]", i), strings.TrimSpace(word), problem)
				continue
			}
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		out = []model.Protocol{model.TCP}
	}
	return out
}

func (e *expander) join() {
	owned := make(map[where][]listening)
	for _, l := range e.entries {
		if owned[l.where] == nil {
			e.addresses = append(e.addresses, l)
		}
		if first, p := findOverlap(owned[l.where], l); first != nil {
			e.Add(l.fieldPath(), l.text, fmt.Sprintf("has %s of %s, as listen[%d]: remove one of them", p, l.where, first.index))
			return
		}
		owned[l.where] = append(owned[l.where], l)
	}
	e.listened = slices.Clone(owned[e.entries[0].where])
	e.samePorts(owned)
}

// findOverlap returns the range that has the first port of another one that any has, and that port.
func findOverlap(all []listening, r listening) (by *listening, at portKey) {
	for i, o := range all {
		first := max(o.First, r.First)
		if o.protocol == r.protocol && first <= min(o.Last, r.Last) && (by == nil || first < at.number) {
			by, at = &all[i], portKey{r.protocol, first}
		}
	}
	return by, at
}

func (e *expander) samePorts(owned map[where][]listening) {
	for _, ranges := range owned {
		slices.SortFunc(ranges, func(a, b listening) int {
			return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.First, b.First))
		})
	}
	first := e.addresses[0]
	for _, l := range e.addresses[1:] {
		lacks := func(a, b where) bool {
			k, found := firstLacking(owned[a], owned[b])
			if found {
				e.Add(l.fieldPath(), l.text, fmt.Sprintf("makes a difference: %s has %s, and %s has not; give all addresses the same ports, or write a Balance for each", b, k, a))
			}
			return found
		}
		if lacks(l.where, first.where) || lacks(first.where, l.where) {
			return
		}
	}
}

// firstLacking returns the first port of some ranges that others lack. Both are sorted.
func firstLacking(others, of []listening) (k portKey, found bool) {
	for _, r := range of {
		next := int(r.First)
		for _, o := range others {
			if o.protocol == r.protocol && int(o.First) <= next && next <= int(o.Last) {
				next = int(o.Last) + 1
			}
		}
		if next <= int(r.Last) {
			return portKey{r.protocol, uint16(next)}, true
		}
	}
	return k, false
}

// settlePorts decides which entries of listen are ranges, and which are ports of the Service, one by one. A range
// needs the same ports of all backends, or one; and session affinity is by port, so that it decides if there are
// not too many: each port of the Service has its own elements in the rules for every backend.
func (e *expander) settlePorts() {
	count := 0
	for _, r := range e.listened {
		target, same := e.commonTarget(r.PortRange)
		byPort := e.Affinity != nil && count+r.Count() <= budget.BalancePorts && r.PortRange != convert.EveryPort
		if r.Count() > 1 && same && !byPort {
			e.values.Ranges = append(e.values.Ranges, convert.NewPortRange(r.protocol, r.PortRange, target))
			continue
		}
		if count += r.Count(); count > budget.BalancePorts {
			e.Add(r.fieldPath(), r.text, fmt.Sprintf("makes more than %d ports that lead to others, or to different ones of each backend: keep the ports, or use several Balances", budget.BalancePorts))
			return
		}
		for n := int(r.First); n <= int(r.Last); n++ {
			e.ports = append(e.ports, balancePort{portKey{r.protocol, uint16(n)}, r.PortRange})
		}
	}
}

// commonTarget returns the port of all backends for a range, or zero if they keep the port; and whether they agree.
func (e *expander) commonTarget(r convert.PortRange) (port uint16, same bool) {
	for i, s := range e.servers {
		p := s.ports.First
		switch {
		case s.ports == r:
			p = 0
		case s.ports != convert.PortRange{} && s.ports.Count() > 1:
			return 0, false
		}
		if i > 0 && p != port {
			return 0, false
		}
		port = p
	}
	return port, true
}

// misread is a part of a value, and the problem with it.
type misread struct{ text, problem string }

// parseListen reads for example "203.0.113.10:443" or "[2001:db8::10]:5000-5099/udp". No protocols: it names none.
func parseListen(text string) (l listening, protocols []model.Protocol, wrong *misread) {
	if problem := urlProblem(text); problem != "" {
		return l, nil, &misread{text, problem}
	}
	rest, protocol, found := strings.Cut(text, "/")
	if found {
		p, problem := convert.ParseProtocol(protocol)
		if problem != "" {
			return l, nil, &misread{protocol, problem}
		}
		protocols = []model.Protocol{p}
	}
	if l.parseWildcard(rest) {
		if problem := l.wildcardPorts(rest); problem != "" {
			wrong = &misread{text, problem}
		}
		return l, protocols, wrong
	}
	address, whole := strings.CutSuffix(rest, ":"+convert.AllPorts)
	if whole = whole && strings.HasPrefix(address, "[") == strings.Contains(address, ":"); whole {
		rest = address
	}
	address, port, problem := cutPort(rest)
	if problem != "" {
		return l, protocols, &misread{rest, problem}
	}
	if l.address, problem = parseStrict(address, convert.ParseFrontend); problem != "" {
		return l, protocols, &misread{address, problem}
	}
	if port != "" {
		if l.PortRange, problem = convert.ParsePorts(port); problem != "" {
			return l, protocols, &misread{port, problem}
		}
	}
	switch example := netip.AddrPortFrom(l.address, 443).String(); {
	case whole:
		l.PortRange = convert.EveryPort
	case port == "" && l.address.Is6():
		wrong = &misread{text, "has no port: write it like " + strconv.Quote(example)}
	case port == "":
		wrong = &misread{text, "has no port: write it like " + example}
	}
	return l, protocols, wrong
}

// cutPort cuts an address and a port apart. The port is empty if there is none.
func cutPort(text string) (address, port, problem string) {
	last := strings.LastIndexByte(text, ':')
	switch {
	case strings.HasPrefix(text, "["):
		inside, after, closed := strings.Cut(text[1:], "]")
		port, hasPort := strings.CutPrefix(after, ":")
		if !closed || after != "" && (!hasPort || port == "") {
			return "", "", `is not an address with a port: write it like "[2001:db8::10]:443"`
		}
		return inside, port, ""
	case last < 0:
		return text, "", ""
	case strings.Count(text, ":") == 1:
		if text[last+1:] == "" {
			return "", "", "has a ':' and no port: add the port, or remove it"
		}
		return text[:last], text[last+1:], ""
	}
	_, problem = convert.ParsePorts(text[last+1:])
	if host, err := netip.ParseAddr(text[:last]); err == nil && host.Is6() && problem == "" {
		return "", "", fmt.Sprintf(`is ambiguous: put the IPv6 address in brackets: "[%s]%s", or "[%s]" without a port`, text[:last], text[last:], text)
	}
	return text, "", ""
}
