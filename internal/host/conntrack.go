package host

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Conntrack holds settings of the kernel's connection tracking. A value of zero or
// less leaves a setting unchanged (9.13).
type Conntrack struct {
	// MaxPerCore limits tracked connections for each CPU, and Min is the smallest
	// limit in total; without MaxPerCore, Min has no effect (9.15).
	MaxPerCore, Min int
	// Timeouts of idle connections are cut to whole seconds, but not below one.
	TCPEstablishedTimeout, TCPCloseWaitTimeout time.Duration
	UDPTimeout, UDPStreamTimeout               time.Duration
	// TCPBeLiberal accepts segments outside of the window, which would otherwise be
	// INVALID and never translated (9.14).
	TCPBeLiberal bool
}

const (
	sysctls  = "proc/sys/net/netfilter/"
	hashsize = "sys/module/nf_conntrack/parameters/hashsize"

	maxEntries       = 1 << 20 // upper limit for MaxPerCore (9.15)
	entriesPerBucket = 4       // of a full hash table (9.17)
)

// CountsBytes reports whether the kernel counts the bytes of connections, or whether that is
// not known.
func (s System) CountsBytes() bool {
	n, err := s.readNumber(sysctls + "nf_conntrack_acct")
	return err != nil || n != 0
}

// SetConntrack applies the settings, up to the first failure. It calls note before each change. The error
// contains a remedy.
func (s System) SetConntrack(c Conntrack, note func(Change), log *slog.Logger) error {
	if err := s.setMax(c, note, log); err != nil {
		return addAdvice(err, "--conntrack-max-per-core=0")
	}
	liberal := 0
	if c.TCPBeLiberal {
		liberal = 1
	}
	for _, setting := range []struct {
		name, leave string // the flag that leaves it unchanged
		value       int
	}{
		{"nf_conntrack_tcp_timeout_established", "--conntrack-tcp-timeout-established=0s", wholeSeconds(c.TCPEstablishedTimeout)},
		{"nf_conntrack_tcp_timeout_close_wait", "--conntrack-tcp-timeout-close-wait=0s", wholeSeconds(c.TCPCloseWaitTimeout)},
		{"nf_conntrack_tcp_be_liberal", "--conntrack-tcp-be-liberal=false", liberal},
		{"nf_conntrack_udp_timeout", "--conntrack-udp-timeout=0s", wholeSeconds(c.UDPTimeout)},
		{"nf_conntrack_udp_timeout_stream", "--conntrack-udp-timeout-stream=0s", wholeSeconds(c.UDPStreamTimeout)},
	} {
		if setting.value <= 0 {
			continue
		}
		if _, err := s.ensureValue(sysctls+setting.name, strconv.Itoa(setting.value), note, log); err != nil {
			return addAdvice(err, setting.leave)
		}
	}
	return nil
}

// setMax raises the number of connections (9.16), and enlarges the hash table for them.
func (s System) setMax(c Conntrack, note func(Change), log *slog.Logger) error {
	if c.MaxPerCore <= 0 {
		return nil
	}
	most := c.maxEntries(s.onlineCPUs())
	// 0 is no limit at all. What cannot be read is an error of the attempt to write.
	if now, err := s.readNumber(sysctls + "nf_conntrack_max"); err != nil || 0 < now && now < most {
		if _, err := s.ensureValue(sysctls+"nf_conntrack_max", strconv.Itoa(most), note, log); err != nil {
			return err
		}
	}
	switch size, err := s.readNumber(hashsize); {
	case err != nil:
		return fmt.Errorf("read size of the connection tracking table: %w", err)
	case size >= most/entriesPerBucket:
		return nil
	}
	_, err := s.ensureValue(hashsize, strconv.Itoa(most/entriesPerBucket), note, log)
	return err
}

// maxEntries returns the limit for a number of CPUs (9.15).
func (c Conntrack) maxEntries(cpus int) int {
	n := c.MaxPerCore * cpus
	if n > maxEntries {
		return maxEntries // regardless of Min
	}
	return max(n, c.Min)
}

// onlineCPUs returns the number of online logical CPUs. The fallback, the Go runtime, counts
// only those that this process may use.
func (s System) onlineCPUs() int {
	online, _ := s.read("sys/devices/system/cpu/online")
	return cmp.Or(countCPUs(online), runtime.NumCPU())
}

// countCPUs counts a list such as "0-3,8,10-11"; 0 means that it is malformed.
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

// wholeSeconds cuts a duration to whole seconds, but a positive one not to zero: the
// kernel would expire all connections immediately.
func wholeSeconds(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return max(1, int(d/time.Second))
}
