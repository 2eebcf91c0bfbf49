package api

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
)

// DefaultAddress is where a daemon answers unless it is configured otherwise.
var DefaultAddress = netip.MustParseAddrPort("127.0.0.1:10249")

// ParseAddress parses an address with or without a port.
func ParseAddress(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a, DefaultAddress.Port()), nil
	}
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		return address, fmt.Errorf("%q is not an address: write it like 127.0.0.1:10249 or [::1]:10249", text)
	}
	return address, nil
}

// ErrElsewhere means that an address of a process is not reachable from here.
var ErrElsewhere = errors.New("runs in another network namespace")

// Process is a process that may be a daemon.
type Process struct {
	Name    string         // for messages
	Address netip.AddrPort // where it answers; the zero value: nowhere
	Err     error          // why the address is not known, or [ErrElsewhere]
}

// Ask calls f with clients of a daemon, until one answers: until f returns another error than
// [ErrNoDaemon]. A given address is the only one that is asked; without one, these are
// [DefaultAddress] and the addresses of the processes. Any user may listen there while no daemon does:
// the answers are for readers without privileges, and for those that have named the address. A client is
// closed after its call.
func Ask(given netip.AddrPort, processes iter.Seq[Process], f func(*Client) error) error {
	if given.IsValid() {
		return NewClient(given).Use(f)
	}
	failed := NewClient(DefaultAddress).Use(f)
	if !errors.Is(failed, ErrNoDaemon) {
		return failed
	}
	asked := []netip.AddrPort{DefaultAddress}
	var here, elsewhere []error
	for p := range processes {
		switch {
		case errors.Is(p.Err, ErrElsewhere):
			elsewhere = append(elsewhere, fmt.Errorf("process %s %w", p.Name, p.Err))
			continue
		case p.Err != nil:
			here = append(here, fmt.Errorf("process %s %w", p.Name, p.Err))
			continue
		case !p.Address.IsValid() || slices.Contains(asked, p.Address):
			continue
		}
		asked = append(asked, p.Address)
		err := NewClient(p.Address).Use(f)
		if !errors.Is(err, ErrNoDaemon) {
			return err
		}
		here = append(here, fmt.Errorf("process %s: %w", p.Name, err))
	}
	if len(here) == 0 && len(elsewhere) > 0 {
		here = elsewhere[:1] // one shows what to do
	}
	return errors.Join(append([]error{failed}, here...)...)
}

// Use calls f with the client, and closes it.
func (c *Client) Use(f func(*Client) error) error {
	defer c.Close()
	return f(c)
}
