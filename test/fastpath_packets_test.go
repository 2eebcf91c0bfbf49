//go:build guest

package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// shaped is a connection on the fast path whose packets a test gives a form.
type shaped struct {
	net.Conn
	t      *testing.T
	c      *cluster
	family model.Family
	lines  *bufio.Reader
}

// dialFast opens a connection to a Service, and waits until it takes the fast path.
func (c *cluster) dialFast(t *testing.T, network string, to netip.AddrPort) *shaped {
	t.Helper()
	conn, err := c.Client.DialContext(context.Background(), network, to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &shaped{conn, t, c, model.FamilyOf(to.Addr()), bufio.NewReader(conn)}
	s.isFast()
	return s
}

// isFast waits until no packet of a question and its answer passes the rules.
func (s *shaped) isFast() {
	s.t.Helper()
	netlab.Eventually(s.t, startTime, func() error {
		n, err := s.ask(10)
		if err == nil && n > 0 {
			err = fmt.Errorf("%s: %d packets passed the hook forward", s.family, n)
		}
		return err
	})
}

// ask sends a question of a size, and returns how many packets passed the hook forward until the
// answer or an error came.
func (s *shaped) ask(size int) (passed int, err error) {
	s.t.Helper()
	before := s.c.packets(s.t)
	if err := s.SetDeadline(time.Now().Add(answerTime)); err != nil {
		s.t.Fatal(err)
	}
	question := make([]byte, size)
	question[size-1] = '\n'
	if _, err = s.Write(question); err == nil {
		_, err = s.lines.ReadString('\n')
	}
	return s.c.packets(s.t) - before, err
}

// slow asks and wants an answer, after packets that passed the rules.
func (s *shaped) slow(what string, size int) {
	s.t.Helper()
	if n, err := s.ask(size); err != nil || n == 0 {
		s.t.Errorf("%s, %s: %d packets passed the hook forward, %v, want an answer, and packets there", what, s.family, n, err)
	}
}

// fails asks and wants an error.
func (s *shaped) fails(what string, size int, want error) (passed int) {
	s.t.Helper()
	passed, err := s.ask(size)
	if !errors.Is(err, want) {
		s.t.Errorf("%s, %s: got %v, want %v", what, s.family, err, want)
	}
	return passed
}

// level returns the level of options of a family.
func (s *shaped) level() int {
	if s.family == model.IPv6 {
		return unix.IPPROTO_IPV6
	}
	return unix.IPPROTO_IP
}

// set sets an option of the socket, which has a name for each family.
func (s *shaped) set(option4, option6, value int) {
	s.t.Helper()
	s.control(func(fd int) error {
		if s.family == model.IPv6 {
			return unix.SetsockoptInt(fd, s.level(), option6, value)
		}
		return unix.SetsockoptInt(fd, s.level(), option4, value)
	})
}

func (s *shaped) control(f func(fd int) error) {
	s.t.Helper()
	raw, err := s.Conn.(syscall.Conn).SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { err = f(int(fd)) }), err)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// setMTU changes the MTU of a device of the node.
func (c *cluster) setMTU(t *testing.T, device string, mtu int) {
	t.Helper()
	err := c.Node.Do(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(l, mtu)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// MTUs: narrow on the way out, wide on the side of the client.
const narrow, wide = 1400, 1450

// 9.30: packets that need more than to be passed on go the usual way: fragments, those larger than
// the MTU of the way out, with options, at the end of their TTL, ICMP errors, ends of connections.
func TestFastPathPackets(t *testing.T) {
	c := fastCluster(t, 2, "all")
	c.setMTU(t, c.Pods[1].Name, narrow)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	far, bulky := service{Name: "far", N: 2, Pods: c.Pods[1:]}, service{Name: "bulky", N: 3, Pods: c.Pods[1:]}
	c.write(web, far, bulky)
	c.startServing(web)
	for _, family := range model.Families {
		s := c.dialFast(t, "udp", web.clusterIP(family))
		s.slow("a fragmented question", 4000)
		s.isFast()
		s.options()
		s.isFast()
		s.hasNoHops()
		c.dialFast(t, "udp", far.clusterIP(family)).tooLarge()
		c.dialFast(t, "tcp", bulky.clusterIP(family)).isBulky()
	}
	c.isClosed(t, web)
}

// tooLarge sends datagrams that are larger than the MTU of the way out: their sender gets an error,
// or the node fragments them.
func (s *shaped) tooLarge() {
	s.t.Helper()
	if s.family == model.IPv4 {
		s.set(unix.IP_MTU_DISCOVER, 0, unix.IP_PMTUDISC_DONT)
		s.slow("a question that the node has to fragment", wide)
		s.isFast()
	}
	s.set(unix.IP_MTU_DISCOVER, unix.IPV6_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	s.fails("a question that must not be fragmented", wide, unix.EMSGSIZE)
	s.isFast()
}

// isBulky sends more by TCP than fits in a packet: the client learns the MTU of the way, and its
// packets take the fast path.
func (s *shaped) isBulky() {
	s.t.Helper()
	for range 2 {
		if _, err := s.ask(50_000); err != nil {
			s.t.Errorf("%s: a long question by TCP: %v", s.family, err)
		}
	}
	s.isFast()
}

// options sends packets with an option that means nothing.
func (s *shaped) options() {
	s.t.Helper()
	option, value := unix.IP_OPTIONS, string([]byte{1, 1, 1, 1})
	if s.family == model.IPv6 {
		option, value = unix.IPV6_DSTOPTS, string([]byte{0, 0, 1, 4, 0, 0, 0, 0})
	}
	s.control(func(fd int) error { return unix.SetsockoptString(fd, s.level(), option, value) })
	s.slow("a question with options", 10)
	s.control(func(fd int) error { return unix.SetsockoptString(fd, s.level(), option, "") })
}

// hasNoHops sends a packet that ends at the node, which says so.
func (s *shaped) hasNoHops() {
	s.t.Helper()
	s.set(unix.IP_RECVERR, unix.IPV6_RECVERR, 1)
	s.set(unix.IP_TTL, unix.IPV6_UNICAST_HOPS, 1)
	s.fails("a question with one hop", 10, unix.EHOSTUNREACH)
}

// isClosed ends a server and a connection: the error and the last segments pass the rules.
func (c *cluster) isClosed(t *testing.T, web service) {
	t.Helper()
	const port = 8081 // of a server that ends
	other := service{Name: "other", N: 2, Pods: web.Pods, Target: port}
	server, err := c.Pods[0].Echo(port)
	if err != nil {
		t.Fatal(err)
	}
	c.write(web, other)
	eventually(t, func() error {
		_, err := c.Client.Ask("udp", other.clusterIP(model.IPv6), answerTime)
		return err
	})
	var all []*shaped
	for _, family := range model.Families {
		all = append(all, c.dialFast(t, "udp", other.clusterIP(family)), c.dialFast(t, "tcp", other.clusterIP(family)))
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	for i, s := range all {
		if i%2 == 0 {
			if n := s.fails("the server has ended", 10, unix.ECONNREFUSED); n == 0 {
				t.Errorf("%s: the ICMP error did not pass the hook forward", s.family)
			}
			continue
		}
		before := c.packets(t)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if c.packets(t) == before {
				return fmt.Errorf("%s: the end of the connection did not pass the hook forward", s.family)
			}
			return nil
		})
	}
}
