package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// statement evaluates one statement and tells whether it matches. What the
// packet does not tell matches in doubt.
func (w *walk) statement(t *turn, st nft.Statement) bool {
	switch st := st.(type) {
	case nft.ProtocolIs:
		return t.unless(t.Protocol != st.Protocol, "the protocol is "+t.protocol())
	case nft.NotTranslated:
		return t.unless(t.translated, "the destination was rewritten")
	case nft.IsAnswer:
		return t.unless(true, "the client opens the connection")
	case nft.SourceIsLocal:
		return t.unless(!t.FromNode && !w.isLocal(t.Source), fmt.Sprintf("%s is no address of this node", t.Source))
	case nft.NotFrom:
		return t.notFrom(st)
	case nft.NotTo:
		// The rules ask this for packets of the node and of bridges. What the node
		// sends, the next rule recognises by its source.
		return t.unless(true, "the output interface is not known")
	case nft.CameIn:
		return t.unless(t.FromNode, "the node itself sends it")
	case nft.OneIn:
		return t.unless(t.slot != 0, fmt.Sprintf("matches one connection in %d", st.Of))
	case nft.SourceNotIn:
		return t.unless(st.Prefix.Contains(t.Source), fmt.Sprintf("%s is in %s", t.Source, st.Prefix))
	case nft.InSet:
		return w.inSet(t, st)
	case nft.VerdictMap:
		return w.verdictMap(t, st)
	case nft.DNAT:
		return w.dnat(t, st)
	case nft.Remember:
		return w.remember(t, st)
	case nft.Forget:
		if t.certain() {
			t.Stale, t.Endpoint = true, netip.AddrPort{}
		}
		return true
	}
	return w.action(t, st)
}

// action carries out a statement that always matches.
func (w *walk) action(t *turn, st nft.Statement) bool {
	if _, foreign := st.(nft.Foreign); !foreign && !t.certain() {
		return true
	}
	switch st := st.(type) {
	case nft.Verdict:
		t.act(st)
	case nft.Masquerade:
		t.Masquerade, t.settled = t.step.Rule, true
	case nft.Refuse:
		t.stop(Reject, "")
	case nft.Reset:
		if t.Protocol != model.TCP { // the kernel sends none, and drops
			t.stop(Drop, "")
			break
		}
		t.stop(Reject, "")
	default:
		t.stop(Unknown, "a rule is not ours: "+strings.TrimPrefix(st.Text(w.table.Family), "# not ours: "))
	}
	return true
}

func (t *turn) act(v nft.Verdict) {
	switch v.Action {
	case nft.Accept, nft.Goto, nft.Jump:
		t.next = v
	case nft.Drop:
		t.stop(Drop, "")
	default:
		t.stop(Unknown, fmt.Sprintf("verdict %q is not known", v))
	}
}

func (t *turn) notFrom(st nft.NotFrom) bool {
	if t.Interface == "" && !t.FromNode {
		t.doubt = "a rule asks for the interface that the packet comes in from, which is not given"
		return true
	}
	from := t.Interface == st.Name || st.ByPrefix && strings.HasPrefix(t.Interface, st.Name)
	return t.unless(from, "it comes in from "+t.Interface)
}

func (w *walk) inSet(t *turn, st nft.InSet) bool {
	e, ok := w.lookup(t, st.Key, st.Set)
	if !ok {
		return true
	}
	return (e != nil) != st.Not
}

func (w *walk) verdictMap(t *turn, st nft.VerdictMap) bool {
	e, ok := w.lookup(t, st.Key, st.Map)
	if ok && e != nil && t.certain() {
		t.act(e.Value.Verdict)
	}
	return !ok || e != nil
}

func (w *walk) dnat(t *turn, st nft.DNAT) bool {
	e, ok := w.lookup(t, st.Key, st.Map)
	if ok && e != nil && t.certain() {
		to := e.Value.Endpoint
		t.Destination, t.Port = to.Addr(), to.Port()
		t.Verdict, t.Endpoint = Forward, to
		t.Bound = w.table.Set(st.Map).Dynamic
		// Connection tracking notes a translation only where it changes something.
		t.translated = t.Frontend() != t.dialled
		t.settled = true
	}
	return !ok || e != nil
}

func (w *walk) remember(t *turn, st nft.Remember) bool {
	if !t.certain() {
		return true
	}
	s, k, why := w.key(t, st.Key, st.Map)
	if s == nil {
		t.stop(Unknown, why)
		return true
	}
	t.Remember = st.Timeout
	t.step.Details = append(t.step.Details, fmt.Sprintf("@%s remembers %s for %s", s.Name, keyText(s, k), st.Timeout))
	return true
}
