package serve

import (
	"net"
	"net/netip"
	"sync"

	"github.com/nftproxy/nftproxy/internal/fair"
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
	mu   sync.Mutex
	open *fair.Limit[*limited]
}

// NewLimit returns a limit of that many connections.
func NewLimit(connections int) *Limit { return &Limit{open: fair.NewLimit[*limited](connections)} }

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
	n := &limited{Conn: c, limit: l.limit}
	if victim := l.limit.add(n, peerOf(c)); victim != nil {
		victim.Close()
	}
	return n, nil
}

// peerOf returns the client of a connection. All without an address count as one.
func peerOf(c net.Conn) netip.Prefix {
	at, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	return fair.ClientOf(at.Addr())
}

// add adds a connection. It returns one to close, or nil.
func (m *Limit) add(c *limited, from netip.Prefix) *limited {
	m.mu.Lock()
	defer m.mu.Unlock()
	victim, _ := m.open.Add(c, from)
	return victim
}

func (m *Limit) remove(c *limited) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open.Remove(c)
}

// limited is a connection that counts until it is closed.
type limited struct {
	net.Conn
	limit *Limit
}

// Close implements [net.Conn].
func (c *limited) Close() error {
	c.limit.remove(c)
	return c.Conn.Close()
}
