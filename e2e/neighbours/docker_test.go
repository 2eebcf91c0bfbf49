package neighbours

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlab"
)

// docker is dockerd with the containerd that it starts.
type docker struct {
	*room
	flags   []string
	process *testbed.Process
}

// published is a port of the node that leads to a container.
const published = 18080

// newDocker starts dockerd on the node, with flags and those that give containers
// IPv6 addresses with rules for these.
func newDocker(h *host, flags ...string) *docker {
	h.t.Helper()
	parent := filepath.Base(filepath.Dir(h.t.TempDir())) // has a random part
	h.t.Cleanup(func() { removeCgroups(h.t, parent) })
	d := &docker{room: newRoom(h.t, h.Node, "/etc/docker", "/var/lib/docker", "/var/lib/containerd", "/opt")}
	d.flags = slices.Concat(strings.Fields("--storage-driver=vfs --ipv6 --fixed-cidr-v6=fd00:d0cc::/64 --experimental --ip6tables"),
		[]string{"--cgroup-parent=/" + parent, "--exec-opt=native.cgroupdriver=cgroupfs"}, flags)
	d.begin()
	return d
}

// removeCgroups removes what containers leave in all hierarchies.
func removeCgroups(t *testing.T, parent string) {
	t.Helper()
	parents, err := filepath.Glob("/sys/fs/cgroup/*/" + parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, parent := range append(parents, "/sys/fs/cgroup/"+parent) {
		netlab.Eventually(t, testbed.Strict, func() error { // when the last process has ended
			var all []string
			err := filepath.WalkDir(parent, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					all = append(all, path)
				}
				return err
			})
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			for _, path := range slices.Backward(all) {
				err = errors.Join(err, os.Remove(path))
			}
			return err
		})
	}
}

// begin starts dockerd and waits until it answers.
func (d *docker) begin() {
	d.t.Helper()
	d.process = d.start("dockerd", d.flags...)
	netlab.Eventually(d.t, 6*testbed.Strict, func() error {
		_, err := d.try("/usr/bin/docker", "version")
		return err
	})
}

// docker runs the command line of Docker.
func (d *docker) docker(args ...string) string {
	d.t.Helper()
	return d.run("/usr/bin/docker", args...)
}

// serve starts a container that publishes a port and answers there under its
// name. It begins again with dockerd.
func (d *docker) serve(name string, port int) {
	d.t.Helper()
	program := buildPeer(d.t)
	archive := program + ".tar"
	d.run("tar", "-C", filepath.Dir(program), "-cf", archive, "peer")
	d.docker("import", archive, "peer")
	d.docker("run", "--detach", "--name="+name, "--restart=always", fmt.Sprintf("--publish=%d:8080/tcp", port),
		fmt.Sprintf("--publish=%d:8080/udp", port), "peer", "/peer", "serve", name, "8080")
}

// publishedPaths are ways to a published port.
func (h *host) publishedPaths(port uint16) []path {
	to := func(f model.Family) netip.AddrPort { return netip.AddrPortFrom(h.Node.Address(f), port) }
	return []path{{"outside to published port", h.Client, to}, {"pod to published port", h.Pods[1], to}, {"node to published port", h.Node, to}}
}

// reachesService checks that a container reaches the Service.
func (d *docker) reachesService(when, name string, h *host) {
	d.t.Helper()
	for _, family := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			for _, to := range []netip.AddrPort{clusterIP(family), h.nodePort(family)} {
				answer := d.docker("exec", name, "/peer", "ask", network, to.String())
				if !strings.HasPrefix(answer, h.Pods[0].Name) && !strings.HasPrefix(answer, h.Remote[0].Name) {
					d.t.Errorf("%s: container to %s %s: got %q, want the answer of an endpoint", when, network, to, answer)
				}
			}
		}
	}
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
		h.forwardPods()
		h.served("pods accepted", h.paths()...)
		h.undisturbed("a container starts", func() { d.serve("web", published) }, h.paths()...)
		h.answers("a container has started", "web", h.publishedPaths(published)...)
		d.reachesService("a container has started", "web", h)
		h.undisturbed("dockerd starts again", func() {
			d.stop(d.process, "/run/docker.pid")
			d.begin()
		}, h.paths()...)
		h.answers("dockerd has started again", "web", h.publishedPaths(published)...)
		h.uninterrupted("a container ends", func() { d.docker("rm", "--force", "web") }, h.paths()...)
	})
}

func TestDockerWithoutUserlandProxy(t *testing.T) {
	finds(t, finding{Group: "Container engines", Neighbour: "Docker", Version: packaged(t, "docker.io"), Verdict: works,
		Case: "published ports with `--userland-proxy=false`"})
	inEitherOrder(t, func(h *host, start func(func())) {
		var d *docker
		start(func() { d = newDocker(h, "--userland-proxy=false") })
		h.forwardPods()
		d.serve("web", published)
		h.served("a container runs", h.paths()...)
		h.answers("a container runs", "web", h.publishedPaths(published)...)
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
		d.serve("web", nodePort)
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
