package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fileFault makes the input unusable. Its repair precedes a new input file.
type fileFault struct {
	name string
	make func(n *node) (repair func())
	says string // the error
}

func (n *node) do(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// folder is the directory that is an input beside the file.
func (n *node) folder() string { return filepath.Join(filepath.Dir(n.file), "folder") }

// moved renames a path and returns a function that moves it back.
func (n *node) moved(path string) func() {
	n.t.Helper()
	n.do(os.Rename(path, path+".away"))
	return func() {
		n.t.Helper()
		n.do(os.RemoveAll(path))
		n.do(os.Rename(path+".away", path))
	}
}

// mode changes the permissions of a path and returns a function that restores them.
func (n *node) mode(path string, mode os.FileMode) func() {
	n.t.Helper()
	n.do(os.Chmod(path, mode))
	return func() { n.t.Helper(); n.do(os.Chmod(path, 0o755)) }
}

func nothing() {}

// healthServer is off by default if there is no cluster.
const healthServer = "--healthz-bind-address=127.0.0.1:10256"

var fileFaults = []fileFault{
	{"mistake in the file", func(n *node) func() {
		n.do(os.WriteFile(n.file, []byte("kind: Service\nspec:\n\tclusterIP: 10.96.0.1\n"), 0o600))
		return nothing
	}, "services.yaml: document 1 (line 3): broken YAML: a tab in the indentation"},
	{"empty file", func(n *node) func() {
		n.do(os.Truncate(n.file, 0))
		return nothing
	}, "services.yaml: no objects: the file is empty"},
	{"disk full while writing", func(n *node) func() {
		// The limit stops the copy as a full disk would, in the middle of an object.
		_ = exec.Command("sh", "-c", `trap "" XFSZ; ulimit -f 1; cat "$1" > "$1.new"; cat "$1.new" > "$1"`, "sh", n.file).Run()
		return nothing
	}, "services.yaml: document "},
	{"file deleted", func(n *node) func() {
		n.do(os.Remove(n.file))
		return nothing
	}, "services.yaml: read file: no such file or directory: check the path"},
	{"file replaced by a directory", func(n *node) func() {
		n.do(os.Remove(n.file))
		n.do(os.Mkdir(n.file, 0o755))
		return func() { n.do(os.Remove(n.file)) }
	}, "services.yaml: holds no file *.yaml, *.yml or *.json"},
	{"file replaced by a link to nothing", func(n *node) func() {
		n.do(os.Remove(n.file))
		n.do(os.Symlink("nothing", n.file))
		return nothing
	}, "services.yaml: read file: no such file or directory"},
	{"no permission for the file", func(n *node) func() { return n.mode(n.file, 0) },
		"services.yaml: read file: permission denied: check the permissions of the path"},
	{"no permission for the directory", func(n *node) func() { return n.mode(n.folder(), 0) },
		"folder: read file: permission denied: check the permissions of the path"},
	{"directory emptied", func(n *node) func() { return n.moved(filepath.Join(n.folder(), "extra.yaml")) },
		"folder: holds no file *.yaml, *.yml or *.json"},
	{"directory moved", func(n *node) func() { return n.moved(n.folder()) },
		"folder: read file: no such file or directory"},
}

// TestFaultsOfFiles: whatever happens to the input files, the rules keep serving,
// and everything that reports on the node says so until the input can be used
// again: status, metrics, the health server and the log (10.26, 11.16, 13.27).
func TestFaultsOfFiles(t *testing.T) {
	n := newNode(t, 4)
	states, both := n.states()
	n.do(os.Mkdir(n.folder(), 0o755))
	extra := service{name: "folder", n: 9, pods: n.Pods[:1]}
	n.do(os.WriteFile(filepath.Join(n.folder(), "extra.yaml"), []byte(extra.manifest()), 0o600))
	n.flags = []string{"-f", n.folder(), "--conntrack-max-per-core=0"}
	n.write(states[0]...)
	// Root reads any file, unless it lacks the capabilities to do so.
	confined := []string{"setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all,+net_admin", "--"}
	p := n.startUnder(confined, "--oom-score-adj=1000", healthServer)
	n.flags = n.flags[:2]
	n.followed()
	load := n.startLoad(both...)
	for i, f := range fileFaults {
		t.Run(f.name, func(t *testing.T) {
			n, p := n.in(t), p.in(t)
			before := len(p.log.String())
			repair := f.make(n)
			n.eventually(func() error { return n.unusable(p, before, f.says) })
			repair()
			start := time.Now()
			n.write(states[(i+1)%2]...)
			n.followed()
			took := time.Since(start)
			n.eventually(func() error { return n.usable(p, before) })
			report(t, f.name, p, 1, before, took, load)
		})
	}
	t.Run("same content again", func(t *testing.T) {
		n, p := n.in(t), p.in(t)
		before := len(p.log.String())
		repair := n.moved(n.file)
		n.eventually(func() error { return n.unusable(p, before, "no such file or directory") })
		repair()
		n.eventually(func() error { return n.usable(p, before) })
		report(t, "same content", p, 1, before, 0, load)
	})
}

// TestUnreadableFiles: what no watch reports the end of is tried again.
func TestUnreadableFiles(t *testing.T) {
	n := newNode(t, 4)
	states, both := n.states()
	n.write(states[0]...)
	p := n.start(healthServer)
	n.followed()
	load := n.startLoad(both...)
	for i, f := range []fault{
		{"openat", "error=EIO:when=1+"},
		{"openat", "error=EMFILE:when=1+"},
		{"openat", "error=ENOMEM:when=1+"},
	} {
		t.Run(f.String(), func(t *testing.T) {
			n, p := n.in(t), p.in(t)
			before := len(p.log.String())
			tr := p.inject(f, n.file)
			n.write(states[(i+1)%2]...)
			n.eventually(func() error { return n.unusable(p, before, "services.yaml: read file: ") })
			tr.detach()
			start := time.Now()
			n.followed()
			took := time.Since(start)
			n.eventually(func() error { return n.usable(p, before) })
			report(t, f, p, len(tr.injected()), before, took, load)
		})
	}
}

// unusable returns an error unless everything says that the source cannot be used.
func (n *node) unusable(p *process, before int, reason string) error {
	n.t.Helper()
	code, said := n.run(binary, "status", "-o", "json")
	var report struct {
		Healthy bool
		Daemon  struct {
			SourceError *struct {
				Message string
				Since   time.Time
			}
		}
	}
	if err := json.Unmarshal([]byte(said), &report); err != nil {
		return fmt.Errorf("status: %w: %s", err, said)
	}
	switch e := report.Daemon.SourceError; {
	case code != 1 || report.Healthy || e == nil:
		return fmt.Errorf("status ends with %d, healthy %v", code, report.Healthy)
	case !strings.Contains(e.Message, reason) || time.Since(e.Since) > time.Minute:
		return fmt.Errorf("status says %q since %v, want %q", e.Message, e.Since, reason)
	}
	if _, said := n.run(binary, "status"); !strings.Contains(said, "ERROR") || !strings.Contains(said, reason) {
		return fmt.Errorf("status prints %s", said)
	}
	if m := n.get(10249, "/metrics"); !strings.Contains(m, "\nnftproxy_source_usable 0\n") {
		return fmt.Errorf("metrics: %s", m)
	}
	if h := n.get(10256, "/livez"); !strings.HasPrefix(h, "200 OK") || !strings.Contains(h, `"source":{"usable":false,"since":"20`) {
		return fmt.Errorf("health server: %s", h)
	}
	if log := p.log.String()[before:]; !strings.Contains(log, "level=ERROR msg=\"source cannot be used; the rules stay unchanged\"") {
		return fmt.Errorf("log: %s", log)
	}
	return nil
}

// usable returns an error unless everything says that the source can be used again.
func (n *node) usable(p *process, before int) error {
	n.t.Helper()
	if code, said := n.run(binary, "status"); code != 0 || strings.Contains(said, "ERROR") {
		return fmt.Errorf("status ends with %d: %s", code, said)
	}
	if m := n.get(10249, "/metrics"); !strings.Contains(m, "\nnftproxy_source_usable 1\n") {
		return fmt.Errorf("metrics: %s", m)
	}
	if h := n.get(10256, "/livez"); !strings.HasPrefix(h, "200 OK") || strings.Contains(h, `"source"`) {
		return fmt.Errorf("health server: %s", h)
	}
	if log := p.log.String()[before:]; strings.Count(log, "source usable again") != 1 {
		return fmt.Errorf("log: %s", log)
	}
	return nil
}

// get returns the status and the body of an answer of the program.
func (n *node) get(port int, path string) string {
	n.t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return n.Node.DialContext(ctx, network, address)
		},
		DisableKeepAlives: true,
	}}
	answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	n.do(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	n.do(err)
	return answer.Status + " " + string(body)
}
