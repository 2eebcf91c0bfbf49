package test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// daemon is a running "nftproxy run".
type daemon struct {
	cmd *exec.Cmd
	log netlab.LogBuffer
}

// start starts the daemon, after changes to its command. It prints the log if the
// test fails.
func (c *cluster) start(changes ...func(*exec.Cmd)) *daemon {
	c.t.Helper()
	d := &daemon{cmd: c.command("run")}
	d.cmd.Stderr = &d.log
	for _, change := range changes {
		change(d.cmd)
	}
	if err := c.Node.Start(d.cmd); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if d.cmd.ProcessState == nil {
			if c.t.Failed() {
				d.printStacks(c.t.Output())
			}
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
		}
		if c.t.Failed() {
			fmt.Fprintf(c.t.Output(), "log of the daemon:\n%s\n", d.log.String())
		}
	})
	return d
}

// printStacks prints where the threads of the daemon are in the kernel, and has it end with its
// goroutines in the log: it may wait for what does not come.
func (d *daemon) printStacks(w io.Writer) {
	stacks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stack", d.cmd.Process.Pid))
	for _, path := range stacks {
		if stack, err := os.ReadFile(path); err == nil { // of root
			fmt.Fprintf(w, "%s\n%s\n", path, stack)
		}
	}
	if d.cmd.Process.Signal(syscall.SIGQUIT) != nil {
		return
	}
	late, cancel := context.WithTimeout(context.Background(), patience) // it may be in the kernel
	go func() { defer cancel(); _ = d.cmd.Wait() }()
	<-late.Done()
}

// stop sends SIGTERM and checks that the daemon ends well.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("daemon ended with %v, want exit status 0", err)
	}
}

// replace replaces the input file by another one, as editors do.
func (c *cluster) replace(services ...service) {
	c.t.Helper()
	next := c.file + ".new"
	if err := os.WriteFile(next, []byte(renderInput(c.t, c.Node, services)), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil {
		c.t.Fatal(err)
	}
}

// answersFrom waits until a new connection to s is answered by one host.
func (c *cluster) answersFrom(s service, name string) {
	c.t.Helper()
	eventually(c.t, func() error {
		got, err := c.Client.Ask("tcp", s.clusterIP(model.IPv4), silence)
		if err != nil {
			return err
		}
		if got.Name != name {
			return fmt.Errorf("%s answers, want %s", got.Name, name)
		}
		return nil
	})
}

func TestDaemonFollowsFile(t *testing.T) {
	c := newCluster(t, 3)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	d := c.start()
	c.answersFrom(web, "pod-0")

	web.Pods = c.Pods[1:2]
	c.write(web)
	c.answersFrom(web, "pod-1")

	// Twice: a watch on the file itself would follow the old one.
	for _, i := range []int{2, 0} {
		web.Pods = c.Pods[i : i+1]
		c.replace(web)
		c.answersFrom(web, web.Pods[0].Name)
	}
	d.stop(t)
}

func TestDaemonKeepsRulesOnBrokenFile(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	d := c.start()
	c.answersFrom(web, "pod-0")

	before := d.log.String()
	if err := os.WriteFile(c.file, []byte("kind: Service\nspec: [this is not a service"), 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if d.log.String() == before {
			return fmt.Errorf("daemon does not log the broken file")
		}
		return nil
	})
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		if got := ask(t, c.Client, network, web.clusterIP(family)).Name; got != "pod-0" {
			t.Errorf("got %s, want pod-0", got)
		}
	})

	web.Pods = c.Pods[1:]
	c.write(web)
	c.answersFrom(web, "pod-1")
}

// 13.4: connections, old or new, are not affected by a restart.
func TestRulesOutliveDaemon(t *testing.T) {
	c := newCluster(t, 3)
	web := service{Name: "web", N: 1, Pods: c.Pods[:2]}
	c.write(web)
	d := c.start()
	eventually(t, func() error {
		_, err := c.Client.Ask("tcp", web.clusterIP(model.IPv4), silence)
		return err
	})
	flows := openFlows(t, c.Client, web.clusterIP)
	serves := func(when string) {
		for _, f := range flows {
			f.goesOn(t, when)
		}
		forEachFlow(t, func(t *testing.T, network string, family model.Family) {
			roundRobin(t, names(t, 6, c.Client, network, web.clusterIP(family)), 2)
		})
	}
	d.stop(t)
	serves("the daemon has ended")
	next := c.start()
	serves("the daemon is back")

	// The next daemon changes what the first one made.
	web.Pods = c.Pods[2:]
	c.write(web)
	c.answersFrom(web, "pod-2")
	next.stop(t)
}
