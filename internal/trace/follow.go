package trace

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// Connection is what the kernel said about one connection.
type Connection struct {
	// First is the way of its first packet; nil: none came. Reply is the way of the first
	// answer; nil: none came within the patience.
	First, Reply *Journey
	// Attempts is how often the client has sent the first packet.
	Attempts int
	// Waited is how long the trace waited for the first packet at most.
	Waited time.Duration
	// Lost reports that messages of the kernel were lost.
	Lost bool
}

// Packet returns the first packet as the client sent it; nil: none came.
func (c *Connection) Packet() *Packet {
	if c.First == nil {
		return nil
	}
	return c.First.firstPacket()
}

// Patience is how long the kernel may take for a packet, and the endpoint for its answer.
const Patience = 3 * time.Second

// pause is how often Follow looks whether its context has ended.
const pause = 100 * time.Millisecond

// Follow waits for the next connection, and then for its answer: until the packet is dropped,
// an answer has passed the machine, or [Patience] is over. Without a connection until the
// timeout, or the end of the context, First is nil.
func (s *Session) Follow(ctx context.Context, timeout time.Duration) (*Connection, error) {
	c := newCollector(s.table, s.Match)
	out := &Connection{Waited: timeout}
	end := time.Now().Add(timeout)
	began := false
	for !c.isFinished() {
		if now := time.Now(); ctx.Err() != nil || now.After(end) {
			break
		}
		deadline := time.Now().Add(pause)
		if deadline.After(end) {
			deadline = end
		}
		events, lost, err := s.receiveEvents(deadline)
		out.Lost = out.Lost || lost
		if err != nil && !lost && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		for _, e := range events {
			c.add(e)
		}
		if c.first != nil && !began {
			began, end = true, time.Now().Add(Patience)
		}
	}
	out.First, out.Reply, out.Attempts = c.first, c.reply, c.attempts
	return out, nil
}

// isFinished reports whether nothing more about the connection matters. The answer of a rule
// that rejects comes before the message about its verdict.
func (c *collector) isFinished() bool {
	return c.first != nil && (c.first.ended != nil || c.first.done() && c.reply != nil && c.reply.done())
}

// Probe opens a connection to the frontend from this machine and closes it: it connects over
// TCP, and sends an empty datagram over UDP. What happens to it is what the trace shows.
func Probe(m Match) {
	d := net.Dialer{Timeout: Patience}
	c, err := d.Dial(m.Protocol.String(), m.Frontend.String())
	if err != nil {
		return
	}
	defer c.Close()
	if m.Protocol.String() == "udp" {
		_, _ = c.Write(nil)
	}
}
