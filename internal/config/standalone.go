package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// WithoutCluster adapts the defaults to a process that reads files, on a machine
// that is not a node of a cluster. Without a file or flag about them, the
// settings of connection tracking and the OOM score stay as they are, and health
// checks are not answered.
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
	k := &c.Kube.Conntrack
	if !f.Given("conntrack-max-per-core") && !f.Given("conntrack-min") {
		k.MaxPerCore, k.Min = ptr.To[int32](0), ptr.To[int32](0)
	}
	// The others are zero by default.
	if !f.Given("conntrack-tcp-timeout-established") {
		k.TCPEstablishedTimeout = &metav1.Duration{}
	}
	if !f.Given("conntrack-tcp-timeout-close-wait") {
		k.TCPCloseWaitTimeout = &metav1.Duration{}
	}
}
