package explain

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// evaluateStatement evaluates one statement and reports whether it matches. A condition on
// an unknown property of the packet matches, but sets doubt.
func (tr *tracer) evaluateStatement(b *branch, st nft.Statement) bool {
	if set, _ := nft.SetOf(st); set == nft.SampledSet || set == nft.SampledConnectionsSet { // rules that only log
		return false
	}
	switch st := st.(type) {
	case nft.ProtocolIs:
		return b.matchProtocol(b.Protocol != st.Protocol)
	case nft.Plain:
		return tr.evaluatePlain(b, st)
	case nft.ToPort:
		b.step.otherProtocol = b.Protocol != model.TCP
		return b.matchUnless(b.step.otherProtocol || b.Port != st.Port, fmt.Sprintf("the port is %d", b.Port))
	case nft.NotClass:
		return b.matchUnless(b.class == st.Class, "the class is "+st.Class.String())
	case nft.NotFrom:
		return b.notFrom(st)
	case nft.NotTo:
		// The rules use this for packets of the node and of bridges. The next rule
		// recognises packets of the node by their source.
		return b.matchUnless(true, "the output interface is unknown")
	case nft.OneIn:
		return b.matchUnless(st.InTurn || b.slot != 0, fmt.Sprintf("matches one connection in %d", st.Of))
	case nft.SourceNotIn:
		b.guessed = b.guessed || !b.Source.IsValid()
		return b.matchUnless(st.Prefix.Contains(b.Source), fmt.Sprintf("%s is in %s", b.Source, st.Prefix))
	case nft.InSet:
		e, ok := tr.lookup(b, st.Key, st.Set)
		if s := tr.table.Set(st.Set); ok && e != nil && s.Limits != nft.NoLimits {
			return b.noteLimit(e.Value.Limit(s.Limits), false)
		}
		if ok && st.Not && tr.table.Set(st.Set).Dynamic { // the rule above has added the client
			return b.matchUnless(true, "in @"+st.Set)
		}
		return !ok || (e != nil) != st.Not
	case nft.VerdictMap:
		return tr.applyMapped(b, st, func(v nft.Value) { b.applyVerdict(v.Verdict) })
	case nft.Classify:
		if s := tr.table.Set(st.Map); s != nil && s.Dynamic && nft.RowOf(st.Map).Contents != nft.Bindings {
			return b.recallArrival(st.Map)
		}
		return tr.applyMapped(b, st, func(v nft.Value) { b.class = v.Class })
	case nft.Choose:
		b.class, b.lane = nft.Class(b.slot), b.step.Chain
		return true
	case nft.DNAT:
		return tr.translateByMap(b, st)
	case nft.Update:
		return tr.evaluateUpdate(b, st)
	}
	return tr.carryOut(b, st)
}

func (tr *tracer) evaluatePlain(b *branch, st nft.Plain) bool {
	switch st {
	case nft.NotTranslated:
		return b.matchUnless(b.translated, "the destination was rewritten")
	case nft.IsAnswer, nft.Known:
		return b.matchUnless(true, "the client opens the connection")
	case nft.EndsTCP, nft.ResetsTCP:
		b.step.otherProtocol = b.Protocol != model.TCP
		return b.matchUnless(true, "the client opens the connection")
	case nft.SourceIsLocal:
		return b.matchUnless(!b.FromNode && !tr.isLocal(b.Source), fmt.Sprintf("%s is not an address of this node", b.Source))
	case nft.DestinationNotLocal:
		return b.matchUnless(tr.isLocal(b.Destination), fmt.Sprintf("%s is an address of this node", b.Destination))
	case nft.IsEchoRequest:
		return b.matchProtocol(!b.isEcho())
	case nft.CameIn:
		return b.matchUnless(b.FromNode, "the node itself sends it")
	case nft.Declassify:
		b.class = 0
		return true
	}
	return tr.carryOut(b, st)
}

func (tr *tracer) evaluateUpdate(b *branch, u nft.Update) bool {
	binds := u.Remembers() || nft.RowOf(u.Set).Contents == nft.Bindings
	switch {
	case u.Counts:
		if b.isCertain() {
			b.note("@%s counts the connection", u.Set)
		}
	case u.Limit != nft.Limit{}:
		return b.noteLimit(u.Limit, true)
	case u.Op == "delete":
		if b.isCertain() && u.Set != nft.SharedAffinityMap { // from which it may go on
			b.Stale, b.Endpoint = true, netip.AddrPort{}
		}
	case u.Data != nil && binds:
		return tr.rememberClient(b, u.Set, u.Key, u.Timeout)
	case u.Data != nil && b.isCertain():
		b.arrival = b.class
		b.note("@%s notes the connection", u.Set)
	} // others change nothing for the packet
	return true
}

// noteLimit records a limit, of the frontend or of each client. The packet is taken for one
// that does not exceed it, as most are.
func (b *branch) noteLimit(l nft.Limit, client bool) (over bool) {
	text := l.Describe(client)
	b.Limits = append(slices.Clip(b.Limits), text)
	return b.matchUnless(true, "within the limit: "+text)
}

// carryOut carries out a statement that always matches.
func (tr *tracer) carryOut(b *branch, st nft.Statement) bool {
	if _, foreign := st.(nft.Foreign); !foreign && !b.isCertain() {
		return true
	}
	switch st := st.(type) {
	case nft.Verdict:
		b.applyVerdict(st)
	case nft.SNATTo:
		b.Masquerade, b.settled = tr.inTurn(b.step.Chain), true
	case nft.Redirect:
		b.Destination, b.Port, b.Relay = model.Loopback(model.FamilyOf(b.Destination)), st.Port, st.Port
		b.Verdict, b.translated, b.settled = Forward, true, true
	case nft.DNATTo:
		b.Destination, b.settled = st.Address, true
		b.translated = b.Frontend() != b.dialled
		if b.isEcho() {
			b.Verdict, b.Reason = Answer, "this node answers in place of the Service"
		}
	case nft.Plain:
		b.end(st)
	case nft.Within, nft.Log: // they change nothing for the packet
	default:
		b.stop(Unknown, "foreign rule: "+strings.TrimPrefix(st.Text(tr.table.Family), "# not ours: "))
	}
	return true
}

// end carries out a statement that decides about the packet.
func (b *branch) end(st nft.Plain) {
	switch {
	case st == nft.Masquerade:
		b.Masquerade, b.settled = b.step.Rule, true
	case st == nft.Reset && b.Protocol != model.TCP: // the kernel drops the packet
		b.stop(Drop, "")
	default:
		b.stop(Reject, "")
	}
}

// inTurn describes a chain that rewrites the source to one of some addresses.
func (tr *tracer) inTurn(chain string) string {
	var texts []string
	for _, a := range tr.table.SNATAddresses(chain) {
		texts = append(texts, a.String())
	}
	text := "snat to " + strings.Join(texts, ", ")
	if len(texts) > 1 {
		text += " in turn,"
	}
	return text + " fully-random"
}

func (b *branch) applyVerdict(v nft.Verdict) {
	switch v.Action {
	case nft.Accept, nft.Goto, nft.Jump, nft.Return:
		b.next = v
	case nft.Drop:
		b.stop(Drop, "")
	default:
		b.stop(Unknown, fmt.Sprintf("unknown verdict %q", v))
	}
}

func (b *branch) notFrom(st nft.NotFrom) bool {
	if b.Interface == "" && !b.FromNode {
		b.doubt = "a rule depends on the input interface, which is not given"
		return true
	}
	from := b.Interface == st.Name || st.ByPrefix && strings.HasPrefix(b.Interface, st.Name)
	return b.matchUnless(from, "the input interface is "+b.Interface)
}

// applyMapped calls act with the value of a map for a packet. Without a value the
// statement does not match.
func (tr *tracer) applyMapped(b *branch, st nft.Statement, act func(nft.Value)) bool {
	name, key := nft.SetOf(st)
	e, ok := tr.lookup(b, key, name)
	if ok && e != nil && b.isCertain() {
		act(e.Value)
	}
	return !ok || e != nil
}

// recallArrival looks up the note of an earlier rule about the connection. Notes about others
// do not matter.
func (b *branch) recallArrival(set string) bool {
	if !b.matchUnless(b.arrival == 0, "not in @"+set) {
		return false
	}
	if b.isCertain() {
		b.class = b.arrival
		b.noteFound(set, b.arrival.String())
	}
	return true
}

func (tr *tracer) translateByMap(b *branch, st nft.DNAT) bool {
	if _, chooses := st.Slots(); chooses {
		b.lane = b.step.Chain
	}
	return tr.applyMapped(b, st, func(v nft.Value) {
		to := v.Endpoint
		if st.KeepPort {
			to = netip.AddrPortFrom(to.Addr(), b.Port)
		}
		b.Destination, b.Port = to.Addr(), to.Port()
		b.Verdict, b.Endpoint, b.Bound = Forward, to, tr.table.Set(st.Map).Dynamic || st.Map == nft.ServersMap
		// Connection tracking records a translation only if it changes something.
		b.translated = b.Frontend() != b.dialled
		b.settled = true
	})
}

func (tr *tracer) rememberClient(b *branch, clients string, key nft.Concat, timeout time.Duration) bool {
	if !b.isCertain() {
		return true
	}
	s, k, why := tr.lookupKey(b, key, clients)
	if s == nil {
		b.stop(Unknown, why)
		return true
	}
	b.Remember, b.Together = timeout, clients == nft.SharedAffinityMap
	b.note("@%s remembers %s for %s", s.Name, keyText(s, k), timeout)
	return true
}

// jenkinsHash is Bob Jenkins's lookup3 as the kernel computes it (jhash() of
// linux/jhash.h) on little-endian machines. TestSourceHash compares it with
// the kernel's choice.
func jenkinsHash(key []byte, seed uint32) uint32 {
	a := 0xdeadbeef + uint32(len(key)) + seed
	b, c := a, a
	for len(key) > 12 {
		a += binary.LittleEndian.Uint32(key)
		b += binary.LittleEndian.Uint32(key[4:])
		c += binary.LittleEndian.Uint32(key[8:])
		a, b, c = jhashMix(a, b, c)
		key = key[12:]
	}
	if len(key) == 0 {
		return c
	}
	var rest [12]byte
	copy(rest[:], key)
	a += binary.LittleEndian.Uint32(rest[:])
	b += binary.LittleEndian.Uint32(rest[4:])
	c += binary.LittleEndian.Uint32(rest[8:])
	return jhashFinal(a, b, c)
}

func jhashMix(a, b, c uint32) (uint32, uint32, uint32) {
	for _, n := range [...]int{4, 6, 8, 16, 19, 4} {
		a, b, c = b, c+b, (a-c)^bits.RotateLeft32(c, n)
	}
	return a, b, c
}

func jhashFinal(a, b, c uint32) uint32 {
	for _, n := range [...]int{14, 11, 25, 16, 4, 14, 24} {
		a, b, c = b, (c^b)-bits.RotateLeft32(b, n), a
	}
	return b
}
