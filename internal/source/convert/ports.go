package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

const portRangeForms = "write a port or a range such as 10000-20000/udp, or all"

// portRanges reads the annotation with ranges of a Service: a list of ports and ranges in
// addition to its ports, sorted.
//
//	10000-20000/udp              every port leads to the same port of an endpoint
//	10000-20000/udp:5000         all lead to one port of an endpoint
//	10000-10999/udp:20000-20999  a range of the same length
//	all, all/udp                 the whole address, of one protocol or of all
//
// The default protocol is TCP, as for ports. Entries that cannot be used are left out, and the others count.
func (f *Findings) portRanges(m *metav1.ObjectMeta, ports []model.ServicePort) []model.PortRange {
	text, given := m.Annotations[setting.Ports.Annotation]
	if !given {
		return nil
	}
	all := newJoinedRanges(ports)
	f.readEntries(setting.Ports.Annotation, text, f.Warn, func(_ int, entry string) string {
		if all.isFull() {
			return ""
		}
		more, problem := parsePortRange(entry)
		if problem != "" {
			return "is not used: " + problem
		}
		return all.addEntry(more)
	})
	return all.sortRanges()
}

// parsePortRange reads an entry, which may be of several protocols, or have several ports
// that lead to as many others.
func parsePortRange(entry string) (out []model.PortRange, problem string) {
	clients, target, hasTarget := strings.Cut(entry, ":")
	text, protocol, hasProtocol := strings.Cut(clients, "/")
	if text = strings.TrimSpace(text); text == "" {
		return nil, "it has no port: " + portRangeForms
	}
	protocols, ports := []model.Protocol{model.TCP}, EveryPort
	if text == AllPorts {
		protocols = model.Protocols[:]
	} else if ports, problem = ParsePorts(text); problem != "" {
		return nil, manifest.Quote(text) + " " + problem
	}
	if hasProtocol {
		p, problem := ParseProtocol(strings.TrimSpace(protocol))
		if problem != "" {
			return nil, manifest.Quote(protocol) + " " + problem
		}
		protocols = []model.Protocol{p}
	}
	to := ports
	if hasTarget {
		if to, problem = ParsePorts(strings.TrimSpace(target)); problem != "" {
			return nil, manifest.Quote(target) + " " + problem
		}
	}
	if to.Count() > 1 && to.Count() != ports.Count() {
		return nil, fmt.Sprintf("%d ports cannot lead to %d: give a range of the same length, one port for all, or none to keep the port", ports.Count(), to.Count())
	}
	if to != ports && to.Count() > budget.PortRanges {
		return nil, fmt.Sprintf("more than %d ports cannot each lead to another one: keep the ports, or send all to one", budget.PortRanges)
	}
	for _, p := range protocols {
		out = append(out, rangesTo(p, ports, to)...)
	}
	return out, ""
}

// rangesTo returns the ranges that lead to others of the same length, or to one port.
func rangesTo(p model.Protocol, from, to PortRange) []model.PortRange {
	switch {
	case to == from:
		return []model.PortRange{NewPortRange(p, from, 0)}
	case to.Count() == 1:
		return []model.PortRange{NewPortRange(p, from, to.First)}
	}
	out := make([]model.PortRange, from.Count())
	for i := range out {
		port := from.First + uint16(i)
		out[i] = NewPortRange(p, PortRange{port, port}, to.First+uint16(i))
	}
	return out
}

// joinedRanges are the ranges of the entries so far. No two overlap.
type joinedRanges struct {
	ports map[model.ServicePort]bool // of the Service, without names
	list  []model.PortRange          // at most [budget.PortRanges]
	made  int                        // by all entries
}

func (j *joinedRanges) isFull() bool { return j.made > budget.PortRanges }

// addEntry adds the ranges of an entry, or returns why they are not used; after the one that was too
// many, nothing. A port that leads to another one counts by itself, also in a range: the kernel cannot add
// to a port in a way that nft lists and loads, so that each is an entry of its own.
func (j *joinedRanges) addEntry(more []model.PortRange) (problem string) {
	if j.isFull() {
		return ""
	}
	if j.made += len(more); j.isFull() {
		return fmt.Sprintf("is not used, and neither are the entries after it: the list makes more than %d ports and ranges, where each port that leads to another one counts, and so do repetitions; keep the ports, or send all to one", budget.PortRanges)
	}
	if problem = j.add(more); problem != "" {
		problem = "is not used: " + problem
	}
	return problem
}

func (j *joinedRanges) sortRanges() []model.PortRange {
	slices.SortFunc(j.list, func(a, b model.PortRange) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Last, b.Last))
	})
	return j.list
}

func newJoinedRanges(ports []model.ServicePort) *joinedRanges {
	j := &joinedRanges{ports: make(map[model.ServicePort]bool, len(ports))}
	for _, p := range ports {
		j.ports[model.ServicePort{Protocol: p.Protocol, Port: p.Port}] = true
	}
	return j
}

// add adds the ranges of an entry, or returns why it contradicts others. Ranges with the
// same destination are merged. Ports of the Service take precedence.
func (j *joinedRanges) add(more []model.PortRange) (problem string) {
	if p := more[0]; len(more) == 1 && j.hasPort(p) {
		return fmt.Sprintf("spec.ports has %s %d, which takes precedence: remove one of them", p.Protocol, p.Port)
	}
	for _, r := range more {
		i := slices.IndexFunc(j.list, func(o model.PortRange) bool { return sharePorts(o, r) && o.Target != r.Target })
		if i >= 0 {
			return fmt.Sprintf("it overlaps the earlier entry %s, which leads to other ports: remove one of them", j.list[i].Name)
		}
	}
	for _, r := range more {
		if !j.hasPort(r) {
			j.merge(r)
		}
	}
	return ""
}

func (j *joinedRanges) hasPort(r model.PortRange) bool {
	return r.Last == 0 && j.ports[model.ServicePort{Protocol: r.Protocol, Port: r.Port}]
}

// merge adds a range in place of those that it overlaps.
func (j *joinedRanges) merge(r model.PortRange) {
	j.list = slices.DeleteFunc(j.list, func(o model.PortRange) bool {
		shared := sharePorts(o, r)
		if shared && r.Last != 0 {
			r = NewPortRange(r.Protocol, PortRange{min(o.Port, r.Port), max(o.Last, r.Last)}, r.Target)
		}
		return shared
	})
	j.list = append(j.list, r)
}

// sharePorts reports whether two ranges, or two single ports, share ports. A single port may
// be in a range: it wins.
func sharePorts(a, b model.PortRange) bool {
	return a.Protocol == b.Protocol && (a.Last == 0) == (b.Last == 0) && a.Port <= max(b.Port, b.Last) && b.Port <= max(a.Port, a.Last)
}

func (c *serviceConverter) adaptToRanges(s *model.Service) {
	all := s.Extra().Ranges
	i := slices.IndexFunc(all, func(p model.PortRange) bool { return p.Last != 0 })
	switch {
	case i < 0 || s.AffinityTimeout == 0 || s.Scheduler == model.SourceHash:
	case c.given != nil: // a Balance: see [model.Route.Scheduler]
		c.Warn(c.placeOf(setting.Ports), all[i].Name,
			"has too many ports to bind clients: all ports of the Balance use the scheduler source-hash instead of affinity, which leads a client to the same server as long as the servers stay")
	default:
		c.Warn(c.placeOf(setting.Ports), all[i].Name,
			"has no session affinity: ranges use the scheduler source-hash instead, and other ports may lead a client to another endpoint; if the Service has the scheduler source-hash, all ports lead to the same one")
	}
	if s.Check != nil && s.Check.Port == 0 && len(s.Ports) == 0 && len(all) > 0 {
		s.Check = c.checkRange(s.Check, all)
	}
}

// checkRange returns the check of the endpoints of ranges: of the first port that fits.
func (c *serviceConverter) checkRange(check *model.Check, all []model.PortRange) *model.Check {
	for _, p := range all {
		if keepsAll := p.IsWhole() && p.Target == 0; check.Type.Fits(p.Protocol) && !keepsAll {
			at := *check
			at.Port = cmp.Or(p.Target, p.Port)
			return &at
		}
	}
	return c.fitsNone(check)
}

// OnNode allows the explicit ranges of a Service of files on addresses of the machine
// (1.54): its operator wrote them, and keepalived gives a machine the addresses that it
// serves. A whole address would take the machine's own connections.
func OnNode(s *model.Service) {
	if s == nil {
		return
	}
	for i := range s.Extra().Ranges {
		p := &s.Extras.Ranges[i]
		p.OnNode = !p.IsWhole()
	}
}

// AllPorts is the word for all ports of an address.
const AllPorts = "all"

// PortRange is a range of ports; zero: none is given.
type PortRange struct{ First, Last uint16 }

// EveryPort is the range of the word [AllPorts].
var EveryPort = PortRange{1, model.AllPorts}

// Count returns how many ports the range has.
func (r PortRange) Count() int { return int(r.Last) - int(r.First) + 1 }

// ParsePorts reads a port, or a range such as 5000-5099.
func ParsePorts(text string) (r PortRange, problem string) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	var numbers [2]uint16
	for i, digits := range []string{first, last} {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 {
			return r, "is not a port: use 1 to 65535, or a range such as 5000-5099"
		}
		if digits[0] == '0' {
			return r, "has leading zeros: write " + strconv.FormatUint(n, 10)
		}
		numbers[i] = uint16(n)
	}
	if r = (PortRange{numbers[0], numbers[1]}); r.Last < r.First {
		return r, "is not a range of ports: the lowest one comes first"
	}
	return r, ""
}

// ParseProtocol reads the name of a protocol, or returns the problem with it.
func ParseProtocol(word string) (model.Protocol, string) {
	p, err := model.ParseProtocol(word)
	if err == nil {
		return p, ""
	}
	problem := "is not a protocol: " + suggest.OneOf("tcp", "udp", "sctp")
	if similar := suggest.Similar(strings.ToLower(word), []string{"tcp", "udp", "sctp"}); len(similar) > 0 {
		problem = "is not a protocol" + suggest.DidYouMean(similar[:1])
	}
	return 0, problem
}

// NewPortRange returns a range of a Service, whose ports lead to target; zero: they are kept.
func NewPortRange(p model.Protocol, ports PortRange, target uint16) model.PortRange {
	r := model.PortRange{ServicePort: model.ServicePort{Protocol: p, Port: ports.First}, Target: target}
	if ports.Last != ports.First {
		r.Last = ports.Last
	}
	r.Name = r.String()
	return r
}
