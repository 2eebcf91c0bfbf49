package codec

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Numbers of the kernel, from linux/netfilter/nf_tables.h where nothing else is
// said.
const (
	netfilterAccept = 1    // NF_ACCEPT of linux/netfilter.h
	nftSetConcat    = 0x80 // NFT_SET_CONCAT: intervals of concatenations, since kernel 5.6
	setDescConcat   = 2    // NFTA_SET_DESC_CONCAT
	setFieldLength  = 1    // NFTA_SET_FIELD_LEN
)

// Transaction is a plan as netlink messages. The kernel carries out all of it or
// nothing.
type Transaction struct {
	Messages []Message
}

type Size struct {
	Messages int
	Bytes    int // without the message headers
}

func (t *Transaction) Size() Size {
	s := Size{Messages: len(t.Messages)}
	for _, m := range t.Messages {
		s.Bytes += len(m.Data)
	}
	return s
}

// Message is one nf_tables request.
type Message struct {
	Type   uint16 // NFT_MSG_*
	Flags  netlink.HeaderFlags
	Data   []byte     // nfgenmsg header and attributes
	Object string     // in words, for errors; empty for a list of elements, which has parts
	Set    *nft.Set   // that is added, deleted or changed, or nil
	Chain  *nft.Chain // likewise
	Parts  []part
}

// String returns a line for each message.
func (t *Transaction) String() string {
	var b strings.Builder
	for i := range t.Messages {
		fmt.Fprintf(&b, "%d: %s (%d bytes)\n", i+1, &t.Messages[i], len(t.Messages[i].Data))
	}
	return b.String()
}

// LogValue implements [slog.LogValuer], so that the text is made only if it is
// logged.
func (t *Transaction) LogValue() slog.Value { return slog.StringValue(t.String()) }

func (m *Message) String() string {
	if m.Object != "" {
		return m.Object
	}
	texts := make([]string, len(m.Parts))
	for i, p := range m.Parts {
		texts[i] = m.Set.ElementText(p.Element)
	}
	return fmt.Sprintf("%s elements of %s %s: %s", m.Verb(), m.Set.Keyword(), m.Set.Name, strings.Join(texts, ", "))
}

// DestroySetElement is NFT_MSG_DESTROYSETELEM, since kernel 6.3: unlike
// NFT_MSG_DELSETELEM it ignores elements that do not exist.
const DestroySetElement = 30

func (m *Message) Verb() plan.Verb {
	if m.Type == unix.NFT_MSG_DELSETELEM || m.Type == DestroySetElement {
		return plan.Delete
	}
	return plan.Add
}

// part is one element in a message. The kernel reports a refused element by the
// offset of its attribute.
type part struct {
	Offset  int // in Data
	Element *nft.Element
}

func Encode(p *plan.Plan) (*Transaction, error) { return EncodeAgain(p, nil) }

// EncodeAgain is like [Encode], in the memory of a transaction that is no longer in use.
func EncodeAgain(p *plan.Plan, spare *Transaction) (*Transaction, error) {
	e := &encoder{deletions: ElementList{Verb: unix.NFT_MSG_DELSETELEM}, additions: ElementList{Verb: unix.NFT_MSG_NEWSETELEM}}
	if spare != nil {
		e.spare = slices.DeleteFunc(spare.Messages, func(m Message) bool { return len(m.Parts) == 0 })
	}
	for i := range p.Changes {
		if err := e.encodeChange(&p.Changes[i]); err != nil {
			return nil, fmt.Errorf("encode %s: %w", p.Changes[i].Text(), err)
		}
	}
	e.flushLists()
	return &Transaction{Messages: append(append(e.messages, e.unlink...), e.remove...)}, nil
}

// encoder turns changes into messages. Consecutive elements of one set share
// messages. Deletions come last: first the rules of all chains to delete (unlink),
// then the sets and chains themselves.
type encoder struct {
	messages, unlink, remove []Message

	set                  *nft.Set // that the lists are of
	family               model.Family
	deletions, additions ElementList
	nextID               uint32 // of a new set, for NFTA_SET_ID
	// spare are lists of elements whose memory can be used.
	spare []Message
}

func (e *encoder) encodeChange(c *plan.Change) error {
	if c.Kind() == "element" {
		e.encodeElement(c)
		return nil
	}
	e.flushLists()
	switch {
	case c.Set != nil && c.Verb == plan.Add:
		e.messages = append(e.messages, e.newSet(c))
	case c.Set != nil && c.Verb == plan.Replace:
		for _, u := range c.Users {
			e.messages = append(e.messages, deleteRules(c, u))
		}
		e.messages = append(e.messages, newMessage(unix.NFT_MSG_DELSET, c, unix.NFTA_SET_NAME, c.Set.Name), e.newSet(c))
	case c.Set != nil:
		e.remove = append(e.remove, newMessage(unix.NFT_MSG_DELSET, c, unix.NFTA_SET_NAME, c.Set.Name))
	case c.Chain != nil && c.Verb == plan.Add:
		e.messages = append(e.messages, newChain(c))
	case c.Chain != nil && c.Verb == plan.Delete:
		e.unlink = append(e.unlink, deleteRules(c, c.Chain))
		e.remove = append(e.remove, newMessage(unix.NFT_MSG_DELCHAIN, c, unix.NFTA_CHAIN_NAME, c.Chain.Name))
	case c.Chain != nil:
		return e.replaceRules(c)
	default:
		e.messages = append(e.messages, NewTable(c))
	}
	return nil
}

// Begin starts a message with its nfgenmsg header (linux/netfilter/nfnetlink.h).
func Begin(f model.Family) Attributes {
	const usual = 128 // bytes: the names of a table and a set, and an element
	return append(make(Attributes, 0, usual), FamilyNumber(f), unix.NFNETLINK_V0, 0, 0)
}

func FamilyNumber(f model.Family) byte {
	return byFamily[byte](f, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6)
}

// InTable starts a message about something in our table. Its name is the first
// attribute in messages about all kinds of objects.
func InTable(f model.Family) Attributes {
	a := Begin(f)
	a.Text(unix.NFTA_TABLE_NAME, nft.TableName)
	return a
}

func InSet(name string, f model.Family) Attributes {
	a := InTable(f)
	a.Text(unix.NFTA_SET_NAME, name) // as NFTA_SET_ELEM_LIST_SET
	return a
}

func newMessage(typ uint16, c *plan.Change, nameAttr uint16, name string) Message {
	a := InTable(c.Family)
	a.Text(nameAttr, name)
	return Message{Type: typ, Data: a, Object: c.Text(), Set: c.Set, Chain: c.Chain}
}

func deleteRules(c *plan.Change, of *nft.Chain) Message {
	return newMessage(unix.NFT_MSG_DELRULE, c, unix.NFTA_RULE_CHAIN, of.Name)
}

func NewTable(c *plan.Change) Message {
	m := Message{Type: unix.NFT_MSG_DELTABLE, Data: InTable(c.Family), Object: c.Text()}
	if c.Verb == plan.Add {
		m.Type, m.Flags = unix.NFT_MSG_NEWTABLE, netlink.Create
	}
	return m
}

// newChain adds a chain. The kernel refuses one that exists: otherwise the rules
// that follow would be appended to its own.
func newChain(c *plan.Change) Message {
	m := newMessage(unix.NFT_MSG_NEWCHAIN, c, unix.NFTA_CHAIN_NAME, c.Chain.Name)
	m.Flags = netlink.Create | netlink.Excl
	if c.Chain.Hook == nft.NoHook {
		return m
	}
	a := Attributes(m.Data)
	end := a.Nest(unix.NFTA_CHAIN_HOOK)
	a.Uint32(unix.NFTA_HOOK_HOOKNUM, hookNumbers[c.Chain.Hook])
	a.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(c.Chain.Priority))
	end()
	a.Uint32(unix.NFTA_CHAIN_POLICY, netfilterAccept)
	a.Text(unix.NFTA_CHAIN_TYPE, c.Chain.Type())
	m.Data = a
	return m
}

var hookNumbers = [...]uint32{
	nft.Prerouting: unix.NF_INET_PRE_ROUTING, nft.Input: unix.NF_INET_LOCAL_IN,
	nft.Output: unix.NF_INET_LOCAL_OUT, nft.Postrouting: unix.NF_INET_POST_ROUTING,
}

func (e *encoder) newSet(c *plan.Change) Message {
	e.nextID++
	s := c.Set
	m := newMessage(unix.NFT_MSG_NEWSET, c, unix.NFTA_SET_NAME, s.Name)
	m.Flags = netlink.Create
	a := Attributes(m.Data)
	a.Uint32(unix.NFTA_SET_FLAGS, setFlags(s))
	a.Uint32(unix.NFTA_SET_KEY_TYPE, nftTypes(s.Key, c.Family))
	a.Uint32(unix.NFTA_SET_KEY_LEN, uint32(totalWidth(s.Key, c.Family)))
	if len(s.Data) > 0 {
		a.Uint32(unix.NFTA_SET_DATA_TYPE, nftTypes(s.Data, c.Family))
		a.Uint32(unix.NFTA_SET_DATA_LEN, dataLength(s, c.Family))
	}
	a.Uint32(unix.NFTA_SET_ID, e.nextID)
	if s.Counters { // the kernel copies it to the elements
		end := a.Nest(setExpression)
		a.Text(unix.NFTA_EXPR_NAME, counterExpression)
		a.Nest(unix.NFTA_EXPR_DATA)()
		end()
	}
	if s.Limits != nft.NoLimits {
		appendLimit(&a, setExpression, nft.DefaultLimit(s.Limits))
	}
	appendDescription(&a, s, c.Family)
	a.appendBytes(unix.NFTA_SET_USERDATA, setUserdata(s, c.Family))
	m.Data = a
	return m
}

func setFlags(s *nft.Set) uint32 {
	flags := uint32(0)
	if s.Interval {
		flags |= unix.NFT_SET_INTERVAL
		if s.Concat() {
			flags |= nftSetConcat
		}
	}
	if len(s.Data) > 0 {
		flags |= unix.NFT_SET_MAP
	}
	if s.Dynamic {
		flags |= unix.NFT_SET_EVAL
	}
	if s.Dynamic && !s.Timeless {
		flags |= unix.NFT_SET_TIMEOUT
	}
	return flags
}

// appendDescription appends the maximum number of elements, and the sizes of the
// fields in an interval set of concatenations.
func appendDescription(a *Attributes, s *nft.Set, f model.Family) {
	concat := setFlags(s)&nftSetConcat != 0
	if s.Size == 0 && !concat {
		return
	}
	end := a.Nest(unix.NFTA_SET_DESC)
	defer end()
	if s.Size > 0 {
		a.Uint32(unix.NFTA_SET_DESC_SIZE, s.Size)
	}
	if !concat {
		return
	}
	endConcat := a.Nest(setDescConcat)
	defer endConcat()
	for _, d := range s.Key {
		endField := a.Nest(unix.NFTA_LIST_ELEM)
		_, size := fieldType(d, f)
		a.Uint32(setFieldLength, uint32(size))
		endField()
	}
}

// dataLength returns the size of a map's data; the kernel knows that of a verdict.
func dataLength(s *nft.Set, f model.Family) uint32 {
	if s.Data[0] == nft.Verdicts {
		return 0
	}
	return uint32(totalWidth(s.Data, f))
}

// replaceRules empties a chain and fills it again, so rule handles are not needed.
func (e *encoder) replaceRules(c *plan.Change) error {
	if len(c.OldRules) > 0 {
		e.messages = append(e.messages, deleteRules(c, c.Chain))
	}
	for _, r := range c.Chain.Rules {
		m, err := newRule(c, r)
		if err != nil {
			return err
		}
		e.messages = append(e.messages, m)
	}
	return nil
}

func newRule(c *plan.Change, r nft.Rule) (Message, error) {
	a := InTable(c.Family)
	a.Text(unix.NFTA_RULE_CHAIN, c.Chain.Name)
	end := a.Nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, s := range r {
		if err := appendStatement(&a, s, c.Family); err != nil {
			return Message{}, err
		}
	}
	end()
	object := fmt.Sprintf("add rule to chain %s: %s", c.Chain.Name, r.Text(c.Family))
	return Message{Type: unix.NFT_MSG_NEWRULE, Flags: netlink.Create | netlink.Append, Data: a, Object: object, Chain: c.Chain}, nil
}

// CarryOut changes rules as the kernel does that gets the transactions of a plan. Between them it
// calls a function, unless that is nil.
func CarryOut(p *plan.Plan, rules *bytecode.Ruleset, between func() error) error {
	for i, phase := range p.Phases() {
		if i > 0 && between != nil {
			if err := between(); err != nil {
				return err
			}
		}
		if err := CarryOutPhase(phase, rules); err != nil {
			return err
		}
	}
	return nil
}

// CarryOutPhase is for one transaction of a plan.
func CarryOutPhase(p *plan.Plan, rules *bytecode.Ruleset) error {
	tx, err := Encode(p)
	if err != nil {
		return err
	}
	for i := range tx.Messages {
		if err := rules.Change(bytecode.Message{Type: tx.Messages[i].Type, Data: tx.Messages[i].Data}); err != nil {
			return err
		}
	}
	return nil
}
