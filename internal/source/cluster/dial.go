package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// dialTimeout is how long an address may take to accept a connection while there are
	// others, and again to send something if it has not failed lately.
	dialTimeout = 2 * time.Second
	// avoidTime is how long an address is tried after the others once it has failed.
	avoidTime = time.Minute
)

// Dialer connects clients to API servers whose address, from the kubeconfig, is served by a Service of the files.
// While that address does not answer, because its rules are not in the kernel yet or lead to an endpoint that
// fails, the Dialer connects to the endpoints that the files name: the rules may depend on the answer, so the
// client must not depend on the rules. Certificates are still checked against the name in the kubeconfig.
type Dialer struct {
	network   network
	mu        sync.Mutex
	endpoints Endpoints            // nil: none are known
	failed    map[string]time.Time // addresses, by their last failure
}

// Endpoints returns where a Service of files forwards connections to an address.
type Endpoints interface {
	EndpointsFor(netip.AddrPort) []netip.AddrPort
}

type network interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// NewDialer returns a dialer that knows no endpoints yet.
func NewDialer() *Dialer {
	system := struct {
		*net.Dialer
		*net.Resolver
	}{&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}, net.DefaultResolver}
	return &Dialer{network: system, failed: make(map[string]time.Time)}
}

// Follow sets the source of endpoints.
func (d *Dialer) Follow(endpoints Endpoints) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endpoints = endpoints
}

// DialContext dials an address, or an endpoint in its place.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	all := d.addressesToDial(ctx, address)
	var errs []error
	for i, a := range all {
		c, err := d.dialOne(ctx, network, a, i < len(all)-1, len(all) > 1)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// dialOne dials one address. Every address but the last has a dial timeout; with several,
// the first read has one, too.
func (d *Dialer) dialOne(ctx context.Context, network, address string, more, others bool) (net.Conn, error) {
	limited, cancel := ctx, context.CancelFunc(func() {})
	if more {
		limited, cancel = context.WithTimeout(ctx, dialTimeout)
	}
	defer cancel()
	c, err := d.network.DialContext(limited, network, address)
	if err != nil {
		if ctx.Err() == nil {
			d.avoidAddress(address)
		}
		return nil, err
	}
	h := &heard{Conn: c, dialer: d, address: address}
	if others && !d.hasFailed(address) {
		h.limit = time.AfterFunc(dialTimeout, func() { // does not read limit, which may not be set yet
			h.once.Do(h.avoid)
			_ = h.Conn.Close()
		})
	}
	return h, nil
}

// addressesToDial returns the addresses to dial: the one of the kubeconfig, then its endpoints in
// random order, so that not all nodes use the same one; those that have failed come last.
func (d *Dialer) addressesToDial(ctx context.Context, address string) []string {
	d.mu.Lock()
	endpoints := d.endpoints
	d.mu.Unlock()
	out := []string{address}
	if endpoints == nil {
		return out
	}
	for _, to := range d.resolveAddress(ctx, address) {
		for _, e := range endpoints.EndpointsFor(to) {
			if !slices.Contains(out, e.String()) {
				out = append(out, e.String())
			}
		}
	}
	others := out[1:]
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	d.mu.Lock()
	defer d.mu.Unlock()
	for a, at := range d.failed {
		if time.Since(at) >= avoidTime {
			delete(d.failed, a)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return d.failed[a].Compare(d.failed[b]) })
	return out
}

func (d *Dialer) avoidAddress(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed[address] = time.Now()
}

// hasFailed reports whether an address has failed within [avoidTime]. It is then given
// all the time that it needs: all API servers may be slow.
func (d *Dialer) hasFailed(address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, failed := d.failed[address]
	return failed && time.Since(at) < avoidTime
}

func (d *Dialer) resolveAddress(ctx context.Context, address string) (out []netip.AddrPort) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addresses, err := d.network.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for _, a := range addresses {
		out = append(out, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return out
}

// heard is a connection that reports when it is closed without an answer: a hung server still accepts connections.
type heard struct {
	net.Conn
	dialer  *Dialer
	address string
	once    sync.Once
	limit   *time.Timer // ends the connection; nil: never
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 {
		h.once.Do(h.stop)
	}
	return n, err
}

func (h *heard) Close() error {
	h.once.Do(func() {
		h.stop()
		h.avoid()
	})
	return h.Conn.Close()
}

func (h *heard) avoid() { h.dialer.avoidAddress(h.address) }

func (h *heard) stop() {
	if h.limit != nil {
		h.limit.Stop()
	}
}
