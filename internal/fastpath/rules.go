package fastpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nftconn"
)

// rules are the rules of the node in a self-test: they translate destinations, masquerade, and
// count packets in the hook forward.
type rules struct {
	conn                    *nftables.Conn
	in                      *nftables.Table
	destinations, forwarder *nftables.Chain
}

func newRules(ns int) (*rules, error) {
	conn, err := nftconn.Open(nftables.AsLasting(), nftables.WithNetNSFd(ns))
	if err != nil {
		return nil, fmt.Errorf("open a socket of nf_tables: %w", err)
	}
	r := &rules{conn: conn, in: conn.AddTable(&nftables.Table{Name: "test", Family: nftables.TableFamilyINet})}
	r.destinations = r.chain("destinations", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	sources := r.chain("sources", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	r.forwarder = r.chain("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityMangle)
	port := binary.BigEndian.AppendUint16(nil, masqueradedPort)
	conn.AddRule(&nftables.Rule{Table: r.in, Chain: sources, Exprs: []expr.Any{
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: 1, Direction: expr.CtDirOriginal},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: port},
		&expr.Masq{},
	}})
	conn.AddRule(&nftables.Rule{Table: r.in, Chain: r.forwarder, Exprs: []expr.Any{&expr.Counter{}}})
	if err := conn.Flush(); err != nil {
		return nil, errors.Join(fmt.Errorf("add rules: %w", err), conn.CloseLasting())
	}
	return r, nil
}

func (r *rules) chain(name string, kind nftables.ChainType, hook *nftables.ChainHook, p *nftables.ChainPriority) *nftables.Chain {
	return r.conn.AddChain(&nftables.Chain{Name: name, Table: r.in, Type: kind, Hooknum: hook, Priority: p})
}

// translate sends new connections to the frontends to these endpoints.
func (r *rules) translate(to map[model.Family]netip.Addr) error {
	r.conn.FlushChain(r.destinations)
	for f, endpoint := range to {
		proto, offset := uint32(unix.NFPROTO_IPV4), uint32(16)
		if f == model.IPv6 {
			proto, offset = unix.NFPROTO_IPV6, 24
		}
		r.conn.AddRule(&nftables.Rule{Table: r.in, Chain: r.destinations, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(proto)}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(endpoint.BitLen() / 8)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: frontends[f].AsSlice()},
			&expr.Immediate{Register: 1, Data: endpoint.AsSlice()},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: proto, RegAddrMin: 1},
		}})
	}
	if err := r.conn.Flush(); err != nil {
		return fmt.Errorf("translate destinations: %w", err)
	}
	return nil
}

// forwarded returns how many packets have passed the hook forward.
func (r *rules) forwarded() (int, error) {
	all, err := r.conn.GetRules(r.in, r.forwarder)
	if err != nil {
		return 0, fmt.Errorf("read the counter of packets: %w", err)
	}
	for _, rule := range all {
		for _, e := range rule.Exprs {
			if c, ok := e.(*expr.Counter); ok {
				return int(c.Packets), nil
			}
		}
	}
	return 0, errors.New("read the counter of packets: there is none")
}
