package tcpproxy

import (
	"math"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/fair"
	"github.com/nftproxy/nftproxy/internal/model"
)

// shares are the connections of a frontend, or all, which clients share.
type shares struct {
	*fair.Limit[*connection]
	exceeded time.Time // when one was closed for a newer one; zero: never
}

func newShares(connections int) *shares {
	return &shares{Limit: fair.NewLimit[*connection](connections)}
}

// add adds a connection, and returns one that has to end for it, or nil.
func (l *shares) add(c *connection) *connection {
	victim, exceeded := l.Add(c, c.from)
	if exceeded {
		l.exceeded = time.Now()
	}
	return victim
}

// Full is a limit that is reached.
type Full struct {
	At          model.Frontend // the zero value: all
	Connections int            // that there may be
	Client      netip.Prefix   // with the most
	OfClient    int
}

// fullTime is for how long a limit counts as reached after the last connection that exceeded it.
const fullTime = time.Minute

// Full returns the limits that are reached, first that of all frontends.
func (p *Proxy) Full(now time.Time) (out []Full) {
	p.mu.Lock()
	defer p.mu.Unlock()
	note := func(at model.Frontend, l *shares) {
		if l.Full() || !l.exceeded.IsZero() && now.Sub(l.exceeded) <= fullTime {
			from, n := l.Most()
			out = append(out, Full{at, l.Max(), from, n})
		}
	}
	note(model.Frontend{}, p.all)
	for at, f := range p.frontends {
		note(at, f.shares)
	}
	return out
}

// IdleFor implements [fair.Idler]: how long neither side has sent data.
func (c *connection) IdleFor() time.Duration {
	d := sinceData(c.pair.Client)
	if c.pair.Server != nil {
		d = min(d, sinceData(c.pair.Server))
	}
	return d
}

// sinceData returns the time since the kernel has received data, or else since the connection was
// made. Of one that has ended, it is the longest time there is.
func sinceData(c *net.TCPConn) time.Duration {
	info, err := descriptors.Use(c, func(fd int) (*unix.TCPInfo, error) {
		return unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err != nil {
		return math.MaxInt64
	}
	return time.Duration(info.Last_data_recv) * time.Millisecond
}

// leastPause is the shortest time after which the kernel is asked again: its clock has steps.
const leastPause = 10 * time.Millisecond

// watch ends a connection when it has had no data for so long; 0: never.
func (p *Proxy) watch(c *connection, timeout time.Duration) {
	if timeout == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.ended {
		c.timer = time.AfterFunc(timeout, func() { p.expire(c, timeout) })
	}
}

func (p *Proxy) expire(c *connection, timeout time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ended {
		return
	}
	if left := timeout - c.IdleFor(); left > 0 {
		c.timer.Reset(max(left, leastPause))
		return
	}
	p.end(c, IdleTooLong)
}

// end resets a connection. The caller holds the lock.
func (p *Proxy) end(c *connection, why Closure) {
	p.counts.closed[why].Add(1)
	p.remove(c)
	c.pair.Reset()
}

// remove forgets a connection. The caller holds the lock.
func (p *Proxy) remove(c *connection) {
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
	}
	delete(c.of.connections, c)
	c.of.shares.Remove(c)
	p.all.Remove(c)
}
