package config

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

const (
	// defaultMinSyncPeriod leaves time for readers of the tables: nft starts again
	// whenever the ruleset has changed, and with 20 changes a second and 50 ms
	// between syncs it did not finish (make bench-period and nft list ruleset with
	// 3,000 Services, see docs/performance.md). A single change never waits.
	defaultMinSyncPeriod = 100 * time.Millisecond
	kind                 = "KubeProxyConfiguration"
	healthzPort          = 10256
	metricsPort          = 10249
)

func newDefaults() *v1alpha1.KubeProxyConfiguration {
	k := &v1alpha1.KubeProxyConfiguration{}
	fillIn(k)
	return k
}

// fillIn gives unset fields their defaults. Zero and empty mean unset in a file
// (12.4). The values are kube-proxy's, except minSyncPeriod.
func fillIn(k *v1alpha1.KubeProxyConfiguration) {
	k.Kind, k.APIVersion = kind, v1alpha1.SchemeGroupVersion.String()
	fillInTexts(k)
	fillInServers(k)

	c := &k.ClientConnection
	c.ContentType = cmp.Or(c.ContentType, runtime.ContentTypeProtobuf)
	c.QPS = cmp.Or(c.QPS, 5)
	c.Burst = cmp.Or(c.Burst, 10)

	n := &k.NFTables
	n.SyncPeriod.Duration = cmp.Or(n.SyncPeriod.Duration, 30*time.Second)
	n.MinSyncPeriod.Duration = cmp.Or(n.MinSyncPeriod.Duration, max(0, min(defaultMinSyncPeriod, n.SyncPeriod.Duration)))
	n.MasqueradeBit = cmp.Or(n.MasqueradeBit, ptr.To[int32](14))
	k.IPTables.MasqueradeBit = cmp.Or(k.IPTables.MasqueradeBit, ptr.To[int32](14))
	k.IPTables.LocalhostNodePorts = cmp.Or(k.IPTables.LocalhostNodePorts, ptr.To(true))
	k.ConfigSyncPeriod.Duration = cmp.Or(k.ConfigSyncPeriod.Duration, 15*time.Minute)
	k.OOMScoreAdj = cmp.Or(k.OOMScoreAdj, ptr.To[int32](-999))

	t := &k.Conntrack
	t.MaxPerCore = cmp.Or(t.MaxPerCore, ptr.To[int32](32*1024))
	t.Min = cmp.Or(t.Min, ptr.To[int32](128*1024))
	t.TCPEstablishedTimeout = cmp.Or(t.TCPEstablishedTimeout, &metav1.Duration{Duration: 24 * time.Hour})
	t.TCPCloseWaitTimeout = cmp.Or(t.TCPCloseWaitTimeout, &metav1.Duration{Duration: time.Hour})
	logsapi.SetRecommendedLoggingConfiguration(&k.Logging)
}

// fillInTexts gives empty texts their defaults, also texts of flags.
func fillInTexts(k *v1alpha1.KubeProxyConfiguration) {
	k.Mode = cmp.Or(k.Mode, modeNFTables)
	k.BindAddress = cmp.Or(k.BindAddress, "0.0.0.0")
	k.DetectLocalMode = cmp.Or(k.DetectLocalMode, "ClusterCIDR")
	if len(k.NodePortAddresses) == 0 {
		k.NodePortAddresses = []string{primary}
	}
}

// fillInServers completes the addresses of the servers: their default family is
// the one of the bind address.
func fillInServers(k *v1alpha1.KubeProxyConfiguration) {
	everywhere, loopback := "0.0.0.0", "127.0.0.1"
	if a, err := netip.ParseAddr(k.BindAddress); err == nil && a.Is6() {
		everywhere, loopback = "::", "::1"
	}
	k.HealthzBindAddress = withPort(cmp.Or(k.HealthzBindAddress, everywhere), healthzPort)
	k.MetricsBindAddress = withPort(cmp.Or(k.MetricsBindAddress, loopback), metricsPort)
}

// withPort adds a port to an address without one.
func withPort(address string, port int) string {
	if _, ok := parseHost(address); !ok {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(port))
}
