package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Refusal is a message that the kernel refuses.
type Refusal struct {
	*codec.Message
	Expression string // the refused part of a rule; empty for something else
	Err        error  // unwraps to the errno
}

const trialTable = nft.TableName + "-trial"

// Try returns the parts of a plan that the kernel refuses. It sends a batch for a dormant
// table of another name and does not end it: the kernel carries out each message,
// loads the modules that it needs, and then undoes everything. The rules see no
// packets, watchers do not see the rules, and the generation does not change.
func (c *Conn) Try(p *plan.Plan) ([]Refusal, error) {
	t, err := codec.Encode(p)
	if err != nil {
		return nil, err
	}
	return c.tryTransaction(t, unix.NFT_TABLE_F_DORMANT)
}

// Check implements apply.Kernel as [Conn.Try] does: what our tables hold, and who else
// changes them, makes no difference.
func (c *Conn) Check(p *plan.Plan) error {
	t, err := codec.Encode(p)
	if err != nil {
		return err
	}
	t = inTrialTable(t, unix.NFT_TABLE_F_DORMANT)
	_, err = retryQuestion(func() (none struct{}, err error) {
		first, err := c.sendBatch(t, t.Size(), AnyGeneration, true)
		if err != nil {
			return none, fmt.Errorf("try: %w", err)
		}
		return none, c.receiveAnswer(t, first)
	})
	return err
}

func (c *Conn) tryTransaction(t *codec.Transaction, flags uint32) ([]Refusal, error) {
	t = inTrialTable(t, flags)
	return retryQuestion(func() ([]Refusal, error) { return c.tryOnce(t) })
}

func (c *Conn) tryOnce(t *codec.Transaction) ([]Refusal, error) {
	first, err := c.sendBatch(t, t.Size(), AnyGeneration, true)
	if err != nil {
		return nil, fmt.Errorf("try: %w", err)
	}
	answers, err := c.receiveResult(first + uint32(len(t.Messages)))
	var out []Refusal
	for _, answer := range answers {
		var op *netlink.OpError
		_ = errors.As(answer, &op) // it is an answer
		i := int(op.Sequence-first) - 1
		if i < 0 || i >= len(t.Messages) || OutcomeOf(answer) != Refused {
			return nil, answer // it is not about the message
		}
		m := &t.Messages[i]
		out = append(out, Refusal{m, expressionAt(m, op.Offset-unix.NLMSG_HDRLEN), answer})
	}
	return out, err
}

// inTrialTable returns the transaction for the trial table, with these flags.
func inTrialTable(t *codec.Transaction, flags uint32) *codec.Transaction {
	header := len(codec.InTable(model.IPv4))
	out := &codec.Transaction{Messages: slices.Clone(t.Messages)}
	for i := range out.Messages {
		m := &out.Messages[i]
		a := slices.Clone(codec.Attributes(m.Data[:netlinkio.HeaderLength]))
		a.Text(unix.NFTA_TABLE_NAME, trialTable)
		a = append(a, m.Data[header:]...)
		if m.Type == unix.NFT_MSG_NEWTABLE {
			a.Uint32(unix.NFTA_TABLE_FLAGS, flags)
		}
		m.Data = a
	}
	return out
}

// expressionAt returns the name of the expression at an offset of a rule. Kernels
// report the offset since 5.10.
func expressionAt(m *codec.Message, offset int) string {
	if m.Type != unix.NFT_MSG_NEWRULE || offset < netlinkio.HeaderLength || offset >= len(m.Data) {
		return ""
	}
	var err error // means that there is none
	a := netlinkio.Read(m.Data[offset:], &err)
	if !a.Next() || a.Type != unix.NFTA_LIST_ELEM {
		return ""
	}
	return codec.ExpressionName(a.Nested())
}
