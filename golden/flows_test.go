package golden

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestFlows answers the questions of each case: where a connection goes.
// A line of the section "flows" is a question and, behind "->", the answer:
//
//	from 203.0.113.7 tcp 10.96.0.10:80 -> forward masquerade 10.128.1.1:8080
//	from node tcp 10.96.0.10:81 -> reject
//	from 10.128.9.9 on cni0 icmp 10.96.0.10 -> reject
//	from node tcp 127.0.0.1:30080 -> listener 192.0.2.1:30080 forward masquerade 10.128.1.1:8080
//	from 10.128.1.77, node tcp 10.96.0.10:80, 10.96.0.11:80 -> forward 10.128.1.1:8080
//
// The last line stands for four questions with the same answer.
// The word "masquerade" stands before the endpoints that do not see the
// client's address. Tests of this package run one after the other, so that no
// two of them write a file at the same time.
func TestFlows(t *testing.T) {
	forEachGolden(t, func(t *testing.T, c *testCase) {
		for i, p := range c.phases {
			questions, _ := p.result("flows")
			if questions == "" && i == 0 {
				t.Error("no section flows: ask where a connection or two go")
			}
			p.check(t, "flows", p.flows(t, questions))
		}
	})
}

// flows answers questions.
func (p *phase) flows(t *testing.T, questions string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(questions) {
		question, _, _ := strings.Cut(strings.TrimSpace(line), "->")
		question = strings.TrimSpace(question)
		single := expand(question)
		var answers []string
		for _, q := range single {
			answers = append(answers, p.flow(t, q))
		}
		if len(slices.Compact(slices.Clone(answers))) == 1 {
			single, answers = []string{question}, answers[:1]
		}
		for i, q := range single {
			fmt.Fprintf(&out, "%s -> %s\n", q, answers[i])
		}
	}
	return out.String()
}

// expand returns the questions that a line with lists of sources and targets stands for.
func expand(question string) (out []string) {
	words := strings.Split(strings.ReplaceAll(question, ", ", ","), " ")
	last := len(words) - 1
	for source := range strings.SplitSeq(words[min(1, last)], ",") {
		for target := range strings.SplitSeq(words[last], ",") {
			one := slices.Clone(words)
			one[min(1, last)], one[last] = source, target
			out = append(out, strings.Join(one, " "))
		}
	}
	return out
}

// flow answers one question.
func (p *phase) flow(t *testing.T, question string) string {
	t.Helper()
	local := explain.LocalAddresses(p.input.Snapshot, p.flags.Config)
	packet := readQuestion(t, question, local)
	packet, asked := packet.Through(p.listener, local)
	result := explain.Explain(p.rules.Table(model.FamilyOf(packet.Destination)), packet, local)
	if asked != nil {
		return "listener " + netip.AddrPortFrom(packet.Destination, packet.Port).String() + " " + answer(result)
	}
	return answer(result)
}

// listener returns where the listener of a NodePort on localhost connects to.
func (p *phase) listener(f model.Frontend) (netip.AddrPort, bool) {
	return explain.Listener(p.router, f)
}

// readQuestion reads "from ADDRESS [on INTERFACE] PROTOCOL TARGET"; the word
// "node" in place of the address is the node itself.
func readQuestion(t *testing.T, text string, local []netip.Addr) explain.Packet {
	t.Helper()
	words := strings.Fields(text)
	device := ""
	if len(words) == 6 && words[2] == "on" {
		device = words[3]
		words = append(words[:2:2], words[4:]...)
	}
	if len(words) != 4 || words[0] != "from" {
		t.Fatalf("flow %q is not \"from ADDRESS [on INTERFACE] PROTOCOL TARGET\"", text)
	}
	p, err := explain.Parse(words[2], words[3])
	if err != nil {
		t.Fatalf("flow %q: %v", text, err)
	}
	if words[1] == "node" {
		return p.SentBy(local)
	}
	p.Interface = device
	if p.Source, err = netip.ParseAddr(words[1]); err != nil {
		t.Fatalf("flow %q: %v", text, err)
	}
	return p
}

// answer returns the verdict; of a connection that is forwarded, the endpoints,
// those that see the client's address first, and for how long affinity lasts.
func answer(r *explain.Result) string {
	v, ok := r.Verdict()
	if !ok {
		return "mixed"
	}
	if v == explain.Answer && r.Outcomes[0].Masquerade != "" {
		return v.String() + " masquerade"
	}
	if v != explain.Forward {
		return v.String()
	}
	var kept, masqueraded []string
	for _, o := range r.Outcomes {
		text := o.Endpoint.String()
		if len(o.Slots)*len(r.Outcomes) != o.Of {
			text += fmt.Sprintf(" (%d/%d)", len(o.Slots), o.Of)
		}
		if o.Masquerade == "" {
			kept = append(kept, text)
		} else {
			masqueraded = append(masqueraded, text)
		}
	}
	words := append([]string{v.String()}, kept...)
	if len(masqueraded) > 0 {
		words = append(append(words, "masquerade"), masqueraded...)
	}
	if d := r.Outcomes[0].Remember; d > 0 {
		words = append(words, fmt.Sprintf("affinity %s", d))
	}
	if limits := r.Outcomes[0].Limits; len(limits) > 0 {
		words = append(words, "within "+strings.Join(limits, ", "))
	}
	return strings.Join(words, " ")
}
