package worlds

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/worlds"
)

// node is the node of a laboratory on which nftproxy serves a world.
type node struct {
	*netlab.Lab
	t     *testing.T
	world *worlds.World
	dir   string
	log   netlab.LogBuffer
	cmd   *exec.Cmd // of nftproxy run
	hosts map[string]*netlab.Host
	asked *tally
}

// newNode makes a laboratory for a world, with servers on all pods.
func newNode(t *testing.T, w *worlds.World) *node {
	t.Helper()
	n := &node{Lab: netlab.TestLab(t, len(worlds.Pods)), t: t, world: w, dir: t.TempDir(), hosts: make(map[string]*netlab.Host)}
	for _, h := range append([]*netlab.Host{n.Node, n.Client}, n.Pods...) {
		n.hosts[h.Name] = h
	}
	for _, h := range append([]worlds.Host{worlds.Node, worlds.Client}, worlds.Pods...) {
		if l := n.hosts[h.Name]; l == nil || l.IPv4 != h.IPv4 || l.IPv6 != h.IPv6 {
			t.Fatalf("the laboratory has another %s than worlds: %+v", h.Name, h)
		}
	}
	for _, port := range worlds.ServerPorts() {
		if err := n.EchoOnPods(port); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"input", "run", "state"} {
		if err := os.Mkdir(n.path(d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// input returns the flags that name the input, which diff needs as well.
func (n *node) input() []string {
	return []string{"-f", n.path("input"), "--isolate-files", "--hostname-override", worlds.NodeName,
		"--drain-file", n.path("drain.yaml"), "--changes-file", n.path("changes.yaml")}
}

func (n *node) socket() string { return n.path("run/control.sock") }

func (n *node) environment() []string {
	return append(os.Environ(), "KUBERNETES_SERVICE_HOST=", "RUNTIME_DIRECTORY="+n.path("run"), "STATE_DIRECTORY="+n.path("state"))
}

// start starts nftproxy, and waits until it serves the input: the rules of an earlier process may be the
// same, but its relay has ended with it.
func (n *node) start() {
	n.t.Helper()
	args := slices.Concat([]string{"run", "--healthz-bind-address", "", "--min-sync-period", "10ms", "--control-socket", n.socket(),
		"--conntrack-max-per-core", "0"}, n.input(), n.world.Flags.Rules, n.world.Flags.Daemon)
	cmd := exec.Command(binary, args...)
	cmd.Env = n.environment()
	cmd.Stdout, cmd.Stderr = &n.log, &n.log
	if err := n.Node.Start(cmd); err != nil {
		n.t.Fatal(err)
	}
	n.cmd = cmd
	err := await.Poll(await.Patience, 100*time.Millisecond, func() error {
		if status, said := n.run("status", "-o", "json"); !strings.Contains(said, `"lastSuccess"`) {
			return fmt.Errorf("status: exit code %d: %s", status, said)
		}
		return nil
	})
	if err != nil {
		n.t.Fatalf("after a start: %v\nlog of nftproxy:\n%s", err, n.log.String())
	}
}

// signal sends a signal to nftproxy.
func (n *node) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatalf("nftproxy has ended: %v\n%s", err, n.log.String())
	}
}

// stop ends nftproxy, which is the only exit that it may have.
func (n *node) stop(by syscall.Signal) {
	n.t.Helper()
	n.signal(by)
	if err := n.cmd.Wait(); err != nil && by != syscall.SIGKILL {
		n.t.Errorf("nftproxy ends with %v\n%s", err, n.log.String())
	}
}

// write writes the files of the world, and removes others.
func (n *node) write() {
	n.t.Helper()
	texts, err := n.world.Files()
	if err != nil {
		n.t.Fatal(err)
	}
	entries, err := os.ReadDir(n.path("input"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		if texts[e.Name()] == nil {
			err = errors.Join(err, os.Remove(n.path("input/"+e.Name())))
		}
	}
	for name, text := range texts {
		path := n.path("input/" + name)
		if before, _ := os.ReadFile(path); !bytes.Equal(before, text) { // it may be a new file
			err = errors.Join(err, atomicfile.Write(path, text, 0o600))
		}
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// run runs a command of nftproxy on the node, and returns its exit code and output.
func (n *node) run(args ...string) (status int, said string) {
	n.t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = n.environment()
	var out netlab.LogBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.Node.Run(cmd); err != nil && !errors.As(err, new(*exec.ExitError)) {
		n.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// settle waits until the diff of the input is empty, and until packets of all classes experience what
// the input asks for (12.69).
func (n *node) settle(after string) {
	n.t.Helper()
	n.waitFor(after, "diff")
	n.waitFor(after, "diff", "--prove")
}

// waitFor waits until a command that compares the input with the kernel finds no difference.
func (n *node) waitFor(after string, command ...string) {
	n.t.Helper()
	args := slices.Concat(command, n.input(), n.world.Flags.Rules)
	err := await.Poll(await.Patience, 100*time.Millisecond, func() error {
		if status, said := n.run(args...); status != 0 {
			return fmt.Errorf("exit code %d: %s", status, said)
		}
		return nil
	})
	if err != nil {
		n.t.Fatalf("after a step (%s), with %s: diff: %v\nlog of nftproxy:\n%s", after, strings.Join(args, " "), err, n.log.String())
	}
}

// take makes a step, which the world has drawn.
func (n *node) take(s worlds.Step) {
	n.t.Helper()
	switch {
	case s.End == worlds.Terminated:
		n.stop(syscall.SIGTERM)
	case s.End == worlds.Killed:
		n.stop(syscall.SIGKILL)
	case s.Frozen:
		n.signal(syscall.SIGSTOP)
	}
	n.write()
	if s.Outside != "" {
		// It fails if an earlier one has removed what it is about.
		_, _ = n.Node.Output("nft", s.Outside)
	}
	if s.Command != nil {
		if status, said := n.run(append(s.Command, "--control-socket", n.socket())...); status != 0 && status != 2 {
			n.t.Errorf("%s: exit code %d: %s", s, status, said)
		}
	}
	switch {
	case s.End != worlds.GoesOn:
		n.start()
	case s.Frozen:
		n.signal(syscall.SIGCONT)
	}
	n.settle(s.String())
}
