package serve

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Connections limits the open connections of a [Server]. Monitoring, load balancers
// and kubelets need few.
const Connections = 256

// Limit bounds the connections of one or more listeners together, so that clients
// cannot exhaust file descriptors and memory. A new connection is always accepted.
// Above the limit, the oldest one of the client address with the most connections
// is closed: a flood affects only the address that it comes from. It is safe for
// concurrent use.
type Limit struct {
	max int

	mu   sync.Mutex
	open []*limited // oldest first
}

// NewLimit returns a limit of that many connections.
func NewLimit(connections int) *Limit { return &Limit{max: connections} }

// Listener returns l with its connections limited.
func (m *Limit) Listener(l net.Listener) net.Listener { return limitedListener{l, m} }

type limitedListener struct {
	net.Listener
	limit *Limit
}

// Accept implements [net.Listener].
func (l limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	n := &limited{Conn: c, limit: l.limit, peer: peerOf(c)}
	if victim := l.limit.add(n); victim != nil {
		victim.Close()
	}
	return n, nil
}

// peerOf returns the address of a client. Addresses of one IPv6 /64 count as one: a
// client there can use them all.
func peerOf(c net.Conn) netip.Prefix {
	at, _ := netip.ParseAddrPort(c.RemoteAddr().String()) // all other clients count as one
	a := at.Addr().Unmap().WithZone("")
	p, _ := a.Prefix(min(64, a.BitLen()))
	return p
}

// add adds a connection. It returns one to close, or nil.
func (m *Limit) add(c *limited) *limited {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = append(m.open, c)
	if len(m.open) <= m.max {
		return nil
	}
	of := make(map[netip.Prefix]int)
	most := 0
	for _, o := range m.open {
		of[o.peer]++
		most = max(most, of[o.peer])
	}
	for i, o := range m.open {
		if of[o.peer] == most {
			m.open = slices.Delete(m.open, i, i+1)
			return o
		}
	}
	return nil // not reached
}

func (m *Limit) remove(c *limited) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.open, c); i >= 0 {
		m.open = slices.Delete(m.open, i, i+1)
	}
}

// limited is a connection that counts until it is closed.
type limited struct {
	net.Conn
	limit *Limit
	peer  netip.Prefix
}

// Close implements [net.Conn].
func (c *limited) Close() error {
	c.limit.remove(c)
	return c.Conn.Close()
}
