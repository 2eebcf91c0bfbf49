package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/healthcheck"
)

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
