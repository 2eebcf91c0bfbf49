package test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// forgedNetworks are addresses of pods, more than an affinity map has room for.
var forgedNetworks = map[model.Family]netip.Prefix{
	model.IPv4: netip.MustParsePrefix("10.192.0.0/10"),
	model.IPv6: netip.MustParsePrefix("fd00:10:128:8000::/64"),
}

// forgedCIDR are the addresses of all pods, with those of the forged clients.
var forgedCIDR = []string{"--cluster-cidr", "10.128.0.0/9," + netlab.ClusterCIDRv6.String()}

// forgedAtOnce is how many datagrams of a forger are under way: those of two forgers fit
// into the receive buffer of one pod, which may not run for a while.
const forgedAtOnce = 100

// forger sends datagrams to a service from forged addresses, and records which endpoint
// answered which client. It waits for no answer unless forgedAtOnce are missing.
type forger struct {
	t      *testing.T
	socket *floodSocket
	to     netip.AddrPort
	sent   atomic.Int64
	got    atomic.Int64 // answers
	lost   int64        // datagrams that were given up; of the sender
	// answered has the number of the pod that answered each client first, plus 1.
	answered  []atomic.Int32
	endpoints []forgedEndpoint // by number
	running   sync.WaitGroup
	ended     atomic.Bool
}

// forgedEndpoint is what a forger knows of a pod.
type forgedEndpoint struct {
	answers atomic.Int64
	last    atomic.Int64 // when the last answer came, in nanoseconds of Unix time
}

// newForger sends from a port of a pod to a service, on behalf of so many clients.
func (c *cluster) newForger(from *netlab.Host, to netip.AddrPort, port, clients int) *forger {
	c.t.Helper()
	s, err := openFloodSocket(from, forgedNetworks[model.FamilyOf(to.Addr())], port)
	if err != nil {
		c.t.Fatal(err)
	}
	f := &forger{t: c.t, socket: s, to: to, answered: make([]atomic.Int32, clients), endpoints: make([]forgedEndpoint, len(c.Pods))}
	if err := largeBuffer(s.UDPConn); err != nil {
		c.t.Fatal(err)
	}
	var receiving sync.WaitGroup
	receiving.Go(f.receive)
	c.t.Cleanup(func() {
		f.stop()
		s.Close()
		receiving.Wait()
	})
	return f
}

// largeBuffer makes room for the answers of a second.
func largeBuffer(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) { setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20) })
	return errors.Join(err, setErr)
}

// receive records answers until the socket is closed.
func (f *forger) receive() {
	var message, control [128]byte
	for {
		size, n, _, _, err := f.socket.ReadMsgUDPAddrPort(message[:], control[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			f.t.Errorf("receive: %v", err)
			return
		}
		var pod int
		client, err := f.socket.client(control[:n])
		if _, scanErr := fmt.Sscanf(string(message[:size]), "pod-%d", &pod); err != nil || scanErr != nil {
			f.t.Errorf("answer %q: %v", message[:size], errors.Join(err, scanErr))
			return
		}
		f.answered[client].CompareAndSwap(0, int32(pod)+1)
		f.endpoints[pod].last.Store(time.Now().UnixNano())
		f.endpoints[pod].answers.Add(1)
		f.got.Add(1)
	}
}

// send has clients send a datagram each, so many in a second. A rate of 0 is as fast
// as possible.
func (f *forger) send(clients []int, rate int) {
	begin := time.Now()
	for i, client := range clients {
		for rate > 0 && float64(i) > float64(rate)*time.Since(begin).Seconds() {
			await.Pace(nil, time.Millisecond) // it is ahead of its pace
		}
		f.keepPace()
		if f.ended.Load() {
			return
		}
		_, _, err := f.socket.WriteMsgUDPAddrPort([]byte("?\n"), f.socket.from(client), f.to)
		if err != nil && !errors.Is(err, unix.EPERM) {
			f.t.Errorf("send: %v", err)
			return
		}
		f.sent.Add(1)
	}
}

// keepPace waits until fewer than forgedAtOnce datagrams are under way. If no answers
// come, the rules have dropped them.
func (f *forger) keepPace() {
	for got, last := f.got.Load(), time.Now(); f.sent.Load()-f.lost-got >= forgedAtOnce && !f.ended.Load(); {
		if n := f.got.Load(); n > got {
			got, last = n, time.Now()
			continue
		}
		if time.Since(last) > silence {
			f.lost = f.sent.Load() - got
			return
		}
		await.Pace(nil, time.Millisecond) // between two attempts
	}
}

// flood sends in the background until the forger is stopped, from one client after
// the other.
func (f *forger) flood(clients []int, rate int) {
	f.running.Go(func() {
		for !f.ended.Load() {
			f.send(clients, rate)
		}
	})
}

// stop ends the sending.
func (f *forger) stop() {
	f.ended.Store(true)
	f.running.Wait()
}

// visit has clients send a datagram each, and waits until all have an answer or none
// has come for a time.
func (f *forger) visit(clients []int, rate int, wait time.Duration) {
	f.t.Helper()
	f.send(clients, rate)
	for got, last := -1, time.Now(); got < len(clients) && time.Since(last) < wait; {
		if n := f.count(clients); n > got {
			got, last = n, time.Now()
		}
		await.Pace(nil, time.Millisecond) // between two attempts
	}
}

// count returns how many of some clients have an answer.
func (f *forger) count(clients []int) (n int) {
	for _, c := range clients {
		if f.answered[c].Load() > 0 {
			n++
		}
	}
	return n
}

// of returns the clients, of some, that a pod answered.
func (f *forger) of(clients []int, pod *netlab.Host) (all []int) {
	for _, c := range clients {
		if f.by(c) == pod.Name {
			all = append(all, c)
		}
	}
	return all
}

// by returns the name of the pod that answered a client; empty: none.
func (f *forger) by(client int) string {
	if n := f.answered[client].Load(); n > 0 {
		return fmt.Sprintf("pod-%d", n-1)
	}
	return ""
}

// endpoint returns what is known of a pod.
func (f *forger) endpoint(pod *netlab.Host) *forgedEndpoint {
	var n int
	if _, err := fmt.Sscanf(pod.Name, "pod-%d", &n); err != nil {
		f.t.Fatal(err)
	}
	return &f.endpoints[n]
}

// more waits until so many more clients have sent.
func (f *forger) more(clients int64) {
	f.t.Helper()
	goal := f.sent.Load() + clients
	eventually(f.t, func() error {
		if n := f.sent.Load(); n < goal {
			return fmt.Errorf("%d clients have sent, want %d", n, goal)
		}
		return nil
	})
}

// hear waits until so many more answers have come.
func (f *forger) hear(answers int64) {
	f.t.Helper()
	goal := f.got.Load() + answers
	eventually(f.t, func() error {
		if n := f.got.Load(); n < goal {
			return fmt.Errorf("%d answers have come, want %d", n, goal)
		}
		return nil
	})
}

// clientsFrom returns the numbers of n clients from first on.
func clientsFrom(first, n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = first + i
	}
	return all
}
