// Package tcpproxy has the shared parts of servers that relay TCP connections: it keeps ports open, accepts
// clients, and moves data between two connections, in the kernel.
package tcpproxy

import (
	"context"
	"net"
	"sync"
)

// Pair is a connection of a client, and the one to its server.
type Pair struct {
	Client, Server *net.TCPConn
	once           sync.Once
}

// Join moves data both ways until both ends have closed their side, or one has reset the
// connection, or ctx ends, which resets both. If the process ends before, the kernel resets both: a
// cut answer does not look complete.
func (p *Pair) Join(ctx context.Context) {
	resetAtExit(p.Server)
	stop := context.AfterFunc(ctx, p.Reset)
	defer stop()
	var answers sync.WaitGroup
	answers.Go(func() { p.move(p.Client, p.Server) })
	p.move(p.Server, p.Client)
	answers.Wait()
	for _, c := range []*net.TCPConn{p.Client, p.Server} {
		c.SetLinger(-1) //nolint:errcheck // it is closed; the rest of the data is still on its way
		c.Close()
	}
}

// resetAtExit has the kernel reset a connection if the process ends before it closes it.
func resetAtExit(c *net.TCPConn) {
	c.SetLinger(0) //nolint:errcheck // it fails if the other end has gone
}

// move moves data in one direction, and passes on its end: the other direction
// continues. The kernel moves the data: between two TCP connections, ReadFrom is
// splice(2).
func (p *Pair) move(to, from *net.TCPConn) {
	_, err := to.ReadFrom(from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		p.Reset()
	}
}

// Reset resets both connections, which ends both directions.
func (p *Pair) Reset() {
	p.once.Do(func() {
		Reset(p.Client)
		Reset(p.Server)
	})
}

// Reset closes a connection so that the other end sees "connection reset", not the end
// of the data.
func Reset(c *net.TCPConn) {
	c.SetLinger(0) //nolint:errcheck // it fails if the other end has gone
	c.Close()
}
