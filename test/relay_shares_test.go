package test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// fewFiles lets the process have few open files.
func fewFiles(cmd *exec.Cmd) {
	cmd.Args = append([]string{"sh", "-c", `ulimit -n 256; exec "$0" "$@"`}, cmd.Args...)
	cmd.Path = "/bin/sh"
}

// TestRelayShares: 4.48, 4.99. One client with many idle connections, more than the process may have,
// keeps no other client from being served, and ends none of its connections. The limit is a problem.
func TestRelayShares(t *testing.T) {
	w := newWard(t, 2)
	w.relay(onPods(w.Pods[0]))
	w.start(fewFiles)
	w.relays(w.Pods[0].Name)
	for _, f := range model.Families {
		other, err := w.Pods[1].Open("tcp", relayed(f), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		for i := range 30 {
			flow, err := w.Client.Open("tcp", relayed(f), 0)
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			defer flow.Close()
			if _, err := flow.Ask(); err != nil {
				t.Errorf("%s: a new connection of the client with the most: %v", f, err)
			}
			if _, err := other.Ask(); err != nil {
				t.Fatalf("%s: a connection of another client, beside %d: %v", f, i+1, err)
			}
		}
		for range 3 {
			if _, err := w.Pods[1].Ask("tcp", relayed(f), 0); err != nil {
				t.Errorf("%s: a new connection of another client: %v", f, err)
			}
		}
	}
	w.has([]string{"status"}, "RelayFull: ", "relayed connections through 203.0.113.80:80 is reached", "of the client with the most, now 192.0.2.2 with")
	w.has([]string{"describe", "web"}, "is reached: a new one ends the one that is idle for the longest time")
	w.page("/metrics", `nftproxy_relay_closed_total{reason="limit"} `, `nftproxy_relay_closed_total{reason="idle"} 0`)
}

// TestRelayTimeout: 4.48. A connection without data ends after the time of the Balance, with a reset on
// both sides; one with data stays.
func TestRelayTimeout(t *testing.T) {
	w := newWard(t, 1)
	ended := make(chan error, 2)
	servers := w.listen(w.Pods[0], 9000, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		for {
			line, err := in.ReadString('\n')
			if line == "idle\n" {
				_, err := in.ReadString('\n')
				ended <- err
				return
			}
			if err != nil {
				return
			}
			fmt.Fprint(c, line)
		}
	})
	w.relay(servers, "timeout: 4s")
	w.start()
	for _, f := range model.Families {
		idle, busy := w.dialLine(f), w.dialLine(f)
		fmt.Fprintln(idle, "idle")
		closed := make(chan error, 1)
		go func() {
			_, err := idle.Read(make([]byte, 1))
			closed <- err
		}()
		for waiting := true; waiting; {
			fmt.Fprintln(busy, "hello")
			if got, err := bufio.NewReader(busy).ReadString('\n'); err != nil {
				t.Fatalf("%s: a connection with data: %q, %v", f, got, err)
			}
			select {
			case err := <-closed:
				busy.Close()
				if waiting = false; !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%s: the client without data sees %v, want a reset", f, err)
				}
			default:
			}
		}
		if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the server of it sees %v, want a reset", f, err)
		}
	}
	w.has([]string{"describe", "web"}, "timeout           4s")
	w.page("/metrics", `nftproxy_relay_closed_total{reason="idle"} 2`)
}

// dialLine connects to the relay; all reads have a deadline.
func (w *ward) dialLine(f model.Family) (c net.Conn) {
	w.t.Helper()
	eventually(w.t, func() (err error) {
		c, err = w.Client.DialContext(w.t.Context(), "tcp", relayed(f).String())
		return err
	})
	w.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// TestRelayKilled: 4.84. A client and a server see a reset when the process is killed or ends: a cut
// answer does not look complete.
func TestRelayKilled(t *testing.T) {
	w := newWard(t, 1)
	ended := make(chan error, 2)
	w.relay(w.listen(w.Pods[0], 9000, func(c *net.TCPConn) {
		io.WriteString(c, "half of the answer\n") //nolint:errcheck // the client reads it
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}))
	for name, stop := range map[string]func(*daemon){
		"SIGKILL": func(d *daemon) { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() },
		"SIGTERM": func(d *daemon) { d.stop(t) },
	} {
		d := w.start()
		var all []net.Conn
		for _, f := range model.Families {
			c := w.dialLine(f)
			all = append(all, c)
			if line, err := bufio.NewReader(c).ReadString('\n'); err != nil {
				t.Fatalf("%q, %v", line, err)
			}
		}
		stop(d)
		for _, c := range all {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: the client sees %v, want a reset", name, err)
			}
			if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: the server sees %v, want a reset", name, err)
			}
		}
	}
}

// TestRelayWhole: 4.96. All data arrives before a regular end, at a client that reads late.
func TestRelayWhole(t *testing.T) {
	w := newWard(t, 1)
	const size = 4 << 20
	sent := make(chan error, 2)
	w.relay(w.listen(w.Pods[0], 9000, func(c *net.TCPConn) {
		if _, err := io.Copy(io.Discard, c); err != nil { // until the client has ended its side
			sent <- err
			return
		}
		_, err := c.Write(make([]byte, size))
		sent <- err
	}))
	w.start()
	for _, f := range model.Families {
		c := w.dialLine(f)
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 1)
		if _, err := io.ReadFull(c, first); err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, c)
		if n+1 != size || err != nil {
			t.Errorf("%s: %d of %d bytes, %v", f, n+1, size, err)
		}
		if err := <-sent; err != nil {
			t.Errorf("%s: the server: %v", f, err)
		}
	}
}
