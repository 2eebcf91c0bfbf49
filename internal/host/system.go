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

func (s System) path(name string) string { return filepath.Join("/", string(s), name) }

func (s System) read(name string) (string, error) {
	text, err := os.ReadFile(s.path(name))
	return strings.TrimSpace(string(text)), err
}

func (s System) number(name string) (int, error) {
	text, err := s.read(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (s System) write(name, value string) error {
	f, err := os.OpenFile(s.path(name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// ensure writes a number to a file unless it already holds it: a read-only file with
// the right value is no error (9.18).
func (s System) ensure(name string, value int, log *slog.Logger) error {
	want := strconv.Itoa(value)
	have, err := s.read(name)
	if err == nil && have == want {
		return nil
	}
	if err := s.write(name, want); err != nil {
		return fmt.Errorf("set %s to %s: %w", name, want, err)
	}
	log.Info("kernel setting changed", "file", "/"+name, "from", have, "to", want)
	return nil
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
	if err := s.ensure("proc/self/oom_score_adj", score, log); err != nil {
		return fmt.Errorf("%w: lowering it needs the capability CAP_SYS_RESOURCE", err)
	}
	return nil
}
