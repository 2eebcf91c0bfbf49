package neighbours

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// docker is dockerd with the containerd that it starts.
type docker struct {
	engine
	flags   []string
	process *testbed.Process
}

// newDocker starts dockerd on the node, with flags and those that give containers
// IPv6 addresses with rules for these.
func newDocker(h *host, flags ...string) *docker {
	h.t.Helper()
	parent := cgroupParent(h.t)
	d := &docker{engine: engine{newRoom(h.t, h.Node, "/etc/docker", "/var/lib/docker", "/var/lib/containerd", "/opt"), []string{"/usr/bin/docker"}}}
	d.flags = slices.Concat(strings.Fields("--storage-driver=vfs --ipv6 --fixed-cidr-v6=fd00:d0cc::/64 --experimental --ip6tables"),
		[]string{"--cgroup-parent=" + parent, "--exec-opt=native.cgroupdriver=cgroupfs"}, flags)
	d.begin()
	return d
}

// begin starts dockerd and waits until it answers.
func (d *docker) begin() {
	d.t.Helper()
	d.process = d.start("dockerd", d.flags...)
	netlab.Eventually(d.t, patience, func() error {
		_, err := d.try(d.client[0], "version")
		return err
	})
}

// forwardPods are the rules for traffic of pods.
func (h *host) forwardPods() {
	h.t.Helper()
	for _, side := range []string{"--source", "--destination"} {
		h.run("iptables", "-I", "DOCKER-USER", side, netlab.ClusterCIDRv4.String(), "-j", "ACCEPT")
		h.run("ip6tables", "-I", "FORWARD", side, netlab.ClusterCIDRv6.String(), "-j", "ACCEPT")
	}
}

// Containers with published ports and Services serve the same addresses of the
// node, and Docker's policy DROP is in the way of pods.
func TestDockerForwarding(t *testing.T) {
	finds(t, finding{Group: "Container engines", Neighbour: "Docker", Version: packaged(t, "docker.io"), Verdict: worksIf,
		Case: "published ports beside Services, containers that use Services; containers and dockerd start again",
		Note: "pods' traffic is accepted: `iptables -I DOCKER-USER -s POD-RANGE -j ACCEPT` and the same with `-d`, for IPv6 in the chain FORWARD. " +
			"Docker sets the policy of FORWARD to DROP (IPv4: if `net.ipv4.ip_forward` was off when it started); " +
			"then only the node itself reaches Services."})
	inEitherOrder(t, func(h *host, start func(func())) {
		// dockerd then sets it, and the policy of the chain FORWARD to DROP.
		h.sysctl("net/ipv4/ip_forward", "0")
		var d *docker
		start(func() { d = newDocker(h) })
		h.unserved("policy DROP", without(h.paths(), path.fromNode)...)
		h.check("policy DROP", machine.Problem)
		h.forwardPods()
		h.served("pods accepted", h.paths()...)
		h.check("pods accepted", machine.OK)
		h.undisturbed("a container starts", func() { d.serve("web", publishedPort, "--restart=always") }, h.paths()...)
		h.answers("a container has started", "web", h.publishedPaths(publishedPort)...)
		d.reachesService("a container has started", "web", h)
		h.undisturbed("dockerd starts again", func() {
			d.stop(d.process, "/run/docker.pid")
			d.begin()
		}, h.paths()...)
		h.answers("dockerd has started again", "web", h.publishedPaths(publishedPort)...)
		h.uninterrupted("a container ends", func() { d.cmd("rm", "--force", "web") }, h.paths()...)
	})
}

func TestDockerWithoutUserlandProxy(t *testing.T) {
	finds(t, finding{Group: "Container engines", Neighbour: "Docker", Version: packaged(t, "docker.io"), Verdict: works,
		Case: "published ports with `--userland-proxy=false`"})
	inEitherOrder(t, func(h *host, start func(func())) {
		var d *docker
		start(func() { d = newDocker(h, "--userland-proxy=false") })
		h.forwardPods()
		d.serve("web", publishedPort, "--restart=always")
		h.served("a container runs", h.paths()...)
		h.answers("a container runs", "web", h.publishedPaths(publishedPort)...)
		d.reachesService("a container runs", "web", h)
	})
}

// A port of the node belongs to one of the two: nftproxy's chain is the first.
func TestDockerPublishesNodePort(t *testing.T) {
	finds(t, finding{Group: "Container engines", Neighbour: "Docker", Version: packaged(t, "docker.io"), Verdict: fails,
		Case: "a container publishes the port of a NodePort",
		Note: "because nftproxy's rules come before Docker's: the Service answers. The container answers on other ports and on the node's other addresses."})
	inEitherOrder(t, func(h *host, start func(func())) {
		var d *docker
		start(func() { d = newDocker(h) })
		h.forwardPods()
		d.serve("web", nodePort, "--restart=always")
		h.served("same port", h.paths()...)
		other, err := h.Node.Alias(netip.MustParseAddr("198.51.100.77"), netip.MustParseAddr("2001:db8:77::77"))
		if err != nil {
			h.t.Fatal(err)
		}
		h.answers("same port", "web", path{"outside to another address", h.Client, func(f model.Family) netip.AddrPort {
			return netip.AddrPortFrom(other.Address(f), nodePort)
		}})
	})
}
