// Package nftconn opens connections of the library nftables, in processes with many files, too.
package nftconn

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// buffers are the bytes for messages in each direction: those that the library asks for by itself
// for a batch.
const buffers = 8 << 20

// Open returns a connection to nf_tables as [nftables.New] does. The library waits with select(2), which
// knows no file descriptor from FD_SETSIZE (1024) on, and panics with such a one. A process with
// thousands of relayed connections or health checks has no lower one to give: an error says so
// then, here or where the connection is first used.
func Open(options ...nftables.ConnOption) (*nftables.Conn, error) {
	return nftables.New(append(options[:len(options):len(options)], nftables.WithSockOptions(selectable))...)
}

// selectable prepares a socket, or closes it, which the library does not do after an error.
func selectable(c *netlink.Conn) error {
	raw, err := c.SyscallConn()
	if err == nil {
		var at uintptr
		err = raw.Control(func(fd uintptr) { at = fd })
		if err == nil && at >= unix.FD_SETSIZE {
			err = fmt.Errorf("open connection to nf_tables: %w: it got file descriptor %d, and has to be below %d", unix.EMFILE, at, unix.FD_SETSIZE)
		}
	}
	if err == nil {
		err = errors.Join(c.SetReadBuffer(buffers), c.SetWriteBuffer(buffers))
	}
	if err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}
