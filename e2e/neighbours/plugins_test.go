package neighbours

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"

	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// plugins is a build of the plugins of github.com/containernetworking/plugins.
type plugins struct {
	name    string
	paths   map[string]string // of the programs
	version string
}

// Builds of the plugins.
const (
	debians = "Debian"
	pinned  = "pinned"
)

// pluginsOf returns Debian's plugins, and the pinned ones of tools/cni.
var pluginsOf = sync.OnceValues(func() ([]plugins, error) {
	debian := plugins{name: debians, paths: map[string]string{}}
	for _, name := range []string{"bridge", "ptp", "portmap", "firewall", "host-local"} {
		debian.paths[name] = filepath.Join("/usr/lib/cni", name)
	}
	version, err := exec.Command("dpkg-query", "--show", "--showformat=${Version}", "containernetworking-plugins").Output()
	if err != nil {
		return nil, fmt.Errorf("version of containernetworking-plugins: %w", err)
	}
	debian.version = string(version)
	current := plugins{name: pinned, paths: map[string]string{}}
	tools, err := testbed.Tools("cni")
	if err != nil {
		return nil, err
	}
	for tool, file := range tools {
		current.paths[filepath.Base(tool)] = file
	}
	current.version, err = testbed.ToolVersion("cni", "github.com/containernetworking/plugins")
	return []plugins{debian, current}, err
})

// plugin is the configuration of one plugin of a network.
type plugin map[string]any

// configure runs a network's plugins for a pod, as a container runtime does, and
// returns the addresses of the pod.
func (n *node) configure(p plugins, command string, pod *netlab.Host, network ...plugin) []netip.Prefix {
	n.n.t.Helper()
	var result json.RawMessage
	if command == "DEL" {
		network = slices.Clone(network)
		slices.Reverse(network)
	}
	for _, conf := range network {
		conf = maps.Clone(conf)
		conf["cniVersion"], conf["name"] = "1.0.0", "pods"
		if result != nil {
			conf["prevResult"] = result
		}
		content, err := json.Marshal(conf)
		if err != nil {
			n.n.t.Fatal(err)
		}
		cmd := exec.Command(p.paths[conf["type"].(string)])
		cmd.Stdin = strings.NewReader(string(content))
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+n.Name+"-"+pod.Name, "CNI_IFNAME=eth0",
			"CNI_NETNS="+pod.Path(), "CNI_PATH="+filepath.Dir(p.paths["host-local"]))
		out, err := n.try(cmd)
		if err != nil {
			n.n.t.Fatal(err)
		}
		if command == "ADD" {
			result = json.RawMessage(out)
		}
	}
	if command == "DEL" {
		return nil
	}
	var r struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(result, &r); err != nil {
		n.n.t.Fatal(err)
	}
	var all []netip.Prefix
	for _, ip := range r.IPs {
		all = append(all, ip.Address)
	}
	return all
}

// addPod makes a pod on the node that plugins configure until the end of the test.
func (n *node) addPod(p plugins, network ...plugin) *netlab.Host {
	t := n.n.t
	t.Helper()
	pod, err := netlab.NewPod(fmt.Sprintf("pod-%s-%d", strings.TrimPrefix(n.Name, "node-"), len(n.pods)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pod.Close() })
	pod.NodeName = n.Name
	for _, a := range n.configure(p, "ADD", pod, network...) {
		if a.Addr().Is4() {
			pod.IPv4 = a.Addr()
		} else {
			pod.IPv6 = a.Addr()
		}
	}
	n.n.echo(pod)
	n.pods = append(n.pods, pod)
	return pod
}

// addPods makes two pods on the first node and one on each of the others, on a
// network whose nodes have routes to each other's pods.
func (n *nodes) addPods(p plugins, network func(*node) []plugin) {
	n.t.Helper()
	n.routes()
	n.addPodsTo(p, network)
}

// addPodsTo does the same on a network that adds the routes itself.
func (n *nodes) addPodsTo(p plugins, network func(*node) []plugin) {
	n.t.Helper()
	for i, on := range n.all {
		on.addPod(p, network(on)...)
		if i == 0 {
			on.addPod(p, network(on)...)
		}
	}
}

// ipam lets the pods have addresses of the node's ranges.
func (n *node) ipam() map[string]any {
	var ranges [][]map[string]string
	for _, f := range model.Families {
		ranges = append(ranges, []map[string]string{{"subnet": n.cidrs[f].String()}})
	}
	return map[string]any{"type": "host-local", "ranges": ranges, "dataDir": n.dir,
		"routes": []map[string]string{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}}}
}

// with returns a plugin of some type with more settings.
func (n *node) with(kind string, settings plugin) plugin {
	p := plugin{"type": kind, "ipam": n.ipam()}
	if kind == "bridge" {
		p["bridge"], p["isGateway"] = "cni0", true
	}
	maps.Copy(p, settings)
	return p
}

// forEachPlugins runs a test with all builds of the plugins.
func forEachPlugins(t *testing.T, f func(t *testing.T, p plugins)) {
	all, err := pluginsOf()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) { f(t, p) })
	}
}
