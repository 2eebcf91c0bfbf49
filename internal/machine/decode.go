package machine

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// decoder turns the expressions of a rule into conditions and a verdict. An expression that
// it does not understand is a condition of kind [Other].
type decoder struct {
	family nftables.TableFamily
	rules  *rules          // with the sets
	table  *nftables.Table // of the rule
	out    Rule
	loaded expr.Any // into the register
	mask   []byte
}

func (d *decoder) decodeRule(all []expr.Any) Rule {
	for _, e := range all {
		d.decodeExpression(e)
	}
	return d.out
}

func (d *decoder) decodeExpression(e expr.Any) {
	switch e := e.(type) {
	case *expr.Meta:
		if !e.SourceRegister {
			d.loaded, d.mask = e, nil
		}
	case *expr.Ct:
		if !e.SourceRegister {
			d.loaded, d.mask = e, nil
		}
	case *expr.Payload:
		d.loaded, d.mask = e, nil
	case *expr.Bitwise:
		d.mask = e.Mask
	case *expr.Cmp:
		d.addCondition(d.decodeComparison(e))
		d.loaded = nil // the next expression that loads may be unknown to the library
	case *expr.Lookup:
		d.lookup(e)
		d.loaded = nil
	case *expr.Match:
		d.decodeMatch(e)
	case *expr.Target:
		d.decodeTarget(e)
	case *expr.Verdict:
		d.decodeVerdict(e)
	case *expr.Reject:
		d.out.Verdict = Drop
	case *expr.Notrack:
		d.out.NoTrack = true
	case *expr.NAT, *expr.Masq, *expr.Redir:
		d.out.NAT, d.out.Verdict = true, Accept
	case *expr.Counter, *expr.Log, *expr.Immediate:
	case *expr.Queue, *expr.TProxy:
		d.out.Verdict = Unknown
	case *expr.Limit, *expr.Quota, *expr.Connlimit, *expr.Range, *expr.Dynset: // that may have a limit
		d.addCondition(Condition{})
	default: // loads something
		d.loaded, d.mask = nil, nil
	}
}

func (d *decoder) addCondition(c Condition) { d.out.When = append(d.out.When, c) }

func (d *decoder) decodeComparison(e *expr.Cmp) Condition {
	equal := e.Op == expr.CmpOpEq
	switch l := d.loaded.(type) {
	case *expr.Meta:
		switch l.Key {
		case expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME:
			if equal {
				return Condition{Kind: Interface, Name: string(bytes.TrimRight(e.Data, "\x00"))}
			}
		case expr.MetaKeyNFPROTO:
			if equal && len(e.Data) == 1 {
				return Condition{Kind: Family, Number: e.Data[0]}
			}
		case expr.MetaKeyL4PROTO:
			if equal && len(e.Data) == 1 {
				return Condition{Kind: Protocol, Number: e.Data[0]}
			}
		}
	case *expr.Ct:
		return d.decodeState(l, e)
	case *expr.Payload:
		if equal {
			return d.decodeHeader(l, e.Data)
		}
	}
	return Condition{}
}

// decodeState decodes "ct state new": mask, then not equal to zero, or without a mask
// equal to the state.
func (d *decoder) decodeState(l *expr.Ct, e *expr.Cmp) Condition {
	bit := d.mask
	if e.Op == expr.CmpOpEq && len(d.mask) == 0 {
		bit = e.Data
	} else if e.Op != expr.CmpOpNeq || bytes.ContainsFunc(e.Data, func(r rune) bool { return r != 0 }) {
		return Condition{}
	}
	if len(bit) != 4 {
		return Condition{}
	}
	set := binary.NativeEndian.Uint32(bit)
	const statusDNAT = 1 << 5 // IPS_DST_NAT
	switch {
	case l.Key == expr.CtKeySTATE:
		return Condition{Kind: State, States: set}
	case l.Key == expr.CtKeySTATUS && set&statusDNAT != 0:
		return Condition{Kind: DNAT}
	}
	return Condition{}
}

// decodeHeader decodes a comparison with the addresses or the protocol of a packet.
func (d *decoder) decodeHeader(l *expr.Payload, value []byte) Condition {
	source, destination, size := uint32(12), uint32(16), 4
	if d.family == nftables.TableFamilyIPv6 || l.Offset == 24 || l.Offset == 8 && l.Len > 1 {
		source, destination, size = 8, 24, 16
	}
	switch {
	case l.Base != expr.PayloadBaseNetworkHeader || len(value) == 0:
		return Condition{}
	case size == 4 && l.Offset == 9 && l.Len == 1:
		return Condition{Kind: Protocol, Number: value[0]}
	case l.Offset != source && l.Offset != destination || len(value) > size:
		return Condition{}
	}
	kind := Source
	if l.Offset == destination {
		kind = Destination
	}
	length := 8 * len(value)
	if d.mask != nil {
		ones, all := net.IPMask(d.mask).Size() // 0, 0: the mask is none of a prefix
		if all != length {
			return Condition{}
		}
		length = ones
	}
	address, ok := netip.AddrFromSlice(append(slices.Clone(value), make([]byte, size-len(value))...))
	if !ok {
		return Condition{}
	}
	return Condition{Kind: kind, Prefix: netip.PrefixFrom(address, length)}
}

func (d *decoder) lookup(e *expr.Lookup) {
	if l, ok := d.loaded.(*expr.Ct); ok && l.Key == expr.CtKeySTATE && !e.Invert {
		states, ok := d.rules.readStates(d.table, e.SetName)
		switch {
		case ok && !e.IsDestRegSet:
			d.addCondition(Condition{Kind: State, States: states})
			return
		case ok && states&stateNew == 0:
			return // a verdict map that does not decide about new connections
		}
	}
	d.addCondition(Condition{})
	if e.IsDestRegSet {
		d.out.Verdict = Unknown
	}
}

// Bits of xt_conntrack's states that nft does not have.
const xtDNAT = 1 << 7

func (d *decoder) decodeMatch(e *expr.Match) {
	info, ok := e.Info.(*xt.ConntrackMtinfo3)
	switch {
	case e.Name == "comment":
	case ok && info.MatchFlags == uint16(xt.ConntrackState) && info.InvertFlags == 0 && info.StateMask&xtDNAT != 0:
		d.addCondition(Condition{Kind: DNAT})
	case ok && info.MatchFlags == uint16(xt.ConntrackState) && info.InvertFlags == 0:
		d.addCondition(Condition{Kind: State, States: uint32(info.StateMask)})
	default:
		d.addCondition(Condition{})
	}
}

func (d *decoder) decodeTarget(e *expr.Target) {
	const noTrack = 1 // XT_CT_NOTRACK
	switch e.Name {
	case "REJECT":
		d.out.Verdict = Drop
	case "LOG", "NFLOG", "MARK", "CONNMARK", "TRACE", "TCPMSS", "CHECKSUM", "DSCP", "SECMARK", "CONNSECMARK":
	case "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP":
		d.out.NAT, d.out.Verdict = true, Accept
	case "NOTRACK":
		d.out.NoTrack = true
	case "CT":
		info, ok := e.Info.(*xt.Unknown)
		d.out.NoTrack = ok && len(*info) >= 2 && binary.NativeEndian.Uint16(*info)&noTrack != 0
	default:
		d.out.Verdict = Unknown
	}
}

func (d *decoder) decodeVerdict(e *expr.Verdict) {
	switch e.Kind {
	case expr.VerdictAccept:
		d.out.Verdict = Accept
	case expr.VerdictDrop:
		d.out.Verdict = Drop
	case expr.VerdictJump, expr.VerdictGoto:
		d.out.Verdict, d.out.To = Jump, e.Chain
	case expr.VerdictReturn:
		d.out.Verdict = Return
	}
}

// isTransport reports whether Services have this protocol.
func isTransport(number uint8) bool {
	return number == unix.IPPROTO_TCP || number == unix.IPPROTO_UDP || number == unix.IPPROTO_SCTP
}
