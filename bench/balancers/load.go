package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Kinds of load.
const (
	connectLoad = "connect" // each request over a connection of its own
	requestLoad = "request" // requests over connections that stay open
	bulkLoad    = "bulk"    // as much as the servers can send
)

// loadThreads is how many threads of a process are clients.
const loadThreads = 2

// outcome is what a load found in the time that was measured.
type outcome struct {
	Requests int
	Bytes    int64
	Failed   int
	Seconds  float64
	P50, P99 float64 // seconds
	Servers  []int   // requests by number of the server
}

// loadCommand is clients. It prints a line when the measured time begins, and the
// outcome when it ends, and stays until its standard input ends, so that its
// processor time can be read.
func loadCommand(args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	kind := flags.String("kind", connectLoad, "kind of load")
	to := flags.String("to", "", "addresses, separated by commas, which take turns")
	clients := flags.Int("clients", 64, "connections at the same time")
	warm := flags.Duration("warm", 500*time.Millisecond, "time before the measured time")
	span := flags.Duration("span", 2*time.Second, "measured time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var targets []netip.AddrPort
	for a := range strings.SplitSeq(*to, ",") {
		target, err := netip.ParseAddrPort(a)
		if err != nil {
			return err
		}
		targets = append(targets, target)
	}
	debug.SetGCPercent(-1)
	begin := time.Now().Add(*warm)
	time.AfterFunc(*warm, func() { fmt.Println("begin") })
	run := runClients
	if *kind == bulkLoad {
		run = runBulk
	}
	o, err := run(targets, *kind, *clients, begin, begin.Add(*span))
	if err != nil {
		return err
	}
	o.Seconds = span.Seconds()
	if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func runBulk(targets []netip.AddrPort, _ string, clients int, begin, end time.Time) (*outcome, error) {
	var bytes atomic.Int64
	errs := make([]error, clients)
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			c, err := net.Dial("tcp", targets[i%len(targets)].String())
			if err != nil {
				errs[i] = err
				return
			}
			defer c.Close()
			buf := make([]byte, 256<<10)
			for now := time.Now(); now.Before(end); now = time.Now() {
				n, err := c.Read(buf)
				if err != nil {
					errs[i] = err
					return
				}
				if now.After(begin) {
					bytes.Add(int64(n))
				}
			}
		})
	}
	running.Wait()
	return &outcome{Bytes: bytes.Load()}, errors.Join(errs...)
}

// runClients runs clients that each do one thing after the other.
func runClients(targets []netip.AddrPort, kind string, clients int, begin, end time.Time) (*outcome, error) {
	threads, errs := make([]thread, loadThreads), make([]error, loadThreads)
	var running sync.WaitGroup
	for i := range threads {
		running.Go(func() {
			runtime.LockOSThread()
			t := &threads[i]
			t.targets, t.next, t.keep, t.begin, t.end = targets, i, kind == requestLoad, begin, end
			errs[i] = t.run(clients / loadThreads)
		})
	}
	running.Wait()
	o := &outcome{Servers: make([]int, maxServers)}
	var took []time.Duration
	for i := range threads {
		took = append(took, threads[i].took...)
		o.Failed += threads[i].failed
		for s, n := range threads[i].servers {
			o.Servers[s] += n
		}
	}
	if o.Requests = len(took); o.Requests > 0 {
		slices.Sort(took)
		o.P50, o.P99 = took[len(took)/2].Seconds(), took[len(took)*99/100].Seconds()
	}
	return o, errors.Join(errs...)
}

// thread is clients that one thread serves.
type thread struct {
	targets    []netip.AddrPort
	next       int  // of the targets
	keep       bool // connections
	begin, end time.Time

	poll    int
	clients map[int32]*client
	took    []time.Duration
	failed  int
	servers [maxServers]int
}

// maxServers is more than there are.
const maxServers = 8

type client struct {
	asked     time.Time // the connection or, where that is kept, the request
	connected bool
}

func (t *thread) run(clients int) (err error) {
	if t.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	t.clients = make(map[int32]*client, clients)
	t.took = make([]time.Duration, 0, 1<<20)
	for range clients {
		if err := t.open(&client{}); err != nil {
			return err
		}
	}
	events := make([]unix.EpollEvent, clients)
	for time.Now().Before(t.end) {
		n, err := unix.EpollWait(t.poll, events, 10)
		if err != nil && err != unix.EINTR {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			if err := t.handle(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// open begins a connection. It ends with a reset, so that neither side keeps the
// ports.
func (t *thread) open(c *client) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	to := t.targets[t.next%len(t.targets)]
	t.next++
	c.asked, c.connected = time.Now(), false
	t.clients[int32(fd)] = c
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	if err != nil && err != unix.EINPROGRESS {
		return fmt.Errorf("connect to %s: %w", to, err)
	}
	return errors.Join(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.EpollCtl(t.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET&0xffffffff, Fd: int32(fd)}))
}

// request is what clients send.
var request [message]byte

// handle goes on with a client after an event.
func (t *thread) handle(e unix.EpollEvent) error {
	c, fd := t.clients[e.Fd], int(e.Fd)
	if c == nil {
		return nil
	}
	if !c.connected {
		if e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			return t.again(fd, c, false)
		}
		c.connected = true
		if _, err := unix.Write(fd, request[:]); err != nil {
			return t.again(fd, c, false)
		}
		return nil
	}
	if e.Events&(unix.EPOLLIN|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		return nil
	}
	var buf [message]byte
	n, err := unix.Read(fd, buf[:])
	if err == unix.EAGAIN {
		return nil
	}
	if n < 1 || err != nil {
		return t.again(fd, c, false)
	}
	t.servers[buf[0]%maxServers]++
	if !t.keep {
		return t.again(fd, c, true)
	}
	t.count(c)
	c.asked = time.Now()
	if _, err := unix.Write(fd, request[:]); err != nil {
		return t.again(fd, c, false)
	}
	return nil
}

func (t *thread) count(c *client) {
	if now := time.Now(); c.asked.After(t.begin) && now.Before(t.end) {
		t.took = append(t.took, now.Sub(c.asked))
	}
}

// again ends a connection and begins the next one.
func (t *thread) again(fd int, c *client, answered bool) error {
	if answered {
		t.count(c)
	} else if c.asked.After(t.begin) {
		t.failed++
	}
	delete(t.clients, int32(fd))
	return errors.Join(unix.Close(fd), t.open(c))
}
