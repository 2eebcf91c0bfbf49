package takeover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// legacy reports chains of kube-proxy in the tables of iptables-legacy, which are
// separate from nf_tables. The kernel accepts such a table only as a whole, in a
// format of the iptables commands, which the image does not contain.
func (r *report) legacy(s system, f family) {
	tables, err := s.legacyTables(f)
	r.left(err, "chains of kube-proxy from %stables-legacy", f.name)
	if len(tables) > 0 {
		r.left(errors.New("nftproxy cannot change these tables: run \"kube-proxy --cleanup\" from the image of kube-proxy, or restart the node"),
			"chains of kube-proxy from %s of %stables-legacy", strings.Join(tables, ", "), f.name)
	}
}

// legacyTables returns the tables that have chains of kube-proxy.
func (s system) legacyTables(f family) (found []string, err error) {
	// Reading a table that is not in use would create it.
	names, err := os.ReadFile(filepath.Join(s.root, "proc/thread-self/net", f.name+"_tables_names"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	present := strings.Fields(string(names))
	for _, t := range iptablesTables {
		if !slices.Contains(present, t) {
			continue
		}
		chains, readErr := legacyChains(f, t)
		if slices.ContainsFunc(chains, isKubeProxys) {
			found = append(found, t)
		}
		err = errors.Join(err, readErr)
	}
	return found, err
}

// Numbers and structures of linux/netfilter_ipv4/ip_tables.h, which equal those
// of ip6_tables.h.
const (
	getInfo    = 64 // IPT_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES

	nameLength = 32 // XT_TABLE_MAXNAMELEN
	infoLength = 84 // struct ipt_getinfo
	sizeOffset = 80 // of its member size
	headLength = 40 // struct ipt_get_entries before its entries, which are aligned to 8 bytes
)

// legacyChains returns the names of the user-defined chains in a table.
func legacyChains(f family, table string) (chains []string, err error) {
	domain, level := unix.AF_INET, unix.SOL_IP
	if f.name == "ip6" {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	err = netlinkio.Retry(netlinkio.Fades, func() error { // it may grow between size and entries
		entries, err := legacyEntries(fd, level, table)
		chains = chainNamesIn(entries)
		return err
	})
	return chains, err
}

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

// chainNamesIn returns the names of chains in a table: each begins with an ERROR
// target that carries its name. The result may contain other texts.
func chainNamesIn(entries []byte) (names []string) {
	// struct xt_error_target: size, name in 29 bytes, revision, and the text
	// in 30 bytes.
	const target, text = 30, 30
	name := append([]byte("ERROR"), make([]byte, target-len("ERROR"))...)
	for {
		i := bytes.Index(entries, name)
		if i < 0 || len(entries) < i+target+text {
			return names
		}
		entries = entries[i+target:]
		names = append(names, unix.ByteSliceToString(entries[:text]))
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
