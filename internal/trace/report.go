package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Report says what happened to a connection. The names of the JSON fields are stable.
type Report struct {
	Protocol string  `json:"protocol"`
	To       string  `json:"to"`             // as the client dials it
	From     string  `json:"from,omitempty"` // the client; absent: no packet came
	Outcome  Outcome `json:"outcome"`
	Text     string  `json:"text"`              // the outcome in words
	Service  string  `json:"service,omitempty"` // with the kind of the frontend
	// Words are the words for the Service.
	Words    words.Vocabulary `json:"-"`
	Endpoint string           `json:"endpoint,omitempty"` // where the first packet went
	// By is the rule or the policy that dropped or rejected the first packet, or its answer.
	By *Step `json:"by,omitempty"`
	// Attempts is how often the client sent the first packet.
	Attempts     int           `json:"attempts,omitempty"`
	Translations []Translation `json:"translations,omitempty"`
	Path         []Hook        `json:"path"`             // of the first packet
	Answer       []Hook        `json:"answer,omitempty"` // the path of the first answer
	Prediction   *Prediction   `json:"explain,omitempty"`
	Notes        []string      `json:"notes,omitempty"`
}

// Translation is a change of an address of the first packet.
type Translation struct {
	Field string `json:"field"` // source or destination
	From  string `json:"from"`
	To    string `json:"to"`
	By    string `json:"by"` // in words
	Ours  bool   `json:"byNftproxy"`
}

// Hook is what a packet met in one hook.
type Hook struct {
	Name   string  `json:"hook"`
	Packet string  `json:"packet"` // at the beginning of the hook
	In     string  `json:"in,omitempty"`
	Out    string  `json:"out,omitempty"`
	Chains []Chain `json:"chains"`
}

// Chain is a base chain, with the rules that matched in it and in the chains that it led to.
type Chain struct {
	Family  string `json:"family"`
	Table   string `json:"table"`
	Name    string `json:"chain"`
	Program string `json:"program,omitempty"`
	Steps   []Step `json:"steps"`
}

// Step is a rule that matched, or a policy.
type Step struct {
	Family  string  `json:"family"`
	Table   string  `json:"table"`
	Chain   string  `json:"chain"`
	Rule    int     `json:"rule,omitempty"`   // its number in the chain, from 1; absent for a policy
	Handle  uint64  `json:"handle,omitempty"` // absent for a policy
	Text    string  `json:"text,omitempty"`
	Verdict string  `json:"verdict"` // as nft has it, with the chain of a jump
	Program string  `json:"program,omitempty"`
	Mark    *string `json:"mark,omitempty"` // of the packet, if the rule changed it
}

// NewReport says what happened to a connection, in the words for its Service.
func NewReport(c *Connection, m Match, rules *Rules, in words.Vocabulary) *Report {
	r := &Report{Words: in, Protocol: m.Protocol.String(), To: m.Frontend.String(), Outcome: c.judgeOutcome(rules), Attempts: c.Attempts, Path: []Hook{}}
	if c.First == nil {
		r.Text = fmt.Sprintf("no packet came within %s: the packets of the client do not reach this machine, or are dropped before its rules", c.Waited)
		return r
	}
	r.From = model.EndpointText(c.First.firstPacket().Source)
	r.Translations = rules.findTranslations(c.First)
	r.Path = rules.describePath(c.First)
	if to := model.EndpointText(c.First.lastPacket().Destination); to != r.To {
		r.Endpoint = to
	}
	if c.Reply != nil && c.First.ended == nil { // else it is the answer of the rule that rejects
		r.Answer = rules.describePath(c.Reply)
	}
	r.Text, r.By = rules.describeOutcome(c, r)
	if c.Lost {
		r.Notes = append(r.Notes, "messages of the kernel were lost: rules may be missing here")
	}
	if c.First.Untracked {
		r.Notes = append(r.Notes, "connection tracking does not follow the connection, so no rule can translate it")
	}
	return r
}

func (r *Rules) describeOutcome(c *Connection, report *Report) (text string, by *Step) {
	first := c.First
	to := report.Words.Text("the endpoint ") + report.Endpoint
	if report.Endpoint == "" {
		to = model.EndpointText(first.lastPacket().Destination)
	}
	switch report.Outcome {
	case Dropped, Rejected:
		step := r.describeStep(first.ended, first.ended.Mark)
		return fmt.Sprintf("%s in %s by %s", report.Outcome, first.hook, r.describeSource(first.ended)), &step
	case Lost:
		return "it disappeared " + first.describeLoss(), nil
	case Unanswered:
		return fmt.Sprintf("it reached %s; no answer within %s", r.exit(first, to), Patience.Round(time.Second)), nil
	case ReplyDrop:
		step := r.describeStep(c.Reply.ended, c.Reply.ended.Mark)
		return fmt.Sprintf("%s answered, and the answer was dropped in %s by %s", to, c.Reply.hook, r.describeSource(c.Reply.ended)), &step
	case ReplyLost:
		return fmt.Sprintf("%s answered, and the answer disappeared %s", to, c.Reply.describeLoss()), nil
	case Refused:
		answer := c.Reply.firstPacket()
		if answer.Protocol.IsEcho() {
			return fmt.Sprintf("refused: %s answered with ICMP %s", answer.Source.Addr(), answer.icmpText()), nil
		}
		return fmt.Sprintf("refused by %s with a TCP reset", to), nil
	}
	return "answered by " + to, nil
}

func (r *Rules) exit(j *Journey, to string) string {
	if j.arrived {
		return to + " on this machine"
	}
	return "the interface " + interfaceName(j.lastPacket().Out) + " on its way to " + to
}

// describePath returns what a packet met, without the chains of the trace.
func (r *Rules) describePath(j *Journey) (out []Hook) {
	mark := uint32(0)
	for _, p := range j.Passes {
		if p.own {
			if n := len(p.Events); n > 0 {
				mark = p.Events[n-1].Mark
			}
			if strings.HasSuffix(p.Chain, kindFirst) || len(out) == 0 {
				out = append(out, Hook{Name: p.Hook, Packet: p.Packet.String(), In: interfaceName(p.Packet.In), Out: interfaceName(p.Packet.Out), Chains: []Chain{}})
			}
			continue
		}
		if len(out) == 0 {
			out = append(out, Hook{Name: p.Hook, Packet: p.Packet.String()})
		}
		c := Chain{Family: p.Family.String(), Table: p.Table, Name: p.Chain, Program: r.findProgram(p.Place, "", "")}
		for i := range p.Events {
			if e := &p.Events[i]; !e.isEnd() {
				c.Steps = append(c.Steps, r.describeStep(e, mark))
				mark = e.Mark
			}
		}
		last := &out[len(out)-1]
		last.Chains = append(last.Chains, c)
	}
	return out
}

// describeStep describes an event; before is the mark of the packet before it.
func (r *Rules) describeStep(e *Event, before uint32) Step {
	s := Step{Family: e.Family.String(), Table: e.Table, Chain: e.Chain, Verdict: strings.TrimSpace(e.Verdict.String() + " " + e.To)}
	if e.Kind != Policy {
		found, _ := r.findRule(e.Place, e.Handle)
		s.Rule, s.Handle, s.Text = found.number, e.Handle, found.text
	}
	s.Program = r.findProgram(e.Place, e.To, s.Text)
	if e.Mark != before {
		text := fmt.Sprintf("%#x", e.Mark)
		s.Mark = &text
	}
	return s
}

func (r *Rules) findTranslations(j *Journey) (out []Translation) {
	for i := 1; i < len(j.Passes); i++ {
		before, after := j.Passes[i-1].Packet, j.Passes[i].Packet
		for _, f := range []struct {
			name     string
			from, to netip.AddrPort
		}{{"destination", before.Destination, after.Destination}, {"source", before.Source, after.Source}} {
			if f.from != f.to {
				t := Translation{Field: f.name, From: model.EndpointText(f.from), To: model.EndpointText(f.to)}
				t.By, t.Ours = r.findTranslator(&j.Passes[i-1])
				out = append(out, t)
			}
		}
	}
	return out
}

func (r *Rules) findTranslator(p *Pass) (by string, ours bool) {
	if n := len(p.Events); n > 0 && r.isNAT(p.Place) {
		if i := slices.IndexFunc(p.Events, func(e Event) bool { return e.Kind == Rule && e.Verdict == Accept }); i >= 0 {
			return r.describeSource(&p.Events[i]), isOurs(p.Place)
		}
	}
	return "something other than nf_tables: rules of iptables-legacy or IPVS", false
}
