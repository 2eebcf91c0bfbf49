package convert

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/healthcheck"
)

// check reads the annotation with the health check of a Service: the type of the check, or a
// mapping of YAML. A wrong one is none. Where refused says why the Service can have none, the
// text is not read.
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
