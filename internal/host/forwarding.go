package host

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	forwarding4 = "proc/sys/net/ipv4/ip_forward"
	forwarding6 = "proc/sys/net/ipv6/conf/all/forwarding"
	interfaces6 = "proc/sys/net/ipv6/conf"

	acceptUnlessForwarding, acceptAlways = "1", "2" // values of accept_ra
)

// SetForwarding makes the machine forward packets of a family, and returns the settings that
// it has changed. Interfaces that accept router advertisements of IPv6 continue to do so: with
// forwarding, the kernel would remove their default routes and ignore advertisements. No
// setting is lowered. It calls note before each change.
func (s System) SetForwarding(f model.Family, note func(Change), log *slog.Logger) (changed []Change, err error) {
	name := forwarding4
	if f == model.IPv6 {
		name = forwarding6
	}
	switch on, err := s.read(name); {
	case err != nil:
		return nil, fmt.Errorf("read /%s: %w", name, err)
	case on != "0":
		return nil, nil
	}
	if f == model.IPv6 { // before the kernel removes routes
		if changed, err = s.keepAdvertisements(note, log); err != nil {
			return changed, err
		}
	}
	c, err := s.ensureValue(name, "1", note, log)
	return append(changed, c...), err
}

// keepAdvertisements lets the interfaces that accept router advertisements accept them
// also with forwarding.
func (s System) keepAdvertisements(note func(Change), log *slog.Logger) (changed []Change, err error) {
	interfaces, err := os.ReadDir(s.absolutePath(interfaces6))
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range interfaces {
		if i.Name() == "all" || i.Name() == "default" || i.Name() == "lo" {
			continue // the first two are not of an interface
		}
		at := interfaces6 + "/" + i.Name() + "/"
		accepts, err1 := s.read(at + "accept_ra")
		forwards, err2 := s.read(at + "forwarding")
		switch err := errors.Join(err1, err2); {
		case errors.Is(err, fs.ErrNotExist): // the interface is gone
			continue
		case err != nil:
			return changed, fmt.Errorf("read settings of interface %s: %w", i.Name(), err)
		case accepts != acceptUnlessForwarding || forwards != "0":
			continue
		}
		c, err := s.ensureValue(at+"accept_ra", acceptAlways, note, log)
		if changed = append(changed, c...); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// ForwardingOf returns the family whose forwarding a change concerns: the setting itself, or that interfaces
// accept router advertisements beside it.
func ForwardingOf(c Change) (f model.Family, ok bool) {
	switch {
	case c.File == forwarding4:
		return model.IPv4, true
	case c.File == forwarding6, strings.HasPrefix(c.File, interfaces6+"/"):
		return model.IPv6, true
	}
	return f, false
}
