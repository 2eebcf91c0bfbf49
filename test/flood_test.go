package test

import (
	bigendian "encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	// floodSockets of each family send at the same time.
	floodSockets = 1
	floodPort    = 10000 // of the first socket
	// floodBurst is how many flows a socket opens before it waits for the
	// answers. The queues of the kernel hold far more.
	floodBurst = 4
	// floodPause is the time from one burst to the next, unless answers take longer.
	floodPause = 2 * time.Millisecond
	// floodClients is the number of source addresses of each family.
	floodClients = 1 << 12
	// floodMemory is how long connection tracking knows a flow, in seconds: less
	// than until its address and port are used again.
	floodMemory = "1"
)

// floodNetworks are addresses of pods.
var floodNetworks = map[model.Family]netip.Prefix{
	model.IPv4: netip.MustParsePrefix("10.128.128.0/18"),
	model.IPv6: netip.MustParsePrefix("fd00:10:128:8000::/64"),
}

// flood opens UDP flows of both families, four thousand in a second, each with an
// address and port of its own: so there is always a first packet under way when
// rules change. A datagram goes each way. If a flow meets no rule, its datagram is
// routed to no host and is lost.
type flood struct {
	opened, lost atomic.Int64
	answers      sync.Map // by the name of the endpoint: *atomic.Int64
	ended        atomic.Bool
	// patience is how long a burst waits for its answers.
	patience atomic.Int64
	running  sync.WaitGroup
	sockets  []*floodSocket
}

// startFlood floods a service from a pod until the test ends.
func (c *cluster) startFlood(from *netlab.Host, s service) *flood {
	c.t.Helper()
	f := &flood{}
	f.patience.Store(int64(patience))
	for _, family := range model.Families {
		network := floodNetworks[family]
		if err := errors.Join(c.routeFlood(from, network), c.forgetFlows()); err != nil {
			c.t.Fatal(err)
		}
		for i := range floodSockets {
			sock, err := openFloodSocket(from, network, floodPort+i)
			if err != nil {
				c.t.Fatal(err)
			}
			f.sockets = append(f.sockets, sock)
			f.running.Go(func() {
				for begin := time.Now(); !f.ended.Load(); begin = time.Now() {
					answered, err := sock.burst(s.clusterIP(family), time.Duration(f.patience.Load()), f.answered)
					if err != nil {
						c.t.Errorf("flood over %s: %v", family, err)
						return
					}
					f.opened.Add(floodBurst)
					f.lost.Add(floodBurst - int64(answered))
					await.Pace(nil, floodPause-time.Since(begin))
				}
			})
		}
	}
	c.t.Cleanup(func() { f.stop() })
	return f
}

// answered counts an answer.
func (f *flood) answered(name string) {
	n, _ := f.answers.LoadOrStore(name, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// by returns how many answers came from a host.
func (f *flood) by(h *netlab.Host) int64 {
	n, _ := f.answers.LoadOrStore(h.Name, new(atomic.Int64))
	return n.(*atomic.Int64).Load()
}

// stop returns how many flows there were, and how many had no answer.
func (f *flood) stop() (opened, lost int64) {
	f.ended.Store(true)
	f.running.Wait()
	for _, s := range f.sockets {
		_ = s.Close()
	}
	return f.opened.Load(), f.lost.Load()
}

// check stops the flood. No flow may have been lost.
func (f *flood) check(t *testing.T) {
	t.Helper()
	if opened, lost := f.stop(); lost > 0 || opened == 0 {
		t.Errorf("%d of %d flows were lost", lost, opened)
	}
}

// wait waits until so many more flows were opened, as long as there are more.
func (f *flood) wait(t *testing.T, flows int64) {
	t.Helper()
	goal := f.opened.Load() + flows
	for n := f.opened.Load(); n < goal; n = f.opened.Load() {
		eventually(t, func() error {
			if f.opened.Load() == n {
				return fmt.Errorf("%d flows and no more, want %d", n, goal)
			}
			return nil
		})
	}
}

// askDuringFlood is [ask] on a node that soon forgets datagrams: an answer that a busy machine gives later than
// that is lost, and the client repeats its question.
func askDuringFlood(t *testing.T, from *netlab.Host, network string, to netip.AddrPort) (answer netlab.Answer) {
	t.Helper()
	eventually(t, func() (err error) {
		answer, err = from.Ask(network, to, 2*time.Second)
		return err
	})
	return answer
}

// routeFlood makes the addresses of a network those of a host.
func (c *cluster) routeFlood(from *netlab.Host, n netip.Prefix) error {
	network := &net.IPNet{IP: n.Addr().AsSlice(), Mask: net.CIDRMask(n.Bits(), n.Addr().BitLen())}
	route := func(on *netlab.Host, link string, r netlink.Route) error {
		return on.Do(func() error {
			l, err := netlink.LinkByName(link)
			if err != nil {
				return err
			}
			r.Dst, r.LinkIndex = network, l.Attrs().Index
			return netlink.RouteAdd(&r)
		})
	}
	return errors.Join(
		route(from, "lo", netlink.Route{Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}),
		route(c.Node, from.Name, netlink.Route{Gw: from.Address(model.FamilyOf(n.Addr())).AsSlice(), Flags: int(netlink.FLAG_ONLINK)}))
}

// forgetFlows has connection tracking of the node forget UDP flows early.
func (c *cluster) forgetFlows() error {
	return c.Node.Do(func() error {
		for _, name := range []string{"nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"} {
			if err := os.WriteFile("/proc/sys/net/netfilter/"+name, []byte(floodMemory), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// floodSocket sends from, and receives at, all addresses of a network.
type floodSocket struct {
	*net.UDPConn
	clients netip.Prefix
	next    int // client
}

func openFloodSocket(on *netlab.Host, clients netip.Prefix, port int) (*floodSocket, error) {
	level, any, info, bind := unix.IPPROTO_IP, "0.0.0.0", unix.IP_PKTINFO, unix.IP_FREEBIND
	network := "udp4"
	if clients.Addr().Is6() {
		network, level, any, info, bind = "udp6", unix.IPPROTO_IPV6, "::", unix.IPV6_RECVPKTINFO, unix.IPV6_FREEBIND
	}
	p, err := on.ListenPacket(network, netip.AddrPortFrom(netip.MustParseAddr(any), uint16(port)).String())
	if err != nil {
		return nil, err
	}
	s := &floodSocket{UDPConn: p.(*net.UDPConn), clients: clients}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = errors.Join(unix.SetsockoptInt(int(fd), level, info, 1), unix.SetsockoptInt(int(fd), level, bind, 1))
	})
	return s, errors.Join(err, setErr)
}

// burst opens flows from the next addresses, reports the name of each endpoint
// that answered, and returns the number of answers.
func (s *floodSocket) burst(to netip.AddrPort, patience time.Duration, told func(name string)) (answered int, err error) {
	first := s.next
	s.next = (s.next + floodBurst) % floodClients
	for i := range floodBurst {
		if _, _, err := s.WriteMsgUDPAddrPort([]byte("?\n"), s.from(first+i), to); err != nil && !errors.Is(err, unix.EPERM) {
			return 0, fmt.Errorf("send: %w", err)
		}
	}
	if err := s.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	var message, control [128]byte
	var seen [floodBurst]bool
	for answered < floodBurst {
		size, n, _, _, err := s.ReadMsgUDPAddrPort(message[:], control[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return answered, nil
		}
		if err != nil {
			return answered, fmt.Errorf("receive: %w", err)
		}
		client, err := s.client(control[:n])
		if err != nil {
			return answered, err
		}
		if i := client - first; i >= 0 && i < floodBurst && !seen[i] {
			seen[i] = true
			answered++
			name, _, _ := strings.Cut(string(message[:size]), " ")
			told(name)
		}
	}
	return answered, nil
}

// from returns the control message that gives a datagram the address of a client.
func (s *floodSocket) from(client int) []byte {
	if s.clients.Addr().Is6() {
		info := unix.Inet6Pktinfo{Addr: s.clients.Addr().As16()}
		bigendian.BigEndian.PutUint32(info.Addr[12:], uint32(client))
		return unix.PktInfo6(&info)
	}
	info := unix.Inet4Pktinfo{Spec_dst: s.clients.Addr().As4()}
	bigendian.BigEndian.PutUint32(info.Spec_dst[:], s.base()+uint32(client))
	return unix.PktInfo4(&info)
}

// base is the IPv4 address of client 0.
func (s *floodSocket) base() uint32 {
	first := s.clients.Addr().As4()
	return bigendian.BigEndian.Uint32(first[:])
}

// client is the inverse of from, for the address that a datagram came to.
func (s *floodSocket) client(control []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		switch {
		case m.Header.Type == unix.IP_PKTINFO && m.Header.Level == unix.IPPROTO_IP:
			return int(bigendian.BigEndian.Uint32(m.Data[8:]) - s.base()), nil
		case m.Header.Type == unix.IPV6_PKTINFO && m.Header.Level == unix.IPPROTO_IPV6:
			return int(bigendian.BigEndian.Uint32(m.Data[12:])), nil
		}
	}
	return 0, errors.New("a datagram does not say where it came to")
}
