package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	// servers are four that a service has at most, and a spare one.
	servers = 5
	spare   = servers - 1
	// patience is longer than anything takes here.
	patience = 2 * time.Minute
)

// virtual are the addresses of services, which are local to the balancer: a proxy
// listens on them.
var virtual = netip.MustParsePrefix("10.96.0.0/16")

// room is a client, a balancer and its servers.
type room struct {
	*netlab.Lab
	dir     string // for files of the balancer
	servers []*child
	running []*child
	acted   time.Time // the last time that something was started or changed
}

// child is a process of a room.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
}

func newRoom(dir string) (r *room, err error) {
	r = &room{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.dir, err = os.MkdirTemp(dir, "room-"); err != nil {
		return r, err
	}
	if r.Lab, err = netlab.New(servers); err != nil {
		return r, err
	}
	if err := r.Node.Do(routeVirtual); err != nil {
		return r, err
	}
	// More than one address has ports for, if connections last for a minute.
	if err := sysctl(r.Client, "net/ipv4/ip_local_port_range", "1024 65535"); err != nil {
		return r, err
	}
	for i := range r.Pods {
		s, err := r.serve(i)
		if err != nil {
			return r, err
		}
		r.servers = append(r.servers, s)
	}
	return r, nil
}

// routeVirtual makes the addresses of services local.
func routeVirtual() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	dst := &net.IPNet{IP: virtual.Addr().AsSlice(), Mask: net.CIDRMask(virtual.Bits(), 32)}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Type: unix.RTN_LOCAL,
		Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST})
}

func sysctl(h *netlab.Host, name, value string) error {
	return h.Do(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) })
}

// serve starts server i.
func (r *room) serve(i int) (*child, error) {
	s, err := r.spawn(r.Pods[i], "serve", "-on", r.Pods[i].IPv4.String(), "-id", strconv.Itoa(i))
	if err != nil {
		return nil, err
	}
	return s, s.expect("serving")
}

// endpoints returns what n of the servers serve at a port.
func (r *room) endpoints(n int, port uint16) []netip.AddrPort {
	var all []netip.AddrPort
	for _, p := range r.Pods[:n] {
		all = append(all, netip.AddrPortFrom(p.IPv4, port))
	}
	return all
}

// spawn starts a process of this program on a host.
func (r *room) spawn(on *netlab.Host, args ...string) (*child, error) {
	return r.start(on, exec.Command("/proc/self/exe", args...))
}

// start starts a process on a host. It ends with the room.
func (r *room) start(on *netlab.Host, cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.lines = in, bufio.NewReader(out)
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	if err := on.Start(cmd); err != nil {
		return nil, err
	}
	r.running = append(r.running, c)
	return c, nil
}

// daemon starts a program whose output goes to a file, and returns it.
func (r *room) daemon(on *netlab.Host, name string, args ...string) (*child, error) {
	log, err := os.Create(r.file(filepath.Base(name) + ".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := &child{cmd: exec.Command(name, args...)}
	c.cmd.Stdout, c.cmd.Stderr = log, log
	r.acted = time.Now()
	if err := on.Start(c.cmd); err != nil {
		return nil, err
	}
	r.running = append(r.running, c)
	return c, nil
}

// run runs a program to its end.
func (r *room) run(on *netlab.Host, in string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(in)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	r.acted = time.Now()
	if err := on.Run(cmd); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out.String())
	}
	return nil
}

func (r *room) file(name string) string { return r.dir + "/" + name }

// write writes a file as a careful program would: by a rename.
func (r *room) write(name, content string) error {
	path := r.file(name)
	if err := os.WriteFile(path+".new", []byte(content), 0o644); err != nil {
		return err
	}
	r.acted = time.Now()
	return os.Rename(path+".new", path)
}

func (r *room) close() error {
	for _, c := range r.running {
		c.kill()
	}
	if r.Lab == nil {
		return nil
	}
	return r.Lab.Close()
}

// expect reads a line.
func (c *child) expect(want string) error {
	line, err := c.lines.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != want {
		return fmt.Errorf("%s: printed %q, %w", c.cmd, line, err)
	}
	return nil
}

// result reads a value.
func (c *child) result(into any) error {
	line, err := c.lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s: %w", c.cmd, err)
	}
	return json.Unmarshal(line, into)
}

// end ends the input of a process and waits for its end.
func (c *child) end() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait() // the error says that it was killed
	}
}

// eventually waits until f returns nil.
func eventually(f func() error) error {
	deadline := time.Now().Add(patience)
	err := f()
	for ; err != nil && time.Now().Before(deadline); err = f() {
		time.Sleep(2 * time.Millisecond) // between two attempts
	}
	return err
}
