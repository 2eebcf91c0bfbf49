// Package xtables reads the tables of iptables-legacy, which are separate from
// nf_tables. All functions are about the network namespace of the calling thread.
package xtables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Family is the IP family of a table: "ip" or "ip6", the prefixes of the commands.
type Family string

const (
	IPv4 Family = "ip"
	IPv6 Family = "ip6"
)

// Tables returns the names of the tables that are in use; root is the directory with
// proc. Reading another table would create it.
func Tables(root string, f Family) ([]string, error) {
	names, err := os.ReadFile(filepath.Join(root, "proc/thread-self/net", string(f)+"_tables_names"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(names)), err
}

// Numbers and structures of linux/netfilter_ipv4/ip_tables.h, which equal those
// of ip6_tables.h unless a function says otherwise.
const (
	getInfo    = 64 // IPT_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES

	nameLength = 32 // XT_TABLE_MAXNAMELEN
	infoLength = 84 // struct ipt_getinfo
	// Members of struct ipt_getinfo: arrays with an offset for each hook, and the size.
	hookOffset, underflowOffset, sizeOffset = 36, 56, 80

	headLength = 40 // struct ipt_get_entries before its entries, which are aligned to 8 bytes
)

// Table is a table in the kernel's format.
type Table struct {
	family  Family
	info    []byte // struct ipt_getinfo
	entries []byte
}

// Read reads a table that is in use, which needs CAP_NET_ADMIN.
func Read(f Family, table string) (*Table, error) {
	domain, level := unix.AF_INET, unix.SOL_IP
	if f == IPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	t := &Table{family: f}
	err = netlinkio.Retry(netlinkio.Fades, func() error { // it may grow between size and entries
		return t.read(fd, level, table)
	})
	return t, err
}

func (t *Table) read(fd, level int, table string) error {
	t.info = make([]byte, infoLength)
	copy(t.info[:nameLength-1], table)
	if err := readOption(fd, level, getInfo, t.info); err != nil {
		return fmt.Errorf("read size of table: %w", err)
	}
	size := t.uint32At(sizeOffset)
	entries := make([]byte, headLength+size)
	copy(entries[:nameLength-1], table)
	binary.NativeEndian.PutUint32(entries[nameLength:], size)
	if err := readOption(fd, level, getEntries, entries); err != nil {
		return fmt.Errorf("read table: %w", err)
	}
	t.entries = entries[headLength:]
	return nil
}

func (t *Table) uint32At(offset int) uint32 { return binary.NativeEndian.Uint32(t.info[offset:]) }

// Chains returns the names of the user-defined chains: each begins with an ERROR
// target that carries its name. The result may contain other texts.
func (t *Table) Chains() (names []string) {
	// struct xt_error_target: size, name in 29 bytes, revision, and the text
	// in 30 bytes.
	const target, text = 30, 30
	name := append([]byte("ERROR"), make([]byte, target-len("ERROR"))...)
	for entries := t.entries; ; {
		i := bytes.Index(entries, name)
		if i < 0 || len(entries) < i+target+text {
			return names
		}
		entries = entries[i+target:]
		names = append(names, unix.ByteSliceToString(entries[:text]))
	}
}

// Forward describes the chain FORWARD of a table that has one.
type Forward struct {
	Drops bool // the policy is DROP
	Rules bool // there are rules before the policy
}

// Forward returns the policy of the chain FORWARD, which is the verdict of its last
// entry: a standard target behind the match on addresses.
func (t *Table) Forward() (Forward, error) {
	const forward = 4 * unix.NF_INET_FORWARD
	first, last := t.uint32At(hookOffset+forward), t.uint32At(underflowOffset+forward)
	targetOffset := 88 // struct ipt_entry: ipt_ip, nfcache, target_offset
	if t.family == IPv6 {
		targetOffset = 140 // struct ip6t_entry
	}
	const verdict, dropped = 32, -1 // struct xt_standard_target; -NF_DROP - 1
	entry := t.entries[min(int(last), len(t.entries)):]
	if len(entry) < targetOffset+2 {
		return Forward{}, errors.New("read policy of chain FORWARD: the entry is too short")
	}
	target := entry[min(int(binary.NativeEndian.Uint16(entry[targetOffset:])), len(entry)):]
	if len(target) < verdict+4 {
		return Forward{}, errors.New("read policy of chain FORWARD: the target is too short")
	}
	v := int32(binary.NativeEndian.Uint32(target[verdict:]))
	return Forward{Drops: v == dropped, Rules: first != last}, nil
}

// readOption reads an option that takes an argument as well.
func readOption(fd, level, option int, value []byte) error {
	length := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
