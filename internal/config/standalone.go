package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

// WithoutCluster is for a process that reads files: what a cluster expects of
// each of its nodes, nobody expects of a single machine. Where no file or flag
// asks for it, the settings of connection tracking and the OOM score stay as
// they are, and health checks are not answered.
func (f *Flags) WithoutCluster(c *Config) {
	if c.File != nil {
		return
	}
	if !f.Given("healthz-bind-address") && !f.Given("healthz-port") {
		c.Kube.HealthzBindAddress = ""
	}
	if !f.Given("oom-score-adj") {
		c.Kube.OOMScoreAdj = nil
	}
	asked := c.Kube.Conntrack
	k := &c.Kube.Conntrack
	*k = v1alpha1.KubeProxyConntrackConfiguration{
		MaxPerCore: ptr.To[int32](0), Min: ptr.To[int32](0),
		TCPEstablishedTimeout: &metav1.Duration{}, TCPCloseWaitTimeout: &metav1.Duration{},
	}
	for name, take := range map[string]func(){
		"conntrack-max-per-core":            func() { k.MaxPerCore, k.Min = asked.MaxPerCore, asked.Min },
		"conntrack-min":                     func() { k.MaxPerCore, k.Min = asked.MaxPerCore, asked.Min },
		"conntrack-tcp-timeout-established": func() { k.TCPEstablishedTimeout = asked.TCPEstablishedTimeout },
		"conntrack-tcp-timeout-close-wait":  func() { k.TCPCloseWaitTimeout = asked.TCPCloseWaitTimeout },
		"conntrack-tcp-be-liberal":          func() { k.TCPBeLiberal = asked.TCPBeLiberal },
		"conntrack-udp-timeout":             func() { k.UDPTimeout = asked.UDPTimeout },
		"conntrack-udp-timeout-stream":      func() { k.UDPStreamTimeout = asked.UDPStreamTimeout },
	} {
		if f.Given(name) {
			take()
		}
	}
}
