package checker_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
	"github.com/nftproxy/nftproxy/internal/source/healthcheck"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

func TestMain(m *testing.M) { os.Exit(netlab.Run(m.Run)) }

// machine is a namespace with loopback, and networks in which packets vanish:
// 192.0.2.0/24 and 2001:db8::/64. There is no other route.
func machine(t testing.TB) *netlab.Namespace {
	t.Helper()
	ns := netlab.TestNamespace(t)
	err := ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name = "void"
		void := &netlink.Veth{LinkAttrs: attributes, PeerName: "silent"} // nothing answers behind it
		var errs []error
		errs = append(errs, netlink.LinkSetUp(lo), netlink.LinkAdd(void), netlink.LinkSetUp(void))
		silent, err := netlink.LinkByName("silent")
		if err != nil {
			return err
		}
		errs = append(errs, netlink.LinkSetUp(silent))
		for _, text := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
			a, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			errs = append(errs, netlink.AddrAdd(void, a))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// both are the loopback addresses of both families.
var both = []string{"127.0.0.1:0", "[::1]:0"}

// listen serves connections with a function, and returns the address.
func listen(t testing.TB, ns *netlab.Namespace, at string, serve func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := ns.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// answer serves datagrams with a function.
func answer(t testing.TB, ns *netlab.Namespace, at string, serve func(datagram []byte) (answers [][]byte)) netip.AddrPort {
	t.Helper()
	c, err := ns.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buffer := make([]byte, 65536)
		for {
			n, from, err := c.ReadFrom(buffer)
			if err != nil {
				return
			}
			for _, a := range serve(buffer[:n]) {
				_, _ = c.WriteTo(a, from)
			}
		}
	}()
	return netip.MustParseAddrPort(c.LocalAddr().String())
}

// closedPort returns a port on which nothing listens.
func closedPort(t testing.TB, ns *netlab.Namespace, at string) netip.AddrPort {
	t.Helper()
	l, err := ns.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

// parse reads a check as users write it. Without a timeout it waits long, so that slow
// machines give the same result.
func parse(t testing.TB, text string) *model.Check {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	c, found := healthcheck.Parse("check", value)
	if len(found) > 0 {
		t.Fatalf("%s: %v", text, found[0])
	}
	if !strings.Contains(text, "timeout") {
		c.Timeout = 20e9
	}
	return c
}

// check makes a check in a namespace, and returns its error as text, empty for none.
func check(t testing.TB, ns *netlab.Namespace, text string, to checker.Target) string {
	t.Helper()
	c, err := checker.New(parse(t, text), to)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := ns.Do(func() error { return c.Check(context.Background()) }); err != nil {
		if strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: the error is not one printable line: %q", text, err.Error())
		}
		return err.Error()
	}
	return ""
}

// compare checks the text of an error without the numbers of ports.
func compare(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want && (want == "" || !strings.HasSuffix(want, "...") || !strings.HasPrefix(got, strings.TrimSuffix(want, "..."))) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func target(to netip.AddrPort) checker.Target {
	return checker.Target{Address: to, Service: model.ServiceName{Namespace: "shop", Name: "web"}}
}
