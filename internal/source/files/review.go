package files

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/suggest"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// review warns of objects of files that are valid by themselves and do not do together what their author may
// expect. It is not for API servers: there Services without endpoints and load balancers without an address are
// normal for a while, and controllers write the slices. For the same reason some warnings are only for objects that
// come from no API server.
type review struct {
	services map[model.ServiceName]*object   // all of them, served or not
	slices   map[model.ServiceName][]*object // by the Service that they belong to
	warnings map[*object]manifest.Errors     // that it has found
	ports    map[*object]portSet             // of objects with more than fewPorts
}

// portSet are the ports by which a Service and its slices find each other.
type portSet map[portKey]bool

// fewPorts is how many ports are collected again each time: keeping the sets of many small objects takes
// more memory than the objects.
const fewPorts = 8

type portKey struct {
	name     string
	protocol model.Protocol
}

// portsOf returns the ports of a Service, or of slices. The caller must not modify them.
func (r *review) portsOf(o *object) portSet {
	if known, ok := r.ports[o]; ok {
		return known
	}
	out := make(portSet)
	if o.service != nil && !o.is(balance.Kind) {
		for _, p := range o.service.Ports {
			out[portKey{p.Name, p.Protocol}] = true
		}
	}
	for _, s := range o.slices {
		for _, p := range s.Ports {
			out[portKey{p.Name, p.Protocol}] = true
		}
	}
	if len(out) > fewPorts {
		r.ports[o] = out
	}
	return out
}

func (c *collector) reviewObjects() (map[*object]manifest.Errors, manifest.Errors) {
	n := len(c.snapshot.Services)
	r := &review{make(map[model.ServiceName]*object, n), make(map[model.ServiceName][]*object, n), make(map[*object]manifest.Errors), make(map[*object]portSet)}
	for o := range c.contents.all() {
		r.noteObject(o)
	}
	for o := range c.contents.all() {
		if name, ok := o.serviceOf(); ok && o.is("Endpoints") && len(r.slices[name]) == 0 { // (2.5)
			r.slices[name] = append(r.slices[name], o)
		}
	}
	var orphans []*object
	for o := range c.contents.all() {
		if r.reviewObject(o) {
			orphans = append(orphans, o)
		}
	}
	return r.warnings, r.warnOfOrphans(orphans)
}

func (r *review) noteObject(o *object) {
	switch {
	case o.is("Service"):
		id := o.id
		r.services[model.ServiceName{Namespace: id.Namespace, Name: id.Name}] = o
	case o.is(balance.Kind): // reviews itself
		if o.service != nil {
			r.services[o.service.Name] = o
		}
	case o.is("EndpointSlice"):
		if name, ok := o.serviceOf(); ok {
			r.slices[name] = append(r.slices[name], o)
		}
	}
}

// reviewObject reviews one object, and reports whether it belongs to a Service that is not in the input.
func (r *review) reviewObject(o *object) (orphan bool) {
	name, sliced := o.serviceOf()
	switch {
	case o.is(balance.Kind):
	case o.service != nil:
		r.warnOfPorts(o)
	case sliced && r.services[name] == nil:
		return true
	case sliced && !o.fromServer:
		r.unusedPorts(o)
		r.unusedFamily(o)
	}
	return false
}

// warnOfOrphans warns of each slice whose Service is not in the input, or of all of them
// together: there may be as many as slices.
func (r *review) warnOfOrphans(all []*object) manifest.Errors {
	if len(all) > maxNamed {
		var missing []string
		for _, o := range all {
			name, _ := o.serviceOf()
			missing = append(missing, terminal.Printable(name.String()))
		}
		slices.Sort(missing)
		missing = slices.Compact(missing)
		return aboutAll("endpoints of %s that the input does not have are not used: %s",
			terminal.Count(len(missing), "Service"), strings.Join(manifest.Shorten(missing, maxNamed), ", "))
	}
	for _, o := range all {
		r.warnOfOrphan(o)
	}
	return nil
}

// addWarning adds a warning about a field, at the line of the object if the field has none.
func (r *review) addWarning(o *object, line int, field, problem string) {
	r.add(o, line, &manifest.FieldError{Field: field, Problem: problem, Warning: true})
}

func (r *review) add(o *object, line int, f *manifest.FieldError) {
	at := o.Place
	at.Line = cmp.Or(line, at.Line)
	r.warnings[o] = append(r.warnings[o], &manifest.Error{Place: at, Object: o.id.String(), Err: f})
}

func (r *review) warnPort(o *object, i int, field, problem string) {
	line := 0
	if i < len(o.portLines) {
		line = o.portLines[i]
	}
	r.addWarning(o, line, fmt.Sprintf("%s[%d]", field, i), problem)
}

func (r *review) warnOfPorts(o *object) {
	all := r.slices[o.service.Name]
	if len(all) == 0 {
		r.noSlice(o)
		return
	}
	filled := slices.DeleteFunc(slices.Clone(all), func(o *object) bool { return !o.hasHosts() })
	if len(filled) == 0 {
		return // scaled to zero
	}
	offered := r.portsOf(filled[0])
	if len(filled) > 1 {
		offered = make(portSet)
		for _, s := range filled {
			maps.Copy(offered, r.portsOf(s))
		}
	}
	lacking := 0
	for i, p := range o.service.Ports {
		if offered[portKey{p.Name, p.Protocol}] {
			continue
		}
		if lacking++; lacking <= budget.Findings {
			r.warnPort(o, i, "spec.ports", portWithout(p, filled))
		}
	}
	r.warnMore(o, lacking)
}

// warnMore adds a warning that stands for those that are not reported one by one.
func (r *review) warnMore(o *object, all int) {
	if more := all - budget.Findings; more > 0 {
		r.add(o, 0, manifest.More(more, true))
	}
}

// noSlice warns of a Service to which no slice belongs. An API server makes one for each Service with a selector.
func (r *review) noSlice(o *object) {
	label := fmt.Sprintf("the label %s: %s", discoveryv1.LabelServiceName, o.service.Name.Name)
	switch {
	case o.fromServer, o.service.Extra().EndpointsFrom != nil:
	case o.selects:
		r.addWarning(o, o.linkLine, "spec.selector", "is for Kubernetes, which makes EndpointSlices of it; here the Service has no endpoints: add an EndpointSlice with "+label)
	default:
		r.addWarning(o, 0, "", "has no endpoints: add an EndpointSlice with "+label)
	}
}

func (o *object) hasHosts() bool {
	return slices.ContainsFunc(o.slices, func(s *model.EndpointSlice) bool { return len(s.Hosts) > 0 })
}

// portsOf returns the ports of a slice, or of all subsets of an Endpoints object. The caller must not modify them.
func (o *object) portsOf() (out []model.EndpointPort) {
	all := o.slices
	if len(all) == 1 {
		return all[0].Ports
	}
	known := make(map[model.EndpointPort]bool)
	for _, s := range all {
		for _, p := range s.Ports {
			if !known[p] {
				known[p], out = true, append(out, p)
			}
		}
	}
	return out
}

func portWithout(p model.ServicePort, filled []*object) string {
	slice := filled[0]
	begin := "has no endpoints: "
	if p.Name != "" {
		begin = "port " + p.Name + " has no endpoints: "
	}
	for _, o := range filled {
		for _, e := range o.portsOf() {
			if e.Name == p.Name {
				return begin + fmt.Sprintf("%s has it with protocol %s, not %s: write \"protocol: %[3]s\" in its ports",
					o.id, protocolName(e.Protocol), protocolName(p.Protocol))
			}
		}
	}
	var names []string
	for _, e := range slice.portsOf() {
		if e.Name == "" {
			e.Name = "one without a name"
		}
		names = append(names, e.Name)
	}
	advice := ": give the port the same name in both"
	switch similar := suggest.Similar(p.Name, names); {
	case len(names) == 0:
		return begin + slice.id.String() + " has no ports: name the port there, too"
	case p.Name == "":
		advice = ": name the port of the Service, too"
	case len(similar) > 0:
		advice = fmt.Sprintf(" (did you mean %s?)", p.Name)
	}
	return begin + fmt.Sprintf("%s has ports: %s", slice.id, strings.Join(manifest.Shorten(names, maxNamed), ", ")) + advice
}

func protocolName(p model.Protocol) string { return strings.ToUpper(p.String()) }

// unusedPorts warns of ports of a slice that its Service does not have, unless the
// Service has a port without endpoints: then that has the warning.
func (r *review) unusedPorts(o *object) {
	name, _ := o.serviceOf()
	of := r.services[name]
	if of.service == nil {
		return
	}
	has, wanted := r.portsOf(o), r.portsOf(of)
	// No more ports are looked at than the slice has: there may be as many slices as ports.
	if len(has) < len(wanted) || slices.ContainsFunc(of.service.Ports, func(p model.ServicePort) bool { return !has[portKey{p.Name, p.Protocol}] }) {
		return
	}
	unused := 0
	for i, e := range o.portsOf() {
		if wanted[portKey{e.Name, e.Protocol}] {
			continue
		}
		if unused++; unused <= budget.Findings {
			r.warnPort(o, i, "ports", fmt.Sprintf("port %s is not used: %s has no port of this name: add it there, or remove it here", e.Name, of.id))
		}
	}
	r.warnMore(o, unused)
}

// unusedFamily warns of endpoints of a family that their Service lacks (1.15).
func (r *review) unusedFamily(o *object) {
	name, _ := o.serviceOf()
	of := r.services[name]
	if of.service == nil || !o.is("EndpointSlice") || !o.hasHosts() {
		return
	}
	if f := o.slices[0].Family; !of.service.HasFamily(f) {
		r.addWarning(o, 0, "addressType", fmt.Sprintf("the endpoints are not used: %s is not served over %s; add such an address to it, or remove this slice", of.id, f))
	}
}

func (r *review) warnOfOrphan(o *object) {
	n, _ := o.serviceOf()
	var here, elsewhere []string
	for s := range r.services {
		switch {
		case s.Namespace == n.Namespace:
			here = append(here, s.Name)
		case s.Name == n.Name:
			elsewhere = append(elsewhere, s.Namespace)
		}
	}
	slices.Sort(elsewhere)
	problem := fmt.Sprintf("there is no Service %s in the input: the endpoints are not used", n)
	if similar := suggest.Similar(n.Name, here); len(similar) > 0 {
		problem += suggest.DidYouMean(similar[:1])
	} else if len(elsewhere) > 0 {
		problem += fmt.Sprintf(": it is in namespace %s: put both into the same one", elsewhere[0])
	}
	field := "metadata.labels[" + discoveryv1.LabelServiceName + "]"
	if o.is("Endpoints") {
		field = "metadata.name"
	}
	r.addWarning(o, o.linkLine, field, problem)
}

func reviewService(s *corev1.Service, service *model.Service) []*manifest.FieldError {
	var found manifest.Findings
	if service != nil && !service.NoClusterIP { // otherwise (1.40) decides
		for i, text := range s.Spec.ExternalIPs {
			reviewFamily(&found, service, manifest.EntryOf("spec.externalIPs", i), text)
		}
		for i, in := range s.Status.LoadBalancer.Ingress {
			reviewFamily(&found, service, manifest.EntryOf("status.loadBalancer.ingress", i).Of("ip"), in.IP)
		}
	}
	ingress, byServer := s.Status.LoadBalancer.Ingress, isFromServer(s)
	if s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.ExternalIPs) > 0 {
		found.Warn("spec.externalIPs", nil, "are not served, because clusterIP None makes the Service headless: give it a clusterIP")
	}
	switch {
	case s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.Spec.ClusterIP == corev1.ClusterIPNone || len(ingress) > 0 || byServer:
	case s.Spec.ClusterIP == "" && s.Spec.LoadBalancerIP == "": // the conversion warns
	case s.Spec.LoadBalancerIP != "":
		found.Warn("spec.loadBalancerIP", s.Spec.LoadBalancerIP, "is a request to a cloud provider and is not served: write status: {loadBalancer: {ingress: [{ip: "+s.Spec.LoadBalancerIP+"}]}}")
	default:
		found.Warn("status.loadBalancer.ingress", nil, "missing: the Service has no load balancer address; write it there, because nftproxy assigns none")
	}
	if s.Spec.LoadBalancerIP != "" && s.Spec.Type != corev1.ServiceTypeLoadBalancer && !byServer {
		found.Warn("spec.loadBalancerIP", s.Spec.LoadBalancerIP, "is not served: write the address to spec.externalIPs, or to status.loadBalancer.ingress")
	}
	return found.All()
}

// reviewFamily warns of an address of a family in which the Service has no ClusterIP (1.15).
func reviewFamily(found *manifest.Findings, service *model.Service, at manifest.FieldPath, text string) {
	if a, problem := convert.ParseAddress(text); problem == "" && !service.HasFamily(model.FamilyOf(a)) {
		found.WarnAt(at, text, fmt.Sprintf("is not served: the Service has no %s ClusterIP; add one to spec.clusterIPs, or remove this", model.FamilyOf(a)))
	}
}
