package soak

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// serviceChange changes a Service as it is into one that is wanted.
type serviceChange struct {
	name   string
	change func(random, *corev1.Service)
}

var serviceChanges = []serviceChange{
	{"add or remove a port", func(r random, s *corev1.Service) {
		if n := len(s.Spec.Ports); n < len(soakProtocols) && r.oneIn(2) {
			s.Spec.Ports = append(s.Spec.Ports, r.port(n))
		} else if n > 1 {
			s.Spec.Ports = s.Spec.Ports[:n-1]
		}
	}},
	{"change the number of a port", func(r random, s *corev1.Service) {
		if n := len(s.Spec.Ports); n > 0 {
			s.Spec.Ports[r.IntN(n)].Port = int32(1 + r.IntN(1000))
		}
	}},
	{"change the name of a port", func(r random, s *corev1.Service) {
		if n := len(s.Spec.Ports); n > 0 {
			p := &s.Spec.Ports[r.IntN(n)]
			p.Name = otherName(p.Name)
		}
	}},
	{"change the type", random.setType},
	{"change session affinity", random.setAffinity},
	{"change the internal traffic policy", random.setInternalPolicy},
	{"change the external traffic policy", func(r random, s *corev1.Service) {
		if s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer || len(s.Spec.ExternalIPs) > 0 {
			r.setExternalPolicy(s)
		}
	}},
	{"change external IPs", random.setExternalIPs},
	{"change source ranges", random.setSourceRanges},
	{"change the scheduler", random.setScheduler},
	{"change whose Service it is", func(r random, s *corev1.Service) {
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		if _, ok := s.Labels[proxyNameLabel]; ok {
			delete(s.Labels, proxyNameLabel)
		} else if r.oneIn(4) {
			s.Labels[proxyNameLabel] = "other"
		}
	}},
	{"change what means nothing", func(r random, s *corev1.Service) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations["example.com/note"] = fmt.Sprint(r.IntN(100))
	}},
}

// otherName renames a port so that no endpoint fits any more, or back.
func otherName(name string) string {
	if other, ok := strings.CutPrefix(name, "x"); ok {
		return other
	}
	return "x" + name
}

// sliceChange changes an EndpointSlice as it is into one that is wanted.
type sliceChange struct {
	name   string
	change func(random, *discoveryv1.EndpointSlice)
}

var sliceChanges = []sliceChange{
	{"scale", random.scale},
	{"scale to nothing", func(_ random, s *discoveryv1.EndpointSlice) { s.Endpoints = nil }},
	{"replace an endpoint", eachTime(1, func(r random, s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
		*e = r.endpoint(s.AddressType)
	})},
	{"ready or not", eachTime(2, func(_ random, _ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
		e.Conditions.Ready = new(!*e.Conditions.Ready)
		*e.Conditions.Serving = *e.Conditions.Ready
	})},
	{"terminating or not", eachTime(mostEndpoints, func(r random, _ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
		terminating := r.oneIn(2)
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(!terminating), Serving: new(!terminating || r.oneIn(2)), Terminating: &terminating}
	})},
	{"change a node's name", eachTime(3, func(r random, _ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
		e.NodeName = pick(r, nil, new(testbed.NodeName), new("remote"))
	})},
	{"change hints", func(r random, s *discoveryv1.EndpointSlice) {
		hint := !r.oneIn(3)
		for i := range s.Endpoints {
			s.Endpoints[i].Hints = nil
			if hint {
				s.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: pick(r, soakZones...)}}}
			}
		}
	}},
	{"change weights", func(r random, s *discoveryv1.EndpointSlice) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[weightAnnotation] = pick(r, "1", "2", "0", "nonsense", "101")
		if n := len(s.Endpoints); n > 0 {
			s.Annotations[weightAnnotation] = fmt.Sprintf("%d,%s=%d", 1+r.IntN(2), s.Endpoints[r.IntN(n)].Addresses[0], r.IntN(4))
		}
		if r.oneIn(2) {
			delete(s.Annotations, weightAnnotation)
		}
	}},
	{"change the endpoints' port", func(r random, s *discoveryv1.EndpointSlice) {
		if n := len(s.Ports); n > 0 {
			s.Ports[r.IntN(n)].Port = new(int32(8000 + r.IntN(100)))
		}
	}},
	{"change the name of the endpoints' port", func(r random, s *discoveryv1.EndpointSlice) {
		if n := len(s.Ports); n > 0 {
			p := &s.Ports[r.IntN(n)]
			p.Name = new(otherName(*p.Name))
		}
	}},
	{"change whose slice it is", func(r random, s *discoveryv1.EndpointSlice) {
		home := strings.Join(strings.Split(s.Name, "-")[:2], "-")
		s.Labels = map[string]string{discoveryv1.LabelServiceName: pick(r, home, home, soakName(r.IntN(100)))}
	}},
	{"touch", func(r random, s *discoveryv1.EndpointSlice) {
		slices.Reverse(s.Endpoints)
	}},
}

var soakZones = []string{"zone-a", "zone-b", "zone-c"}

// eachTime changes up to so many endpoints of a slice.
func eachTime(most int, change func(random, *discoveryv1.EndpointSlice, *discoveryv1.Endpoint)) func(random, *discoveryv1.EndpointSlice) {
	return func(r random, s *discoveryv1.EndpointSlice) {
		for range 1 + r.IntN(most) {
			if n := len(s.Endpoints); n > 0 {
				change(r, s, &s.Endpoints[r.IntN(n)])
			}
		}
	}
}
