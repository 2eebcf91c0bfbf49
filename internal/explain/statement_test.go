package explain

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// tableOf returns a table with a base chain of these rules at prerouting, and
// the same sets and chains for all tests.
func tableOf(rules ...nft.Rule) *nft.Table {
	key := nft.Key{Address: addr("10.96.0.10"), Protocol: model.TCP, Port: 80}
	slot := func(n uint32, to string) nft.Element {
		k := key
		k.Slot = n
		return nft.Element{Key: k, Value: nft.Value{Endpoint: netip.MustParseAddrPort(to)}}
	}
	accept := nft.Element{Key: key, Value: nft.Value{Verdict: nft.Verdict{Action: nft.Accept}}}
	return &nft.Table{
		Family: model.IPv4,
		Sets: []*nft.Set{
			{Name: "ips", Key: []nft.Datatype{nft.Address}, Elements: []nft.Element{{Key: nft.Key{Address: addr("10.96.0.10")}}}},
			{Name: "ranges", Key: []nft.Datatype{nft.Address}, Interval: true, Elements: []nft.Element{
				{Key: nft.Key{Address: addr("10.96.0.0"), Bits: 16}},
				{Key: nft.Key{Address: addr("10.98.0.3"), Source: addr("10.98.0.7"), Bits: nft.Range}},
			}},
			{Name: "verdicts", Key: frontendKey, Data: []nft.Datatype{nft.Verdicts}, Elements: []nft.Element{accept}},
			{Name: "odd", Key: frontendKey, Data: []nft.Datatype{nft.Verdicts}, Elements: []nft.Element{{Key: key}}},
			{Name: "endpoints", Key: append(frontendKey[:3:3], nft.ClassID), Data: []nft.Datatype{nft.Address, nft.Port},
				Elements: []nft.Element{slot(0, "10.0.0.1:1"), slot(1, "10.0.0.2:2"), slot(2, "10.0.0.1:1"), slot(3, "10.96.0.10:80")}},
			{Name: "foreign"},
		},
		Chains: []*nft.Chain{
			{Name: "drops", Rules: []nft.Rule{{drop}}},
			{Name: "empty"},
			{Name: "circle", Rules: []nft.Rule{{nft.Verdict{Action: nft.Goto, Chain: "circle"}}}},
			{Name: "recursion", Rules: []nft.Rule{{nft.Verdict{Action: nft.Jump, Chain: "recursion"}}}},
			{Name: "jumps", Rules: []nft.Rule{{jump("empty")}, {goTo("empty")}, {drop}}},
			{Name: "base", Hook: nft.Prerouting, Priority: nft.PriorityDNAT, Rules: rules},
		},
	}
}

var (
	frontendKey = []nft.Datatype{nft.Address, nft.InetProto, nft.Port}
	dialled     = nft.Concat{nft.DestinationAddress, nft.TransportProtocol, nft.DestinationPort}
	drop        = nft.Verdict{Action: nft.Drop}
	accept      = nft.Verdict{Action: nft.Accept}
)

func goTo(chain string) nft.Verdict { return nft.Verdict{Action: nft.Goto, Chain: chain} }
func jump(chain string) nft.Verdict { return nft.Verdict{Action: nft.Jump, Chain: chain} }

// choose sends a packet to the endpoint in one of some slots of a map.
func choose(n, first uint32, endpoints string) nft.Rule {
	return nft.Rule{
		nft.Choose{Slots: nft.Slots{Scheduler: model.Random, Count: n, First: first}},
		nft.DNAT{Key: append(dialled[:3:3], nft.PacketClass), Map: endpoints},
	}
}

// unheardOf is an unknown statement.
type unheardOf struct{}

func (unheardOf) Text(model.Family) string { return "queue to 1" }

// TestStatements has each statement match and not match, and asks what then
// becomes of the packet of the question.
func TestStatements(t *testing.T) {
	const question = "203.0.113.7 tcp 10.96.0.10:80"
	destination := nft.Concat{nft.DestinationAddress}
	for _, c := range []struct {
		name     string
		rules    []nft.Rule
		question string
		want     string
	}{
		{"protocol", []nft.Rule{{nft.ProtocolIs{Protocol: model.TCP}, drop}}, question, "drop"},
		{"other protocol", []nft.Rule{{nft.ProtocolIs{Protocol: model.UDP}, drop}}, question, "not ours"},
		{"not translated", []nft.Rule{{nft.NotTranslated, drop}}, question, "drop"},
		{"came in", []nft.Rule{{nft.CameIn, drop}}, question, "drop"},
		{"output interface", []nft.Rule{{nft.NotTo{Name: "cni0"}, drop}}, question, "not ours"},
		{"forget", []nft.Rule{{nft.Forget("affinity", dialled), drop}}, question, "drop"},
		{"answer", []nft.Rule{{nft.IsAnswer, drop}}, question, "not ours"},
		{"local source", []nft.Rule{{nft.SourceIsLocal, drop}}, question, "not ours"},
		{"source not in", []nft.Rule{{nft.SourceNotIn{Prefix: netip.MustParsePrefix("10.0.0.0/8")}, drop}}, question, "drop"},
		{"source in", []nft.Rule{{nft.SourceNotIn{Prefix: netip.MustParsePrefix("203.0.113.0/24")}, drop}}, question, "not ours"},
		{"in set", []nft.Rule{{nft.InSet{Key: destination, Set: "ips"}, drop}}, question, "drop"},
		{"not in set", []nft.Rule{{nft.InSet{Key: destination, Set: "ips", Not: true}, drop}}, question, "not ours"},
		{"outside of set", []nft.Rule{{nft.InSet{Key: destination, Set: "ips", Not: true}, drop}}, "203.0.113.7 tcp 10.96.0.11:80", "drop"},
		{"in prefix", []nft.Rule{{nft.InSet{Key: destination, Set: "ranges"}, drop}}, question, "drop"},
		{"outside of prefix", []nft.Rule{{nft.InSet{Key: destination, Set: "ranges"}, drop}}, "203.0.113.7 tcp 10.97.0.10:80", "not ours"},
		{"in range", []nft.Rule{{nft.InSet{Key: destination, Set: "ranges"}, drop}}, "203.0.113.7 tcp 10.98.0.7:80", "drop"},
		{"outside of range", []nft.Rule{{nft.InSet{Key: destination, Set: "ranges"}, drop}}, "203.0.113.7 tcp 10.98.0.8:80", "not ours"},
		{"verdict map", []nft.Rule{{nft.VerdictMap{Key: dialled, Map: "verdicts"}}, {drop}}, question, "not ours"},
		{"no verdict", []nft.Rule{{nft.VerdictMap{Key: dialled, Map: "verdicts"}}, {drop}}, "203.0.113.7 tcp 10.96.0.10:81", "drop"},
		{"no port", []nft.Rule{{nft.VerdictMap{Key: dialled, Map: "verdicts"}}, {drop}}, "203.0.113.7 icmp 10.96.0.10", "drop"},
		{"strange verdict", []nft.Rule{{nft.VerdictMap{Key: dialled, Map: "odd"}}}, question, "unknown"},
		{"dnat", []nft.Rule{choose(1, 0, "endpoints"), {drop}}, question, "forward 10.0.0.1:1"},
		{"offset", []nft.Rule{choose(1, 1, "endpoints"), {drop}}, question, "forward 10.0.0.2:2"},
		{"two slots of one", []nft.Rule{choose(3, 0, "endpoints")}, question, "forward 10.0.0.1:1 0.67, forward 10.0.0.2:2 0.33"},
		{"missing slot", []nft.Rule{choose(2, 3, "endpoints"), {drop}}, question, "drop 0.50, forward 10.96.0.10:80 0.50"},
		{"no slot", []nft.Rule{choose(2, 0, "endpoints"), {drop}}, "203.0.113.7 tcp 10.96.0.10:81", "drop"},
		{"reject", []nft.Rule{{nft.Refuse}}, question, "reject"},
		{"reset", []nft.Rule{{nft.Reset}}, question, "reject"},
		{"reset of what is not TCP", []nft.Rule{{nft.Reset}}, "203.0.113.7 udp 10.96.0.10:80", "drop"},
		{"accept", []nft.Rule{{accept}, {drop}}, question, "not ours"},
		{"goto", []nft.Rule{{goTo("drops")}}, question, "drop"},
		{"goto does not return", []nft.Rule{{goTo("empty")}, {drop}}, question, "not ours"},
		{"jump returns", []nft.Rule{{jump("empty")}, {drop}}, question, "drop"},
		{"goto in a jump returns where that came from", []nft.Rule{{jump("jumps")}, {accept}, {drop}}, question, "not ours"},
		{"a rule without an action", []nft.Rule{{nft.NotTranslated}, {drop}}, question, "drop"},

		{"foreign statement", []nft.Rule{{nft.Foreign{Description: "limit"}, drop}}, question, "unknown"},
		{"foreign statement not reached", []nft.Rule{{nft.IsAnswer, nft.Foreign{Description: "limit"}}, {drop}}, question, "drop"},
		{"new statement", []nft.Rule{{unheardOf{}}}, question, "unknown"},
		{"foreign set", []nft.Rule{{nft.InSet{Key: destination, Set: "foreign"}, drop}}, question, "unknown"},
		{"no set", []nft.Rule{{nft.VerdictMap{Key: dialled, Map: "nowhere"}}}, question, "unknown"},
		{"no map", []nft.Rule{choose(2, 0, "nowhere")}, question, "unknown"},
		{"nothing to remember in", []nft.Rule{{nft.Remember("nowhere", dialled, time.Hour)}}, question, "unknown"},
		{"key of another type", []nft.Rule{{nft.InSet{Key: dialled, Set: "ips"}, drop}}, question, "unknown"},
		{"no chain", []nft.Rule{{goTo("nowhere")}}, question, "unknown"},
		{"circle", []nft.Rule{{goTo("circle")}}, question, "unknown"},
		{"recursion", []nft.Rule{{goTo("recursion")}}, question, "unknown"},
		{"no action", []nft.Rule{{nft.Verdict{}}}, question, "unknown"},
		{"no slots", []nft.Rule{choose(0, 0, "endpoints")}, question, "unknown"},
		{"two choices", []nft.Rule{append(nft.Rule{nft.OneIn{Of: 2}}, choose(2, 0, "endpoints")...)}, question, "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := briefs(Explain(tableOf(c.rules...), from(t, c.question), nil)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestSecondHook walks on to postrouting, where the rules see what was
// translated, and what only was found.
func TestSecondHook(t *testing.T) {
	masquerade := []nft.Rule{{nft.NotTranslated, accept}, {nft.SourceIsLocal, accept}, {nft.Masquerade}, {drop}}
	for _, c := range []struct {
		name, question string
		first          uint32
		want           string
	}{
		{"translated", "203.0.113.7 tcp 10.96.0.10:80", 0, "forward 10.0.0.1:1 masquerade"},
		{"of the node", "192.168.7.1 tcp 10.96.0.10:80", 0, "not ours"},
		// The endpoint is what was dialled: connection tracking notes nothing.
		{"nothing to translate", "203.0.113.7 tcp 10.96.0.10:80", 3, "forward 10.96.0.10:80"},
	} {
		table := tableOf(choose(1, c.first, "endpoints"))
		table.Chains = append(table.Chains, &nft.Chain{Name: "post", Hook: nft.Postrouting, Priority: nft.PrioritySNAT, Rules: masquerade})
		r := Explain(table, from(t, c.question), []netip.Addr{addr("192.168.7.1")})
		if got := briefs(r); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestSeveralBaseChains goes through them by priority. The first one to
// translate is the last one.
func TestSeveralBaseChains(t *testing.T) {
	table := tableOf(choose(1, 0, "endpoints"))
	add := func(priority int32, rules ...nft.Rule) {
		table.Chains = append(table.Chains, &nft.Chain{Name: "more", Hook: nft.Prerouting, Priority: priority, Rules: rules})
	}
	add(nft.PriorityDNAT+10, nft.Rule{drop})
	if got := briefs(Explain(table, from(t, "203.0.113.7 tcp 10.96.0.10:80"), nil)); got != "forward 10.0.0.1:1" {
		t.Errorf("a chain behind the translation: %q", got)
	}
	add(nft.PriorityDNAT-10, nft.Rule{drop})
	if got := briefs(Explain(table, from(t, "203.0.113.7 tcp 10.96.0.10:80"), nil)); got != "drop" {
		t.Errorf("a chain before the translation: %q", got)
	}
}
