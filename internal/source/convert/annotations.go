package convert

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/healthcheck"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

const (
	// AnnotationWeight on an EndpointSlice or Endpoints object sets the shares of new connections relative to the
	// other endpoints, from 0 to 100. An endpoint of weight 0 gets no new connections; the default is 1.
	//
	//	3                      every endpoint
	//	10.0.0.1=3,10.0.0.2=0  the endpoints with these addresses
	//	2,10.0.0.1=0           this one, and 2 for the others
	//
	// White space around numbers and addresses does not count.
	AnnotationWeight = setting.Domain + "weight"

	// AnnotationPriority on the same objects sets priorities in the same way, from 0
	// to 9. Endpoints stand by while one of a lower number is usable; the default is 0.
	AnnotationPriority = setting.Domain + "priority"

	// AnnotationCiliumWeight on the same objects is the weight of all endpoints, from 0
	// to 65535. Cilium writes it, for its Gateway API, and reads it. [AnnotationWeight]
	// takes precedence. Beside such an object the default is [model.CiliumDefault].
	AnnotationCiliumWeight = "service.cilium.io/weight"
)

// SliceAnnotations are the annotations of EndpointSlices and Endpoints.
var SliceAnnotations = []string{AnnotationWeight, AnnotationPriority}

func annotationField(name string) string { return "metadata.annotations[" + name + "]" }

// unknownAnnotations warns of annotations of the domain other than known, which are those for the kind of object.
func (f *Findings) unknownAnnotations(m *metav1.ObjectMeta, known ...string) {
	if len(m.Annotations) == 0 {
		return
	}
	var unknown []string
	for name := range m.Annotations {
		if strings.HasPrefix(name, setting.Domain) && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown[:min(len(unknown), budget.WrongEntries)] {
		f.Warn(annotationField(name), nil, "has no effect: "+noSuchAnnotation(name, known))
	}
	if more := len(unknown) - budget.WrongEntries; more > 0 {
		f.Warn("metadata.annotations", nil, fmt.Sprintf("has %d more that are unknown, and have no effect", more))
	}
}

// noSuchAnnotation names the annotations that an unknown one may stand for, or all if they are few.
func noSuchAnnotation(name string, known []string) string {
	const few = 2
	if len(known) == 0 {
		return "there are no annotations " + setting.Domain + " for this kind of object"
	}
	if len(known) <= few {
		return "the annotations for this kind of object are " + suggest.Quoted(known, "and")
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = strings.TrimPrefix(k, setting.Domain)
	}
	similar := suggest.Similar(strings.TrimPrefix(name, setting.Domain), names)
	if len(similar) == 0 {
		return "there is no such annotation for this kind of object; docs/annotations.md lists those that there are"
	}
	return "there is no such annotation for this kind of object" + suggest.DidYouMean(similar)
}

// numbering is an annotation that gives endpoints a number each.
type numbering struct {
	annotation string
	what       string // the name of a number
	Highest    uint16
}

var (
	Weights    = numbering{AnnotationWeight, "weight", 100}
	Priorities = numbering{AnnotationPriority, "priority", 9}
)

func setWeight(h *model.Host, n uint16) { h.Weight, h.Drain = n, n == 0 }

// others is the key for all addresses that a list of numbers does not name.
var others netip.Addr

// setNumbers sets the weights and priorities of the hosts in the slices of an object. Wrong entries are ignored.
func (f *Findings) setNumbers(m *metav1.ObjectMeta, all ...*model.EndpointSlice) {
	f.unknownAnnotations(m, SliceAnnotations...)
	f.ciliumWeight(m, all)
	for _, n := range []numbering{Weights, Priorities} {
		if text, given := m.Annotations[n.annotation]; given {
			f.applyNumbers(n, text, all)
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
		f.Warn(annotationField(AnnotationCiliumWeight), text, "is not used: it is not a weight: use 0 to 65535")
		return
	}
	for _, s := range all {
		s.CiliumWeight = true
		for i := range s.Hosts {
			setWeight(&s.Hosts[i], uint16(n))
		}
	}
}

func (f *Findings) applyNumbers(n numbering, text string, all []*model.EndpointSlice) {
	hosts := make(map[netip.Addr][]*model.Host)
	for _, s := range all {
		for i := range s.Hosts {
			h := &s.Hosts[i]
			hosts[h.Address] = append(hosts[h.Address], h)
		}
	}
	numbers := f.readNumbers(n, text, hosts)
	for a, same := range hosts {
		number, given := numbers[a]
		if !given {
			number, given = numbers[others]
		}
		if !given {
			continue
		}
		for _, h := range same {
			if n == Weights {
				setWeight(h, number)
			} else {
				h.Priority = uint8(number)
			}
		}
	}
}

func (f *Findings) readNumbers(n numbering, text string, hosts map[netip.Addr][]*model.Host) map[netip.Addr]uint16 {
	out := make(map[netip.Addr]uint16)
	f.readEntries(n.annotation, text, f.Warn, func(i int, entry string) string {
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

var serviceAnnotations = setting.Annotations()

func (c *serviceConverter) convertSettings(m *metav1.ObjectMeta, ports []model.ServicePort, noCheck string) *setting.Values {
	switch {
	case c.given != nil:
		v := c.given.Values
		all := newJoinedRanges(ports)
		for _, r := range v.Ranges {
			if problem := all.addEntry([]model.PortRange{r}); problem != "" {
				c.Warn(c.placeOf(setting.Ports), r.Name, problem)
			}
		}
		v.Ranges = all.sortRanges()
		return &v
	case !hasSettings(m.Annotations):
		return nil
	}
	c.unknownAnnotations(m, serviceAnnotations...)
	v := c.readAnnotations(m)
	v.EndpointsFrom, v.Sources, v.Check, v.Ranges = c.endpointsFrom(m), c.readSources(m), c.check(m, noCheck), c.portRanges(m, ports)
	return v
}

func hasSettings(annotations map[string]string) bool {
	for name := range annotations {
		if strings.HasPrefix(name, setting.Domain) {
			return true
		}
	}
	return false
}

// readAnnotations reads the annotations that rows read. One that cannot be used leaves the default.
func (c *serviceConverter) readAnnotations(m *metav1.ObjectMeta) *setting.Values {
	v := new(setting.Values)
	for _, s := range setting.All {
		text, given := m.Annotations[s.Annotation]
		if !given || s.Annotation == "" || !s.IsParsed() {
			continue
		}
		if problem := s.Parse(v, text); problem != "" {
			c.Warn(c.placeOf(s), text, problem+"; the default applies")
		}
	}
	return v
}

// placeOf returns where the author of the Service wrote a setting.
func (c *serviceConverter) placeOf(s *setting.Setting) string {
	if c.given != nil {
		return cmp.Or(s.Field, "listen")
	}
	return annotationField(s.Annotation)
}

func (c *serviceConverter) warnOfEffects(s *model.Service) {
	if s.Extra().MaglevSize != 0 && s.Scheduler != model.DefaultScheduler && !s.Scheduler.IsMaglev() {
		c.Warn(c.placeOf(setting.MaglevSize), nil, fmt.Sprintf("has no effect: it is for maglev and maglev-port, and the scheduler is %s", s.Scheduler))
	}
	c.adaptToRanges(s)
	c.warnOfClosing(s)
	c.warnOfFamilies(s)
}

// warnOfClosing warns of a Service without TCP whose established connections are to be closed.
func (c *serviceConverter) warnOfClosing(s *model.Service) {
	ofTCP := func(p model.ServicePort) bool { return p.Protocol == model.TCP }
	if s.Extra().OnFailure != model.CloseOnFailure || len(s.Ports)+len(s.Extra().Ranges) == 0 || slices.ContainsFunc(s.Ports, ofTCP) ||
		slices.ContainsFunc(s.Extra().Ranges, func(r model.PortRange) bool { return ofTCP(r.ServicePort) }) {
		return
	}
	c.Warn(c.placeOf(setting.OnFailure), nil, "has no effect: it is for TCP connections, and no port is of TCP")
}

// check reads the annotation with the health check of a Service: the type of the check, or a mapping of YAML. A
// wrong one is none. Where refused says why the Service can have none, the text is not read.
func (c *serviceConverter) check(m *metav1.ObjectMeta, refused string) *model.Check {
	text, given := m.Annotations[setting.Check.Annotation]
	field := annotationField(setting.Check.Annotation)
	switch {
	case !given:
		return nil
	case refused != "":
		c.Warn(field, nil, refused)
		return nil
	case len(text) > budget.CheckText: // before anything reads it
		c.Add(field, nil, healthcheck.TooLong)
		return nil
	}
	value, problem := healthcheck.Decode(text)
	if problem != "" {
		c.Add(field, text, problem)
		return nil
	}
	check, found := healthcheck.Parse(field, value)
	c.Put(found...)
	return check
}

// fittingCheck returns the check of a Service, or none if it fits none of the ports.
func (c *serviceConverter) fittingCheck(check *model.Check, ports []model.ServicePort) *model.Check {
	fits := func(p model.ServicePort) bool { return check.Type.Fits(p.Protocol) }
	if check == nil || len(ports) == 0 || slices.ContainsFunc(ports, fits) {
		return check
	}
	if check.Type == model.CheckPassive { // which sees only what clients dial
		c.Add(c.placeOf(setting.Check), nil, "is of type passive, which counts connections of TCP, and no port is of TCP: use another type")
		return nil
	}
	if check.Port != 0 {
		return check
	}
	return c.fitsNone(check)
}

func (c *serviceConverter) fitsNone(check *model.Check) *model.Check {
	c.Add(c.placeOf(setting.Check), nil, fmt.Sprintf("is of type %s, which fits none of the ports: name the port of the endpoints to check, such as {%[1]s, port: 8080}", check.Type))
	return nil
}

// endpointsFrom reads the name of the Service whose endpoints complete the endpoints of a
// Service of a file. Objects of an API server must not have it: it would let the author
// of one Service reach the endpoints of every other one.
func (f *Findings) endpointsFrom(m *metav1.ObjectMeta) *model.ServiceName {
	text, given := m.Annotations[setting.EndpointsFrom.Annotation]
	if !given {
		return nil
	}
	name, problem := ParseServiceName(text)
	if problem != "" {
		f.Warn(annotationField(setting.EndpointsFrom.Annotation), text, problem)
		return nil
	}
	return &name
}

// ParseServiceName reads for example "default/kubernetes".
func ParseServiceName(text string) (name model.ServiceName, problem string) {
	namespace, service, ok := strings.Cut(strings.TrimSpace(text), "/")
	if !ok || !IsPlainLabel(namespace) || !IsPlainLabel(service) {
		return name, "is not the name of a Service: write it like default/kubernetes"
	}
	return model.ServiceName{Namespace: namespace, Name: service}, ""
}
