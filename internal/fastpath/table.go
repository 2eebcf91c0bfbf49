package fastpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nftconn"
)

const TableName = "nftproxy-fast-path"

const (
	flowtableName = "flows"
	chainName     = "forward"
)

// priority is behind all filters that other programs usually have in the hook forward: only
// what they let pass reaches the chain.
const priority = 1000

// mostElements is how many elements a message holds: its attribute has 64 KiB.
const mostElements = 512

// table is the flow table, with the frontends whose connections go there. It is not safe for
// concurrent use.
type table struct {
	conn  *nftables.Conn
	in    *nftables.Table
	chain *nftables.Chain
	sets  map[model.Family]*nftables.Set
	// early takes connections before they are assured, for the self-test.
	early bool
	flags nftables.FlowtableFlags
}

type options struct {
	// shared makes a table that other programs may change. It stays when its process is
	// killed, until the next one begins.
	shared bool
	early  bool
	// hardware has devices take the connections themselves: only those that can are added.
	hardware bool
	netns    int // file descriptor; zero: the one of the thread
}

// create makes the table, empty and without devices, in place of one that an earlier process
// has left.
func create(o options) (*table, error) {
	with := []nftables.ConnOption{nftables.AsLasting()}
	if o.netns != 0 {
		with = append(with, nftables.WithNetNSFd(o.netns))
	}
	conn, err := nftconn.Open(with...)
	if err != nil {
		return nil, fmt.Errorf("open a socket of nf_tables: %w", err)
	}
	t := &table{conn: conn, in: &nftables.Table{Name: TableName, Family: nftables.TableFamilyINet}, early: o.early, flags: nftables.FlowtableFlagsCounter}
	if o.hardware {
		t.flags |= nftables.FlowtableFlagsHWOffload
	}
	if err := t.begin(o.shared); err != nil {
		return nil, errors.Join(err, conn.CloseLasting())
	}
	return t, nil
}

func (t *table) begin(shared bool) error {
	// A table can only be deleted if it exists, and its flags cannot be changed.
	t.conn.AddTable(t.in)
	t.conn.DelTable(t.in)
	if err := t.conn.Flush(); err != nil {
		return fmt.Errorf("remove table %s of an earlier process: %w", TableName, err)
	}
	if !shared {
		t.in.Flags = nftables.TableFlagOwner
	}
	t.conn.AddTable(t.in)
	t.sets = make(map[model.Family]*nftables.Set)
	for f, address := range map[model.Family]nftables.SetDatatype{model.IPv4: nftables.TypeIPAddr, model.IPv6: nftables.TypeIP6Addr} {
		s := &nftables.Set{
			Table: t.in, Name: setName(f), Concatenation: true,
			KeyType: nftables.MustConcatSetType(address, nftables.TypeInetProto, nftables.TypeInetService),
		}
		if err := t.conn.AddSet(s, nil); err != nil {
			return fmt.Errorf("add set %s: %w", s.Name, err)
		}
		t.sets[f] = s
	}
	accept := nftables.ChainPolicyAccept
	t.chain = t.conn.AddChain(&nftables.Chain{
		Name: chainName, Table: t.in, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityRef(priority), Policy: &accept,
	})
	t.addFlowtable()
	if err := t.conn.Flush(); err != nil {
		return fmt.Errorf("make table %s: %w", TableName, err)
	}
	return nil
}

func setName(f model.Family) string {
	if f == model.IPv6 {
		return "frontends6"
	}
	return "frontends4"
}

// addFlowtable adds the flow table without devices, and the rules that lead to it.
func (t *table) addFlowtable() {
	t.conn.AddFlowtable(t.flowtable())
	for _, f := range model.Families {
		t.conn.AddRule(&nftables.Rule{Table: t.in, Chain: t.chain, Exprs: t.rule(f)})
	}
}

// flowtable counts its packets for connection tracking, so that accounting stays right.
func (t *table) flowtable(devices ...string) *nftables.Flowtable {
	return &nftables.Flowtable{Table: t.in, Name: flowtableName, Devices: devices, Flags: t.flags}
}

// Of linux/netfilter/nf_conntrack_common.h.
const (
	statusAssured    = 1 << 2
	statusDNAT       = 1 << 5
	stateEstablished = 1 << 1
)

// The registers of a key, of 4 bytes each.
const firstRegister = unix.NFT_REG32_00

// rule returns
//
//	ct status & (assured | dnat) == assured | dnat ct state established meta nfproto ipv4
//	ct original ip daddr . meta l4proto . ct original proto-dst @frontends4
//	fib saddr . mark . iif oif exists flow add @flows
//
// The other direction of the connection gets the route that the kernel finds with the mark of this packet. So only a packet
// counts whose way back, with its mark, leads to the device at which it has arrived: an answer without a mark must not decide
// about the route of marked questions (TestFastPathMarkedQuestions).
func (t *table) rule(f model.Family) []expr.Any {
	status := uint32(statusAssured | statusDNAT)
	if t.early {
		status = statusDNAT
	}
	proto, address, words := byte(unix.NFPROTO_IPV4), expr.CtKeyDSTIP, uint32(1)
	if f == model.IPv6 {
		proto, address, words = unix.NFPROTO_IPV6, expr.CtKeyDSTIP6, 4
	}
	s := t.sets[f]
	return slices.Concat(
		[]expr.Any{&expr.Ct{Key: expr.CtKeySTATUS, Register: 1}}, masked(status, status, expr.CmpOpEq),
		[]expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: 1}}, masked(stateEstablished, 0, expr.CmpOpNeq),
		[]expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
			&expr.Ct{Key: address, Register: firstRegister, Direction: expr.CtDirOriginal},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: firstRegister + words},
			&expr.Ct{Key: expr.CtKeyPROTODST, Register: firstRegister + words + 1, Direction: expr.CtDirOriginal},
			&expr.Lookup{SourceRegister: firstRegister, SetName: s.Name, SetID: s.ID},
			&expr.Fib{Register: 1, ResultOIF: true, FlagSADDR: true, FlagMARK: true, FlagIIF: true, FlagPRESENT: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{1}},
			&expr.FlowOffload{Name: flowtableName},
		})
}

// masked compares the bits of the first register that a mask has.
func masked(mask, with uint32, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(mask), Xor: native(0)},
		&expr.Cmp{Op: op, Register: 1, Data: native(with)},
	}
}

func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// hook adds devices. If the kernel does not know all of them any more, it adds none.
func (t *table) hook(devices ...string) error {
	if len(devices) == 0 {
		return nil
	}
	t.conn.AddFlowtable(t.flowtable(devices...))
	return t.conn.Flush()
}

// hooked returns how many names of devices the flow table has.
func (t *table) hooked() (int, error) {
	all, err := t.conn.ListFlowtables(t.in)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return len(all[0].Devices), nil
}

// restart returns all connections to the rules, and leaves the flow table without devices.
func (t *table) restart() error {
	t.conn.FlushChain(t.chain)
	t.conn.DelFlowtable(t.flowtable())
	t.addFlowtable()
	if err := t.conn.Flush(); err != nil {
		return fmt.Errorf("empty the flow table: %w", err)
	}
	return nil
}

// change removes frontends from the sets, and adds others.
func (t *table) change(remove, add []model.Frontend) error {
	if err := t.each(remove, t.conn.SetDeleteElements); err != nil {
		return fmt.Errorf("remove frontends: %w", err)
	}
	if err := t.each(add, t.conn.SetAddElements); err != nil {
		return fmt.Errorf("add frontends: %w", err)
	}
	return nil
}

// each sends frontends in transactions of limited size.
func (t *table) each(all []model.Frontend, do func(*nftables.Set, []nftables.SetElement) error) error {
	for part := range slices.Chunk(all, mostElements) {
		elements := make(map[model.Family][]nftables.SetElement)
		for _, f := range part {
			family := model.FamilyOf(f.Address)
			elements[family] = append(elements[family], nftables.SetElement{Key: key(f)})
		}
		for family, these := range elements {
			if err := do(t.sets[family], these); err != nil {
				return err
			}
		}
		if err := t.conn.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// key packs a frontend, each part with a multiple of 4 bytes.
func key(f model.Frontend) []byte {
	out := append(f.Address.AsSlice(), byte(f.Protocol), 0, 0, 0)
	return append(binary.BigEndian.AppendUint16(out, f.Port), 0, 0)
}

// close removes the table, after which its connections pass the rules.
func (t *table) close() error {
	t.conn.DelTable(t.in)
	return errors.Join(t.conn.Flush(), t.conn.CloseLasting())
}
