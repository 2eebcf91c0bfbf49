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

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// engine runs containers in a room.
type engine struct {
	*room
	client []string // the command line of the engine
}

// publishedPort is a port of the node that leads to a container.
const publishedPort = 18080

// cmd runs a command of the engine.
func (e *engine) cmd(args ...string) string {
	e.t.Helper()
	return e.run(e.client[0], slices.Concat(e.client[1:], args)...)
}

// serve starts a container that publishes a port and answers there under its
// name.
func (e *engine) serve(name string, port int, flags ...string) {
	e.t.Helper()
	program := buildPeer(e.t)
	archive := program + ".tar"
	e.run("tar", "-C", filepath.Dir(program), "-cf", archive, "peer")
	e.cmd("import", archive, "peer")
	e.cmd(slices.Concat([]string{"run", "--detach", "--name=" + name, fmt.Sprintf("--publish=%d:8080/tcp", port),
		fmt.Sprintf("--publish=%d:8080/udp", port)}, flags, []string{"peer", "/peer", "serve", name, "8080"})...)
}

// reachesService checks that a container reaches the Service.
func (e *engine) reachesService(when, name string, h *host) {
	e.t.Helper()
	for _, family := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			for _, to := range []netip.AddrPort{clusterIP(family), h.nodePort(family)} {
				answer := e.cmd("exec", name, "/peer", "ask", network, to.String())
				if !strings.HasPrefix(answer, h.Pods[0].Name) && !strings.HasPrefix(answer, h.Remote[0].Name) {
					e.t.Errorf("%s: container to %s %s: got %q, want the answer of an endpoint", when, network, to, answer)
				}
			}
		}
	}
}

// publishedPaths are ways to a published port.
func (h *host) publishedPaths(port uint16) []path {
	to := func(f model.Family) netip.AddrPort { return netip.AddrPortFrom(h.Node.Address(f), port) }
	return []path{{"outside to published port", h.Client, to}, {"pod to published port", h.Pods[1], to}, {"node to published port", h.Node, to}}
}

// cgroupParent returns a name for the parent of all cgroups of a test's containers.
// They are removed at its end, after rooms that are made later.
func cgroupParent(t *testing.T) string {
	t.Helper()
	parent := "/" + filepath.Base(filepath.Dir(t.TempDir())) // has a random part
	t.Cleanup(func() { removeCgroups(t, parent) })
	return parent
}

// removeCgroups removes what containers leave in all hierarchies.
func removeCgroups(t *testing.T, parent string) {
	t.Helper()
	parents, err := filepath.Glob("/sys/fs/cgroup/*" + parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, parent := range append(parents, "/sys/fs/cgroup"+parent) {
		netlab.Eventually(t, patience, func() error { // when the last process has ended
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
