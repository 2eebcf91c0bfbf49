package trace

import (
	"fmt"
	"net"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Outcome is what happened to a connection.
type Outcome string

const (
	Answered   Outcome = "answered"
	Refused    Outcome = "refused"       // by the endpoint, or an error of ICMP came
	Unanswered Outcome = "unanswered"    // the first packet left, and no answer came
	Dropped    Outcome = "dropped"       // by a rule or a policy
	Rejected   Outcome = "rejected"      // by a rule that answers
	Lost       Outcome = "lost"          // the first packet disappeared between two hooks or in one
	ReplyLost  Outcome = "reply lost"    // the answer did
	ReplyDrop  Outcome = "reply dropped" // a rule or a policy dropped the answer
	NoPacket   Outcome = "no packet"
)

func (c *Connection) judgeOutcome(rules *Rules) Outcome {
	switch {
	case c.First == nil:
		return NoPacket
	case c.First.ended != nil:
		if e := c.First.ended; e.Kind != Policy {
			if found, _ := rules.findRule(e.Place, e.Handle); found.rejects {
				return Rejected
			}
		}
		return Dropped
	case c.Reply == nil && c.First.done():
		return Unanswered
	case c.Reply == nil:
		return Lost
	case c.Reply.ended != nil:
		return ReplyDrop
	case !c.Reply.done():
		return ReplyLost
	}
	if p := c.Reply.firstPacket(); p.Protocol.IsEcho() || p.Protocol == model.TCP && p.Flags&flagRST != 0 {
		return Refused
	}
	return Answered
}

// describeSource says which rule, or which policy, an event is about: "rule 12 of chain FORWARD in table
// ip filter (Docker, iptables-nft): `-A FORWARD ...`".
func (r *Rules) describeSource(e *Event) string {
	if e.Kind == Policy {
		owner := r.findProgram(e.Place, "", "")
		if others := r.otherPrograms(e.Place); len(others) > 0 && !strings.HasPrefix(owner, others[0]) {
			owner = strings.TrimPrefix(owner+"; with chains of "+strings.Join(others, ", "), "; ")
		}
		return fmt.Sprintf("the policy of %s%s: no rule accepted it", e.Place, inBrackets(owner))
	}
	found, ok := r.findRule(e.Place, e.Handle)
	owner := inBrackets(r.findProgram(e.Place, e.To, found.text))
	switch {
	case !ok:
		return fmt.Sprintf("the rule with handle %d of %s%s", e.Handle, e.Place, owner)
	case found.text == "":
		return fmt.Sprintf("rule %d (handle %d) of %s%s", found.number, e.Handle, e.Place, owner)
	}
	return fmt.Sprintf("rule %d of %s%s: %s", found.number, e.Place, owner, found.text)
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// describeLoss says how far a packet came that disappeared without a verdict.
func (j *Journey) describeLoss() string {
	switch {
	case j.hook == "prerouting" && (j.stage == kindFirst):
		return "between prerouting and connection tracking: a full table of connections, or a packet that it takes for invalid"
	case j.stage != kindLast:
		return "in the hook " + j.hook + ", by something other than nf_tables: rules of iptables-legacy, IPVS or a program that took it from a queue"
	case j.hook == "prerouting":
		return "behind prerouting, where the kernel looks for the route: no route, no forwarding, or the reverse path filter"
	case j.hook == "output" || j.hook == "forward":
		return "behind the hook " + j.hook + ", on the way to its interface"
	}
	return "on the interface lo"
}

func interfaceName(number int) string {
	if number == 0 {
		return ""
	}
	i, err := net.InterfaceByIndex(number)
	if err != nil {
		return fmt.Sprintf("interface %d", number)
	}
	return i.Name
}
