package host

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Conntrack has settings of the kernel's connection tracking. What is zero
// or negative stays as it is (9.13).
type Conntrack struct {
	// MaxPerCore is how many connections are tracked for each CPU, and Min how
	// many at least; without MaxPerCore, Min does nothing (9.15).
	MaxPerCore, Min int
	// How long idle connections are remembered. The kernel counts in seconds;
	// fractions are cut off, down to one second.
	TCPEstablishedTimeout, TCPCloseWaitTimeout time.Duration
	UDPTimeout, UDPStreamTimeout               time.Duration
	// TCPBeLiberal accepts segments outside of the window, which would
	// otherwise be INVALID and never be translated (9.14).
	TCPBeLiberal bool
}

const (
	sysctls  = "proc/sys/net/netfilter/"
	hashsize = "sys/module/nf_conntrack/parameters/hashsize"

	// maxEntries is the most that MaxPerCore amounts to (9.15).
	maxEntries = 1 << 20
	// entriesPerBucket is how many entries share a bucket of the hash table at
	// most when all are in use (9.17).
	entriesPerBucket = 4
)

// SetConntrack makes the settings. One that cannot be made is an error that
// says what to do about it; those behind it are not tried then.
func (s System) SetConntrack(c Conntrack, log *slog.Logger) error {
	if err := s.setMax(c, log); err != nil {
		return advise(err, "--conntrack-max-per-core=0")
	}
	liberal := 0
	if c.TCPBeLiberal {
		liberal = 1
	}
	for _, setting := range []struct {
		name, leave string // the flag that leaves it as it is
		value       int
	}{
		{"nf_conntrack_tcp_timeout_established", "--conntrack-tcp-timeout-established=0s", seconds(c.TCPEstablishedTimeout)},
		{"nf_conntrack_tcp_timeout_close_wait", "--conntrack-tcp-timeout-close-wait=0s", seconds(c.TCPCloseWaitTimeout)},
		{"nf_conntrack_tcp_be_liberal", "--conntrack-tcp-be-liberal=false", liberal},
		{"nf_conntrack_udp_timeout", "--conntrack-udp-timeout=0s", seconds(c.UDPTimeout)},
		{"nf_conntrack_udp_timeout_stream", "--conntrack-udp-timeout-stream=0s", seconds(c.UDPStreamTimeout)},
	} {
		if setting.value <= 0 {
			continue
		}
		if err := s.ensure(sysctls+setting.name, setting.value, log); err != nil {
			return advise(err, setting.leave)
		}
	}
	return nil
}

// setMax limits the number of connections, and makes the hash table large
// enough for them.
func (s System) setMax(c Conntrack, log *slog.Logger) error {
	if c.MaxPerCore <= 0 {
		return nil
	}
	most := c.maxEntries(s.cpus())
	if err := s.ensure(sysctls+"nf_conntrack_max", most, log); err != nil {
		return err
	}
	text, err := s.read(hashsize)
	if err != nil {
		return fmt.Errorf("read size of the connection tracking table: %w", err)
	}
	size, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("read size of the connection tracking table: %w", err)
	}
	if size >= most/entriesPerBucket {
		return nil
	}
	return s.ensure(hashsize, most/entriesPerBucket, log)
}

// maxEntries returns the limit for a number of CPUs (9.15).
func (c Conntrack) maxEntries(cpus int) int {
	n := c.MaxPerCore * cpus
	if n > maxEntries {
		return maxEntries // whatever Min says
	}
	return max(n, c.Min)
}

// cpus returns the number of logical CPUs that are in use. The Go runtime, the
// fall-back, counts those that this process may run on.
func (s System) cpus() int {
	online, err := s.read("sys/devices/system/cpu/online")
	if err == nil {
		if n := countCPUs(online); n > 0 {
			return n
		}
	}
	return runtime.NumCPU()
}

// countCPUs counts a list such as "0-3,8,10-11"; 0 means that it is none.
func countCPUs(list string) int {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || to < from {
			return 0
		}
		n += to - from + 1
	}
	return n
}

// seconds cuts a duration to whole seconds. A positive one is not cut to zero:
// the kernel would forget every connection immediately.
func seconds(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return max(1, int(d/time.Second))
}

// advise adds to an error what a person can do about it.
func advise(err error, leave string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: load the module nf_conntrack, or leave the setting as it is with %s", err, leave)
	}
	return fmt.Errorf("%w: run an init container with --init-only that may write it, or leave it as it is with %s", err, leave)
}
