package host

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// System is the directory with proc and sys; the zero value is the machine itself.
// Network settings are read in the namespace of the calling thread.
type System string

func (s System) absolutePath(name string) string { return filepath.Join("/", string(s), name) }

func (s System) read(name string) (string, error) {
	text, err := os.ReadFile(s.absolutePath(name))
	return strings.TrimSpace(string(text)), err
}

func (s System) readNumber(name string) (int, error) {
	text, err := s.read(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (s System) write(name, value string) error {
	f, err := os.OpenFile(s.absolutePath(name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// Change is a setting of the kernel that was changed.
type Change struct {
	File     string // below /
	From, To string
}

// Name returns the name of the setting as sysctl prints it.
func (c Change) Name() string {
	return strings.ReplaceAll(strings.TrimPrefix(c.File, "proc/sys/"), "/", ".")
}

func (c Change) String() string { return fmt.Sprintf("%s: %s → %s", c.Name(), c.From, c.To) }

// ensureValue writes a value to a file unless it already holds it: a read-only file with the right
// value is no error (9.18). It calls note, which may be nil, before it writes.
func (s System) ensureValue(name, to string, note func(Change), log *slog.Logger) (changed []Change, err error) {
	from, err := s.read(name)
	if err == nil && from == to {
		return nil, nil
	}
	c := Change{name, from, to}
	if note != nil {
		note(c)
	}
	if err := s.write(name, to); err != nil {
		return nil, fmt.Errorf("set %s to %s: %w", name, to, err)
	}
	log.Info("kernel setting changed", "file", "/"+name, "from", from, "to", to)
	return []Change{c}, nil
}

// Restore gives a setting the value that it had before a change, unless it has another one by now, or is
// gone with its interface. It writes no other files.
func (s System) Restore(c Change) (restored bool, err error) {
	if c.File != hashsize && (path.Clean(c.File) != c.File || !strings.HasPrefix(c.File, "proc/sys/net/")) {
		return false, fmt.Errorf("set %q back: it is no setting of the network", c.File)
	}
	is, err := s.read(c.File)
	if errors.Is(err, fs.ErrNotExist) || err == nil && is != c.To {
		return false, nil
	}
	if err == nil {
		err = s.write(c.File, c.From)
	}
	if err != nil {
		return false, fmt.Errorf("set %s back to %s: %w", c.File, c.From, err)
	}
	return true, nil
}

// Families returns the IP families of the kernel: IPv4, and IPv6 unless the kernel
// lacks it or it is disabled for all interfaces (12.48).
func (s System) Families() ([]model.Family, error) {
	switch disabled, err := s.read("proc/sys/net/ipv6/conf/all/disable_ipv6"); {
	case errors.Is(err, fs.ErrNotExist), err == nil && disabled == "1":
		return []model.Family{model.IPv4}, nil
	case err != nil:
		return nil, fmt.Errorf("check the kernel for IPv6: %w", err)
	}
	return []model.Family{model.IPv4, model.IPv6}, nil
}

// KernelRelease returns the version of the kernel as uname prints it; empty: unknown.
func (s System) KernelRelease() string {
	release, _ := s.read("proc/sys/kernel/osrelease")
	return release
}

// SetOOMScore sets how early the kernel kills this process when memory runs out: from
// -1000, never, to 1000. The caller continues after an error (12.49).
func (s System) SetOOMScore(score int, log *slog.Logger) error {
	if _, err := s.ensureValue("proc/self/oom_score_adj", strconv.Itoa(score), nil, log); err != nil { // ends with the process
		return fmt.Errorf("%w: lowering it needs the capability CAP_SYS_RESOURCE", err)
	}
	return nil
}

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

func addAdvice(err error, leave string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: load the module nf_conntrack, or leave the setting unchanged with %s", err, leave)
	}
	return fmt.Errorf("%w: run a privileged init container with --init-only, or leave the setting unchanged with %s", err, leave)
}
