package balance

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// Conversion has the objects that a Balance of a file stands for.
type Conversion struct {
	Meta    *metav1.ObjectMeta // name and namespace
	Service *model.Service
	Slices  []*model.EndpointSlice
	// Objects are the objects of Kubernetes, or a [Rest]; none if something is wrong.
	Objects []any
	// Problems are about the text, and Findings about its fields.
	Problems manifest.Errors
	Findings []*manifest.FieldError
}

// Unresolved is a Balance as it is written, which may have servers of pools.
type Unresolved struct {
	*Balance
	problems manifest.Errors // with the text
}

// Decode reads the text of a Balance.
func Decode(m *manifest.Object) *Unresolved {
	b := new(Balance)
	u := &Unresolved{b, m.DecodeShort(b)}
	for _, e := range u.problems {
		if f, ok := e.Err.(*manifest.FieldError); ok && (f.Field == "metadata" || f.Field == "spec") {
			f.Problem = manifest.UnknownField + ": a Balance has its fields at the top, like name and listen"
		} else if ok && f.Problem == manifest.NotText {
			f.Problem = numberProblem(f)
		}
	}
	return u
}

// Resolve converts the objects that a Balance stands for, for the proxy called proxyName, with the
// servers of pools, and with defaults, which may be nil.
func (u *Unresolved) Resolve(pools map[PoolName]*Pool, d *Defaults, proxyName string) Conversion {
	c := Conversion{Problems: u.problems, Meta: u.Meta()}
	whole, missing := u.with(pools, d)
	e, found := whole.expand()
	whole.relocateFindings(found)
	found = append(missing, whole.ownFindings(found)...)
	c.Findings = slices.DeleteFunc(found, func(f *manifest.FieldError) bool { return isMisspelt(f, c.Problems) })
	if e == nil || len(c.Problems)+len(missing) > 0 {
		return c
	}
	before := len(c.Findings)
	c.convert(e, proxyName)
	if r := restOf(whole.Balance, e); len(r.Fields) > 0 {
		c.Objects = []any{r}
	}
	converted := slices.Clone(c.Findings[before:])
	whole.relocateFindings(converted)
	c.Findings = append(c.Findings[:before], whole.ownFindings(converted)...)
	return c
}

// Meta returns the name and the namespace.
func (u *Unresolved) Meta() *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: u.Name, Namespace: u.Namespace}
}

func (c *Conversion) convert(e *Expansion, proxyName string) {
	if proxyName != "" {
		e.Service.Labels = map[string]string{convert.LabelProxyName: proxyName}
	}
	service, found := convert.ServiceWith(e.Service, proxyName, &convert.Given{Values: e.settings, Anywhere: len(e.listeners) > 0})
	c.Findings = append(c.Findings, found...)
	if service != nil {
		service.Balance = true
		convert.OnNode(service)
		if len(e.names)+len(e.listeners) > 0 {
			extras := *service.Extra()
			extras.Names, extras.Listeners, service.Extras = e.names, e.listeners, &extras
		}
	}
	c.Service = service
	sliceOf := convert.EndpointSlice
	if e.settings.Relay != model.NoRelay {
		sliceOf = convert.RelayedSlice
	}
	c.Objects = append(c.Objects, e.Service)
	for _, s := range e.Slices {
		slice, found := sliceOf(s)
		c.Findings = append(c.Findings, found...)
		c.Slices = append(c.Slices, slice)
		c.Objects = append(c.Objects, s)
	}
}

// numberProblem returns the problem of a number in place of a text: quotes would not be enough.
func numberProblem(f *manifest.FieldError) string {
	if field, _, _ := strings.Cut(f.Field, "["); field == "listen" {
		port := f.Value
		if _, problem := convert.ParsePorts(port); problem != "" {
			port = "443"
		}
		return "is not an address with a port: write it like 203.0.113.10:" + port
	}
	if s := setting.ByField(f.Field); s != nil && s.Parse != nil {
		return cmp.Or(s.Parse(new(setting.Values), f.Value), f.Problem)
	}
	return f.Problem
}

// isMisspelt reports whether a field is missing because of its spelling.
func isMisspelt(f *manifest.FieldError, problems manifest.Errors) bool {
	return strings.HasPrefix(f.Problem, "missing") && slices.ContainsFunc(problems, func(e *manifest.Error) bool {
		unknown, ok := e.Err.(*manifest.FieldError)
		return ok && strings.HasSuffix(unknown.Problem, suggest.DidYouMean([]string{f.Field}))
	})
}
