// Package balance reads Balances, the short form of a Service and its EndpointSlices in
// files, and expands them to these objects.
package balance

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

const (
	// Kind is the kind of the short form, and Version its API version, which files may leave out.
	Kind    = "Balance"
	Version = "nftproxy.dev/v1"
)

// Balance is a short form of a Service without ClusterIP and of its EndpointSlices, for
// files. [Balance.Expand] returns these.
type Balance struct {
	APIVersion   string                 `json:"apiVersion,omitempty"`
	Kind         string                 `json:"kind"`
	Name         string                 `json:"name"`
	Namespace    string                 `json:"namespace,omitempty"`
	Description  string                 `json:"description,omitempty"`
	Listen       manifest.List[string]  `json:"listen"`
	Protocol     manifest.List[string]  `json:"protocol,omitempty"`
	Backends     manifest.List[Backend] `json:"backends,omitempty"`
	BackendsFrom string                 `json:"backendsFrom,omitempty"`
	Shared
}

// Shared are the fields of a Balance that [Defaults] have, too.
type Shared struct {
	Scheduler       string                `json:"scheduler,omitempty"`
	MaglevTableSize *int64                `json:"maglevTableSize,omitempty"`
	Affinity        *metav1.Duration      `json:"affinity,omitempty"`
	Clients         manifest.List[string] `json:"clients,omitempty"`
	Deny            manifest.List[string] `json:"deny,omitempty"`
	ClientAddresses string                `json:"clientAddresses,omitempty"`
	MasqueradeFrom  manifest.List[string] `json:"masqueradeFrom,omitempty"`
	Limits          *Limits               `json:"limits,omitempty"`
	Check           any                   `json:"check,omitempty"`
	OnFailure       string                `json:"onFailure,omitempty"`
	SlowStart       *metav1.Duration      `json:"slowStart,omitempty"`
	Relay           any                   `json:"relay,omitempty"`
	Timeout         *metav1.Duration      `json:"timeout,omitempty"`
	Observe         string                `json:"observe,omitempty"`
	FastPath        string                `json:"fastPath,omitempty"`
	Announce        string                `json:"announce,omitempty"`
}

// Backend is a server of a Balance, or all servers of a [Pool]. It may be written as its address alone.
type Backend struct {
	Address  string              `json:"address,omitempty"`
	Servers  string              `json:"servers,omitempty"` // name of a pool
	Port     *intstr.IntOrString `json:"port,omitempty"`
	Weight   *int32              `json:"weight,omitempty"`
	Backup   bool                `json:"backup,omitempty"`
	Priority *int32              `json:"priority,omitempty"`
	Drain    bool                `json:"drain,omitempty"`
}

// MainField implements [manifest.Abbreviated].
func (Backend) MainField() string { return "address" }

// expand makes the objects, unless there is a problem. A Balance with pools has one.
func (e *expander) expand() []*manifest.FieldError {
	e.readName()
	e.listen()
	e.readBackends()
	e.readClients()
	e.readDeny()
	e.readSettings()
	for _, f := range e.All() {
		if !f.Warning {
			return e.All()
		}
	}
	e.service, e.names, e.listeners = e.newService(), e.namedServers(), e.findListeners()
	e.addSlices()
	return e.All()
}

// expander has a Balance with the values that it has from pools and defaults, and makes the objects of Kubernetes
// that it stands for.
type expander struct {
	*Balance
	inherited []string // fields whose values come from others
	from      []origin // of backends; nil: they are as written
	convert.Findings
	entries   []listening
	addresses []listening   // the first entry of each address
	listened  []listening   // of each address
	ports     []balancePort // the ones that are ports of the Service
	servers   []server
	ranges    []string       // of clients
	values    setting.Values // with the entries of listen that are ranges
	list      string         // the field with the servers

	service *corev1.Service // nil: there is a problem
	slices  []*discoveryv1.EndpointSlice
	// names are servers by names of DNS, and listeners stand for addresses of interfaces:
	// Kubernetes has no objects for these.
	names     []model.NamedServer
	listeners []model.Listener
}

func (e *expander) readName() {
	meta := metav1.ObjectMeta{Name: e.Name, Namespace: e.Namespace}
	named := e.ObjectName(&meta)
	for _, f := range e.First { // these are the first ones
		f.Field = strings.TrimPrefix(f.Field, "metadata.")
	}
	if named && !convert.IsPlainLabel(e.Name) {
		e.Add("name", e.Name, "is not a name: use at most 63 lower case letters, digits and '-'")
	}
}

func (e *expander) newService() *corev1.Service {
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: e.Name, Namespace: e.Namespace, Annotations: e.values.Write()},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerSourceRanges: e.ranges},
	}
	if e.Check != nil {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, setting.Check.Annotation, e.checkText())
	}
	for _, p := range e.ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: e.portName(p), Protocol: p.apiProtocol(), Port: int32(p.number), TargetPort: intstr.FromInt32(int32(p.number))})
	}
	if e.values.Affinity > 0 {
		seconds := int32(e.values.Affinity.Seconds())
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	for _, l := range e.addresses {
		if !l.wildcard {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: l.address.String()})
		}
	}
	return s
}

// portName returns the name of a service port. One that is alone needs none.
func (e *expander) portName(p balancePort) string {
	if len(e.ports) == 1 {
		return ""
	}
	return p.protocol.String() + "-" + strconv.Itoa(int(p.number))
}

// maxSliceEndpoints is the number that an API server accepts in an EndpointSlice.
const maxSliceEndpoints = 1000

// addSlices adds the EndpointSlices: servers of a family with the same ports share one.
func (e *expander) addSlices() {
	type group struct {
		family model.Family
		ports  convert.PortRange
	}
	var order []group
	members := make(map[group][]server)
	for _, s := range e.servers {
		if s.name != "" {
			continue
		}
		g := group{model.FamilyOf(s.address), s.ports}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = append(members[g], s)
	}
	for _, g := range order {
		for some := range slices.Chunk(members[g], maxSliceEndpoints) {
			e.addSlice(g.family, some)
		}
	}
}

func (e *expander) addSlice(f model.Family, servers []server) {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", e.Name, len(e.slices)+1), Namespace: e.Namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: e.Name},
		},
		AddressType: discoveryv1.AddressType(f.String()),
	}
	for _, p := range e.ports {
		name, protocol, port := e.portName(p), p.apiProtocol(), int32(servers[0].portFor(p))
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &port})
	}
	var weights, priorities []string
	for _, server := range servers {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{server.address.String()}})
		if server.weight != 1 {
			weights = append(weights, fmt.Sprintf("%s=%d", server.address, server.weight))
		}
		if server.priority != 0 {
			priorities = append(priorities, fmt.Sprintf("%s=%d", server.address, server.priority))
		}
	}
	for name, list := range map[string][]string{convert.AnnotationWeight: weights, convert.AnnotationPriority: priorities} {
		if len(list) > 0 {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, name, strings.Join(list, ","))
		}
	}
	e.slices = append(e.slices, s)
}

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
	found := append(missing, whole.ownFindings(whole.expand())...)
	c.Findings = slices.DeleteFunc(found, func(f *manifest.FieldError) bool { return isMisspelt(f, c.Problems) })
	if whole.service == nil || len(c.Problems)+len(missing) > 0 {
		return c
	}
	before := len(c.Findings)
	c.convert(whole, proxyName)
	if r := whole.rest(); len(r.Fields) > 0 {
		c.Objects = []any{r}
	}
	c.Findings = append(c.Findings[:before], whole.ownFindings(slices.Clone(c.Findings[before:]))...)
	return c
}

// Meta returns the name and the namespace.
func (u *Unresolved) Meta() *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: u.Name, Namespace: u.Namespace}
}

func (c *Conversion) convert(e *expander, proxyName string) {
	if proxyName != "" {
		e.service.Labels = map[string]string{convert.LabelProxyName: proxyName}
	}
	service, found := convert.ServiceWith(e.service, proxyName, &convert.Given{Values: e.values, Anywhere: len(e.listeners) > 0})
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
	if e.values.Relay != model.NoRelay {
		sliceOf = convert.RelayedSlice
	}
	c.Objects = append(c.Objects, e.service)
	for _, s := range e.slices {
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
	if s := setting.ByField(f.Field); s != nil && s.IsParsed() {
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
