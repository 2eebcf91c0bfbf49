package relay

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/fair"
	"github.com/nftproxy/nftproxy/internal/model"
)

// shares are the connections of a frontend, or all, which clients share.
type shares struct {
	*fair.Limit[*connection]
	exceeded time.Time // when one was closed for a newer one; zero: never
}

func newShares(connections int) *shares {
	return &shares{Limit: fair.NewLimit(connections, (*connection).idle)}
}

// add adds a connection, and returns one that has to end for it, or nil.
func (l *shares) add(c *connection) *connection {
	victim, exceeded := l.Add(c, c.from)
	if exceeded {
		l.exceeded = time.Now()
	}
	return victim
}

// fullTime is for how long a limit counts as reached after the last connection that exceeded it.
const fullTime = time.Minute

// describe says that a limit is reached; empty: it is not.
func (l *shares) describe(of string, now time.Time) string {
	if !l.Full() && (l.exceeded.IsZero() || now.Sub(l.exceeded) > fullTime) {
		return ""
	}
	from, n := l.Most()
	client := from.String()
	if from.IsSingleIP() {
		client = from.Addr().String()
	}
	return fmt.Sprintf("the limit of %d relayed connections%s is reached: a new one ends the one that is idle for the longest time, of the client with the most, now %s with %d",
		l.Max(), of, client, n)
}

// Full is a limit that is reached.
type Full struct {
	Service model.ServiceName // that relays the connections; the zero value: all do
	Text    string
}

// Full returns the limits that are reached.
func (s *Server) Full(now time.Time) (out []Full) {
	texts := make(map[model.Frontend]string)
	s.mu.Lock()
	if text := s.all.describe("", now); text != "" {
		out = append(out, Full{Text: text + "; nftproxy may need a higher limit of open files (LimitNOFILE)"})
	}
	for at, f := range s.frontends {
		if text := f.shares.describe(" through "+netip.AddrPortFrom(at.Address, at.Port).String(), now); text != "" {
			texts[at] = text
		}
	}
	s.mu.Unlock()
	for at, text := range texts {
		if r, ok := s.Relay(at); ok {
			out = append(out, Full{r.Service, text + "; limits: {connectionsPerClient} bounds what a client may have"})
		}
	}
	return out
}

// FullOf returns the limits of connections to a Service that are reached, in words.
func (s *Server) FullOf(name model.ServiceName, now time.Time) (out []string) {
	for _, f := range s.Full(now) {
		if f.Service == name || f.Service == (model.ServiceName{}) {
			out = append(out, f.Text)
		}
	}
	return out
}

// idle returns for how long neither side has sent data.
func (c *connection) idle() time.Duration {
	d := sinceData(c.pair.Client)
	if c.pair.Server != nil {
		d = min(d, sinceData(c.pair.Server))
	}
	return d
}

// sinceData returns the time since the kernel has received data, or else since the connection was
// made. Of one that has ended, it is the longest time there is.
func sinceData(c *net.TCPConn) time.Duration {
	since := time.Duration(math.MaxInt64)
	raw, err := c.SyscallConn()
	if err != nil {
		return since
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // it has ended
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			since = time.Duration(info.Last_data_recv) * time.Millisecond
		}
	})
	return since
}

// leastPause is the shortest time after which the kernel is asked again: its clock has steps.
const leastPause = 10 * time.Millisecond

// watch ends a connection when it has had no data for so long.
func (s *Server) watch(c *connection, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.ended {
		c.timer = time.AfterFunc(timeout, func() { s.expire(c, timeout) })
	}
}

func (s *Server) expire(c *connection, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended {
		return
	}
	if left := timeout - c.idle(); left > 0 {
		c.timer.Reset(max(left, leastPause))
		return
	}
	s.end(c, IdleTooLong)
}

// end resets a connection. The caller holds the lock.
func (s *Server) end(c *connection, why Closure) {
	s.counts.closed[why].Add(1)
	s.remove(c)
	c.pair.Reset()
}

// remove forgets a connection. The caller holds the lock.
func (s *Server) remove(c *connection) {
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
	}
	delete(c.of.connections, c)
	c.of.shares.Remove(c)
	s.all.Remove(c)
}
