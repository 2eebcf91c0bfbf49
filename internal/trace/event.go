package trace

import (
	"cmp"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Family is the family of a table: NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_INET...
type Family byte

// String returns nft's word for the family.
func (f Family) String() string {
	return cmp.Or(machine.FamilyNames[nftables.TableFamily(f)], fmt.Sprintf("family %d", f))
}

// Place identifies a chain.
type Place struct {
	Family Family
	Table  string
	Chain  string
}

// String returns for example "chain FORWARD in table ip filter".
func (p Place) String() string {
	return fmt.Sprintf("chain %s in table %s %s", p.Chain, p.Family, p.Table)
}

// Kind is the cause of a message.
type Kind uint32

const (
	Policy Kind = unix.NFT_TRACETYPE_POLICY // the packet came to the end of a base chain
	Return Kind = unix.NFT_TRACETYPE_RETURN // a rule ended the chain; without a handle, there are no more rules
	Rule   Kind = unix.NFT_TRACETYPE_RULE   // a rule matched
)

// Verdict is the verdict of a rule or of a policy.
type Verdict int32

const (
	Drop     Verdict = 0 // also of a rule that rejects
	Accept   Verdict = 1
	Stolen   Verdict = 2 // something else has taken the packet over
	Queue    Verdict = 3 // a program decides
	Continue Verdict = unix.NFT_CONTINUE
	Break    Verdict = unix.NFT_BREAK
	Jump     Verdict = unix.NFT_JUMP
	Goto     Verdict = unix.NFT_GOTO
	Returns  Verdict = unix.NFT_RETURN
)

var verdicts = map[Verdict]string{
	Drop: "drop", Accept: "accept", Stolen: "stolen", Queue: "queue", Continue: "continue", Break: "break", Jump: "jump", Goto: "goto", Returns: "return",
}

// String returns nft's word for the verdict.
func (v Verdict) String() string { return cmp.Or(verdicts[v], fmt.Sprintf("verdict %d", v)) }

// verdictMask selects the verdict in a code: for a queue, the upper half has its number
// (NF_VERDICT_MASK of linux/netfilter.h).
const verdictMask = 0xff

func verdictOf(code uint32) Verdict {
	if int32(code) < 0 {
		return Verdict(int32(code))
	}
	return Verdict(code & verdictMask)
}

// Event is one message of the kernel about a packet (nft_trace_notify of
// net/netfilter/nf_tables_trace.c).
type Event struct {
	// ID is the same for all messages about a packet, as long as the kernel does not copy
	// it or receives it again, as on lo. Another packet may have it later.
	ID uint32
	Place
	Handle  uint64 // of the rule
	Kind    Kind
	Verdict Verdict
	To      string // chain of a jump
	Mark    uint32 // of the packet, after the rule
	// Packet has the headers as they are. The first message of each base chain has it, all
	// others have none.
	Packet *Packet
}

// traceMessage is the type of the messages of the group NFNLGRP_NFTRACE.
const traceMessage = netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_TRACE)

// Decode returns the event in a message; false: it is not about a packet.
func Decode(m netlink.Message) (e Event, ok bool, err error) {
	if m.Header.Type != traceMessage {
		return e, false, nil
	}
	a := netlinkio.ReadMessage(m.Data, &err)
	e.Verdict = Continue
	var raw rawPacket
	for a.Next() {
		switch a.Type {
		case unix.NFTA_TRACE_ID:
			e.ID = a.Uint32()
		case unix.NFTA_TRACE_TABLE:
			e.Table = string(a.Text())
		case unix.NFTA_TRACE_CHAIN:
			e.Chain = string(a.Text())
		case unix.NFTA_TRACE_RULE_HANDLE:
			e.Handle = a.Uint64()
		case unix.NFTA_TRACE_TYPE:
			e.Kind = Kind(a.Uint32())
		case unix.NFTA_TRACE_VERDICT:
			e.decodeVerdict(a.Nested())
		case unix.NFTA_TRACE_POLICY:
			e.Verdict = verdictOf(a.Uint32())
		case unix.NFTA_TRACE_MARK:
			e.Mark = a.Uint32()
		case unix.NFTA_TRACE_NFPROTO:
			raw.protocol = a.Uint32()
		case unix.NFTA_TRACE_NETWORK_HEADER:
			raw.network = a.Data
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			raw.transport = a.Data
		case unix.NFTA_TRACE_IIF:
			raw.in = a.Uint32()
		case unix.NFTA_TRACE_OIF:
			raw.out = a.Uint32()
		}
	}
	if err != nil {
		return e, false, fmt.Errorf("decode trace of a packet: %w", err)
	}
	if e.Kind == Rule && e.Handle == 0 { // so the kernel reports the end of a chain
		e.Kind = Return
	}
	e.Family = Family(m.Data[0])
	e.Packet = raw.decodePacket()
	return e, true, nil
}

func (e *Event) decodeVerdict(a netlinkio.Attributes) {
	for a.Next() {
		switch a.Type {
		case unix.NFTA_VERDICT_CODE:
			e.Verdict = verdictOf(a.Uint32())
		case unix.NFTA_VERDICT_CHAIN:
			e.To = string(a.Text())
		}
	}
}

// isEnd reports whether the event says only that a chain has no more rules.
func (e *Event) isEnd() bool { return e.Kind == Return && e.Handle == 0 }
