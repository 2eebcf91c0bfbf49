package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// fakeNetwork is a network in functions.
type fakeNetwork struct {
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

func fakeNetworkOf(d *Dialer) *fakeNetwork {
	n := &fakeNetwork{lookup: net.DefaultResolver.LookupNetIP}
	d.network = n
	return n
}

func (n *fakeNetwork) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return n.dial(ctx, network, address)
}

func (n *fakeNetwork) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return n.lookup(ctx, network, host)
}

type endpointsFunc func(netip.AddrPort) []netip.AddrPort

func (f endpointsFunc) EndpointsFor(to netip.AddrPort) []netip.AddrPort { return f(to) }

// dialerOf dials nothing: the peer of each connection is closed, unless there is an
// error.
func dialerOf(answer func(address string) error) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		if err := answer(address); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		here, there := net.Pipe()
		go func() {
			_, _ = there.Write([]byte("x"))
			there.Close()
		}()
		return here, nil
	}
}

// TestDialer: 14.24. The address of the kubeconfig is dialed, then the endpoints that
// files name for it; those that have failed come last for a minute.
func TestDialer(t *testing.T) {
	const vip, one, two = "192.0.2.100:6443", "10.0.0.1:6443", "10.0.0.2:6443"
	refused := errors.New("refused")
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer()
		network := fakeNetworkOf(d)
		network.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) { // no name is known
			a, err := netip.ParseAddr(host)
			return []netip.Addr{a}, err
		}
		var dialed []string
		down := map[string]bool{}
		network.dial = dialerOf(func(address string) error {
			dialed = append(dialed, address)
			if down[address] {
				return refused
			}
			return nil
		})
		dial := func(address string, answers bool, want ...string) {
			t.Helper()
			dialed = nil
			c, err := d.DialContext(t.Context(), "tcp", address)
			if (err == nil) != (len(want) > 0 && !down[want[len(want)-1]]) {
				t.Errorf("dial %s: %v", address, err)
			}
			if slices.Sort(dialed[min(1, len(dialed)):]); !slices.Equal(dialed, want) {
				t.Errorf("dialed %v, want %v", dialed, want)
			}
			if c == nil {
				return
			}
			if answers {
				_, err = c.Read(make([]byte, 1))
				check(t, err)
			}
			check(t, c.Close())
			check(t, c.Close())
		}
		down[vip] = true
		dial(vip, false, vip) // nothing is known about it
		d.Follow(endpointsFunc(func(to netip.AddrPort) []netip.AddrPort {
			if to.String() != vip {
				return nil
			}
			return []netip.AddrPort{netip.MustParseAddrPort(one), netip.MustParseAddrPort(two), netip.MustParseAddrPort(vip)}
		}))
		time.Sleep(avoidTime)
		down[one] = true
		down[two] = true
		dial(vip, false, vip, one, two)
		time.Sleep(avoidTime)
		clear(down)
		dial(vip, true, vip)
		dial(vip, false, vip) // hangs: it accepts and does not answer
		down[two] = true
		time.Sleep(time.Second)
		dialed = nil
		for range 20 {
			c, err := d.DialContext(t.Context(), "tcp", vip)
			check(t, err)
			_, err = c.Read(make([]byte, 1))
			check(t, err)
			c.Close()
		}
		if slices.Contains(dialed, vip) || !slices.Contains(dialed, one) {
			t.Errorf("after a connection without an answer: %v", dialed)
		}
		time.Sleep(avoidTime)
		dial(vip, true, vip)
		dial("192.0.2.7:443", true, "192.0.2.7:443")
		dial("nowhere.invalid:443", true, "nowhere.invalid:443")
	})
}

// TestDialerTimeout: an address that is silent does not hold up the others, and the end
// of the request ends the dial.
func TestDialerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer()
		network := fakeNetworkOf(d)
		network.dial = func(ctx context.Context, _, address string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		d.Follow(endpointsFunc(func(netip.AddrPort) []netip.AddrPort {
			return []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:6443")}
		}))
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := d.DialContext(ctx, "tcp", "192.0.2.100:6443"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if len(d.failed) != 1 {
			t.Errorf("the end of the request counts as a failure: %v", d.failed)
		}
	})
}

// TestDialerSilence: a server that accepts and does not answer is left after two seconds,
// but not a second time: all may be slow.
func TestDialerSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer()
		network := fakeNetworkOf(d)
		var peers []net.Conn
		network.dial = func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			peers = append(peers, there)
			return here, nil
		}
		d.Follow(endpointsFunc(func(netip.AddrPort) []netip.AddrPort {
			return []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:6443")}
		}))
		read := func(answers time.Duration) (time.Duration, error) {
			t.Helper()
			c, err := d.DialContext(t.Context(), "tcp", "192.0.2.100:6443")
			check(t, err)
			defer c.Close()
			peer := peers[len(peers)-1]
			go func() {
				time.Sleep(answers)
				_, _ = peer.Write([]byte("x"))
			}()
			start := time.Now()
			_, err = c.Read(make([]byte, 1))
			return time.Since(start), err
		}
		if took, err := read(time.Second); err != nil || took != time.Second {
			t.Errorf("an answer: %v after %v", err, took)
		}
		for range 2 {
			if took, err := read(time.Minute / 2); err == nil || took != dialTimeout {
				t.Errorf("silence: %v after %v", err, took)
			}
		}
		for range 2 {
			if took, err := read(time.Minute / 2); err != nil || took != time.Minute/2 {
				t.Errorf("all are slow: %v after %v", err, took)
			}
		}
		time.Sleep(time.Minute)
	})
}
