package takeover

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/nftconn"
)

// guardTable is there for some milliseconds. The kernel removes it with the socket of its
// owner.
const guardTable = "nftproxy-takeover"

// guardConnections drops packets from the middle of TCP connections without an entry in connection
// tracking, and returns how to end that. Without it, a packet between the two entries of a
// connection would begin a new one, with another endpoint; its sender repeats a dropped one.
func guardConnections() (end func() error, err error) {
	conn, err := nftconn.Open(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	table := conn.AddTable(&nftables.Table{Name: guardTable, Family: nftables.TableFamilyINet, Flags: nftables.TableFlagOwner})
	// After connection tracking, and before any translation.
	priority := nftables.ChainPriority(-150)
	chain := conn.AddChain(&nftables.Chain{Name: "prerouting", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: &priority})
	none := make([]byte, 4)
	// ct state new meta l4proto tcp tcp flags & syn == 0 counter drop
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW), Xor: none},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: none},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{tcpSYN}, Xor: none[:1]},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: none[:1]},
		&expr.Counter{},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	if err := conn.Flush(); err != nil {
		return nil, errors.Join(fmt.Errorf("add table inet %s: %w", guardTable, err), conn.CloseLasting())
	}
	return conn.CloseLasting, nil
}

// tcpSYN is the flag in the 14th byte of a TCP header.
const tcpSYN = 0x02
