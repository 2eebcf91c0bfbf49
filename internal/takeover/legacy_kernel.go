package takeover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers and structures of linux/netfilter_ipv4/ip_tables.h, which those of
// ip6_tables.h equal.
const (
	getInfo    = 64 // IPT_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES

	nameLength = 32 // XT_TABLE_MAXNAMELEN
	infoLength = 84 // struct ipt_getinfo
	sizeOffset = 80 // of its member size
	headLength = 40 // struct ipt_get_entries before its entries, which are aligned to 8 bytes
)

// legacyChains returns the names of the user-defined chains in a table, and
// perhaps texts that are none. It needs no command: where a chain begins, the
// kernel's copy of the table has an ERROR target that carries its name.
func legacyChains(f family, table string) ([]string, error) {
	domain, level := unix.AF_INET, unix.SOL_IP
	if f.name == "ip6" {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	for range attempts {
		entries, err := legacyEntries(fd, level, table)
		if errors.Is(err, unix.EAGAIN) { // it grew in between
			continue
		}
		return chainNamesIn(entries), err
	}
	return nil, fmt.Errorf("read table: %w", unix.EAGAIN)
}

// legacyEntries returns the table as the kernel has it.
func legacyEntries(fd, level int, table string) ([]byte, error) {
	info := make([]byte, infoLength)
	copy(info[:nameLength-1], table)
	if err := getsockopt(fd, level, getInfo, info); err != nil {
		return nil, fmt.Errorf("read size of table: %w", err)
	}
	size := binary.NativeEndian.Uint32(info[sizeOffset:])
	entries := make([]byte, headLength+size)
	copy(entries[:nameLength-1], table)
	binary.NativeEndian.PutUint32(entries[nameLength:], size)
	if err := getsockopt(fd, level, getEntries, entries); err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	return entries[headLength:], nil
}

// chainNamesIn returns the text that follows the name of each ERROR target.
func chainNamesIn(entries []byte) []string {
	// struct xt_error_target: size, name in 29 bytes, revision, and the text
	// in 30 bytes.
	const target, text = 30, 30
	name := append([]byte("ERROR"), make([]byte, target-len("ERROR"))...)
	var out []string
	for {
		i := bytes.Index(entries, name)
		if i < 0 || len(entries) < i+target+text {
			return out
		}
		entries = entries[i+target:]
		out = append(out, unix.ByteSliceToString(entries[:text]))
	}
}

// getsockopt reads an option that takes an argument as well.
func getsockopt(fd, level, option int, value []byte) error {
	length := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
