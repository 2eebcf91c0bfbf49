package nodes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/testkit/tarball"
)

// probes has the addresses that converge gives endpoints: no attribute of netfilter has a number as high as
// their last byte would make it.
var probes = netip.MustParsePrefix("192.0.2.0/26")

// sighting is an address that the kernel of a node has got.
type sighting struct{ node, address string }

// sightings are the times at which the kernels of nodes got addresses first.
type sightings struct {
	mu sync.Mutex
	at map[sighting]time.Time
}

// observe notes when the kernel of each node says that it has an address of a prefix, until the test ends.
func (c *cluster) observe(t testing.TB, prefix netip.Prefix) *sightings {
	t.Helper()
	s := &sightings{at: make(map[sighting]time.Time)}
	for _, n := range c.NodeList {
		w := testbed.WatchKernel(t, n.Do, prefix)
		go func() {
			for k := range w.Commits {
				s.note(n.Name, &k)
			}
		}()
	}
	return s
}

func (s *sightings) note(node string, k *testbed.Commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range k.Added {
		if key := (sighting{node, a.String()}); s.at[key].IsZero() {
			s.at[key] = k.Seen
		}
	}
}

// of returns when a node got an address first; the zero Time: it has not.
func (s *sightings) of(node, address string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[sighting{node, address}]
}

// await waits until a node has an address, and returns since when.
func (s *sightings) await(t testing.TB, node, address string) (seen time.Time) {
	t.Helper()
	eventually(t, func() error {
		if seen = s.of(node, address); seen.IsZero() {
			return fmt.Errorf("the kernel of %s has not got %s", node, address)
		}
		return nil
	})
	return seen
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// measurements returns the namespaces and Services of measurements.
func (c *cluster) measurements(t *testing.T) string {
	t.Helper()
	return c.kubectl(t, "get", "namespaces,services,endpointslices", "-A", "-l", fleet.LabelConverge, "-o", "name")
}

// converges measures all nodes, beside what their kernels say, and interrupts a measurement.
func (c *cluster) converges(t *testing.T, viewer string) {
	t.Helper()
	refused, err := c.output(c.pluginCommand(t, viewer, "converge"))
	if err == nil || !strings.Contains(refused, "permissions are missing: create namespaces, list namespaces") || !strings.Contains(refused, "patch endpointslices.discovery.k8s.io") {
		t.Errorf("as viewer: %v\n%s", err, refused)
	}
	config := c.allow(t, "operator", "viewer", "converge")
	kernels := c.observe(t, probes)
	var r fleet.Convergence
	if code := c.plugin(t, config, &r, "converge", "--rounds", "4"); code != 0 || !r.Complete() || len(r.Nodes) != c.Nodes || r.Times.Count != 4*c.Nodes || r.Remains != "" {
		t.Fatalf("code %d: %+v", code, r)
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		for round, w := range r.Changes {
			address, _, _ := strings.Cut(w.Endpoint, ":")
			took, excess := seconds(n.Seconds[round]), seconds(n.Excess)
			seen := kernels.await(t, n.Name, address)
			fmt.Fprintf(t.Output(), "%s has %s %v after the answer, by %v too long at most; its kernel said so after %v\n", n.Name, address, took, excess, seen.Sub(w.Answered))
			if earliest := w.Answered.Add(took - excess); took > 0 && earliest.After(seen) {
				t.Errorf("%s has %s %v after its kernel has said so", n.Name, address, earliest.Sub(seen))
			}
		}
	}
	if left := c.measurements(t); left != "" {
		t.Errorf("objects remain:\n%s", left)
	}
	c.shoot(t, config, "converge")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		c.interrupts(t, config, signal)
	}
}

// interrupts ends a measurement by a signal, in the middle of its rounds.
func (c *cluster) interrupts(t *testing.T, config string, signal syscall.Signal) {
	t.Helper()
	cmd := c.pluginCommand(t, config, "converge", "--rounds", "200")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := c.Control.Start(cmd); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if addresses := c.kubectl(t, "get", "endpointslices", "-A", "-l", fleet.LabelConverge, "-o", "jsonpath={.items[*].endpoints[*].addresses[*]}"); addresses == "" || addresses == "192.0.2.1" {
			return fmt.Errorf("no round has begun: %q", addresses)
		}
		return nil
	})
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out.String(), "all objects of this run are removed") {
		t.Errorf("%v: %v\n%s", signal, err, &out)
	}
	eventually(t, func() error {
		if left := c.measurements(t); left != "" {
			return fmt.Errorf("%v: objects remain:\n%s", signal, left)
		}
		return nil
	})
	for _, n := range c.NodeList {
		eventually(t, func() error {
			if rules, err := n.Output("nft", "list", "table", "ip", "nftproxy"); err != nil || strings.Contains(rules, "192.0.2.") || strings.Contains(rules, "nftproxy-converge") {
				return fmt.Errorf("%v: rules remain on %s: %w", signal, n.Name, err)
			}
			return nil
		})
	}
}

// collects makes an archive with the permissions of the page: no file is missing for want of one, and
// the viewer alone lacks the logs.
func (c *cluster) collects(t *testing.T, viewer string) {
	t.Helper()
	config := c.allow(t, "support", "viewer", "bundle")
	for _, user := range []struct {
		config string
		logs   bool
	}{{viewer, false}, {config, true}} {
		file := filepath.Join(t.TempDir(), "case.tar.gz")
		out, err := c.output(c.pluginCommand(t, user.config, "bundle", "--file", file))
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		files := unpack(t, file)
		contents := files["contents.txt"]
		if user.logs == strings.Contains(contents, "forbidden") || strings.Contains(contents, "status.json  missing") {
			t.Errorf("may read logs: %t\n%s", user.logs, contents)
		}
		logs, rules := 0, 0
		for name, text := range files {
			if strings.HasPrefix(name, "nodes/") && strings.HasSuffix(name, "/log.txt") && strings.Contains(text, "rules applied") {
				logs++
			}
			if strings.HasSuffix(name, "/rules.txt") && strings.Contains(text, "table ip nftproxy") {
				rules++
			}
			if strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)) {
				t.Errorf("%s is not JSON:\n%s", name, text)
			}
		}
		if rules != c.Nodes || user.logs && logs != c.Nodes || !user.logs && logs > 0 {
			t.Errorf("may read logs: %t: %d nodes with rules, %d with logs\n%s", user.logs, rules, logs, contents)
		}
	}
}

// unpack returns the files of an archive, by their paths without the first directory.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for name, f := range tarball.Read(t, content) {
		_, short, _ := strings.Cut(name, "/")
		out[short] = f.Content
	}
	return out
}
