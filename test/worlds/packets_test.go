package worlds

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/worlds"
)

// silence is how long a packet waits that may get no answer.
const silence = 300 * time.Millisecond

// end is how a first packet ends.
type end uint8

const (
	answered    end = iota
	refused         // by a reset, or port unreachable
	unanswered      // in time
	forbidden       // the node itself may not send it
	unreachable     // no host is there
	closed          // the connection ended without an answer
	odd             // anything else
)

func (e end) String() string {
	return [...]string{"answered", "refused", "unanswered", "forbidden", "unreachable", "closed", "odd"}[e]
}

// result is the end of a packet, with the answer of a server.
type result struct {
	end
	netlab.Answer
	err error
}

func (r result) String() string {
	if r.end == answered {
		return fmt.Sprintf("answered by %s:%d, which sees %s", r.Name, r.Port, r.Answer.Client)
	}
	return fmt.Sprintf("%s (%v)", r.end, r.err)
}

// ends are the ends by the errors of the system, in this order.
var ends = []struct {
	err error
	end end
}{
	{syscall.ECONNREFUSED, refused}, {syscall.ECONNRESET, refused}, {syscall.EPIPE, refused}, {syscall.EPERM, forbidden},
	{syscall.EHOSTUNREACH, unreachable}, {syscall.ENETUNREACH, unreachable}, {io.EOF, closed},
}

// endOf returns the end that an error means.
func endOf(err error) end {
	for _, e := range ends {
		if errors.Is(err, e.err) {
			return e.end
		}
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return unanswered
	}
	return odd
}

// send sends the first packet of a question.
func (n *node) send(q worlds.Question, wait time.Duration) result {
	from := n.hosts[q.From.Name]
	if q.IsPing() {
		if err := from.Ping(q.To.Addr(), wait); err != nil {
			return result{end: endOf(err), err: err}
		}
		return result{end: answered}
	}
	a, err := from.Ask(q.Protocol, q.To, wait)
	if err != nil {
		return result{end: endOf(err), err: err}
	}
	return result{end: answered, Answer: a}
}

// expectation is what the answer of explain allows.
type expectation struct {
	ends    []end                 // of a packet that no server answers
	answers []func(r result) bool // of servers
}

// expect translates the answer to a question.
func expect(q worlds.Question, a *explain.Result) (x expectation) {
	for i := range a.Outcomes {
		if o := &a.Outcomes[i]; o.Share > 0 {
			x.add(q, o)
		}
	}
	if q.From.Name == worlds.Node.Name && slices.Contains(x.ends, refused) {
		x.ends = append(x.ends, forbidden) // the rule rejects the packet where it is sent
	}
	return x
}

func (x *expectation) add(q worlds.Question, o *explain.Outcome) {
	switch o.Verdict {
	case explain.Reject:
		x.ends = append(x.ends, refused)
	case explain.Drop:
		x.ends = append(x.ends, unanswered, forbidden)
	case explain.Answer:
		x.answers = append(x.answers, func(result) bool { return true })
	case explain.NotOurs: // the node, the client, or nothing
		x.ends = append(x.ends, refused, unanswered, forbidden, unreachable, closed, odd)
		x.answers = append(x.answers, func(r result) bool { return q.IsPing() || !isPod(r.Name) })
	case explain.Forward:
		x.addEndpoint(q, o)
	}
}

func isPod(name string) bool {
	return slices.ContainsFunc(worlds.Pods, func(p worlds.Host) bool { return p.Name == name })
}

// addEndpoint adds what happens to a packet that goes to an endpoint.
func (x *expectation) addEndpoint(q worlds.Question, o *explain.Outcome) {
	server, here := worlds.PodWith(o.Endpoint.Addr())
	rewritten := o.Masquerade != "" || o.Relay != 0 || q.From.Name == worlds.Node.Name
	switch {
	case q.IsPing():
		x.answers = append(x.answers, func(result) bool { return true })
	case !here: // nothing is at the address
		x.ends = append(x.ends, unanswered, unreachable, closed, refused)
	case server == q.From && !rewritten: // a pod "of another node" gets its own packet
		x.ends = append(x.ends, unanswered)
	case !slices.Contains(worlds.ServerPorts(), o.Endpoint.Port()):
		x.ends = append(x.ends, refused)
		if o.Relay != 0 {
			x.ends = append(x.ends, closed)
		}
	default:
		x.answers = append(x.answers, func(r result) bool {
			if r.Name != server.Name || r.Answer.Port != o.Endpoint.Port() {
				return false
			}
			if rewritten {
				return worlds.IsNode(r.Answer.Client) || q.From.Name == worlds.Node.Name && r.Answer.Client == q.To.Addr()
			}
			return r.Answer.Client == q.Source()
		})
	}
}

// wait is how long a packet may take. The machine may be busy, so only silence that may be right
// is short.
func (x expectation) wait() time.Duration {
	if slices.Contains(x.ends, unanswered) {
		return silence
	}
	return await.Patience
}

func (x expectation) allows(r result) bool {
	if r.end != answered {
		return slices.Contains(x.ends, r.end)
	}
	return slices.ContainsFunc(x.answers, func(is func(result) bool) bool { return is(r) })
}
