package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// AnnotationDomain is the prefix of our annotations. Unknown names under it are
// reported, because they are most likely misspelt.
const AnnotationDomain = "nftproxy.dev/"

const (
	// AnnotationScheduler on a Service selects how new connections are spread over
	// the endpoints: round-robin, random, source-hash, maglev or maglev-port. The
	// default is the scheduler of the node.
	AnnotationScheduler = AnnotationDomain + "scheduler"

	// AnnotationMaglevSize on a Service is the number of slots that the schedulers
	// maglev and maglev-port spread over the endpoints, one of [model.MaglevSizes].
	AnnotationMaglevSize = AnnotationDomain + "maglev-table-size"

	// AnnotationClientAddresses on a Service says whether endpoints see the addresses
	// of clients: keep or masquerade. The default depends on the kind of frontend and
	// on the policies (table 4-A).
	AnnotationClientAddresses = AnnotationDomain + "client-addresses"

	// AnnotationOnFailure on a Service says what happens to established TCP connections to
	// an endpoint that fails its health check or leaves: keep or close. The default is
	// --conntrack-tcp-cleanup of the node.
	AnnotationOnFailure = AnnotationDomain + "on-failure"

	// AnnotationWeight on an EndpointSlice or Endpoints object sets the shares of
	// new connections relative to the other endpoints, from 0 to 100. An endpoint
	// of weight 0 gets no new connections; the default is 1.
	//
	//	3                      every endpoint
	//	10.0.0.1=3,10.0.0.2=0  the endpoints with these addresses
	//	2,10.0.0.1=0           this one, and 2 for the others
	//
	// White space around numbers and addresses does not count.
	AnnotationWeight = AnnotationDomain + "weight"

	// AnnotationPriority on the same objects sets priorities in the same way, from 0
	// to 9. Endpoints stand by while one of a lower number is usable; the default is 0.
	AnnotationPriority = AnnotationDomain + "priority"

	// AnnotationCiliumWeight on the same objects is the weight of all endpoints, from 0
	// to 65535. Cilium writes it, for its Gateway API, and reads it. [AnnotationWeight]
	// takes precedence.
	AnnotationCiliumWeight = "service.cilium.io/weight"
)

// ServiceAnnotations are those of a Service.
var ServiceAnnotations = []string{
	AnnotationScheduler, AnnotationMaglevSize, AnnotationClientAddresses, AnnotationCheck, AnnotationOnFailure, AnnotationEndpointsFrom,
	annotationSourceRanges, AnnotationDeniedSources,
	AnnotationPorts,
	AnnotationMaxConnections, AnnotationMaxConnectionsPerClient, AnnotationConnectionRate, AnnotationConnectionRatePerClient,
}

// SliceAnnotations are those of EndpointSlices and Endpoints.
var SliceAnnotations = []string{AnnotationWeight, AnnotationPriority}

func AnnotationField(name string) string { return "metadata.annotations[" + name + "]" }

// unknownAnnotations warns of annotations of the domain other than known, which
// are those for the kind of object.
func (f *Findings) unknownAnnotations(m *metav1.ObjectMeta, known ...string) {
	if len(m.Annotations) == 0 {
		return
	}
	var unknown []string
	for name := range m.Annotations {
		if strings.HasPrefix(name, AnnotationDomain) && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown[:min(len(unknown), budget.WrongEntries)] {
		f.Warn(AnnotationField(name), nil, "has no effect: "+noSuchAnnotation(name, known))
	}
	if more := len(unknown) - budget.WrongEntries; more > 0 {
		f.Warn("metadata.annotations", nil, fmt.Sprintf("has %d more that are unknown, and have no effect", more))
	}
}

// noSuchAnnotation names the annotations that an unknown one may stand for, or all if
// they are few.
func noSuchAnnotation(name string, known []string) string {
	const few = 2
	if len(known) == 0 {
		return "there are no annotations " + AnnotationDomain + " for this kind of object"
	}
	if len(known) <= few {
		return "the annotations for this kind of object are " + quoted(known, "and")
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = strings.TrimPrefix(k, AnnotationDomain)
	}
	similar := suggest.Similar(strings.TrimPrefix(name, AnnotationDomain), names)
	if len(similar) == 0 {
		return "there is no such annotation for this kind of object; docs/annotations.md lists those that there are"
	}
	return "there is no such annotation for this kind of object" + suggest.DidYouMean(similar)
}

// countingSchedulers are names that other programs have for schedulers by the number of
// open connections.
var countingSchedulers = []string{"leastconn", "least-conn", "least_conn", "leastconns", "lc", "wlc", "sed", "nq", "lblc", "lblcr", "twos"}

// OtherSchedulers returns what to write in place of an unknown scheduler.
func OtherSchedulers(text string) string {
	if slices.Contains(countingSchedulers, strings.ToLower(text)) {
		return `the kernel's rules do not count the open connections of an endpoint; use "round-robin", with weights for unequal endpoints`
	}
	return oneOf(model.SchedulerNames...)
}

// scheduler reads the scheduler of a Service.
func (f *Findings) scheduler(m *metav1.ObjectMeta) model.Scheduler {
	text, given := m.Annotations[AnnotationScheduler]
	if !given {
		return model.DefaultScheduler
	}
	s, err := model.ParseScheduler(text)
	if err != nil {
		f.Warn(AnnotationField(AnnotationScheduler), text,
			"is unknown: the default is used; "+OtherSchedulers(text))
	}
	return s
}

// maglevSize reads the number of slots for the schedulers maglev and maglev-port; zero:
// the default.
func (f *Findings) maglevSize(m *metav1.ObjectMeta) uint32 {
	text, given := m.Annotations[AnnotationMaglevSize]
	if !given {
		return 0
	}
	field := AnnotationField(AnnotationMaglevSize)
	if s, err := model.ParseScheduler(m.Annotations[AnnotationScheduler]); err == nil && !s.IsMaglev() {
		f.Warn(field, nil, fmt.Sprintf("has no effect: it is for maglev and maglev-port, and the scheduler is %s", s))
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil || !slices.Contains(model.MaglevSizes, uint32(n)) {
		f.Warn(field, text, fmt.Sprintf("is not the size of a table: %d is used; %s", model.DefaultMaglevSize, OneOfSizes()))
		return 0
	}
	return uint32(n)
}

// OneOfSizes lists the sizes of tables.
func OneOfSizes() string {
	sizes := make([]string, len(model.MaglevSizes))
	for i, n := range model.MaglevSizes {
		sizes[i] = strconv.Itoa(int(n))
	}
	return "use " + strings.Join(sizes[:len(sizes)-1], ", ") + " or " + sizes[len(sizes)-1]
}

// clientAddresses reads whether endpoints see the addresses of clients.
func (f *Findings) clientAddresses(m *metav1.ObjectMeta) model.ClientAddresses {
	text, given := m.Annotations[AnnotationClientAddresses]
	if !given {
		return model.DefaultClientAddresses
	}
	c, err := model.ParseClientAddresses(text)
	if err != nil {
		f.Warn(AnnotationField(AnnotationClientAddresses), text, "is unknown: the default is used; "+oneOf("keep", "masquerade"))
	}
	return c
}

// onFailure reads what happens to established connections to an endpoint that fails.
func (f *Findings) onFailure(m *metav1.ObjectMeta) model.OnFailure {
	text, given := m.Annotations[AnnotationOnFailure]
	if !given {
		return model.DefaultOnFailure
	}
	o, err := model.ParseOnFailure(text)
	if err != nil {
		f.Warn(AnnotationField(AnnotationOnFailure), text, "is unknown: the default is used; "+oneOf(model.OnFailureNames...))
	}
	return o
}

// closing warns of a Service without TCP whose established connections are to be closed.
func (f *Findings) closing(s *model.Service) {
	ofTCP := func(p model.ServicePort) bool { return p.Protocol == model.TCP }
	if s.Extra().OnFailure != model.CloseOnFailure || len(s.Ports)+len(s.Extra().Ranges) == 0 || slices.ContainsFunc(s.Ports, ofTCP) ||
		slices.ContainsFunc(s.Extra().Ranges, func(r model.PortRange) bool { return ofTCP(r.ServicePort) }) {
		return
	}
	f.Warn(AnnotationField(AnnotationOnFailure), nil, "has no effect: it is for TCP connections, and no port is of TCP")
}

// numbering is an annotation that gives endpoints a number each.
type numbering struct {
	annotation string
	what       string // the name of a number
	Highest    uint16
	set        func(h *model.Host, n uint16)
}

var (
	Weights = numbering{AnnotationWeight, "weight", 100, setWeight}

	Priorities = numbering{AnnotationPriority, "priority", 9, func(h *model.Host, n uint16) { h.Priority = uint8(n) }}
)

func setWeight(h *model.Host, n uint16) { h.Weight, h.Drain = n, n == 0 }

// others is the key for all addresses that a list of numbers does not name.
var others netip.Addr

// number sets the weights and priorities of the hosts in the slices of an object. Wrong
// entries are ignored.
func (f *Findings) number(m *metav1.ObjectMeta, all ...*model.EndpointSlice) {
	f.unknownAnnotations(m, SliceAnnotations...)
	f.ciliumWeight(m, all)
	for _, n := range []numbering{Weights, Priorities} {
		if text, given := m.Annotations[n.annotation]; given {
			f.apply(n, text, all)
		}
	}
}

// ciliumWeight sets the weight that Cilium's annotation gives all hosts in the slices of an
// object. It needs no scaling to our range: weights are ratios.
func (f *Findings) ciliumWeight(m *metav1.ObjectMeta, all []*model.EndpointSlice) {
	text, given := m.Annotations[AnnotationCiliumWeight]
	if _, ours := m.Annotations[AnnotationWeight]; ours || !given {
		return
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
	if err != nil {
		f.Warn(AnnotationField(AnnotationCiliumWeight), text, "is not used: it is not a weight: use 0 to 65535")
		return
	}
	for _, s := range all {
		for i := range s.Hosts {
			setWeight(&s.Hosts[i], uint16(n))
		}
	}
}

// apply gives the hosts in the slices their numbers.
func (f *Findings) apply(n numbering, text string, all []*model.EndpointSlice) {
	hosts := make(map[netip.Addr][]*model.Host)
	for _, s := range all {
		for i := range s.Hosts {
			h := &s.Hosts[i]
			hosts[h.Address] = append(hosts[h.Address], h)
		}
	}
	numbers := f.numbers(n, text, hosts)
	for a, same := range hosts {
		number, given := numbers[a]
		if !given {
			number, given = numbers[others]
		}
		if !given {
			continue
		}
		for _, h := range same {
			n.set(h, number)
		}
	}
}

// numbers reads the list.
func (f *Findings) numbers(n numbering, text string, hosts map[netip.Addr][]*model.Host) map[netip.Addr]uint16 {
	out := make(map[netip.Addr]uint16)
	f.entries(n.annotation, text, f.Warn, func(i int, entry string) string {
		a, number, problem := n.parse(entry)
		_, twice := out[a]
		switch {
		case problem != "":
		case a == others && i > 0:
			problem = fmt.Sprintf("a number for all the others comes first: move it there, or write it like 10.0.0.1=%d", number)
		case a != others && len(hosts[a]) == 0:
			problem = fmt.Sprintf("no endpoint here has the address %s", a)
		case twice:
			problem = fmt.Sprintf("%s has a %s already: give each address once", a, n.what)
		default:
			out[a] = number
			return ""
		}
		return "is not used: " + problem
	})
	return out
}

// parse reads an entry such as "10.0.0.1=3", or "3" for the others.
func (n numbering) parse(entry string) (netip.Addr, uint16, string) {
	a, digits := others, entry
	if before, after, found := strings.Cut(entry, "="); found {
		text := strings.TrimSpace(before)
		var problem string
		if a, problem = ParseAddress(text); problem != "" {
			return others, 0, manifest.Quote(text) + " " + problem
		}
		digits = strings.TrimSpace(after)
	}
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || number > uint64(n.Highest) {
		return others, 0, fmt.Sprintf("%s is not a %s: use 0 to %d", manifest.Quote(digits), n.what, n.Highest)
	}
	return a, uint16(number), ""
}
