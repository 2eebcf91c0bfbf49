package bytecode

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Known is what connection tracking knows when a packet comes.
type Known uint8

const (
	New     Known = iota // nothing: the packet opens a connection
	Older                // an unanswered connection that is older than all nat chains
	Answer               // the packet refuses a connection, and goes back to its client
	Related              // another connection that has announced this one
)

// Packet is the first packet of a connection.
type Packet struct {
	Protocol            uint8
	Source, Destination netip.Addr
	SourcePort, Port    uint16
	ICMPType            uint8  // of ICMP and ICMPv6; 0: an echo request
	In                  string // the interface on which it arrives; empty: this machine sends it
	Bridged             bool   // a bridge forwards it, and calls iptables: behind prerouting it has no input interface
	InVRF               bool   // that interface belongs to a VRF
	Priority            uint32 // that its sender has given it; 0: one that no rule knows
	Known               Known
	Exceeds             bool // all limits that it meets
}

// Machine is the rules with the rest that a packet depends on. It is not safe for concurrent use.
type Machine struct {
	Rules *Ruleset
	Local []netip.Addr // addresses of the machine, beside loopback
	Out   string       // the interface on which packets leave
	// Bound are elements of dynamic sets that earlier packets have left.
	Bound []Element
	// Full are names of dynamic sets without room for further elements.
	Full []string
	// Exceeded are elements of dynamic sets that have reached their limits. The limits of other
	// elements, and of rules, are reached by packets that say so.
	Exceeded []Element

	now     run // memory that the next packet uses again
	pending []run
}

// Element is an element of a dynamic set.
type Element struct {
	Set       string
	Key, Data string
	Timeout   time.Duration
	Deleted   bool // by the packet, instead of added
}

// Verdict is how a packet ends.
type Verdict uint8

const (
	Pass    Verdict = iota // to where it is addressed then
	Reset                  // answered with a TCP reset
	Reject                 // answered with ICMP
	Drop                   // not answered
	Unknown                // a rule is not understood
)

func (v Verdict) String() string {
	return [...]string{"pass", "reset", "reject", "drop", "not understood"}[v]
}

// Outcome is one possible end of a packet. It is comparable.
type Outcome struct {
	Verdict    Verdict
	To         netip.AddrPort // where it is addressed, of [Pass]
	Translated bool           // the destination
	Redirected bool           // to this machine
	Masquerade bool           // the source, to an address of this machine
	From       netip.AddrPort // to which another rule translates the source; zero: none does
	Priority   uint32         // of the packet
	Mark       uint32
	Why        string // what is not understood
}

// Result is an outcome, and how often packets have it.
type Result struct {
	Outcome
	Share float64
	// By names what chose among several ways. It is zero if there was only one.
	By Chooser
	// Left are the elements that the packet adds to sets, or deletes.
	Left []Element
}

// Chooser is how a rule chooses a number. It is comparable.
type Chooser struct {
	Kind string // counter, random, jhash or symhash
	Seed uint32
	Of   string // the bytes of which it is a hash
}

// String returns for example "pass to 10.128.1.1:8080 masquerade".
func (o Outcome) String() string {
	text := o.Verdict.String()
	switch {
	case o.Verdict == Unknown:
		return text + ": " + o.Why
	case o.Verdict != Pass:
		return text
	case o.Redirected:
		text = fmt.Sprintf("redirect to port %d", o.To.Port())
	case o.Translated:
		text = "to " + o.To.String()
	}
	if o.Masquerade {
		text += " masquerade"
	}
	if o.From.IsValid() {
		text += " from " + o.From.String()
	}
	if o.Priority != 0 {
		text += fmt.Sprintf(" priority %d", o.Priority)
	}
	if o.Mark != 0 {
		text += fmt.Sprintf(" mark 0x%x", o.Mark)
	}
	return text
}

// Sort sorts results by their outcome.
func Sort(all []Result) {
	slices.SortFunc(all, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Verdict, b.Verdict), a.To.Compare(b.To), cmp.Compare(b.Share, a.Share), cmp.Compare(a.String(), b.String()))
	})
}
