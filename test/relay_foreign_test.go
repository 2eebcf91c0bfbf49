package test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// squatter is a process that listens at the port of the relay, and counts what it gets.
type squatter struct {
	all []net.Listener
	got atomic.Int64
}

// squat listens at the port on the node, at these addresses, as far as the kernel allows it.
func (w *ward) squat(transparent bool, addresses ...netip.Addr) (*squatter, error) {
	s := &squatter{}
	var failed error
	c := net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) (err error) {
		control := raw.Control(func(fd uintptr) {
			switch {
			case !transparent:
			case network == "tcp6":
				err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
			default:
				err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
			}
		})
		return errors.Join(control, err)
	}}
	for _, a := range addresses {
		var l net.Listener
		err := w.Node.Do(func() (err error) {
			network := map[bool]string{true: "tcp4", false: "tcp6"}[a.Is4()]
			l, err = c.Listen(w.t.Context(), network, netip.AddrPortFrom(a, model.RelayPort).String())
			return err
		})
		if err != nil {
			failed = err
			continue
		}
		s.all = append(s.all, l)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				s.got.Add(1)
				c.Close()
			}
		}()
	}
	return s, failed
}

func (s *squatter) close() {
	for _, l := range s.all {
		l.Close()
	}
}

// refusesAll connects to the relayed addresses from a client and from the node, which must be
// refused immediately.
func (w *ward) refusesAll(when string) {
	w.t.Helper()
	for _, f := range model.Families {
		for _, from := range []*netlab.Host{w.Client, w.Node} {
			for range 3 {
				if _, err := from.Ask("tcp", relayed(f), patience); !errors.Is(err, syscall.ECONNREFUSED) {
					w.t.Errorf("%s: %s from %s: %v, want a refusal", when, f, from.Name, err)
				}
			}
		}
	}
}

// TestRelayForeign: 4.47. No other process gets a relayed connection at the port of the relay: one that
// listens there before nftproxy starts, or before the first Balance has relay, or after the end of
// nftproxy, at all addresses or at those of the node, also with IP_TRANSPARENT.
func TestRelayForeign(t *testing.T) {
	for name, transparent := range map[string]bool{"plain": false, "transparent": true} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t, 1)
			w.flags = append(w.flags, "--healthz-bind-address", "127.0.0.1:10256")
			everywhere := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
			some := []netip.Addr{w.Node.IPv4, w.Node.IPv6, loopback[model.IPv4], loopback[model.IPv6]}
			squats := func(when string, at []netip.Addr) (end func()) {
				t.Helper()
				var s *squatter
				eventually(t, func() (err error) { // a process that another test starts has the last listener until its exec
					if s, err = w.squat(transparent, at...); err != nil {
						s.close()
						return fmt.Errorf("%s: %w", when, err)
					}
					return nil
				})
				return func() {
					t.Helper()
					w.refusesAll(when)
					if n := s.got.Load(); n > 0 {
						t.Errorf("%s: another process got %d connections", when, n)
					}
					s.close()
				}
			}
			end := squats("before the start", everywhere)
			w.relay(onPods(w.Pods...))
			d := w.start()
			d.logs(t, "connections to relayed Balances are refused", "IPv4")
			d.logs(t, "connections to relayed Balances are refused", "IPv6")
			w.has([]string{"status"}, "RelayPort", "over IPv4: listen on port 10245", "over IPv6: listen on port 10245")
			w.has([]string{"describe", "web"}, "connections are refused: over IPv4: listen on port 10245", "find the process that listens")
			if got := w.usable(); got != "unusable" {
				t.Errorf("/healthz says %s while connections are refused", got)
			}
			end()
			w.relays(w.Pods[0].Name)
			w.has([]string{"describe", "web"}, "2 servers take connections\n")
			if got := w.usable(); got != "usable" {
				t.Errorf("/healthz says %s while connections are relayed", got)
			}
			for _, a := range append(everywhere, some...) {
				if s, err := w.squat(transparent, a); err == nil {
					t.Errorf("a second process listens at %s", a)
					s.close()
				}
			}
			stops := map[string]func(){
				"SIGTERM": func() { d.stop(t) },
				"SIGKILL": func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() },
			}
			for name, stop := range stops {
				for _, at := range [][]netip.Addr{everywhere, some} {
					stop()
					end = squats("after "+name, at)
					for _, command := range []string{"status", "describe web"} {
						out := w.mustRun(0, exec.Command(binary, strings.Fields(command)...))
						if !strings.Contains(out, "over IPv6: no process relays") || strings.Contains(out, "take connections") {
							t.Errorf("%s without a process:\n%s", command, out)
						}
					}
					end()
					d = w.start()
					w.relays(w.Pods[0].Name)
				}
			}
			w.relay(onPods(w.Pods...), "relay: false")
			eventually(t, func() error { return portIsFree(w) })
			end = squats("before the first relay", everywhere)
			w.relay(onPods(w.Pods...))
			eventually(t, func() error {
				if out := w.mustRun(0, exec.Command(binary, "status")); !strings.Contains(out, "RelayPort") {
					return fmt.Errorf("no problem:\n%s", out)
				}
				return nil
			})
			end()
			w.relays(w.Pods[0].Name)
		})
	}
}

// usable returns what the page about the Balance says.
func (w *ward) usable() string {
	w.t.Helper()
	got, err := get(w.Node, http.MethodGet, netip.MustParseAddrPort("127.0.0.1:10256"), "/healthz/default/web", "")
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(got.body)
}

// portIsFree reports whether nothing listens at the port of the relay.
func portIsFree(w *ward) error {
	s, err := w.squat(false, netip.IPv4Unspecified(), netip.IPv6Unspecified())
	s.close()
	return err
}

// TestRelayForeignRaces: 4.47. A process that takes the port the moment when nftproxy loses it
// gets no connection either.
func TestRelayForeignRaces(t *testing.T) {
	w := newWard(t, 1)
	w.relay(onPods(w.Pods...))
	for i := range 6 {
		d := w.start()
		w.relays(w.Pods[0].Name)
		var all sync.WaitGroup
		ended := make(chan struct{})
		for _, f := range model.Families {
			for range 2 {
				all.Go(func() {
					for !isClosed(ended) {
						_, _ = w.Client.Ask("tcp", relayed(f), silence)
					}
				})
			}
		}
		won := make(chan *squatter)
		go func() {
			for {
				s, err := w.squat(false, netip.IPv4Unspecified(), netip.IPv6Unspecified())
				if err == nil {
					won <- s
					return
				}
				s.close()
			}
		}()
		if i%2 == 0 {
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
		} else {
			d.stop(t)
		}
		s := <-won
		w.refusesAll("after the end")
		close(ended)
		all.Wait()
		if n := s.got.Load(); n > 0 {
			t.Errorf("end %d: another process got %d connections", i, n)
		}
		s.close()
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
