// Command releases upgrades a node from one release of nftproxy to another and back,
// while clients make requests: none may fail, connections stay open, and session
// affinity is kept.
//
// Usage, as root: releases OLD NEW, two programs
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "releases:", err)
		os.Exit(1)
	}
}

const (
	port     = 8080 // of the servers
	enough   = 600  // requests of each kind in each state of the node
	patience = 30 * time.Second
)

func run(programs []string) (err error) {
	if len(programs) != 2 {
		return errors.New("usage: releases OLD NEW")
	}
	lab, err := netlab.New(4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	if err := lab.EchoOnPods(port); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "nftproxy-releases-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	n := &node{lab: lab, file: filepath.Join(dir, "services.yaml")}
	defer n.kill()
	return n.upgrade(programs[0], programs[1])
}

// node is where the releases run, one after the other.
type node struct {
	lab    *netlab.Lab
	file   string // with the objects
	daemon *exec.Cmd
	log    netlab.LogBuffer
}

// upgrade goes through the releases, and prints what clients saw.
func (n *node) upgrade(before, after string) error {
	if err := n.write(0); err != nil {
		return err
	}
	if err := n.start(before); err != nil {
		return err
	}
	l := startLoad(n.lab)
	defer l.stop()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "state of the node\tTCP\tUDP\topen connection\taffinity\tfailed")
	for i, program := range []string{before, after, before, after} {
		if i > 0 {
			n.stop()
			if err := l.row(w, "stopped"); err != nil {
				return err
			}
			if err := n.start(program); err != nil {
				return err
			}
		}
		if err := l.row(w, version(program)); err != nil {
			return err
		}
		if err := n.follows(); err != nil {
			return fmt.Errorf("%s: %w", version(program), err)
		}
	}
	return w.Flush()
}

// version is what a release says about itself.
func version(program string) string {
	out, err := exec.Command(program, "version").Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

// start starts a release, and waits until it is in sync.
func (n *node) start(program string) error {
	flags := []string{"-f", n.file, "--hostname-override", "node-1", "--cluster-cidr", netlab.ClusterCIDRv4.String()}
	n.daemon = exec.Command(program, append([]string{"run"}, flags...)...)
	n.daemon.Stderr = &n.log
	if err := n.lab.Node.Start(n.daemon); err != nil {
		return err
	}
	return n.wait("start "+program, func() error {
		var out bytes.Buffer
		status := exec.Command(program, "status")
		status.Stdout, status.Stderr = &out, &out
		if err := n.lab.Node.Run(status); err != nil || !strings.Contains(out.String(), "daemon ") {
			return fmt.Errorf("not in sync: %v\n%s", err, &out)
		}
		return nil
	})
}

// wait waits until f returns nil.
func (n *node) wait(what string, f func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w\n%s", what, err, &n.log)
		}
		time.Sleep(10 * time.Millisecond) // between two attempts
	}
}

// stop ends the daemon as the kubelet does. Its rules stay.
func (n *node) stop() {
	_ = n.daemon.Process.Signal(syscall.SIGTERM)
	_ = n.daemon.Wait()
}

func (n *node) kill() {
	if n.daemon != nil && n.daemon.ProcessState == nil {
		_ = n.daemon.Process.Kill()
		_ = n.daemon.Wait()
	}
}

// follows changes an endpoint, and waits until connections reach the new one; then
// back.
func (n *node) follows() error {
	for _, shift := range []int{1, 0} {
		if err := n.write(shift); err != nil {
			return err
		}
		want, gone := n.lab.Pods[3].Name, n.lab.Pods[2].Name
		if shift == 0 {
			want, gone = gone, want
		}
		err := n.wait("follow a change", func() error {
			seen := map[string]bool{}
			for range 12 {
				a, err := n.lab.Pods[0].Ask("tcp", changing, 0)
				if err != nil {
					return err
				}
				seen[a.Name] = true
			}
			if !seen[want] || seen[gone] {
				return fmt.Errorf("connections reach %v", seen)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
