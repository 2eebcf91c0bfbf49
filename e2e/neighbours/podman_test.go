package neighbours

import "testing"

// newPodman returns Podman with a network of both families. It has no process of
// its own.
func newPodman(h *host) *engine {
	h.t.Helper()
	parent := cgroupParent(h.t)
	e := &engine{newRoom(h.t, h.Node, "/etc/containers", "/var/lib/containers", "/etc/cni"),
		[]string{"podman", "--storage-driver=vfs", "--runtime=runc", "--cgroup-manager=cgroupfs"}}
	e.cmd("network", "create", "--ipv6", "--disable-dns", "dual")
	e.serve("web", publishedPort, "--network=dual", "--cgroup-parent="+parent)
	return e
}

// Containers with published ports and Services serve the same addresses of the
// node. Podman's network "reload" writes all rules again.
func TestPodman(t *testing.T) {
	finds(t, finding{Group: "Container engines", Neighbour: "Podman", Version: packaged(t, "podman"), Verdict: works,
		Case: "published ports (netavark) beside Services, containers that use Services; containers start and end, the network is reloaded"})
	inEitherOrder(t, func(h *host, start func(func())) {
		var e *engine
		start(func() { e = newPodman(h) })
		h.served("a container runs", h.paths()...)
		h.answers("a container runs", "web", h.publishedPaths(publishedPort)...)
		e.reachesService("a container runs", "web", h)
		h.undisturbed("network reload", func() { e.cmd("network", "reload", "--all") }, h.paths()...)
		h.answers("network reloaded", "web", h.publishedPaths(publishedPort)...)
		h.uninterrupted("container starts again", func() { e.cmd("restart", "--time=0", "web") }, h.paths()...)
		h.answers("container has started again", "web", h.publishedPaths(publishedPort)...)
		e.cmd("rm", "--force", "--time=0", "web")
		h.served("container removed", h.paths()...)
	})
}
