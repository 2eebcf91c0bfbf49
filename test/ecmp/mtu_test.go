package ecmp

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// bulk is what a server sends to each client: many full packets.
const bulk = 256 << 10

func serveBulk(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = c.Write(make([]byte, bulk)) // the client counts
		}()
	}
}

// far is a host behind the clients, over a link with a smaller MTU than its own, which has
// addresses of each family.
type far struct {
	*netlab.Host
	addresses map[model.Family][]netip.Addr
}

// farClients is how many addresses of each family download.
const farClients = 12

func (l *lab) newFar() *far {
	l.t.Helper()
	h, err := l.outside.AddPod("far", netip.MustParsePrefix("198.18.0.128/25"), netip.MustParsePrefix("2001:db8:18:0:8000::/65"))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { h.Close() })
	l.outside.TestScript(l.t, "ip link set far mtu 1300")
	f := &far{h, make(map[model.Family][]netip.Addr)}
	for i := range farClients {
		v4, v6 := netip.AddrFrom4([4]byte{198, 18, 0, byte(160 + i)}), netip.MustParseAddr(fmt.Sprintf("2001:db8:18:0:8000::%x", 160+i))
		h.TestScript(l.t, `ip address add "$1/25" dev eth0 && ip address add "$2/65" dev eth0 nodad`, v4.String(), v6.String())
		l.outside.TestScript(l.t, `ip route add "$1" dev far && ip route add "$2" dev far`, v4.String(), v6.String())
		f.addresses[model.IPv4] = append(f.addresses[model.IPv4], v4)
		f.addresses[model.IPv6] = append(f.addresses[model.IPv6], v6)
	}
	return f
}

// download has all addresses download at the same time, and returns how many of them got
// everything. Each has its own path MTU.
func (f *far) download(family model.Family) (complete int) {
	var running sync.WaitGroup
	done := make([]bool, farClients)
	for i, a := range f.addresses[family] {
		running.Go(func() {
			_ = f.Do(func() error {
				d := net.Dialer{Timeout: hangs, LocalAddr: &net.TCPAddr{IP: a.AsSlice()}}
				c, err := d.Dial("tcp", netip.AddrPortFrom(virtual[family], bulkPort).String())
				if err != nil {
					return err
				}
				defer c.Close()
				if err := c.SetDeadline(time.Now().Add(hangs)); err != nil {
					return err
				}
				n, err := io.Copy(io.Discard, c)
				done[i] = n == bulk
				return err
			})
		})
	}
	running.Wait()
	for _, d := range done {
		if d {
			complete++
		}
	}
	return complete
}

// clamp makes a node reduce the segments that both ends of a connection send.
const clamp = `table inet mss {
	chain forward {
		type filter hook forward priority mangle
		meta nfproto ipv4 tcp flags syn tcp option maxseg size set 1260
		meta nfproto ipv6 tcp flags syn tcp option maxseg size set 1240
	}
}
`

// pathMTU is 3.59: the router in front of a smaller link says so to the virtual address,
// and the routers select a node for that packet.
func pathMTU(b *testing.B, tables map[string]string) {
	var text strings.Builder
	text.WriteString("| routers hash | downloads complete, IPv4 | IPv6 |\n|---|---|---|\n")
	for _, c := range []struct {
		name   string
		hash   hashing
		clamp  bool
		v4, v6 share
	}{
		{"addresses, protocol and ports", fiveTuple, false, varies, varies},
		// The hash for IPv6 has the flow label, too, which differs between the directions.
		{"addresses, and for an ICMP error the addresses of the packet in it", byAddresses, false, every, varies},
		{"addresses, protocol and ports; the nodes reduce the MSS", fiveTuple, true, every, every},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := newLab(b)
			l.serveOn(setting{scheduler: "source-hash", keep: true, answers: toSameNode})
			f := l.newFar()
			for _, r := range l.routers {
				l.hashBy(r, c.hash)
			}
			for _, n := range l.nodes {
				if c.clamp {
					l.nft(n, clamp)
				}
			}
			v4, v6 := f.download(model.IPv4), f.download(model.IPv6)
			if !c.v4.fits(v4, farClients) || !c.v6.fits(v6, farClients) {
				b.Errorf("%d and %d of %d downloads complete, want %s and %s", v4, v6, farClients, c.v4, c.v6)
			}
			if c.hash == fiveTuple && !c.clamp && v4+v6 == 2*farClients {
				b.Error("all downloads complete without any remedy: nothing is shown")
			}
			fmt.Fprintf(&text, "| %s | %d of %d | %d of %[3]d |\n", c.name, v4, farClients, v6)
			b.Log(v4, v6)
		})
	}
	tables["mtu"] = strings.TrimSuffix(text.String(), "\n")
}
