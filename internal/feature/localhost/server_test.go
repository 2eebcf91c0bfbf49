package localhost

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// TestForward: a connection carries data both ways in both families, and each end may
// close its side (6.16).
func TestForward(t *testing.T) {
	f := newFixture(t, nil)
	f.endpoint(30080)
	for _, family := range model.Families {
		f.serve(family, 30080)
		f.listening(family, 1)
		client, endpoint := f.pair(family, 30080)
		carries(t, client, endpoint, "question")
		carries(t, endpoint, client, "answer")
		client.CloseWrite()
		if rest, err := io.ReadAll(endpoint); err != nil || len(rest) > 0 {
			t.Errorf("%s: after the client's end: %q, %v", family, rest, err)
		}
		carries(t, endpoint, client, "still open")
		endpoint.Close()
		if rest, err := io.ReadAll(client); err != nil || len(rest) > 0 {
			t.Errorf("%s: after the endpoint's end: %q, %v", family, rest, err)
		}
		f.open(0)
	}
	f.counted(tcpproxy.Forwarded, 2)
}

// TestEndpointClosesFirst: the endpoint's end reaches the client, which may still send.
func TestEndpointClosesFirst(t *testing.T) {
	f := newFixture(t, nil)
	f.endpoint(30080)
	f.serve(model.IPv4, 30080)
	f.listening(model.IPv4, 1)
	client, endpoint := f.pair(model.IPv4, 30080)
	endpoint.CloseWrite()
	if rest, err := io.ReadAll(client); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	carries(t, client, endpoint, "late")
}

// TestReset: a reset of one end reaches the other one as a reset (6.16).
func TestReset(t *testing.T) {
	f := newFixture(t, nil)
	f.endpoint(30080)
	f.serve(model.IPv4, 30080)
	f.listening(model.IPv4, 1)
	for _, byClient := range []bool{true, false} {
		client, endpoint := f.pair(model.IPv4, 30080)
		carries(t, client, endpoint, "open")
		from, to := endpoint, client
		if byClient {
			from, to = client, endpoint
		}
		tcpproxy.Reset(from)
		if n, err := to.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reset by the client %v: %d, %v", byClient, n, err)
		}
		f.open(0)
	}
}

// TestLargeTransfer moves more than all buffers hold, both ways at the same time (6.16).
func TestLargeTransfer(t *testing.T) {
	f := newFixture(t, nil)
	f.endpoint(30080)
	f.serve(model.IPv4, 30080)
	f.listening(model.IPv4, 1)
	client, endpoint := f.pair(model.IPv4, 30080)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	sent := make(chan error, 2)
	for _, c := range []*net.TCPConn{client, endpoint} {
		go func() {
			_, err := c.Write(data)
			sent <- errors.Join(err, c.CloseWrite())
		}()
	}
	received := make(chan bool, 2)
	for _, c := range []*net.TCPConn{client, endpoint} {
		go func() {
			got, err := io.ReadAll(c)
			received <- err == nil && bytes.Equal(got, data)
		}()
	}
	for range 2 {
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if !<-received {
			t.Error("other data arrived")
		}
	}
}

// TestSplice: each direction has a pipe, through which the kernel moves the data: nothing
// is copied to this process (6.16).
func TestSplice(t *testing.T) {
	f := newFixture(t, nil)
	f.endpoint(30080)
	f.serve(model.IPv4, 30080)
	f.listening(model.IPv4, 1)
	const pairs = 20 // more than other tests may have left
	for range pairs {
		client, endpoint := f.pair(model.IPv4, 30080)
		carries(t, client, endpoint, "open")
		carries(t, endpoint, client, "open")
	}
	if n := pipes(t); n < 4*pairs {
		t.Errorf("%d ends of pipes for %d connections: data is copied", n, pairs)
	}
}

// pipes returns the number of open ends of pipes of this process.
func pipes(t *testing.T) (n int) {
	t.Helper()
	for _, name := range openFiles(t) {
		if to, _ := os.Readlink(name); strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

func openFiles(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestServiceChanges: nothing listens for a Service without endpoints, and connections
// outlive endpoints and Services (6.15, 6.18).
func TestServiceChanges(t *testing.T) {
	f := newFixture(t, nil)
	f.endpoint(30080)
	refused := func(when string) {
		t.Helper()
		f.listening(model.IPv4, 0)
		if _, err := f.connect(model.IPv4, 30080); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", when, err)
		}
	}
	f.set(model.IPv4, 0, 30080)
	refused("without endpoints")
	f.serve(model.IPv4, 30080)
	f.listening(model.IPv4, 1)
	client, endpoint := f.pair(model.IPv4, 30080)
	f.set(model.IPv4, 0, 30080)
	refused("when endpoints have gone")
	carries(t, client, endpoint, "after the endpoints")
	f.serve(model.IPv4, 30080)
	f.listening(model.IPv4, 1)
	f.remove(model.IPv4, 30080)
	refused("when the Service has gone")
	carries(t, client, endpoint, "after the Service")
	f.open(1)
}

// TestUnreachable: where no endpoint can be reached, the client's connection is reset
// (6.17).
func TestUnreachable(t *testing.T) {
	f := newFixture(t, nil)
	f.serve(model.IPv4, 30080, 30081)
	f.to(30081, netip.AddrPortFrom(f.host.IPv4, 1)) // nothing listens there
	f.listening(model.IPv4, 2)
	f.resets(30080)
	f.resets(30081)
	f.counted(tcpproxy.NoEndpoint, 1)
	f.counted(tcpproxy.DialFailed, 1)
	f.open(0)
}

// TestLimits: connections beyond the limit of a port, or of all ports, are reset, counted
// and logged (6.19).
func TestLimits(t *testing.T) {
	f := newFixture(t, func(f *fixture) { f.setLimits(descriptors.LocalhostLimits{Listeners: 10, Connections: 3, OfPort: 2}) })
	for port := uint16(30080); port < 30082; port++ {
		f.endpoint(port)
		f.serve(model.IPv4, port)
	}
	f.listening(model.IPv4, 2)
	one, oneEnd := f.pair(model.IPv4, 30080)
	f.pair(model.IPv4, 30080)
	f.resets(30080)
	f.pair(model.IPv4, 30081)
	f.resets(30081)
	f.counted(tcpproxy.Limited, 2)
	f.logs(1, `msg="connections to a NodePort on localhost are refused" address=127.0.0.1:30080 service=shop/web-30080:http because="the limit of one port" connections=2`)
	one.Close()
	oneEnd.Close()
	f.open(2)
	f.pair(model.IPv4, 30080)
}

// TestEnd: the end of the process resets connections, and leaves no goroutine and no file
// descriptor.
func TestEnd(t *testing.T) {
	f := newFixture(t, nil)
	f.endpoint(30080)
	before := len(openFiles(t))
	for _, family := range model.Families {
		f.serve(family, 30080)
		f.listening(family, 1)
	}
	client, endpoint := f.pair(model.IPv4, 30080)
	carries(t, client, endpoint, "open")
	f.end()
	for _, c := range []*net.TCPConn{client, endpoint} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("at the end: %v", err)
		}
		c.Close()
	}
	// Pipes are kept for other connections.
	if n := len(openFiles(t)) - 4; n > before {
		t.Errorf("%d file descriptors before, %d after", before, n)
	}
	if n := f.Counts().Connections; n != 0 {
		t.Errorf("%d connections", n)
	}
}

// TestConflict: a port that another process has is reported, tried again and served as
// soon as it is free; it does not disturb other ports (6.20).
func TestConflict(t *testing.T) {
	f := newFixture(t, nil)
	other, err := f.host.Listen("tcp4", "0.0.0.0:30080") // all addresses
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	f.endpoint(30080)
	f.endpoint(30081)
	f.serve(model.IPv4, 30080, 30081)
	f.listening(model.IPv4, 1)
	f.pair(model.IPv4, 30081)
	const why = "another process listens on it, at this address or at all addresses: stop that process, or give the Service another nodePort"
	f.logs(1, `msg="NodePorts are not served on localhost; retrying" address=127.0.0.1 ports="30080 (shop/web-30080:http)" error="`+why+`"`)
	want := "NodePort 30080 of shop/web-30080:http: not served on 127.0.0.1: " + why
	if got := f.problems(); !slices.Equal(got, []string{want}) {
		t.Errorf("problems %q", got)
	}
	f.mu.Lock()
	if failed := []string{"shop/web-30080: listen on 127.0.0.1:30080: " + why}; !slices.Equal(f.failed, failed) {
		t.Errorf("failed %q", f.failed)
	}
	f.mu.Unlock()
	if c := f.Counts(); c.Unserved[model.IPv4] != 1 || c.Failures[model.IPv4] == 0 {
		t.Errorf("counts %+v", c)
	}
	other.Close()
	f.listening(model.IPv4, 2)
	f.logs(1, `msg="NodePorts are served on localhost again" ports="30080 (shop/web-30080:http)"`)
	f.pair(model.IPv4, 30080)
	if got := f.problems(); len(got) > 0 {
		t.Errorf("problems %q", got)
	}
	// From now on no other process gets the port at this address, or at all addresses.
	if _, err := f.host.Listen("tcp4", "0.0.0.0:30080"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another process: %v", err)
	}
	if l, err := f.host.Listen("tcp4", f.host.IPv4.String()+":30080"); err != nil {
		t.Errorf("another address: %v", err)
	} else {
		l.Close()
	}
}

// TestNoIPv6: a machine without ::1 is one line of the log, however many Services there
// are (6.20).
func TestNoIPv6(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.refuse = map[model.Family]error{model.IPv6: &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)}}
	})
	for port := uint16(30000); port < 30100; port++ {
		f.serve(model.IPv6, port)
		f.serve(model.IPv4, port)
	}
	f.listening(model.IPv4, 100)
	f.logs(1, "this machine does not have the address")
	f.serve(model.IPv6, 31000)
	f.serve(model.IPv4, 31000)
	f.listening(model.IPv4, 101)
	f.logs(1, "this machine does not have the address")
	f.end()
	if n := f.refused.Load(); n == 0 || n > 1000 { // about one for each pass
		t.Errorf("%d attempts", n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.failed) > 0 {
		t.Errorf("events of Services: %q", f.failed)
	}
}

// TestManyConflicts: one line of the log, and few events (6.20).
func TestManyConflicts(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.refuse = map[model.Family]error{model.IPv4: syscall.EACCES}
	})
	var ports []uint16
	for port := uint16(500); port < 600; port++ {
		ports = append(ports, port)
	}
	f.serve(model.IPv4, ports...)
	f.logs(1, `ports="500 (shop/web-500:http), 501 (shop/web-501:http), 502 (shop/web-502:http), 503 (shop/web-503:http), 504 (shop/web-504:http) and 95 more" error="permission denied: a port below 1024 needs CAP_NET_BIND_SERVICE`)
	f.end()
	if len(f.failed) != maxFailed {
		t.Errorf("%d events", len(f.failed))
	}
	if got := fmt.Sprint(f.problems()); got != "[]" { // of a server that has ended
		t.Errorf("problems %s", got)
	}
}

// TestTooManyPorts: the rest of the process keeps file descriptors.
func TestTooManyPorts(t *testing.T) {
	f := newFixture(t, func(f *fixture) { f.limits.Listeners = 3 })
	f.serve(model.IPv4, 30080, 30081, 30082, 30083, 30084)
	f.listening(model.IPv4, 3)
	f.logs(1, `ports="30083 (shop/web-30083:http), 30084 (shop/web-30084:http)" error="more NodePorts than half the limit of open files`)
	f.remove(model.IPv4, 30080)
	f.logs(1, `served on localhost again" ports="30083 (shop/web-30083:http)"`)
}

// TestOtherProtocols: that they are not served on localhost is logged once (6.21).
func TestOtherProtocols(t *testing.T) {
	f := newFixture(t, nil)
	r := route(model.IPv4, 30053, 1)
	r.Frontend.Address, r.Frontend.Protocol = netip.MustParseAddr("10.96.0.10"), model.UDP
	r.Port.Protocol = model.UDP
	for range 2 {
		f.Update([]model.RouteChange{{Frontend: r.Frontend, New: r}})
	}
	f.logs(1, `msg="on localhost, only NodePorts of TCP are served" service=shop/web-30053 protocol=udp`)
}
