package checker_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestConnect: 3.32, what every check over TCP says of an endpoint that cannot be reached.
func TestConnect(t *testing.T) {
	ns := machine(t)
	for _, kind := range []string{"tcp", "http", "https", "grpc"} {
		text := "{" + kind + ", timeout: 100ms}"
		for _, at := range both {
			compare(t, text, check(t, ns, text, target(closedPort(t, ns, at))), "connect: refused")
		}
		for _, at := range []string{"192.0.2.2:80", "[2001:db8::2]:80"} {
			compare(t, text, check(t, ns, text, target(netip.MustParseAddrPort(at))), "connect: no answer within 100ms")
		}
		for _, at := range []string{"203.0.113.1:80", "[2001:db9::1]:80"} {
			compare(t, text, check(t, ns, text, target(netip.MustParseAddrPort(at))), "connect: network is unreachable")
		}
	}
}

// TestTCP: 3.32, connections, greetings and answers.
func TestTCP(t *testing.T) {
	ns := machine(t)
	hung := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	say := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.WriteString(c, text)
			hung(c)
		}
	}
	redis := func(c net.Conn) {
		if line, err := bufio.NewReader(c).ReadString('\n'); err == nil && line == "PING\r\n" {
			_, _ = io.WriteString(c, "+PO")
			_, _ = io.WriteString(c, "NG\r\n")
		} else {
			_, _ = io.WriteString(c, "-ERR\r\n")
		}
	}
	for _, c := range []struct {
		name  string
		serve func(net.Conn)
		check string
		want  string
	}{
		{"accepts", hung, `tcp`, ""},
		{"greets", say("SSH-2.0-OpenSSH_9.2\r\n"), `{tcp, expect: SSH-2.0}`, ""},
		{"answers", redis, `{tcp, send: "PING\r\n", expect: +PONG}`, ""},
		{"answers in binary", say("\x00\xff\x01"), `{tcp, expectHex: "ff 01"}`, ""},
		{"answers in order", say("+PONG\r\n$89\r\n# Replication\r\nrole:master\r\n"), `{tcp, send: x, expectMatches: '(?s)\+PONG.*role:master'}`, ""},
		{"lacks the first answer", say("-LOADING\r\n$89\r\n# Replication\r\nrole:master\r\n"), `{tcp, send: x, expectMatches: '(?s)\+PONG.*role:master', timeout: 1s}`,
			`expected "(?s)\\+PONG.*role:master", got "-LOADING\r\n$89\r\n# Replication\r\nrole:maste"...`},
		{"lacks the text", say("abc"), `{tcp, expect: x, expectMatches: b, timeout: 1s}`, `expected "x", got "abc"`},
		{"does not match", func(c net.Conn) { _, _ = io.WriteString(c, "abc") }, `{tcp, expect: a, expectMatches: x}`, `expected "x", got "abc"`},
		{"answers otherwise", redis, `{tcp, send: "HELLO\r\n", expect: +PONG}`, `expected "+PONG", got "-ERR\r\n"`},
		{"answers controls", func(c net.Conn) { _, _ = io.WriteString(c, "\x1b[31m"+strings.Repeat("x", 90)) }, `{tcp, expect: ok}`,
			`expected "ok", got "\x1b[31mxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"...`},
		{"closes", func(net.Conn) {}, `{tcp, expect: ok}`, `expected "ok", got nothing`},
		{"hangs", hung, `{tcp, expect: ok, timeout: 1s}`, `receive "ok": no answer within 1s`},
		{"hangs after a part", say("o"), `{tcp, expect: ok, timeout: 1s}`, `expected "ok", got "o"`},
		{"resets", func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0)
		}, `{tcp, send: x, expect: ok}`, `receive "ok": connection reset`},
		{"never ends", func(c net.Conn) {
			for _, err := io.WriteString(c, strings.Repeat("x", 4096)); err == nil; _, err = io.WriteString(c, strings.Repeat("x", 4096)) {
			}
		}, `{tcp, expect: ok}`, `no "ok" in the first 64 KiB of the answer`},
	} {
		for _, at := range both {
			compare(t, c.name, check(t, ns, c.check, target(listen(t, ns, at, c.serve))), c.want)
		}
	}
}

// TestUDP: 3.32, datagrams, and what a closed port answers with ICMP.
func TestUDP(t *testing.T) {
	ns := machine(t)
	echo := func(d []byte) [][]byte { return [][]byte{d} }
	for _, c := range []struct {
		name  string
		serve func([]byte) [][]byte
		check string
		want  string
	}{
		{"echo", echo, `{udp: echo}`, ""},
		{"other echo", func([]byte) [][]byte { return [][]byte{[]byte("x")} }, `{udp: echo}`, "udp: the answer is not what was sent"},
		{"any answer", echo, `{udp, send: ping}`, ""},
		{"an empty answer", func([]byte) [][]byte { return [][]byte{{}} }, `{udp, send: ping}`, ""},
		{"expected", func([]byte) [][]byte { return [][]byte{[]byte("a pong!")} }, `{udp, send: ping, expect: pong}`, ""},
		{"binary", func(d []byte) [][]byte {
			if string(d) != "\x1b\x00" {
				return nil
			}
			return [][]byte{{0x1c, 0xff}}
		}, `{udp, sendHex: 1b00, expectHex: ff}`, ""},
		{"unexpected", echo, `{udp, send: ping, expect: pong}`, `expected "pong", got "ping"`},
		{"silent", func([]byte) [][]byte { return nil }, `{udp, send: ping, timeout: 100ms}`, "udp: no answer within 100ms"},
	} {
		for _, at := range both {
			compare(t, c.name, check(t, ns, c.check, target(answer(t, ns, at, c.serve))), c.want)
		}
	}
	for _, at := range both {
		compare(t, "closed", check(t, ns, `{udp: echo}`, target(closedPort(t, ns, at))), "udp: refused")
	}
	compare(t, "vanishes", check(t, ns, `{udp: echo, timeout: 100ms}`, target(netip.MustParseAddrPort("192.0.2.2:53"))), "udp: no answer within 100ms")
	compare(t, "no route", check(t, ns, `{udp: echo}`, target(netip.MustParseAddrPort("[2001:db9::1]:53"))), "connect: network is unreachable")
}

// TestCancel: a check that is no longer wanted ends immediately, with the error of its
// context: it says nothing about the endpoint.
func TestCancel(t *testing.T) {
	ns := machine(t)
	connected := make(chan bool, 1)
	hung := listen(t, ns, both[0], func(c net.Conn) {
		connected <- true
		_, _ = io.Copy(io.Discard, c)
	})
	for _, text := range []string{"{tcp, expect: ok}", "http", "https", "grpc", "{dns}"} {
		to := target(hung)
		to.Protocol = model.TCP
		c, err := checker.New(parse(t, text), to)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-connected
			cancel()
		}()
		if err := ns.Do(func() error { return c.Check(ctx) }); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestNothingLeft: 3.33, checks leave neither sockets in TIME-WAIT nor open descriptors.
func TestNothingLeft(t *testing.T) {
	ns := machine(t)
	web := webServer(t, ns, both[0])
	texts := []string{"tcp", "{http: /ok, body: ok}", "{http: /status/503}", "{https: /ok}", "grpc"}
	before := descriptors(t)
	for _, text := range texts {
		to := target(web)
		if strings.Contains(text, "https") {
			to = target(secureServer(t, ns, both[0], certificate(t)))
		}
		for range 20 {
			check(t, ns, text, to)
		}
	}
	netlab.Eventually(t, 10*time.Second, func() error {
		var table []byte
		err := ns.Do(func() (err error) {
			table, err = os.ReadFile("/proc/thread-self/net/tcp")
			return err
		})
		for line := range strings.Lines(string(table)) {
			const timeWait = "06"
			if f := strings.Fields(line); len(f) > 3 && f[3] == timeWait {
				return fmt.Errorf("in TIME-WAIT: %s", line)
			}
		}
		return err
	})
	netlab.Eventually(t, 10*time.Second, func() error {
		if after := descriptors(t); after > before+4 { // listeners of this test
			return fmt.Errorf("%d descriptors, %d before", after, before)
		}
		return nil
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// TestLocal: 3.33, a machine without descriptors cannot check, which is no failure of the
// endpoint.
func TestLocal(t *testing.T) {
	ns := machine(t)
	to := target(listen(t, ns, both[0], func(c net.Conn) {}))
	c, err := checker.New(parse(t, "tcp"), to)
	if err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	err = ns.Do(func() error {
		none := limit
		none.Cur = 3
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
			return err
		}
		defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) }()
		return c.Check(context.Background())
	})
	if !errors.Is(err, checker.ErrLocal) || err.Error() != "this machine cannot make the check: too many open files" {
		t.Errorf("got %v", err)
	}
}

// TestNew: checkers that cannot exist.
func TestNew(t *testing.T) {
	for _, to := range []string{"", "10.0.0.1:0"} {
		a, _ := netip.ParseAddrPort(to)
		if c, err := checker.New(parse(t, "tcp"), target(a)); err == nil {
			t.Errorf("%q: %v", to, c)
		}
	}
	good := target(netip.MustParseAddrPort("10.0.0.1:80"))
	for _, c := range []*model.Check{{}, {Type: 99}, {Type: model.CheckDNS, Name: strings.Repeat("a", 300)}, {Type: model.CheckDNS, Name: ".", Query: "X"},
		{Type: model.CheckHTTP, HTTP: &model.HTTPCheck{Method: "GET", Path: "/", Matches: "("}}, {Type: model.CheckHTTP, HTTP: &model.HTTPCheck{Method: "a b", Path: "/"}}} {
		if got, err := checker.New(c, good); err == nil {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
