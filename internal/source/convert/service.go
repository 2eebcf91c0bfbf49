package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// LabelProxyName assigns a Service to the proxy of that name (1.2).
const LabelProxyName = "service.kubernetes.io/service-proxy-name"

// maxAffinitySeconds is the longest time that the API server accepts: one day.
const maxAffinitySeconds = 86400

// Service converts a Service for the proxy called proxyName. The result is nil where the Service is not proxied:
// another proxy's (1.1, 1.2), headless (1.6), without any address that may serve (1.40), or ExternalName (1.7). It
// never changes s (2.25).
//
// A Service belongs to a proxy with a name if its label service.kubernetes.io/service-proxy-name has exactly that
// value, and to a proxy without one, which is the empty proxyName, if it does not carry the label.
//
// Without ipFamilies only clusterIP is used (1.12), otherwise clusterIPs by the index of the family (1.13).
// [files.Reader] completes objects that no API server has processed.
func Service(s *corev1.Service, proxyName string) (*model.Service, []*manifest.FieldError) {
	return convertService(s, proxyName, "", nil)
}

// ServiceOfCluster converts a Service of an API server, without what only files may
// ask for. noCheck may say why the Service can have no health check.
func ServiceOfCluster(s *corev1.Service, proxyName, noCheck string) (*model.Service, []*manifest.FieldError) {
	service, found := convertService(s, proxyName, noCheck, nil)
	if service == nil {
		return nil, found
	}
	if service.Check != nil && service.Check.Type == model.CheckExec { // authors of Services could run programs as root on every node
		service.Check = nil
		found = append(found, &manifest.FieldError{Field: annotationField(setting.Check.Annotation),
			Problem: "exec is accepted from files only: use another type"})
	}
	if service.Extra().EndpointsFrom != nil {
		service.Extras.EndpointsFrom = nil
		found = append(found, &manifest.FieldError{Field: annotationField(setting.EndpointsFrom.Annotation), Warning: true,
			Problem: "has no effect on a Service of a cluster: it is for Services of files"})
	}
	return service, found
}

// Given are the settings of a Service that stands for a Balance, which has them in its fields.
type Given struct {
	setting.Values
	// Anywhere allows that the Service has no address of its own: it is served on ones of interfaces.
	Anywhere bool
}

// ServiceWith converts a Service with given settings. Its annotations do not count.
func ServiceWith(s *corev1.Service, proxyName string, given *Given) (*model.Service, []*manifest.FieldError) {
	return convertService(s, proxyName, "", given)
}

func convertService(s *corev1.Service, proxyName, noCheck string, given *Given) (*model.Service, []*manifest.FieldError) {
	c := serviceConverter{spec: &s.Spec, ingress: s.Status.LoadBalancer.Ingress, given: given}
	named := c.ObjectName(&s.ObjectMeta)
	if !ServedBy(proxyName, s.Labels) || !c.isProxied() || !named {
		return nil, c.All()
	}
	service := &model.Service{
		Name:                model.ServiceName{Namespace: namespaceOf(&s.ObjectMeta), Name: s.Name},
		ClusterIPs:          c.clusterIPs(),
		External:            c.convertExternal(),
		Ports:               c.convertPorts(),
		InternalPolicy:      c.convertPolicy("spec.internalTrafficPolicy", string(ptr.Deref(s.Spec.InternalTrafficPolicy, ""))), // (1.28)
		ExternalPolicy:      c.externalPolicy(),
		AffinityTimeout:     c.affinityTimeout(),
		NoClusterIP:         s.Spec.ClusterIP == "",
		HealthCheckNodePort: c.healthCheckNodePort(),
	}
	if !s.CreationTimestamp.IsZero() {
		service.Created = s.CreationTimestamp.Unix()
	}
	if v := c.convertSettings(&s.ObjectMeta, service.Ports, noCheck); v != nil {
		v.Check = c.fittingCheck(v.Check, service.Ports)
		v.Apply(service)
		c.warnOfEffects(service)
	}
	c.openAddresses(service)
	return service, c.All()
}

func (c *serviceConverter) convertExternal() *model.External {
	e := model.External{ExternalIPs: c.externalIPs(), LoadBalancerIPs: c.loadBalancerIPs(), SourceRanges: c.sourceRanges()}
	if len(e.ExternalIPs)+len(e.LoadBalancerIPs)+len(e.SourceRanges) == 0 {
		return nil
	}
	return &e
}

type serviceConverter struct {
	Findings
	spec    *corev1.ServiceSpec
	ingress []corev1.LoadBalancerIngress
	given   *Given // nil: annotations have the settings
	// balancerRanges are loadBalancerSourceRanges, also those of length 0.
	balancerRanges []netip.Prefix
}

// ServedBy reports whether a Service with these labels belongs to a proxy.
func ServedBy(proxyName string, labels map[string]string) bool {
	name, labelled := labels[LabelProxyName]
	if proxyName == "" {
		return !labelled // an empty value is another proxy's, too
	}
	return name == proxyName
}

func (c *serviceConverter) isProxied() bool {
	if c.spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	switch c.spec.ClusterIP {
	case corev1.ClusterIPNone:
		return false
	case "":
		return c.hasBalancerAddress()
	}
	return true
}

// hasBalancerAddress reports whether a Service without ClusterIP has load balancer addresses,
// on which alone it is served (1.40).
func (c *serviceConverter) hasBalancerAddress() bool {
	isVIP := func(in corev1.LoadBalancerIngress) bool {
		return in.IP != "" && ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeVIP
	}
	anywhere := c.given != nil && c.given.Anywhere
	if c.spec.Type != corev1.ServiceTypeLoadBalancer || !anywhere && !slices.ContainsFunc(c.ingress, isVIP) {
		switch {
		case c.spec.Type != corev1.ServiceTypeLoadBalancer:
			c.Warn("spec.clusterIP", nil, `missing: nothing of this Service is served; give it an address, or "None" if it is headless`)
		case c.spec.LoadBalancerIP == "" || len(c.ingress) > 0: // otherwise that has a warning
			c.Warn("status.loadBalancer.ingress", nil, "missing: nothing of this Service is served; write its load balancer address there, because nftproxy assigns none, or give it a clusterIP")
		}
		return false
	}
	const advice = "is not served: without clusterIP, only the addresses of status.loadBalancer.ingress are; give the Service a clusterIP, or remove this"
	if len(c.spec.ExternalIPs) > 0 {
		c.Warn("spec.externalIPs", nil, advice)
	}
	for i, p := range c.spec.Ports {
		if p.NodePort != 0 {
			c.WarnAt(manifest.EntryOf("spec.ports", i).Of("nodePort"), p.NodePort, advice)
		}
	}
	return true
}

func (c *serviceConverter) clusterIPs() (out []netip.Addr) {
	if c.spec.ClusterIP == "" {
		return nil
	}
	if len(c.spec.IPFamilies) == 0 {
		return appendParsed(&c.Findings, out, manifest.FieldPath{Path: "spec.clusterIP"}, c.spec.ClusterIP, ParseFrontend)
	}
	for i, text := range c.spec.ClusterIPs {
		if i < len(c.spec.IPFamilies) {
			f := c.spec.IPFamilies[i]
			if _, known := families[f]; !known {
				c.AddAt(manifest.EntryOf("spec.ipFamilies", i), string(f), "is not an IP family: "+suggest.OneOf("IPv4", "IPv6"))
				continue
			}
		}
		out = appendParsed(&c.Findings, out, manifest.EntryOf("spec.clusterIPs", i), text, func(text string) (netip.Addr, string) {
			a, problem := ParseFrontend(text)
			if problem == "" {
				problem = c.familyProblem(i, a, out)
			}
			return a, problem
		})
	}
	c.sameClusterIP()
	return out
}

// familyProblem checks a, the ClusterIP at index i, against the family at the same
// index and the ClusterIPs before it.
func (c *serviceConverter) familyProblem(i int, a netip.Addr, before []netip.Addr) string {
	if i >= len(c.spec.IPFamilies) {
		return "has no entry in spec.ipFamilies: name its family there"
	}
	switch f := families[c.spec.IPFamilies[i]]; {
	case f != model.FamilyOf(a):
		return fmt.Sprintf("is not an %s address, as spec.ipFamilies[%d] says", f, i)
	case slices.ContainsFunc(before, func(b netip.Addr) bool { return model.FamilyOf(b) == f }):
		return fmt.Sprintf("is a second %s address: a Service has one ClusterIP of each family", f)
	}
	return ""
}

func (c *serviceConverter) sameClusterIP() {
	if len(c.spec.ClusterIPs) == 0 {
		return
	}
	single, problem := ParseAddress(c.spec.ClusterIP)
	first, other := ParseAddress(c.spec.ClusterIPs[0])
	if problem == "" && other == "" && single != first {
		c.Add("spec.clusterIP", c.spec.ClusterIP, "is not the first of spec.clusterIPs: give the same address in both")
	}
}

func (c *serviceConverter) externalIPs() (out []netip.Addr) {
	for i, text := range c.spec.ExternalIPs {
		if strings.TrimSpace(text) != "" { // (1.16)
			out = appendParsed(&c.Findings, out, manifest.EntryOf("spec.externalIPs", i), text, ParseEndpoint)
		}
	}
	return removeDuplicates(out)
}

// loadBalancerIPs keeps the ingress addresses that the node must answer for
// (1.18). Entries with only a host name are left to DNS (1.19).
func (c *serviceConverter) loadBalancerIPs() (out []netip.Addr) {
	for i, in := range c.ingress {
		if in.IP == "" {
			continue
		}
		at := manifest.EntryOf("status.loadBalancer.ingress", i)
		mode := string(ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP))
		if c.Word(at.Of("ipMode"), mode, "VIP", "Proxy") == "VIP" {
			out = appendParsed(&c.Findings, out, at.Of("ip"), in.IP, ParseFrontend)
		}
	}
	return removeDuplicates(out)
}

// sourceRanges returns the ranges that limit the load balancer addresses. A
// range of length 0 opens its family to all clients (1.24).
func (c *serviceConverter) sourceRanges() (out []netip.Prefix) {
	for i, text := range c.spec.LoadBalancerSourceRanges {
		if text = strings.TrimSpace(text); text != "" {
			out = appendParsed(&c.Findings, out, manifest.EntryOf("spec.loadBalancerSourceRanges", i), text, ParsePrefix)
		}
	}
	out = removeDuplicates(out)
	c.balancerRanges = slices.Clone(out)
	for _, f := range model.Families {
		ofFamily := func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f }
		if slices.ContainsFunc(out, func(p netip.Prefix) bool { return ofFamily(p) && p.Bits() == 0 }) {
			out = slices.DeleteFunc(out, ofFamily)
		}
	}
	return out
}

// openAddresses warns of addresses in which loadBalancerSourceRanges have no effect: load balancer
// addresses of a family without a range (1.25), and external IPs (4.31).
func (c *serviceConverter) openAddresses(s *model.Service) {
	const field = "spec.loadBalancerSourceRanges"
	if len(c.balancerRanges) == 0 || s.External == nil || s.Extra().Sources != nil && s.Extra().Sources.Limited {
		return
	}
	served := func(a netip.Addr) bool { return s.HasFamily(model.FamilyOf(a)) }
	for _, f := range model.Families {
		all := map[model.Family]string{model.IPv4: "0.0.0.0/0", model.IPv6: "::/0"}[f]
		ranged := slices.ContainsFunc(c.balancerRanges, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f })
		i := slices.IndexFunc(s.External.LoadBalancerIPs, func(a netip.Addr) bool { return model.FamilyOf(a) == f && served(a) })
		if i >= 0 && !ranged {
			c.Warn(field, nil, fmt.Sprintf("has no %s range: the load balancer address %s is open to all clients; add a range, or %s to say so",
				f, s.External.LoadBalancerIPs[i], all))
		}
	}
	open := func(a netip.Addr) bool { return served(a) && !slices.Contains(s.External.LoadBalancerIPs, a) }
	if i := slices.IndexFunc(s.External.ExternalIPs, open); i >= 0 && !s.NoClusterIP {
		c.Warn(field, nil, fmt.Sprintf("is for load balancer addresses: the external IP %s is open to all clients; list them in the annotation %s",
			s.External.ExternalIPs[i], setting.AllowedClients.Annotation))
	}
}

// externalPolicy returns the effective policy (1.27).
func (c *serviceConverter) externalPolicy() model.Policy {
	p := c.convertPolicy("spec.externalTrafficPolicy", string(c.spec.ExternalTrafficPolicy))
	switch t := c.Word(manifest.FieldPath{Path: "spec.type"}, string(c.spec.Type), "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"); {
	case t == "LoadBalancer", t == "NodePort", len(c.spec.ExternalIPs) > 0:
		return p
	}
	return model.PolicyCluster
}

func (c *serviceConverter) convertPolicy(field, text string) model.Policy {
	if c.Word(manifest.FieldPath{Path: field}, text, "Cluster", "Local") == "Local" {
		return model.PolicyLocal
	}
	return model.PolicyCluster
}

func (c *serviceConverter) affinityTimeout() time.Duration {
	if c.Word(manifest.FieldPath{Path: "spec.sessionAffinity"}, string(c.spec.SessionAffinity), "None", "ClientIP") != "ClientIP" {
		return 0
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	config := c.spec.SessionAffinityConfig
	if config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil {
		if given := *config.ClientIP.TimeoutSeconds; given >= 1 && given <= maxAffinitySeconds {
			seconds = given
		} else {
			c.Add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", given,
				fmt.Sprintf("is not a timeout: use 1 to %d", maxAffinitySeconds))
		}
	}
	return time.Duration(seconds) * time.Second
}

// convertPorts converts the ports. A port that cannot be served is left out; the others stay.
func (c *serviceConverter) convertPorts() []model.ServicePort {
	out := make([]model.ServicePort, 0, len(c.spec.Ports))
	taken := make(map[portUse]string, 2*len(c.spec.Ports))
	for i := range c.spec.Ports {
		in, before, at := &c.spec.Ports[i], c.Count, manifest.EntryOf("spec.ports", i)
		p := c.convertPort(at, in.Name, in.Protocol, in.Port, len(c.spec.Ports) > 1)
		name, port, nodePort := portUse{name: p.Name}, portUse{"port", p.Protocol, in.Port}, portUse{"nodePort", p.Protocol, in.NodePort}
		if _, twice := taken[name]; twice && c.Count == before {
			c.AddAt(at.Of("name"), p.Name, "is also the name of an earlier port: use another one")
		}
		if c.Count > before || !c.checkUnused(at, port, taken) {
			continue
		}
		s := model.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port}
		taken[name], taken[port] = p.Name, p.Name
		switch { // 0 is no node port (1.21)
		case in.NodePort != 0 && portProblem(in.NodePort) != "":
			c.AddAt(at.Of("nodePort"), in.NodePort, portProblem(in.NodePort)+", or 0 for none")
		case in.NodePort != 0 && c.checkUnused(at, nodePort, taken):
			s.NodePort, taken[nodePort] = uint16(in.NodePort), p.Name
		}
		out = append(out, s)
	}
	return out
}

// portUse is a name or a number that only one port of a Service may have.
type portUse struct {
	name     string // of the field that has the number, or of the port
	protocol model.Protocol
	number   int32 // zero: a name
}

// checkUnused reports a number that an earlier port has, by the names of the ports.
func (c *serviceConverter) checkUnused(at manifest.FieldPath, u portUse, taken map[portUse]string) bool {
	other, used := taken[u]
	if used {
		c.AddAt(at.Of(u.name), u.number, fmt.Sprintf("is also used by port %q with the same protocol, %s: use another one", other, strings.ToUpper(u.protocol.String())))
	}
	return !used
}

// healthCheckNodePort returns the port that load balancers ask (1.29).
func (c *serviceConverter) healthCheckNodePort() uint16 {
	if c.spec.Type != corev1.ServiceTypeLoadBalancer || c.spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return 0
	}
	const field = "spec.healthCheckNodePort"
	port := c.spec.HealthCheckNodePort
	if port == 0 {
		c.Warn(field, nil, "missing: load balancers cannot ask this node whether it has endpoints; give it a port number")
	} else if problem := portProblem(port); problem != "" {
		c.Add(field, port, problem)
		return 0
	}
	return uint16(port)
}
