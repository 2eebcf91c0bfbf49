package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

var serviceAnnotations = setting.Annotations()

// convertSettings returns the settings of a Service with these ports, or nil: most have none.
func (c *serviceConverter) convertSettings(m *metav1.ObjectMeta, ports []model.ServicePort, noCheck string) *setting.Values {
	switch {
	case c.given != nil:
		v := c.given.Values
		v.Ranges = c.join(v.Ranges, ports)
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
		if !given || s.Annotation == "" || s.Parse == nil {
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

// warnOfEffects warns of settings that have no effect, or not the one that their author may expect.
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
