package host

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
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
// gone with its interface.
func (s System) Restore(c Change) (restored bool, err error) {
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
