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
// Settings of a network namespace are those of the calling thread's.
type System string

func (s System) path(name string) string { return filepath.Join("/", string(s), name) }

func (s System) read(name string) (string, error) {
	text, err := os.ReadFile(s.path(name))
	return strings.TrimSpace(string(text)), err
}

// write changes a file that exists.
func (s System) write(name, value string) error {
	f, err := os.OpenFile(s.path(name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// ensure writes a number into a file that holds another one, so that a
// read-only file with the right value is as good as a writable one (9.18).
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

// Families returns the IP families that the kernel has: IPv4, and IPv6 unless
// the kernel was built or started without it or it is turned off for all
// interfaces (12.48).
func (s System) Families() ([]model.Family, error) {
	switch disabled, err := s.read("proc/sys/net/ipv6/conf/all/disable_ipv6"); {
	case errors.Is(err, fs.ErrNotExist), err == nil && disabled == "1":
		return []model.Family{model.IPv4}, nil
	case err != nil:
		return nil, fmt.Errorf("find out whether the kernel has IPv6: %w", err)
	}
	return []model.Family{model.IPv4, model.IPv6}, nil
}

// SetOOMScore sets how soon the kernel kills this process when memory runs out:
// from -1000, never, to 1000. Lowering it needs CAP_SYS_RESOURCE. A proxy works
// without it, so the caller continues after an error (12.49).
func (s System) SetOOMScore(score int, log *slog.Logger) error {
	if err := s.ensure("proc/self/oom_score_adj", score, log); err != nil {
		return fmt.Errorf("%w: lowering it needs the capability CAP_SYS_RESOURCE", err)
	}
	return nil
}
