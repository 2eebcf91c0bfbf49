package source

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/model"
)

// labelProxyName hands a Service to the proxy of that name (1.2).
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// maxAffinitySeconds is what the API server accepts: one day.
const maxAffinitySeconds = 86400

// ConvertService converts a Service for the proxy called proxyName. The result
// is nil where the Service is not proxied: another proxy's (1.1, 1.2), headless
// or without ClusterIP (1.6), or ExternalName (1.7). It never changes s (2.25).
//
// The Services of a proxy with a name are those whose label
// service.kubernetes.io/service-proxy-name has exactly that value; those of a
// proxy without one, which is the empty proxyName, do not carry the label.
//
// ClusterIPs follow the API server's data: where ipFamilies is empty clusterIP
// alone counts (1.12), else clusterIPs by the index of the family (1.13). An
// object that has never met an API server can be completed first; see
// [Files].
func ConvertService(s *corev1.Service, proxyName string) (*model.Service, []*FieldError) {
	c := serviceConverter{spec: &s.Spec, ingress: s.Status.LoadBalancer.Ingress}
	named := c.objectName(&s.ObjectMeta)
	if !servedBy(proxyName, s.Labels) || !c.proxied() || !named {
		return nil, c.findings
	}
	c.unknownAnnotations(&s.ObjectMeta, annotationScheduler)
	return &model.Service{
		Name:                model.ServiceName{Namespace: namespace(&s.ObjectMeta), Name: s.Name},
		Created:             s.CreationTimestamp.UTC(),
		ClusterIPs:          c.clusterIPs(),
		ExternalIPs:         c.externalIPs(),
		LoadBalancerIPs:     c.loadBalancerIPs(),
		SourceRanges:        c.sourceRanges(),
		Ports:               c.ports(),
		InternalPolicy:      c.internalPolicy(),
		ExternalPolicy:      c.externalPolicy(),
		AffinityTimeout:     c.affinityTimeout(),
		Scheduler:           c.scheduler(&s.ObjectMeta),
		HealthCheckNodePort: c.healthCheckNodePort(),
	}, c.findings
}

type serviceConverter struct {
	findings
	spec    *corev1.ServiceSpec
	ingress []corev1.LoadBalancerIngress
}

// servedBy tells whether a Service with these labels is for the proxy called
// proxyName.
func servedBy(proxyName string, labels map[string]string) bool {
	name, labelled := labels[labelProxyName]
	if proxyName == "" {
		return !labelled // an empty value is another proxy's, too
	}
	return name == proxyName
}

func (c *serviceConverter) proxied() bool {
	if c.spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	switch c.spec.ClusterIP {
	case corev1.ClusterIPNone:
		return false
	case "":
		c.warn("spec.clusterIP", nil, `missing: nothing of this Service is served; give it an address, or "None"`)
		return false
	}
	return true
}

func (c *serviceConverter) clusterIPs() []netip.Addr {
	if len(c.spec.IPFamilies) == 0 {
		a, problem := parseFrontend(c.spec.ClusterIP)
		if problem != "" {
			c.add("spec.clusterIP", c.spec.ClusterIP, problem)
			return nil
		}
		return []netip.Addr{a}
	}
	var out []netip.Addr
	for i, text := range c.spec.ClusterIPs {
		field := fmt.Sprintf("spec.clusterIPs[%d]", i)
		a, problem := parseFrontend(text)
		switch {
		case problem != "":
			c.add(field, text, problem)
		case i >= len(c.spec.IPFamilies):
			c.add(field, text, "has no entry in spec.ipFamilies: name its family there")
		case c.familyOf(i, a, out):
			out = append(out, a)
		}
	}
	c.sameClusterIP()
	return out
}

// familyOf checks a, the ClusterIP at index i, against the family at the same
// index and the ClusterIPs before it.
func (c *serviceConverter) familyOf(i int, a netip.Addr, before []netip.Addr) bool {
	text := string(c.spec.IPFamilies[i])
	f, known := parseFamily(text)
	switch {
	case !known:
		c.add(fmt.Sprintf("spec.ipFamilies[%d]", i), text, "is not an IP family: "+oneOf("IPv4", "IPv6"))
	case f != model.FamilyOf(a):
		c.add(fmt.Sprintf("spec.clusterIPs[%d]", i), c.spec.ClusterIPs[i],
			fmt.Sprintf("is not an %s address, as spec.ipFamilies[%d] says", f, i))
	case slices.ContainsFunc(before, func(b netip.Addr) bool { return model.FamilyOf(b) == f }):
		c.add(fmt.Sprintf("spec.clusterIPs[%d]", i), c.spec.ClusterIPs[i],
			fmt.Sprintf("is a second %s address: a Service has one ClusterIP of each family", f))
	default:
		return true
	}
	return false
}

// sameClusterIP checks that clusterIP repeats the first of clusterIPs.
func (c *serviceConverter) sameClusterIP() {
	if len(c.spec.ClusterIPs) == 0 {
		return
	}
	single, problem := parseAddress(c.spec.ClusterIP)
	first, other := parseAddress(c.spec.ClusterIPs[0])
	if problem == "" && other == "" && single != first {
		c.add("spec.clusterIP", c.spec.ClusterIP, "is not the first of spec.clusterIPs: give the same address in both")
	}
}

func (c *serviceConverter) externalIPs() []netip.Addr {
	var out []netip.Addr
	for i, text := range c.spec.ExternalIPs {
		if strings.TrimSpace(text) == "" {
			continue // (1.16)
		}
		a, problem := parseFrontend(text)
		if problem != "" {
			c.add(fmt.Sprintf("spec.externalIPs[%d]", i), text, problem)
			continue
		}
		out = append(out, a)
	}
	return out
}

// loadBalancerIPs keeps the ingress addresses that the node must answer for
// (1.18). Entries with only a host name are somebody else's (1.19).
func (c *serviceConverter) loadBalancerIPs() []netip.Addr {
	var out []netip.Addr
	for i, in := range c.ingress {
		if in.IP == "" {
			continue
		}
		field := fmt.Sprintf("status.loadBalancer.ingress[%d]", i)
		if in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
			if *in.IPMode != corev1.LoadBalancerIPModeProxy {
				c.add(field+".ipMode", string(*in.IPMode), "is unknown: "+oneOf("VIP", "Proxy"))
			}
			continue
		}
		a, problem := parseFrontend(in.IP)
		if problem != "" {
			c.add(field+".ip", in.IP, problem)
			continue
		}
		out = append(out, a)
	}
	return out
}

// sourceRanges returns the ranges that limit the load balancer addresses. A
// range of length 0 opens its family to everybody (1.24).
func (c *serviceConverter) sourceRanges() []netip.Prefix {
	var out []netip.Prefix
	for i, text := range c.spec.LoadBalancerSourceRanges {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		p, problem := parsePrefix(text)
		if problem != "" {
			c.add(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), text, problem)
			continue
		}
		out = append(out, p)
	}
	limited := len(out) > 0
	for _, f := range model.Families {
		ofFamily := func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f }
		if limited && !slices.ContainsFunc(out, ofFamily) {
			c.warnOpen(f)
		}
		if slices.ContainsFunc(out, func(p netip.Prefix) bool { return ofFamily(p) && p.Bits() == 0 }) {
			out = slices.DeleteFunc(out, ofFamily)
		}
	}
	return out
}

// warnOpen tells that the ranges of the other family leave load balancer
// addresses of family f open to everybody (1.25).
func (c *serviceConverter) warnOpen(f model.Family) {
	for _, in := range c.ingress {
		if a, problem := parseFrontend(in.IP); problem == "" && model.FamilyOf(a) == f {
			c.warn("spec.loadBalancerSourceRanges", nil, fmt.Sprintf(
				"has no %s range: the load balancer address %s is open to everybody; add a range, or %s to say so", f, a, everybody(f)))
			return
		}
	}
}

func everybody(f model.Family) string {
	if f == model.IPv6 {
		return "::/0"
	}
	return "0.0.0.0/0"
}

func (c *serviceConverter) internalPolicy() model.Policy {
	if c.spec.InternalTrafficPolicy == nil {
		return model.PolicyCluster // (1.28)
	}
	return c.policy("spec.internalTrafficPolicy", string(*c.spec.InternalTrafficPolicy))
}

// externalPolicy returns the effective policy (1.27).
func (c *serviceConverter) externalPolicy() model.Policy {
	p := c.policy("spec.externalTrafficPolicy", string(c.spec.ExternalTrafficPolicy))
	switch c.spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return p
	case corev1.ServiceTypeClusterIP, "":
	default:
		c.add("spec.type", string(c.spec.Type), "is unknown: "+oneOf("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"))
	}
	if len(c.spec.ExternalIPs) == 0 {
		return model.PolicyCluster
	}
	return p
}

func (c *serviceConverter) policy(field, text string) model.Policy {
	switch text {
	case "Local":
		return model.PolicyLocal
	case "Cluster", "":
	default:
		c.add(field, text, "is unknown: "+oneOf("Cluster", "Local"))
	}
	return model.PolicyCluster
}

func (c *serviceConverter) affinityTimeout() time.Duration {
	switch c.spec.SessionAffinity {
	case corev1.ServiceAffinityClientIP:
	case corev1.ServiceAffinityNone, "":
		return 0
	default:
		c.add("spec.sessionAffinity", string(c.spec.SessionAffinity), "is unknown: "+oneOf("None", "ClientIP"))
		return 0
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	config := c.spec.SessionAffinityConfig
	if config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil {
		if given := *config.ClientIP.TimeoutSeconds; given >= 1 && given <= maxAffinitySeconds {
			seconds = given
		} else {
			c.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", given,
				fmt.Sprintf("is not a timeout: use 1 to %d", maxAffinitySeconds))
		}
	}
	return time.Duration(seconds) * time.Second
}

// healthCheckNodePort applies 1.29.
func (c *serviceConverter) healthCheckNodePort() uint16 {
	if c.spec.Type != corev1.ServiceTypeLoadBalancer || c.spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return 0
	}
	const field = "spec.healthCheckNodePort"
	port := c.spec.HealthCheckNodePort
	if port == 0 {
		c.warn(field, nil, "missing: load balancers cannot ask this node whether it has endpoints; give it a port number")
	} else if problem := portProblem(port); problem != "" {
		c.add(field, port, problem)
		return 0
	}
	return uint16(port)
}
