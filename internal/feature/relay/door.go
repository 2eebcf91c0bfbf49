package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Names in the store. An older release knows that of the listener.
func listenerName(f model.Family) string { return "relay-" + f.String() }
func gateName(f model.Family) string     { return "relay-gate-" + f.String() }

// openDoor opens the port and then the gate, or takes those of the last process.
func (s *Server) openDoor(f model.Family) (*door, error) {
	l, kept, err := s.listener(f)
	if err != nil {
		return nil, err
	}
	d, err := s.guard(f, l, kept)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return d, nil
}

// listener returns the listener of the last process, or opens one. It reports whether the store
// keeps it.
func (s *Server) listener(f model.Family) (l *net.TCPListener, kept bool, err error) {
	if l := fromFile(s.store.Take(listenerName(f))); l != nil {
		return l, true, nil
	}
	if l, err = s.listen(f); err != nil {
		return nil, false, err
	}
	return l, s.keep(f, listenerName(f), l), nil
}

// guard makes a door of a listener. The store keeps a gate only beside the listener.
func (s *Server) guard(f model.Family, l *net.TCPListener, kept bool) (*door, error) {
	left := s.store.Take(gateName(f))
	if left != nil && !kept { // its listener is gone
		left.Close()
		left = nil
		if err := s.store.Forget(gateName(f)); err != nil {
			return nil, err
		}
	}
	isNew := left == nil
	d, err := makeDoor(f, l, left)
	if err == nil && isNew && kept {
		s.keep(f, gateName(f), d.gate)
	}
	return d, err
}

// keep has the store keep a file, and reports whether it does as far as this process knows.
func (s *Server) keep(f model.Family, name string, file syscall.Conn) bool {
	if s.store == nil {
		return false
	}
	s.kept[f] = true
	err := s.store.Keep(name, file)
	if err != nil {
		s.node.ObjectLog.Warn("connections to relayed Balances will be refused during a restart", "family", f, "error", err)
	}
	return err == nil
}

// forget has the store forget a door that is not needed, the gate first.
func (s *Server) forget(f model.Family) {
	if !s.kept[f] {
		return
	}
	s.kept[f] = false
	for _, name := range []string{gateName(f), listenerName(f)} {
		if err := s.store.Forget(name); err != nil {
			s.node.ObjectLog.Warn("the port of the relay stays open", "family", f, "error", err)
		}
	}
}

// fromFile returns the listener in a file, which it closes; nil: there is none.
func fromFile(f *os.File) *net.TCPListener {
	if f == nil {
		return nil
	}
	defer f.Close() // the listener has a copy
	l, err := net.FileListener(f)
	if err != nil {
		return nil
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		l.Close()
	}
	return tcp
}

// listen listens at all addresses: the rules redirect to the one at which the packet arrives.
func (s *Server) listen(f model.Family) (*net.TCPListener, error) {
	l, err := s.proxy.Listen(netip.AddrPortFrom(model.Wildcard(f), model.RelayPort), 0)
	if err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			err = errno // whose text is short
		}
		err = fmt.Errorf("listen on port %d, to which the rules redirect: %w", model.RelayPort, err)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: find the process that listens with \"ss -tlnp sport = :%d\", and stop it", err, model.RelayPort)
		}
	}
	return l, err
}
