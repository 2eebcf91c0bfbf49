package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// firstPort is where the source ports of flows start: below the ephemeral
// ports of the kernel.
const firstPort = 20000

// Answer is the answer of an echo server.
type Answer struct {
	Name   string     // of the server
	Port   uint16     // of the server
	Client netip.Addr // as the server sees it
}

// Flow is a connection or association, or a connected datagram socket, to an echo server.
type Flow struct {
	conn  conn
	lines *bufio.Reader
	wait  time.Duration
}

// conn is a socket: the library has no kind of it for SCTP.
type conn interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
}

// Open dials network tcp or udp from a source port that no flow of this host
// had before, so that the kernel takes no flow for the continuation of one
// that has ended. wait is how long dialling and each answer may take; 0 stands
// for a generous time.
func (h *Host) Open(network string, to netip.AddrPort, wait time.Duration) (*Flow, error) {
	if wait == 0 {
		wait = timeout
	}
	c, err := h.dialFrom(uint16(h.port.Add(1)), network, to, wait)
	// The kernel does not free the port of a socket that has been closed while a process
	// that is being forked has a copy of it. Another host may be an alias of this one.
	for deadline := time.Now().Add(timeout); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(deadline); {
		if h.at {
			await.Pace(nil, time.Millisecond) // between two attempts
			c, err = h.dialFrom(uint16(h.port.Load()), network, to, wait)
		} else {
			c, err = h.dialFrom(uint16(h.port.Add(1)), network, to, wait)
		}
	}
	if err != nil {
		return nil, err
	}
	return &Flow{c, bufio.NewReader(c), wait}, nil
}

func (h *Host) dialFrom(port uint16, network string, to netip.AddrPort, wait time.Duration) (net.Conn, error) {
	from := netip.AddrPortFrom(netip.Addr{}, port)
	if h.alias {
		from = netip.AddrPortFrom(h.Address(model.FamilyOf(to.Addr())), port)
	}
	if network == "udp" { // without a time limit: nothing is sent, and a busy machine may take seconds for the system calls
		return h.dial(context.Background(), net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(from)}, network, to.String())
	}
	// The time begins when there is a socket, and then the dialer sends the first packet in any case: a timeout
	// of its own can pass before, on a busy machine.
	limit := timeLimit{context.Background(), make(chan struct{})}
	pass := sync.OnceFunc(func() { close(limit.passed) })
	copied := -1 // a second descriptor of the socket: the dialer closes its own when the connection fails
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from), Control: func(_, _ string, c syscall.RawConn) error {
		time.AfterFunc(wait, pass)
		var err error
		return errors.Join(c.Control(func(fd uintptr) { copied, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }), err)
	}}
	c, err := h.dial(limit, d, network, to.String())
	if copied < 0 {
		return c, err
	}
	if err != nil {
		if info, asked := unix.GetsockoptTCPInfo(copied, unix.IPPROTO_TCP, unix.TCP_INFO); asked != nil {
			err = errors.Join(err, asked)
		} else if info.Total_retrans > 0 {
			err = sentAgain{err, info.Total_retrans}
		}
	}
	if closed := unix.Close(copied); closed != nil {
		err = errors.Join(err, closed)
	}
	return c, err
}

// sentAgain is the error of a connection that has not been answered at once.
type sentAgain struct {
	error
	times uint32
}

func (e sentAgain) Unwrap() error { return e.error }

// SentAgain returns how often the first packet of a connection has been sent again, from the error of the
// connection. The kernel does it when there is no answer for a second.
func SentAgain(err error) uint32 {
	var e sentAgain
	errors.As(err, &e)
	return e.times
}

// timeLimit is a context that ends as a deadline does.
type timeLimit struct {
	context.Context
	passed chan struct{}
}

func (l timeLimit) Done() <-chan struct{} { return l.passed }

func (l timeLimit) Err() error {
	select {
	case <-l.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// At returns the host as one whose next flow is opened from a port.
func (h *Host) At(port uint16) *Host {
	at := &Host{Namespace: h.Namespace, Name: h.Name, NodeName: h.NodeName, IPv4: h.IPv4, IPv6: h.IPv6, alias: h.alias, at: true}
	at.port.Store(uint32(port) - 1)
	return at
}

// Ask sends a line in any case, and waits for the answer.
func (f *Flow) Ask() (Answer, error) {
	if err := send(f.conn, []byte("?\n")); err != nil {
		return Answer{}, err
	}
	return f.Hear()
}

// Hear waits for an answer, also one without a question.
func (f *Flow) Hear() (Answer, error) {
	if err := f.conn.SetReadDeadline(time.Now().Add(f.wait)); err != nil {
		return Answer{}, err
	}
	line, err := f.lines.ReadString('\n')
	if err != nil {
		return Answer{}, err
	}
	return parseAnswer(line)
}

// Within changes how long each answer may take; 0 stands for a generous time.
func (f *Flow) Within(wait time.Duration) {
	if wait == 0 {
		wait = timeout
	}
	f.wait = wait
}

// send writes a message. If the host itself refuses or drops a datagram, the
// write fails with EPERM; the next read returns whether it was refused.
func send(c io.Writer, message []byte) error {
	if _, err := c.Write(message); err != nil && !errors.Is(err, syscall.EPERM) {
		return err
	}
	return nil
}

// Client returns the address and port of the client, of TCP or UDP.
func (f *Flow) Client() netip.AddrPort {
	return netip.MustParseAddrPort(f.conn.(net.Conn).LocalAddr().String())
}

// Close ends the flow.
func (f *Flow) Close() error { return f.conn.Close() }

// Ask opens a flow, asks once and closes it.
func (h *Host) Ask(network string, to netip.AddrPort, wait time.Duration) (Answer, error) {
	f, err := h.Open(network, to, wait)
	if err != nil {
		return Answer{}, err
	}
	defer f.Close()
	return f.Ask()
}

func parseAnswer(line string) (Answer, error) {
	var a Answer
	var client string
	if _, err := fmt.Sscan(line, &a.Name, &a.Port, &client); err != nil {
		return Answer{}, fmt.Errorf("answer %q is not a name, a port and an address: %w", line, err)
	}
	var err error
	if a.Client, err = netip.ParseAddr(client); err != nil {
		return Answer{}, fmt.Errorf("read answer %q: %w", line, err)
	}
	return a, nil
}
