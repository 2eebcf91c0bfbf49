package explain

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// tableOf returns a table with a base chain of these rules at prerouting, and
// the same sets and chains for all tests.
func tableOf(rules ...render.Rule) *render.Table {
	key := render.Key{Address: addr("10.96.0.10"), Protocol: model.TCP, Port: 80}
	slot := func(n uint32, to string) render.Element {
		k := key
		k.Slot = n
		return render.Element{Key: k, Value: render.Value{Endpoint: netip.MustParseAddrPort(to)}}
	}
	accept := render.Element{Key: key, Value: render.Value{Verdict: render.Verdict{Action: render.Accept}}}
	return &render.Table{
		Family: model.IPv4,
		Sets: []*render.Set{
			{Name: "ips", Key: []render.Datatype{render.Address}, Elements: []render.Element{{Key: render.Key{Address: addr("10.96.0.10")}}}},
			{Name: "ranges", Key: []render.Datatype{render.Address}, Interval: true, Elements: []render.Element{
				{Key: render.Key{Address: addr("10.96.0.0"), Bits: 16}},
				{Key: render.Key{Address: addr("10.98.0.3"), Source: addr("10.98.0.7"), Bits: render.Range}},
			}},
			{Name: "verdicts", Key: frontendKey, Data: []render.Datatype{render.Verdicts}, Elements: []render.Element{accept}},
			{Name: "odd", Key: frontendKey, Data: []render.Datatype{render.Verdicts}, Elements: []render.Element{{Key: key}}},
			{Name: "endpoints", Key: append(frontendKey[:3:3], render.Slot), Data: []render.Datatype{render.Address, render.Port},
				Elements: []render.Element{slot(0, "10.0.0.1:1"), slot(1, "10.0.0.2:2"), slot(2, "10.0.0.1:1"), slot(3, "10.96.0.10:80")}},
			{Name: "foreign"},
		},
		Chains: []*render.Chain{
			{Name: "drops", Rules: []render.Rule{{drop}}},
			{Name: "empty"},
			{Name: "circle", Rules: []render.Rule{{render.Verdict{Action: render.Goto, Chain: "circle"}}}},
			{Name: "recursion", Rules: []render.Rule{{render.Verdict{Action: render.Jump, Chain: "recursion"}}}},
			{Name: "jumps", Rules: []render.Rule{{jump("empty")}, {goTo("empty")}, {drop}}},
			{Name: "base", Hook: render.Prerouting, Priority: render.PriorityDNAT, Rules: rules},
		},
	}
}

var (
	frontendKey = []render.Datatype{render.Address, render.InetProto, render.Port}
	dialled     = render.Concat{render.DestinationAddress, render.TransportProtocol, render.DestinationPort}
	drop        = render.Verdict{Action: render.Drop}
	accept      = render.Verdict{Action: render.Accept}
)

func goTo(chain string) render.Verdict { return render.Verdict{Action: render.Goto, Chain: chain} }
func jump(chain string) render.Verdict { return render.Verdict{Action: render.Jump, Chain: chain} }

func slots(n, first uint32) render.Concat {
	return append(dialled[:3:3], render.Slots{Scheduler: model.Random, Count: n, First: first})
}

// unheardOf is a statement that nobody has taught us.
type unheardOf struct{}

func (unheardOf) Text(model.Family) string { return "queue to 1" }

// TestStatements has each statement match and not match, and asks what then
// becomes of the packet of the question.
func TestStatements(t *testing.T) {
	const question = "203.0.113.7 tcp 10.96.0.10:80"
	destination := render.Concat{render.DestinationAddress}
	for _, c := range []struct {
		name     string
		rules    []render.Rule
		question string
		want     string
	}{
		{"protocol", []render.Rule{{render.ProtocolIs{Protocol: model.TCP}, drop}}, question, "drop"},
		{"other protocol", []render.Rule{{render.ProtocolIs{Protocol: model.UDP}, drop}}, question, "not ours"},
		{"not translated", []render.Rule{{render.NotTranslated{}, drop}}, question, "drop"},
		{"came in", []render.Rule{{render.CameIn{}, drop}}, question, "drop"},
		{"output interface", []render.Rule{{render.NotTo{Name: "cni0"}, drop}}, question, "not ours"},
		{"forget", []render.Rule{{render.Forget{Map: "affinity", Key: dialled}, drop}}, question, "drop"},
		{"answer", []render.Rule{{render.IsAnswer{}, drop}}, question, "not ours"},
		{"local source", []render.Rule{{render.SourceIsLocal{}, drop}}, question, "not ours"},
		{"source not in", []render.Rule{{render.SourceNotIn{Prefix: netip.MustParsePrefix("10.0.0.0/8")}, drop}}, question, "drop"},
		{"source in", []render.Rule{{render.SourceNotIn{Prefix: netip.MustParsePrefix("203.0.113.0/24")}, drop}}, question, "not ours"},
		{"in set", []render.Rule{{render.InSet{Key: destination, Set: "ips"}, drop}}, question, "drop"},
		{"not in set", []render.Rule{{render.InSet{Key: destination, Set: "ips", Not: true}, drop}}, question, "not ours"},
		{"outside of set", []render.Rule{{render.InSet{Key: destination, Set: "ips", Not: true}, drop}}, "203.0.113.7 tcp 10.96.0.11:80", "drop"},
		{"in prefix", []render.Rule{{render.InSet{Key: destination, Set: "ranges"}, drop}}, question, "drop"},
		{"outside of prefix", []render.Rule{{render.InSet{Key: destination, Set: "ranges"}, drop}}, "203.0.113.7 tcp 10.97.0.10:80", "not ours"},
		{"in range", []render.Rule{{render.InSet{Key: destination, Set: "ranges"}, drop}}, "203.0.113.7 tcp 10.98.0.7:80", "drop"},
		{"outside of range", []render.Rule{{render.InSet{Key: destination, Set: "ranges"}, drop}}, "203.0.113.7 tcp 10.98.0.8:80", "not ours"},
		{"verdict map", []render.Rule{{render.VerdictMap{Key: dialled, Map: "verdicts"}}, {drop}}, question, "not ours"},
		{"no verdict", []render.Rule{{render.VerdictMap{Key: dialled, Map: "verdicts"}}, {drop}}, "203.0.113.7 tcp 10.96.0.10:81", "drop"},
		{"no port", []render.Rule{{render.VerdictMap{Key: dialled, Map: "verdicts"}}, {drop}}, "203.0.113.7 icmp 10.96.0.10", "drop"},
		{"strange verdict", []render.Rule{{render.VerdictMap{Key: dialled, Map: "odd"}}}, question, "unknown"},
		{"dnat", []render.Rule{{render.DNAT{Key: slots(1, 0), Map: "endpoints"}}, {drop}}, question, "forward 10.0.0.1:1"},
		{"offset", []render.Rule{{render.DNAT{Key: slots(1, 1), Map: "endpoints"}}, {drop}}, question, "forward 10.0.0.2:2"},
		{"two slots of one", []render.Rule{{render.DNAT{Key: slots(3, 0), Map: "endpoints"}}}, question, "forward 10.0.0.1:1 0.67, forward 10.0.0.2:2 0.33"},
		{"missing slot", []render.Rule{{render.DNAT{Key: slots(2, 3), Map: "endpoints"}}, {drop}}, question, "drop 0.50, forward 10.96.0.10:80 0.50"},
		{"no slot", []render.Rule{{render.DNAT{Key: slots(2, 0), Map: "endpoints"}}, {drop}}, "203.0.113.7 tcp 10.96.0.10:81", "drop"},
		{"reject", []render.Rule{{render.Refuse{}}}, question, "reject"},
		{"reset", []render.Rule{{render.Reset{}}}, question, "reject"},
		{"reset of what is not TCP", []render.Rule{{render.Reset{}}}, "203.0.113.7 udp 10.96.0.10:80", "drop"},
		{"accept", []render.Rule{{accept}, {drop}}, question, "not ours"},
		{"goto", []render.Rule{{goTo("drops")}}, question, "drop"},
		{"goto does not return", []render.Rule{{goTo("empty")}, {drop}}, question, "not ours"},
		{"jump returns", []render.Rule{{jump("empty")}, {drop}}, question, "drop"},
		{"goto in a jump returns where that came from", []render.Rule{{jump("jumps")}, {accept}, {drop}}, question, "not ours"},
		{"a rule without an action", []render.Rule{{render.NotTranslated{}}, {drop}}, question, "drop"},

		{"foreign statement", []render.Rule{{render.Foreign{Description: "limit"}, drop}}, question, "unknown"},
		{"foreign statement not reached", []render.Rule{{render.IsAnswer{}, render.Foreign{Description: "limit"}}, {drop}}, question, "drop"},
		{"new statement", []render.Rule{{unheardOf{}}}, question, "unknown"},
		{"foreign set", []render.Rule{{render.InSet{Key: destination, Set: "foreign"}, drop}}, question, "unknown"},
		{"no set", []render.Rule{{render.VerdictMap{Key: dialled, Map: "nowhere"}}}, question, "unknown"},
		{"no map", []render.Rule{{render.DNAT{Key: slots(2, 0), Map: "nowhere"}}}, question, "unknown"},
		{"nothing to remember in", []render.Rule{{render.Remember{Map: "nowhere", Key: dialled, Timeout: time.Hour}}}, question, "unknown"},
		{"key of another type", []render.Rule{{render.InSet{Key: dialled, Set: "ips"}, drop}}, question, "unknown"},
		{"no chain", []render.Rule{{goTo("nowhere")}}, question, "unknown"},
		{"circle", []render.Rule{{goTo("circle")}}, question, "unknown"},
		{"recursion", []render.Rule{{goTo("recursion")}}, question, "unknown"},
		{"no action", []render.Rule{{render.Verdict{}}}, question, "unknown"},
		{"no slots", []render.Rule{{render.DNAT{Key: slots(0, 0), Map: "endpoints"}}}, question, "unknown"},
		{"two choices", []render.Rule{{render.InSet{Key: slots(2, 0), Set: "endpoints"}, render.DNAT{Key: slots(2, 0), Map: "endpoints"}}}, question, "unknown"},
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
	masquerade := []render.Rule{{render.NotTranslated{}, accept}, {render.SourceIsLocal{}, accept}, {render.Masquerade{}}, {drop}}
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
		table := tableOf(render.Rule{render.DNAT{Key: slots(1, c.first), Map: "endpoints"}})
		table.Chains = append(table.Chains, &render.Chain{Name: "post", Hook: render.Postrouting, Priority: render.PrioritySNAT, Rules: masquerade})
		r := Explain(table, from(t, c.question), []netip.Addr{addr("192.168.7.1")})
		if got := briefs(r); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestSeveralBaseChains goes through them by priority. The first one to
// translate is the last one.
func TestSeveralBaseChains(t *testing.T) {
	table := tableOf(render.Rule{render.DNAT{Key: slots(1, 0), Map: "endpoints"}})
	add := func(priority int32, rules ...render.Rule) {
		table.Chains = append(table.Chains, &render.Chain{Name: "more", Hook: render.Prerouting, Priority: priority, Rules: rules})
	}
	add(render.PriorityDNAT+10, render.Rule{drop})
	if got := briefs(Explain(table, from(t, "203.0.113.7 tcp 10.96.0.10:80"), nil)); got != "forward 10.0.0.1:1" {
		t.Errorf("a chain behind the translation: %q", got)
	}
	add(render.PriorityDNAT-10, render.Rule{drop})
	if got := briefs(Explain(table, from(t, "203.0.113.7 tcp 10.96.0.10:80"), nil)); got != "drop" {
		t.Errorf("a chain before the translation: %q", got)
	}
}
