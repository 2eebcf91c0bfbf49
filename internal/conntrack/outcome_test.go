package conntrack

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestOutcomes: 17.11. What the kernel says about connections with an answer, without one, and
// without an entry, many of them over one socket.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	for _, to := range [][2]string{{"10.96.0.1:80", "10.0.0.1:8080"}, {"[fd00::1]:80", "[fd00::2]:8080"}} {
		var connections []Connection
		var want []Outcome
		var known []Flow
		for i, f := range clients(3*together+3, model.TCP, to[0], to[1]) {
			connections = append(connections, Connection{model.TCP, netip.AddrPortFrom(f.Client, f.Returns.Port()), f.Dialled})
			want = append(want, Outcome(i%3))
			if f.Opening = want[i] == Unanswered; want[i] != Refused {
				known = append(known, f)
			}
		}
		x.add(zone{}, known...)
		x.do(func() error {
			entries, err := Netlink{}.EntriesOf(connections)
			var got []Outcome
			for _, e := range entries {
				got = append(got, e.Outcome())
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", to[0], got, want)
			}
			return err
		})
	}
}

// TestClosedBy: 17.16. The entry of a connection says which side has ended it first, also when both have, and
// names neither while the connection is open or if it was reset.
func TestClosedBy(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	x.ns.TestScript(t, `
ip link set lo up
nft add table inet t
nft add chain inet t in '{ type filter hook input priority 0; }'
nft add rule inet t in ct state new accept`)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		for name, c := range map[string]struct {
			end  func(client, server *net.TCPConn) error
			want Side
		}{
			"open":     {func(client, server *net.TCPConn) error { return nil }, Neither},
			"client":   {func(client, server *net.TCPConn) error { return client.CloseWrite() }, ClientSide},
			"endpoint": {func(client, server *net.TCPConn) error { return server.CloseWrite() }, EndpointSide},
			"reset":    {func(client, server *net.TCPConn) error { return errors.Join(client.SetLinger(0), client.Close()) }, Neither},
			"client, then endpoint": {func(client, server *net.TCPConn) error {
				return errors.Join(client.CloseWrite(), ended(server), server.CloseWrite())
			}, ClientSide},
			"endpoint, then client": {func(client, server *net.TCPConn) error {
				return errors.Join(server.CloseWrite(), ended(client), client.CloseWrite())
			}, EndpointSide},
			"client, then reset": {func(client, server *net.TCPConn) error {
				return errors.Join(client.CloseWrite(), ended(server), server.SetLinger(0), server.Close())
			}, ClientSide},
		} {
			t.Run(name, func(t *testing.T) {
				x.do(func() error {
					client, server, err := pair(address)
					if err != nil {
						return err
					}
					defer func() { _, _ = client.Close(), server.Close() }()
					if err := c.end(client, server); err != nil {
						return err
					}
					from := client.LocalAddr().(*net.TCPAddr).AddrPort()
					of := Connection{model.TCP, from, server.LocalAddr().(*net.TCPAddr).AddrPort()}
					got, err := Netlink{}.EntriesOf([]Connection{of}) // the packets have passed in the calls that sent them
					if err != nil || got[0] == nil || got[0].ClosedBy != c.want {
						t.Errorf("%s: %+v, %v; want %d", address, got, err, c.want)
					}
					return nil
				})
			})
		}
	}
}

// pair returns both ends of a connection to a server at an address.
func pair(address string) (client, server *net.TCPConn, err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	s, err := l.Accept()
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c.(*net.TCPConn), s.(*net.TCPConn), nil
}

// ended waits until the other side has ended a connection.
func ended(c *net.TCPConn) error {
	_, err := io.Copy(io.Discard, c)
	return err
}

// BenchmarkEntriesOf looks for connections, of which one half has an entry.
func BenchmarkEntriesOf(b *testing.B) {
	const all = 1000
	x := newTable(b)
	flows := clients(all, model.TCP, "10.96.0.1:80", "10.0.0.1:8080")
	x.add(zone{}, flows[:all/2]...)
	connections := make([]Connection, all)
	for i, f := range flows {
		connections[i] = Connection{model.TCP, netip.AddrPortFrom(f.Client, f.Returns.Port()), f.Dialled}
	}
	b.ReportAllocs()
	x.do(func() error {
		for b.Loop() {
			if _, err := (Netlink{}).EntriesOf(connections); err != nil {
				return err
			}
		}
		return nil
	})
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/all, "ns/connection")
}
