package test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// startLocalhost starts the daemon with NodePorts on these addresses.
func (c *cluster) startLocalhost(addresses string, services ...service) *daemon {
	c.t.Helper()
	c.flags = append([]string{"--nodeport-addresses", addresses}, clusterCIDR...)
	c.write(services...)
	d := c.start(func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--min-sync-period", "0s") })
	c.serves(services[0])
	return d
}

func onLocalhost(s service, f model.Family) netip.AddrPort {
	return netip.AddrPortFrom(loopback[f], s.NodePort())
}

// localhostBecomes waits for the result of dialling a NodePort on localhost; nil is an
// answer.
func (c *cluster) localhostBecomes(s service, want error) {
	c.t.Helper()
	for _, f := range model.Families {
		c.becomes(c.Node, onLocalhost(s, f), want)
	}
}

// 6.14 to 6.17, 6.21: NodePorts on localhost, with and without an address of the node that
// serves them, with policies, and without endpoints.
func TestLocalhost(t *testing.T) {
	t.Parallel()
	for _, addresses := range []string{"primary,localhost", "localhost", "all,localhost", "127.0.0.1/32,::1/128"} {
		t.Run(addresses, func(t *testing.T) {
			c := newWideCluster(t, 2, 1)
			all := service{Name: "all", N: 1, Pods: append(c.Pods[:2:2], c.Remote[0])}
			external := service{Name: "external", N: 2, Pods: c.Remote, External: "Local"}
			internal := service{Name: "internal", N: 3, Pods: c.Remote, Internal: "Local"}
			empty := service{Name: "empty", N: 4}
			d := c.startLocalhost(addresses, all, external, internal, empty)
			onNode := strings.Contains(addresses, ",localhost") // else through the ClusterIP
			for _, f := range model.Families {
				// Ports are opened one after the other.
				c.becomes(c.Node, onLocalhost(all, f), nil)
				c.becomes(c.Node, onLocalhost(external, f), nil)
				c.becomes(c.Node, onLocalhost(internal, f), map[bool]error{false: syscall.ECONNRESET}[onNode])
				roundRobin(t, names(t, 6, c.Node, "tcp", onLocalhost(all, f)), 3)
				if got := ask(t, c.Node, "tcp", onLocalhost(external, f)).Name; got != c.Remote[0].Name {
					t.Errorf("%s: external policy Local: %s", f, got)
				}
				refused(t, []*netlab.Host{c.Node}, "tcp", onLocalhost(empty, f))
				refused(t, []*netlab.Host{c.Node}, "udp", onLocalhost(all, f))
			}
			c.explainsLocalhost(all, onNode)
			d.stop(t)
			for _, f := range model.Families {
				refused(t, []*netlab.Host{c.Node}, "tcp", onLocalhost(all, f))
			}
		})
	}
}

// explainsLocalhost checks that explain names the listener and what it connects to, from
// the objects, and from the kernel and the daemon (6.22).
func (c *cluster) explainsLocalhost(s service, onNode bool) {
	c.t.Helper()
	for _, f := range model.Families {
		to := s.clusterIP(f)
		if onNode {
			to = s.nodePort(c.Node, f)
		}
		q := []string{"tcp", onLocalhost(s, f).String()}
		fromFile := c.command("explain")
		fromFile.Args = append(fromFile.Args, q...)
		for _, cmd := range []*exec.Cmd{fromFile, exec.Command(binary, append([]string{"explain"}, q...)...)} {
			out := c.mustRun(0, cmd)
			if !strings.Contains(out, "run listens on "+onLocalhost(s, f).String()+", and connects to tcp "+to.String()+" from the node") ||
				!strings.Contains(out, c.Remote[0].Address(f).String()) {
				c.t.Errorf("%s:\n%s", cmd, out)
			}
		}
		c.has([]string{"describe", s.Name}, onLocalhost(s, f).String(), " through "+to.String())
	}
}

// 6.14: all addresses do not ask for localhost.
func TestLocalhostNotAsked(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.startLocalhost("all", web)
	for _, f := range model.Families {
		refused(t, []*netlab.Host{c.Node}, "tcp", onLocalhost(web, f))
	}
}

// 6.15, 6.18: clients on localhost notice no change of the Service under load, and
// connections stay when it goes.
func TestLocalhostFollowsServices(t *testing.T) {
	c := newCluster(t, 3)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	d := c.startLocalhost("primary,localhost", web)
	c.localhostBecomes(web, nil)
	var flows []*netlab.Flow
	for _, f := range model.Families {
		flow, err := c.Node.Open("tcp", onLocalhost(web, f), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer flow.Close()
		flows = append(flows, flow)
	}
	goOn := func(when string) {
		t.Helper()
		for _, flow := range flows {
			if got, err := flow.Ask(); err != nil || got.Name != "pod-0" {
				t.Errorf("%s: %v, %v", when, got, err)
			}
		}
	}
	goOn("before")
	open := d.sockets(t)
	stop := c.floodLocalhost(web)
	for i := range 30 {
		web.Pods = c.Pods[i%3 : i%3+1]
		c.replace(web)
		c.answersFrom(web, web.Pods[0].Name)
	}
	if asked, failed := stop(); asked == 0 || failed != nil {
		t.Errorf("%d answers, %v", asked, failed)
	}
	goOn("after changes of the endpoints")
	eventually(t, func() error {
		if n := d.sockets(t); n > open {
			return fmt.Errorf("%d sockets are open, %d before", n, open)
		}
		return nil
	})
	other := service{Name: "other", N: 2, Pods: c.Pods}
	c.replace(other)
	c.localhostBecomes(other, nil)
	c.localhostBecomes(web, syscall.ECONNREFUSED)
	goOn("without the Service")
	web.Pods = c.Pods[2:]
	c.replace(web)
	c.localhostBecomes(web, nil)
	d.stop(t)
	for _, flow := range flows {
		if _, err := flow.Ask(); err == nil {
			t.Error("a connection outlives the process")
		}
	}
}

// sockets returns the number of open sockets of the daemon.
func (d *daemon) sockets(t *testing.T) (n int) {
	t.Helper()
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if to, _ := os.Readlink(name); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// floodLocalhost asks without a pause until stop is called, which returns how often that
// went well, and the first error.
func (c *cluster) floodLocalhost(s service) (stop func() (int, error)) {
	var clients sync.WaitGroup
	var mu sync.Mutex
	var asked int
	var failed error
	done := make(chan struct{})
	for _, f := range model.Families {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				_, err := c.Node.Ask("tcp", onLocalhost(s, f), 0)
				mu.Lock()
				if asked++; err != nil && failed == nil {
					failed = fmt.Errorf("%s: %w", f, err)
				}
				mu.Unlock()
			}
		})
	}
	return func() (int, error) {
		close(done)
		clients.Wait()
		return asked, failed
	}
}

// 6.20: a port that a process of the node has stays its own, and is taken over as soon as
// it is free. The status says so.
func TestLocalhostConflict(t *testing.T) {
	c := newCluster(t, 1)
	web, other := service{Name: "web", N: 1, Pods: c.Pods}, service{Name: "other", N: 2, Pods: c.Pods}
	process, err := c.Node.Listen("tcp", fmt.Sprintf("[::]:%d", web.NodePort())) // both families
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	c.startLocalhost("primary,localhost", web, other)
	c.localhostBecomes(other, nil)
	for _, f := range model.Families {
		if _, err := c.Node.DialContext(t.Context(), "tcp", onLocalhost(web, f).String()); err != nil {
			t.Fatal(err)
		}
		if _, err := process.Accept(); err != nil {
			t.Error(err)
		}
	}
	c.page("/status", `"LocalhostPort"`, `NodePort 30001 of default/web:tcp: not served on 127.0.0.1: another process listens on it`)
	c.has([]string{"status"}, "NodePorts of TCP on 127.0.0.1, ::1")
	c.page("/metrics", `nftproxy_localhost_ports_unserved{ip_family="IPv6"} 1`, `kubeproxy_nftables_localhost_nodeport_listeners{ip_family="IPv4"} 1`)
	if err := process.Close(); err != nil {
		t.Fatal(err)
	}
	for _, f := range model.Families {
		eventually(t, func() error {
			if got, err := c.Node.Ask("tcp", onLocalhost(web, f), silence); err != nil || got.Name != "pod-0" {
				return fmt.Errorf("%v, %w", got, err)
			}
			return nil
		})
	}
}
