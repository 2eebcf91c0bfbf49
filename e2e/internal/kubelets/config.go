package kubelets

import (
	"fmt"
	"path/filepath"
	"strings"
)

const containerdConfig = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".registry]
  # The default is a list of two directories, of which containerd 2.4 reads neither.
  config_path = "/etc/containerd/certs.d"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "` + pauseImage + `"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    SystemdCgroup = false
`

// kubeletConfig keeps the kubelet from evicting pods because of the machine's
// memory and disks, which are not the node's.
func (n *Node) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
enforceNodeAllocatable: [none]
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
volumePluginDir: /var/lib/kubelet/plugins-exec
clusterDNS: ["%s"]
clusterDomain: cluster.local
resolvConf: /etc/resolv.conf
evictionHard: {memory.available: 10Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
maxPods: %d
nodeStatusUpdateFrequency: 5s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
rotateCertificates: false
`, filepath.Join(n.c.cgroups, n.Name), n.c.Families.first(dns4, dns6), n.c.MaxPods, n.c.key("ca.crt"))
}

// cniConfig connects pods by the plugins ptp and portmap.
func (n *Node) cniConfig() string {
	subnets := func(format string) string {
		var texts []string
		for _, s := range n.c.Families.pick(nodePods4(n.index), nodePods6(n.index)) {
			texts = append(texts, fmt.Sprintf(format, s))
		}
		return strings.Join(texts, ", ")
	}
	var routes []string
	for _, r := range n.c.Families.pick("0.0.0.0/0", "::/0") {
		routes = append(routes, fmt.Sprintf(`{"dst": %q}`, r))
	}
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam",
  "routes": [%s], "ranges": [%s]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, strings.Join(routes, ", "), subnets(`[{"subnet": %q}]`))
}
