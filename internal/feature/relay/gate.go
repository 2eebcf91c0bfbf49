package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/nftconn"
)

// door is the listener of a family, with a gate: a table that lets redirected connections pass to the port of the relay; the
// rules reject all others there. It belongs to a socket without NFT_TABLE_F_PERSIST (kernel 5.12), so the kernel
// removes it when that socket is closed, however the process ends. It must never outlive the
// listener: another process could then take the port, and get the connections.
type door struct {
	listener *net.TCPListener
	gate     *os.File // the socket that owns the table
	// above is a copy of the listener. The kernel may close the files of a process that ends in the order of
	// their numbers, or the other way round: the copy has a higher one than the socket, and the
	// listener a lower one, so that in either order the socket is not the last.
	above *os.File
}

// Numbers of linux/netfilter/nf_tables.h, of linux/netfilter/nf_conntrack_common.h, and of
// linux/if.h.
const (
	metaInputKind = 26 // NFT_META_IIFKIND, since kernel 5.6
	statusDNAT    = 1 << 5
)

// makeDoor makes a gate for a listener: with the socket of the last process if it has left one. It
// takes ownership of that.
func makeDoor(f model.Family, l *net.TCPListener, left *os.File) (_ *door, err error) {
	d := &door{listener: l}
	if left == nil {
		left, err = makeTable(f)
	}
	if err == nil {
		d.gate, err = copyAbove(left, l)
		err = errors.Join(err, left.Close())
	}
	if err == nil {
		d.above, err = copyAbove(l, d.gate)
	}
	if err == nil {
		return d, nil
	}
	err = fmt.Errorf("let connections pass to port %d: %w", model.RelayPort, err)
	if d.gate != nil {
		err = errors.Join(err, d.gate.Close())
	}
	return nil, err
}

// close removes the table, unless another process holds its socket, and then the listener: no connection may arrive at a
// port that another process can take.
func (d *door) close() {
	d.gate.Close()
	d.above.Close()
	d.listener.Close()
}

// copyAbove returns a copy whose descriptor has a higher number than that of another file.
func copyAbove(f, low syscall.Conn) (*os.File, error) {
	above, err := descriptors.Use(low, func(fd int) (int, error) { return fd + 1, nil })
	if err != nil {
		return nil, err
	}
	return descriptors.Use(f, func(fd int) (*os.File, error) {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, above)
		if err != nil {
			return nil, os.NewSyscallError("fcntl", err)
		}
		return os.NewFile(uintptr(n), "relay"), nil
	})
}

// makeTable makes the table in place of an older one, and returns the socket that owns it.
func makeTable(f model.Family) (socket *os.File, err error) {
	var copied error
	keep := nftables.WithSockOptions(func(c *netlink.Conn) error {
		socket, copied = copyAbove(c, c)
		return copied
	})
	conn, err := nftconn.Open(nftables.AsLasting(), keep)
	if err == nil {
		err = AddTable(conn, f)
		err = errors.Join(err, conn.CloseLasting())
	}
	if err != nil && socket != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return socket, err
}

// AddTable adds the table, whose chain is
//
//	chain input {
//		type filter hook input priority 98; policy accept;
//		iifkind "vrf" accept
//		ct status dnat tcp dport 10245 meta priority set 7265:6c61
//	}
//
// What arrives in a VRF goes to a listener that is bound to it, which is another process. The match
// is a rule of its own: it ends the rule for devices without a kind, such as lo.
func AddTable(conn *nftables.Conn, f model.Family) error {
	family := map[model.Family]nftables.TableFamily{model.IPv4: nftables.TableFamilyIPv4, model.IPv6: nftables.TableFamilyIPv6}[f]
	t := conn.AddTable(&nftables.Table{Name: nft.RelayTable, Family: family, Flags: nftables.TableFlagOwner})
	accept := nftables.ChainPolicyAccept
	c := conn.AddChain(&nftables.Chain{
		Name: "input", Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityRef(nft.PriorityRelay - 1), Policy: &accept,
	})
	vrf := make([]byte, unix.IFNAMSIZ)
	copy(vrf, "vrf")
	conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: []expr.Any{
		&expr.Meta{Key: metaInputKind, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: vrf},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}})
	status, none := native(statusDNAT), native(0)
	conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: status, Xor: none},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: none},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, model.RelayPort)},
		&expr.Immediate{Register: 1, Data: native(uint32(nft.Admitted))},
		&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: 1},
	}})
	return conn.Flush()
}

func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
