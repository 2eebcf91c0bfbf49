package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// statement evaluates one statement and reports whether it matches. A condition
// on what is not known of the packet matches in doubt.
func (tr *tracer) statement(b *branch, st nft.Statement) bool {
	switch st := st.(type) {
	case nft.ProtocolIs:
		return b.unless(b.Protocol != st.Protocol, "the protocol is "+b.protocol())
	case nft.NotTranslated:
		return b.unless(b.translated, "the destination was rewritten")
	case nft.IsAnswer:
		return b.unless(true, "the client opens the connection")
	case nft.SourceIsLocal:
		return b.unless(!b.FromNode && !tr.isLocal(b.Source), fmt.Sprintf("%s is no address of this node", b.Source))
	case nft.NotFrom:
		return b.notFrom(st)
	case nft.NotTo:
		// The rules ask this for packets of the node and of bridges. What the node
		// sends, the next rule recognises by its source.
		return b.unless(true, "the output interface is not known")
	case nft.CameIn:
		return b.unless(b.FromNode, "the node itself sends it")
	case nft.OneIn:
		return b.unless(b.slot != 0, fmt.Sprintf("matches one connection in %d", st.Of))
	case nft.SourceNotIn:
		return b.unless(st.Prefix.Contains(b.Source), fmt.Sprintf("%s is in %s", b.Source, st.Prefix))
	case nft.InSet:
		e, ok := tr.lookup(b, st.Key, st.Set)
		return !ok || (e != nil) != st.Not
	case nft.VerdictMap:
		return tr.mapped(b, st, func(v nft.Value) { b.act(v.Verdict) })
	case nft.DNAT:
		return tr.mapped(b, st, func(v nft.Value) { b.dnat(v.Endpoint, tr.table.Set(st.Map).Dynamic) })
	case nft.Remember:
		return tr.remember(b, st)
	case nft.Forget:
		if b.certain() {
			b.Stale, b.Endpoint = true, netip.AddrPort{}
		}
		return true
	}
	return tr.action(b, st)
}

// action carries out a statement that always matches.
func (tr *tracer) action(b *branch, st nft.Statement) bool {
	if _, foreign := st.(nft.Foreign); !foreign && !b.certain() {
		return true
	}
	switch st := st.(type) {
	case nft.Verdict:
		b.act(st)
	case nft.Masquerade:
		b.Masquerade, b.settled = b.step.Rule, true
	case nft.Refuse:
		b.stop(Reject, "")
	case nft.Reset:
		if b.Protocol != model.TCP { // the kernel sends none, and drops
			b.stop(Drop, "")
			break
		}
		b.stop(Reject, "")
	default:
		b.stop(Unknown, "a rule is not ours: "+strings.TrimPrefix(st.Text(tr.table.Family), "# not ours: "))
	}
	return true
}

func (b *branch) act(v nft.Verdict) {
	switch v.Action {
	case nft.Accept, nft.Goto, nft.Jump:
		b.next = v
	case nft.Drop:
		b.stop(Drop, "")
	default:
		b.stop(Unknown, fmt.Sprintf("verdict %q is not known", v))
	}
}

func (b *branch) notFrom(st nft.NotFrom) bool {
	if b.Interface == "" && !b.FromNode {
		b.doubt = "a rule asks for the interface that the packet comes in from, which is not given"
		return true
	}
	from := b.Interface == st.Name || st.ByPrefix && strings.HasPrefix(b.Interface, st.Name)
	return b.unless(from, "it comes in from "+b.Interface)
}

// mapped looks up the value of a map for a packet, and has act carry it out.
// Without one the statement does not match.
func (tr *tracer) mapped(b *branch, st nft.Statement, act func(nft.Value)) bool {
	name, key := nft.SetOf(st)
	e, ok := tr.lookup(b, key, name)
	if ok && e != nil && b.certain() {
		act(e.Value)
	}
	return !ok || e != nil
}

func (b *branch) dnat(to netip.AddrPort, bound bool) {
	b.Destination, b.Port = to.Addr(), to.Port()
	b.Verdict, b.Endpoint, b.Bound = Forward, to, bound
	// Connection tracking notes a translation only where it changes something.
	b.translated = b.Frontend() != b.dialled
	b.settled = true
}

func (tr *tracer) remember(b *branch, st nft.Remember) bool {
	if !b.certain() {
		return true
	}
	s, k, why := tr.key(b, st.Key, st.Map)
	if s == nil {
		b.stop(Unknown, why)
		return true
	}
	b.Remember = st.Timeout
	b.step.Details = append(b.step.Details, fmt.Sprintf("@%s remembers %s for %s", s.Name, keyText(s, k), st.Timeout))
	return true
}
