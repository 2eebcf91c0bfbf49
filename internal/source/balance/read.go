package balance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// Conversion is what a Balance of a file stands for.
type Conversion struct {
	Meta    *metav1.ObjectMeta // name and namespace
	Service *model.Service
	Slices  []*model.EndpointSlice
	// Objects are the objects of Kubernetes; none if something is wrong.
	Objects []any
	// Problems are about the text, and Findings about its fields.
	Problems manifest.Errors
	Findings []*manifest.FieldError
}

// Read reads a Balance, and converts the objects that it stands for, for the proxy
// called proxyName.
func Read(m *manifest.Object, proxyName string) Conversion {
	b := new(Balance)
	c := Conversion{Problems: m.DecodeShort(b)}
	for _, e := range c.Problems {
		if f, ok := e.Err.(*manifest.FieldError); ok && (f.Field == "metadata" || f.Field == "spec") {
			f.Problem = manifest.UnknownField + ": a Balance has its fields at the top, like name and listen"
		} else if ok && f.Problem == manifest.NotText {
			f.Problem = numberProblem(f)
		}
	}
	c.Meta = &metav1.ObjectMeta{Name: b.Name, Namespace: b.Namespace}
	e, found := b.Expand()
	c.Findings = slices.DeleteFunc(found, func(f *manifest.FieldError) bool { return isMisspelt(f, c.Problems) })
	if e == nil || len(c.Problems) > 0 {
		return c
	}
	c.convert(e, proxyName)
	return c
}

// convert converts the objects.
func (c *Conversion) convert(e *Expansion, proxyName string) {
	if proxyName != "" {
		e.Service.Labels = map[string]string{convert.LabelProxyName: proxyName}
	}
	service, found := convert.Service(e.Service, proxyName)
	c.Findings = append(c.Findings, ofBalance(found, nil)...)
	if service != nil {
		service.Balance = true
		convert.OnNode(service)
	}
	c.Service = service
	c.Objects = append(c.Objects, e.Service)
	for i, s := range e.Slices {
		slice, found := convert.EndpointSlice(s)
		c.Findings = append(c.Findings, ofBalance(found, e.fields[i])...)
		c.Slices = append(c.Slices, slice)
		c.Objects = append(c.Objects, s)
	}
}

// numberProblem returns the problem of a number in place of a text: quotes would not be
// enough.
func numberProblem(f *manifest.FieldError) string {
	field, _, _ := strings.Cut(f.Field, "[")
	switch field {
	case "listen":
		return "is not an address with a port: write it like 203.0.113.10:" + portAfter(f.Value)
	case "limits.rate", "limits.ratePerClient":
		return convert.NotARate
	}
	return f.Problem
}

// portAfter returns a number if it is a port, and else one for an example.
func portAfter(value any) string {
	if text := fmt.Sprint(value); text != "" {
		if _, problem := convert.ParsePorts(text); problem == "" {
			return text
		}
	}
	return "443"
}

// isMisspelt reports whether a field is missing because of its spelling.
func isMisspelt(f *manifest.FieldError, problems manifest.Errors) bool {
	return strings.HasPrefix(f.Problem, "missing") && slices.ContainsFunc(problems, func(e *manifest.Error) bool {
		unknown, ok := e.Err.(*manifest.FieldError)
		return ok && strings.HasSuffix(unknown.Problem, suggest.DidYouMean([]string{f.Field}))
	})
}

// balanceFields are the fields of a Balance from which fields of its objects come.
var balanceFields = []struct{ object, balance string }{
	{convert.AnnotationField(convert.AnnotationCheck), "check"},
	{convert.AnnotationField(convert.AnnotationOnFailure), "onFailure"},
	{convert.AnnotationField(convert.AnnotationScheduler), "scheduler"},
	{convert.AnnotationField(convert.AnnotationMaglevSize), "maglevTableSize"},
	{convert.AnnotationField(convert.AnnotationClientAddresses), "clientAddresses"},
	{convert.AnnotationField(convert.AnnotationEndpointsFrom), "backendsFrom"},
	{convert.AnnotationField(convert.AnnotationPorts), "listen"},
	{convert.AnnotationField(convert.AnnotationDeniedSources), "deny"},
	{convert.AnnotationField(convert.AnnotationMaxConnections), "limits.connections"},
	{convert.AnnotationField(convert.AnnotationMaxConnectionsPerClient), "limits.connectionsPerClient"},
	{convert.AnnotationField(convert.AnnotationConnectionRate), "limits.rate"},
	{convert.AnnotationField(convert.AnnotationConnectionRatePerClient), "limits.ratePerClient"},
	{convert.AnnotationField(convert.AnnotationWeight), "backends"},
	{convert.AnnotationField(convert.AnnotationPriority), "backends"},
	{"metadata.", ""},
	{"spec.ports", "listen"},
	{"status.loadBalancer", "listen"},
	{"spec.loadBalancerSourceRanges", "clients"},
	{"spec.sessionAffinity", "affinity"},
}

// ofBalance returns findings about an object of a Balance as findings about the Balance.
// endpoints are the fields of its endpoints.
func ofBalance(found []*manifest.FieldError, endpoints []string) []*manifest.FieldError {
	out := slices.Clone(found)
	for i, f := range found {
		copied := *f
		if rest, ok := strings.CutPrefix(f.Field, "endpoints["); ok {
			index, _, _ := strings.Cut(rest, "]")
			if n, err := strconv.Atoi(index); err == nil && n < len(endpoints) {
				copied.Field = endpoints[n]
			}
		}
		for _, known := range balanceFields {
			if rest, ok := strings.CutPrefix(f.Field, known.object); ok {
				copied.Field = known.balance
				if known.balance == "check" || known.balance == "" {
					copied.Field += rest
				}
				break
			}
		}
		out[i] = &copied
	}
	return out
}
