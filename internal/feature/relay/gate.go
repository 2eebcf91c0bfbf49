package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
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

// Names in the store. An older release finds its listener by listenerName.
func listenerName(f model.Family) string { return "relay-" + f.String() }
func gateName(f model.Family) string     { return "relay-gate-" + f.String() }

// openDoor opens the port and then the gate, or takes over both from the last process.
func (s *Server) openDoor(f model.Family) (*door, error) {
	l, kept, err := s.listener(f)
	if err != nil {
		return nil, err
	}
	d, err := s.guard(f, l, kept)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return d, nil
}

// listener returns the listener of the last process, or opens one. It reports whether the store
// keeps it.
func (s *Server) listener(f model.Family) (l *net.TCPListener, kept bool, err error) {
	if l := fromFile(s.store.Take(listenerName(f))); l != nil {
		return l, true, nil
	}
	if l, err = s.listen(f); err != nil {
		return nil, false, err
	}
	return l, s.keep(f, listenerName(f), l), nil
}

// guard makes a door of a listener. The store keeps a gate only beside the listener.
func (s *Server) guard(f model.Family, l *net.TCPListener, kept bool) (*door, error) {
	left := s.store.Take(gateName(f))
	if left != nil && !kept { // its listener is gone
		left.Close()
		left = nil
		if err := s.store.Forget(gateName(f)); err != nil {
			return nil, err
		}
	}
	isNew := left == nil
	d, err := makeDoor(f, l, left)
	if err == nil && isNew && kept {
		s.keep(f, gateName(f), d.gate)
	}
	return d, err
}

// keep has the store keep a file, and reports whether it does as far as this process knows.
func (s *Server) keep(f model.Family, name string, file syscall.Conn) bool {
	if s.store == nil {
		return false
	}
	s.kept[f] = true
	err := s.store.Keep(name, file)
	if err != nil {
		s.node.ObjectLog.Warn("connections to relayed Balances will be refused during a restart", "family", f, "error", err)
	}
	return err == nil
}

// forget has the store forget a door that is not needed, the gate first.
func (s *Server) forget(f model.Family) {
	if !s.kept[f] {
		return
	}
	s.kept[f] = false
	for _, name := range []string{gateName(f), listenerName(f)} {
		if err := s.store.Forget(name); err != nil {
			s.node.ObjectLog.Warn("the port of the relay stays open", "family", f, "error", err)
		}
	}
}

// fromFile returns the listener in a file, which it closes; nil: there is none.
func fromFile(f *os.File) *net.TCPListener {
	if f == nil {
		return nil
	}
	defer f.Close() // the listener has a copy
	l, err := net.FileListener(f)
	if err != nil {
		return nil
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		l.Close()
	}
	return tcp
}

// listen listens at all addresses: the rules redirect to the one at which the packet arrives.
func (s *Server) listen(f model.Family) (*net.TCPListener, error) {
	l, err := s.proxy.Listen(netip.AddrPortFrom(model.Wildcard(f), model.RelayPort), 0)
	if err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			err = errno // whose text is short
		}
		err = fmt.Errorf("listen on port %d, to which the rules redirect: %w", model.RelayPort, err)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: find the process that listens with \"ss -tlnp sport = :%d\", and stop it", err, model.RelayPort)
		}
	}
	return l, err
}
