package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Statement is one match or action of a rule. Its text is nft's own spelling,
// the one that `nft list` prints; two statements are equal if their texts are.
//
// A new statement without parameters is a row of plainStatements. Another one is a type here, with Text,
// and with a case in SetOf if it refers to a set. Both also need a case in
//
//   - statementJSON in package nft, unless they are a row,
//   - expressionsOf and its inverse, the methods of symbolic, in package codec,
//   - tracer.evaluateStatement in package explain,
//   - byExpression in package preflight, if they need an expression that can be
//     a separate kernel module,
//   - Statements in package workload: the samples with which TestEveryStatement
//     fails where one of these is forgotten.
type Statement interface {
	Text(f model.Family) string
}

// Plain is a statement without parameters.
type Plain uint8

// Matches, and then actions.
const (
	NotTranslated Plain = iota // connections whose destination was not rewritten
	// Known matches packets of connections that an earlier packet has opened. In a nat chain these
	// are older than the chains, which cannot translate them any more.
	Known
	// IsAnswer matches packets from the server of a connection: of first packets, those
	// that refuse the connection.
	IsAnswer
	EndsTCP             // TCP segments with which a side ends or resets the connection
	ResetsTCP           // only those that reset it
	SourceIsLocal       // packets from an address of this node
	DestinationNotLocal // packets to addresses that are not of this node at present
	IsEchoRequest       // the echo requests of ICMP, or of ICMPv6
	// CameIn matches packets with an input interface: those that the node routes. Its
	// own have none. In postrouting those that a bridge forwards have none either, if
	// the bridge calls iptables (net.bridge.bridge-nf-call-iptables).
	CameIn

	Declassify // clears what [Classify] or [Choose] has put into the packet
	Masquerade // rewrites the source to an address of the outgoing interface, with a random port (8.1)
	Refuse     // answers with ICMP or ICMPv6 port unreachable (4.6)
	Reset      // answers a TCP segment with a reset
)

// plainStatements have the spelling and the JSON of nft for IPv4.
var plainStatements = [...]struct{ text, json string }{
	NotTranslated:       {"ct status ! dnat", `{"match":{"left":{"ct":{"key":"status"}},"op":"!","right":"dnat"}}`},
	Known:               {"ct status confirmed", `{"match":{"left":{"ct":{"key":"status"}},"op":"in","right":"confirmed"}}`},
	IsAnswer:            {"ct direction reply", `{"match":{"left":{"ct":{"key":"direction"}},"op":"==","right":"reply"}}`},
	EndsTCP:             {"tcp flags fin,rst", `{"match":{"left":{"payload":{"field":"flags","protocol":"tcp"}},"op":"in","right":["fin","rst"]}}`},
	ResetsTCP:           {"tcp flags rst", `{"match":{"left":{"payload":{"field":"flags","protocol":"tcp"}},"op":"in","right":"rst"}}`},
	SourceIsLocal:       {"fib saddr type local", `{"match":{"left":{"fib":{"flags":["saddr"],"result":"type"}},"op":"==","right":"local"}}`},
	DestinationNotLocal: {"fib daddr type != local", `{"match":{"left":{"fib":{"flags":["daddr"],"result":"type"}},"op":"!=","right":"local"}}`},
	IsEchoRequest:       {"icmp type echo-request", `{"match":{"left":{"payload":{"field":"type","protocol":"icmp"}},"op":"==","right":"echo-request"}}`},
	CameIn:              {"iif != 0", `{"match":{"left":{"meta":{"key":"iif"}},"op":"!=","right":"0"}}`},
	Declassify:          {"meta priority set none", `{"mangle":{"key":{"meta":{"key":"priority"}},"value":"none"}}`},
	Masquerade:          {"masquerade fully-random", `{"masquerade":{"flags":"fully-random"}}`},
	Refuse:              {"reject", `{"reject":{"expr":"port-unreachable","type":"icmp"}}`},
	Reset:               {"reject with tcp reset", `{"reject":{"type":"tcp reset"}}`},
}

func (p Plain) Text(f model.Family) string { return inFamily(plainStatements[p].text, f) }

func inFamily(spelling string, f model.Family) string {
	if f == model.IPv6 {
		return strings.Replace(spelling, "icmp", "icmpv6", 1)
	}
	return spelling
}

// ProtocolIs matches packets of one transport protocol.
type ProtocolIs struct{ Protocol model.Protocol }

func (s ProtocolIs) Text(model.Family) string { return "meta l4proto " + s.Protocol.String() }

// ToPort matches TCP segments to a port.
type ToPort struct{ Port uint16 }

func (s ToPort) Text(model.Family) string { return fmt.Sprintf("tcp dport %d", s.Port) }

// NotClass matches packets that have another class, or none.
type NotClass struct{ Class Class }

func (s NotClass) Text(f model.Family) string { return PacketClass.Text(f) + " != " + s.Class.String() }

// NotFrom matches packets that did not arrive on an interface, or on any whose name
// starts with Name. Packets of the node itself arrive on none.
type NotFrom struct {
	Name     string
	ByPrefix bool
}

func (s NotFrom) Text(model.Family) string { return fmt.Sprintf("iifname != %q", s.namePattern()) }

func (s NotFrom) namePattern() string {
	if s.ByPrefix {
		return s.Name + "*"
	}
	return s.Name
}

// NotTo matches packets that do not leave through an interface, or through any
// whose name starts with Name.
type NotTo NotFrom

func (s NotTo) Text(model.Family) string {
	return fmt.Sprintf("oifname != %q", NotFrom(s).namePattern())
}

// OneIn matches one of so many packets, at random or in turn.
type OneIn struct {
	Of     uint32
	InTurn bool
}

func (s OneIn) Text(f model.Family) string { return s.Number().Text(f) + " 0" }

// Number returns the number that is zero for the packets that match.
func (s OneIn) Number() Slots {
	if s.InTurn {
		return Slots{Scheduler: model.RoundRobin, Count: s.Of}
	}
	return Slots{Scheduler: model.Random, Count: s.Of}
}

// SourceNotIn matches packets from outside of a prefix.
type SourceNotIn struct{ Prefix netip.Prefix }

func (s SourceNotIn) Text(f model.Family) string {
	return fmt.Sprintf("%s saddr != %s", FamilyKeyword(f), prefixText(s.Prefix))
}

// InSet matches packets whose key is in a set, or is not.
type InSet struct {
	Key Concat
	Set string
	Not bool
}

func (s InSet) Text(f model.Family) string {
	if s.Not {
		return s.Key.Text(f) + " != @" + s.Set
	}
	return s.Key.Text(f) + " @" + s.Set
}

// VerdictMap looks up the key and acts on the verdict found; without one it
// does not match.
type VerdictMap struct {
	Key Concat
	Map string
}

func (s VerdictMap) Text(f model.Family) string { return s.Key.Text(f) + " vmap @" + s.Map }

// Classify looks up the key and puts the class found into the packet; without one it
// does not match. It borrows the priority of the packet, the field that queueing
// disciplines look at after all rules: [Declassify] clears it.
//
// The class could go from one lookup to the next in a register, but the nft language
// cannot say that, and nft 1.0.6 and 1.1.3 abort when they list a rule that does.
type Classify struct {
	Key Concat
	Map string
}

func (s Classify) Text(f model.Family) string {
	return "meta priority set " + s.Key.Text(f) + " map @" + s.Map
}

// Choose puts the number of a slot into the packet, in place of its class.
type Choose struct{ Slots }

func (s Choose) Text(f model.Family) string { return "meta priority set " + s.Slots.Text(f) }

// DNAT looks up the key and sends the connection to the endpoint found;
// without one it does not match. The key may end with a number of [Slots].
type DNAT struct {
	Key      Concat
	Map      string
	KeepPort bool // the map has addresses only
}

func (s DNAT) Text(f model.Family) string {
	if s.KeepPort {
		return fmt.Sprintf("dnat to %s map @%s", s.Key.Text(f), s.Map)
	}
	return fmt.Sprintf("dnat %s to %s map @%s", FamilyKeyword(f), s.Key.Text(f), s.Map)
}

// DNATTo sends the connection to an address, and keeps its port.
type DNATTo struct{ Address netip.Addr }

func (s DNATTo) Text(model.Family) string { return "dnat to " + s.Address.String() }

// Slots returns the choice of a slot in the key of the rule, if it has one.
func (s DNAT) Slots() (Slots, bool) {
	last, ok := s.Key[len(s.Key)-1].(Slots)
	return last, ok
}

// Update changes the element of a key in a dynamic set or map. It does not match if the set is full. It is
// printed as nft prints it, "update @name { key timeout 3h : data }".
type Update struct {
	Op      string // add, update or delete
	Set     string
	Key     Concat
	Timeout time.Duration // zero: none
	Counts  bool          // the element counts packets, and the limit matches those within it; otherwise over it
	Limit   Limit         // of the element; the zero value: none
	Data    Concat        // of a map; nil: a set
}

// Remember puts the endpoint of a connection into a dynamic map under a key, or
// restarts the timeout of the element.
func Remember(bindings string, key Concat, timeout time.Duration) Update {
	return Update{Op: "update", Set: bindings, Key: key, Timeout: timeout, Data: RememberedEndpoint}
}

// Remembers reports whether it is what [Remember] returns.
func (u Update) Remembers() bool { return u.Op == "update" && slices.Equal(u.Data, RememberedEndpoint) }

// Note puts the class of the packet into a dynamic map under the key of its connection.
func Note(arrivals string, key Concat, timeout time.Duration) Update {
	return Update{Op: "update", Set: arrivals, Key: key, Timeout: timeout, Data: NotedClass}
}

// Enter puts the key of a packet into a dynamic set, or restarts the timeout of the element.
func Enter(set string, key Concat, timeout time.Duration) Update {
	return Update{Op: "update", Set: set, Key: key, Timeout: timeout}
}

// Forget deletes the element of a dynamic map with a key. nft requires data of the map's type in this
// statement; the kernel ignores it.
func Forget(bindings string, key Concat) Update {
	u := Update{Op: "delete", Set: bindings, Key: key, Data: RememberedEndpoint}
	if bindings == SharedAffinityMap {
		u.Data = NotedClass
	}
	return u
}

var NotedClass = Concat{PacketClass}

// SetOf returns the name of the set or map that a statement refers to, empty if
// there is none, and the key.
func SetOf(s Statement) (name string, key Concat) {
	switch s := s.(type) {
	case InSet:
		return s.Set, s.Key
	case VerdictMap:
		return s.Map, s.Key
	case Classify:
		return s.Map, s.Key
	case DNAT:
		return s.Map, s.Key
	case Update:
		return s.Set, s.Key
	}
	return "", nil
}

// RememberedEndpoint is the data that Remember stores. It could be loaded from the
// packet, too, but with "th dport" in the rule nft would omit the match of the
// protocol from its listing, and then refuse to load it.
var RememberedEndpoint = Concat{ReplySource, ReplyPort}

// SNATTo rewrites the source to an address, with a random port.
type SNATTo struct{ Address netip.Addr }

func (s SNATTo) Text(model.Family) string {
	return fmt.Sprintf("snat to %s fully-random", s.Address)
}

// Redirect sends a connection to a port of this machine: at the first address of the interface
// on which it arrives, or a loopback address if it is of the machine itself.
type Redirect struct{ Port uint16 }

func (s Redirect) Text(model.Family) string { return fmt.Sprintf("redirect to :%d", s.Port) }

type Action uint8

const (
	NoAction Action = iota
	Accept
	Drop
	Goto
	Jump
	Return
)

func (a Action) String() string {
	return [...]string{"", "accept", "drop", "goto", "jump", "return"}[a]
}

// Verdict ends the evaluation of a rule, or continues in another chain.
type Verdict struct {
	Action Action
	Chain  string // of Goto and Jump
}

func (v Verdict) String() string {
	if v.Chain == "" {
		return v.Action.String()
	}
	return v.Action.String() + " " + v.Chain
}

func (v Verdict) Text(model.Family) string { return v.String() }

// Foreign stands for a statement in the kernel that we never write. It differs from
// all of ours, so a diff replaces it.
type Foreign struct{ Description string }

func (s Foreign) Text(model.Family) string { return "# not ours: " + s.Description }

func (r Rule) Text(f model.Family) string {
	texts := make([]string, len(r))
	for i, s := range r {
		texts[i] = s.Text(f)
	}
	return strings.Join(texts, " ")
}

func (u Update) Text(f model.Family) string {
	text := fmt.Sprintf("%s @%s { %s", u.Op, u.Set, u.Key.Text(f))
	if u.Timeout > 0 {
		text += " timeout " + durationText(u.Timeout)
	}
	switch {
	case u.Counts:
		text += " counter " + rateText(u.Limit.Rate, false)
	case u.Limit != Limit{}:
		text += " " + u.Limit.Text()
	}
	if u.Data != nil {
		text += " : " + u.Data.Text(f)
	}
	return text + " }"
}

func (u Update) updateJSON(f model.Family) object {
	kind, elem := "set", u.Key.keyJSON(f)
	if u.Timeout > 0 {
		elem = object{"elem": object{"val": elem, "timeout": int(u.Timeout.Seconds())}}
	}
	if u.Data != nil {
		kind = "map"
	}
	out := object{"op": u.Op, "elem": elem, kind: "@" + u.Set}
	switch {
	case u.Data != nil:
		out["data"] = u.Data.keyJSON(f)
	case u.Counts:
		out["stmt"] = []object{{"counter": nil}, {"limit": rateJSON(u.Limit.Rate, false)}}
	case u.Limit != Limit{}:
		out["stmt"] = []object{u.Limit.limitJSON()}
	}
	return object{kind: out}
}

// durationText prints a duration of whole seconds as nft does, for example
// "1d3h30s".
func durationText(d time.Duration) string {
	var b strings.Builder
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / unit.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			d -= n * unit.size
		}
	}
	return b.String()
}

// FamilyKeyword returns nft's word for a family, "ip" or "ip6".
func FamilyKeyword(f model.Family) string {
	if f == model.IPv6 {
		return "ip6"
	}
	return "ip"
}

// prefixText prints a prefix as nft does: without the length for one address.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
