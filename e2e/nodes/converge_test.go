package nodes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/testkit/tarball"
)

// monitors are times at which nft has printed a text on each node, as events of the kernel.
type monitors struct {
	mu   sync.Mutex
	seen map[string]map[string]time.Time // by node and text
}

// monitor starts nft on all nodes, which prints every change of rules, and notes when words with a prefix
// are printed first. It ends with the test.
func (c *cluster) monitor(t *testing.T, prefix string) *monitors {
	t.Helper()
	m := &monitors{seen: make(map[string]map[string]time.Time)}
	for _, n := range c.NodeList {
		m.seen[n.Name] = make(map[string]time.Time)
		cmd, err := n.Lines(func(line string) { m.note(n.Name, prefix, line) }, "nft", "monitor")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		})
	}
	return m
}

func (m *monitors) note(node, prefix, line string) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for rest := line; ; {
		i := strings.Index(rest, prefix)
		if i < 0 {
			return
		}
		rest = rest[i:]
		end := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
		if end < 0 {
			end = len(rest)
		}
		if word := rest[:end]; m.seen[node][word].IsZero() {
			m.seen[node][word] = now
		}
		rest = rest[end:]
	}
}

// at returns when a text was printed on a node first.
func (m *monitors) at(node, text string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[node][text]
}

// measurements returns the namespaces and Services of measurements.
func (c *cluster) measurements(t *testing.T) string {
	t.Helper()
	return c.kubectl(t, "get", "namespaces,services,endpointslices", "-A", "-l", fleet.LabelConverge, "-o", "name")
}

// converges measures all nodes, beside what nft sees in their kernels, and interrupts a measurement.
func (c *cluster) converges(t *testing.T, viewer string) {
	t.Helper()
	refused, err := c.output(c.pluginCommand(t, viewer, "converge"))
	if err == nil || !strings.Contains(refused, "permissions are missing: create namespaces, list namespaces") || !strings.Contains(refused, "patch endpointslices.discovery.k8s.io") {
		t.Errorf("as viewer: %v\n%s", err, refused)
	}
	config := c.allow(t, "operator", "viewer", "converge")
	m := c.monitor(t, "192.0.2.")
	var r fleet.Convergence
	if code := c.plugin(t, config, &r, "converge", "--rounds", "4"); code != 0 || !r.Complete() || len(r.Nodes) != c.Nodes || r.Times.Count != 4*c.Nodes || r.Remains != "" {
		t.Fatalf("code %d: %+v", code, r)
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		for round, w := range r.Changes {
			address, _, _ := strings.Cut(w.Endpoint, ":")
			took := time.Duration(n.Seconds[round] * float64(time.Second))
			var seen time.Time
			eventually(t, func() error {
				if seen = m.at(n.Name, address); seen.IsZero() {
					return fmt.Errorf("nft on %s does not print %s", n.Name, address)
				}
				return nil
			})
			fmt.Fprintf(t.Output(), "%s has %s %v after the answer, by %v too long at most; nft printed it after %v\n", n.Name, address, took,
				time.Duration(n.Excess*float64(time.Second)), seen.Sub(w.Answered))
			if earliest := w.Answered.Add(took - time.Duration(n.Excess*float64(time.Second))); took > 0 && earliest.After(seen) {
				t.Errorf("%s has %s %v after nft has printed it", n.Name, address, earliest.Sub(seen))
			}
		}
	}
	if left := c.measurements(t); left != "" {
		t.Errorf("objects remain:\n%s", left)
	}
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
		args   []string
		logs   bool
	}{{viewer, nil, false}, {config, nil, true}, {config, []string{"--pseudonyms"}, true}} {
		file := filepath.Join(t.TempDir(), "case.tar.gz")
		out, err := c.output(c.pluginCommand(t, user.config, append([]string{"bundle", "--file", file}, user.args...)...))
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
			t.Errorf("%q: %d nodes with rules, %d with logs\n%s", user.args, rules, logs, contents)
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
