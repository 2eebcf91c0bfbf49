package netlinkio

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpAttempts is how often a dump starts over. Most take less than a millisecond, so only
// a machine whose interfaces change without pause needs more than two.
const dumpAttempts = 10

// Complete calls dump again while the kernel reports that the list changed during the dump
// (NLM_F_DUMP_INTR): entries may be missing then. It returns the last error.
func Complete(dump func() error) (err error) {
	for range dumpAttempts {
		if err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}

// List returns a complete list of what ask lists, such as netlink.LinkList.
func List[T any](ask func() ([]T, error)) (list []T, err error) {
	err = Complete(func() (err error) {
		list, err = ask()
		return err
	})
	return list, err
}

// Addresses returns the addresses of an interface, or those of all interfaces if link
// is nil.
func Addresses(link netlink.Link) ([]netlink.Addr, error) {
	return List(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
}
