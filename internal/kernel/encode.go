package kernel

import (
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"

	"golang.org/x/sys/unix"
)

// Numbers of libnftnl's udata.h: the entries of nft's notes on sets and
// elements.
const (
	udataSetKeyByteOrder  = 0
	udataSetDataByteOrder = 1
	udataSetKeyTypeof     = 3
	udataSetDataTypeof    = 4

	udataElemComment = 0

	byteOrderBig = 2

	netfilterAccept = 1 // NF_ACCEPT of linux/netfilter.h
)

// maxList is the most bytes of elements that go into one message. The length
// of a netlink attribute has 16 bits; the rest of the message is small.
const maxList = 60 << 10

// Transaction is a plan in the form that the kernel takes: all of it, or
// nothing.
type Transaction struct {
	Messages []Message
}

// Size returns the size of the transaction.
func (t *Transaction) Size() Size {
	s := Size{Messages: len(t.Messages)}
	for _, m := range t.Messages {
		s.Bytes += len(m.Data)
	}
	return s
}

// Message is one nf_tables request.
type Message struct {
	Type  uint16 // NFT_MSG_*
	Flags netlink.HeaderFlags
	Data  []byte // nfgenmsg header and attributes
	// Object says in words what the message is about, for errors. A list of
	// elements has instead one part for each element.
	Object string
	set    *nft.Set
	parts  []part
}

// part is one element in a message. The kernel names the element that it
// refuses by the offset of its attribute.
type part struct {
	offset  int // in Data
	element *nft.Element
}

// Encode returns the transaction for a plan.
func Encode(p *plan.Plan) (*Transaction, error) {
	e := &encoder{deletions: elementList{verb: unix.NFT_MSG_DELSETELEM}, additions: elementList{verb: unix.NFT_MSG_NEWSETELEM}}
	for i := range p.Changes {
		if err := e.change(&p.Changes[i]); err != nil {
			return nil, fmt.Errorf("encode %s: %w", p.Changes[i].Text(), err)
		}
	}
	e.flushLists()
	return &Transaction{Messages: append(append(e.messages, e.unlink...), e.remove...)}, nil
}

// encoder turns changes into messages. Consecutive elements of one set travel
// together; what is deleted leaves last: first the rules of all chains that go
// (unlink), then the sets and chains themselves.
type encoder struct {
	messages, unlink, remove []Message

	set                  *nft.Set // that the lists are of
	family               model.Family
	deletions, additions elementList
	nextID               uint32 // of a new set, for NFTA_SET_ID
}

// elementList is a message of elements that is being filled. It is used again
// for the next one.
type elementList struct {
	verb    uint16
	set     *nft.Set
	data    attributes // with the header; empty before the first element
	list    int        // offset of the attribute that holds the elements
	parts   []part
	timeout time.Duration // of the elements that are appended next
}

func (e *encoder) change(c *plan.Change) error {
	if c.Kind() == "element" {
		e.element(c)
		return nil
	}
	e.flushLists()
	switch {
	case c.Set != nil && c.Verb == plan.Add:
		e.messages = append(e.messages, e.newSet(c))
	case c.Set != nil && c.Verb == plan.Replace:
		for _, u := range c.Users {
			e.messages = append(e.messages, named(unix.NFT_MSG_DELRULE, c, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, u.Name))
		}
		e.messages = append(e.messages, named(unix.NFT_MSG_DELSET, c, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, c.Set.Name), e.newSet(c))
	case c.Set != nil:
		e.remove = append(e.remove, named(unix.NFT_MSG_DELSET, c, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, c.Set.Name))
	case c.Chain != nil && c.Verb == plan.Add:
		e.messages = append(e.messages, newChain(c))
	case c.Chain != nil && c.Verb == plan.Delete:
		e.unlink = append(e.unlink, named(unix.NFT_MSG_DELRULE, c, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, c.Chain.Name))
		e.remove = append(e.remove, named(unix.NFT_MSG_DELCHAIN, c, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, c.Chain.Name))
	case c.Chain != nil:
		return e.replaceRules(c)
	default:
		e.messages = append(e.messages, table(c))
	}
	return nil
}

// begin starts a message with its nfgenmsg header (linux/netfilter/nfnetlink.h).
func begin(f model.Family) attributes {
	return attributes{familyNumber(f), unix.NFNETLINK_V0, 0, 0}
}

// familyNumber returns the kernel's number of a family.
func familyNumber(f model.Family) byte {
	if f == model.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// named returns a message that names an object of our table.
func named(typ uint16, c *plan.Change, tableAttr, nameAttr uint16, name string) Message {
	a := begin(c.Family)
	a.string(tableAttr, nft.TableName)
	a.string(nameAttr, name)
	return Message{Type: typ, Data: a, Object: c.Text()}
}

func table(c *plan.Change) Message {
	a := begin(c.Family)
	a.string(unix.NFTA_TABLE_NAME, nft.TableName)
	m := Message{Type: unix.NFT_MSG_DELTABLE, Data: a, Object: c.Text()}
	if c.Verb == plan.Add {
		m.Type, m.Flags = unix.NFT_MSG_NEWTABLE, netlink.Create
	}
	return m
}

// newChain adds a chain. One that exists is refused, because the rules that follow
// would be added to those that it has.
func newChain(c *plan.Change) Message {
	m := named(unix.NFT_MSG_NEWCHAIN, c, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, c.Chain.Name)
	m.Flags = netlink.Create | netlink.Excl
	if c.Chain.Hook == nft.NoHook {
		return m
	}
	a := attributes(m.Data)
	end := a.nest(unix.NFTA_CHAIN_HOOK)
	a.uint32(unix.NFTA_HOOK_HOOKNUM, hookNumber(c.Chain.Hook))
	a.uint32(unix.NFTA_HOOK_PRIORITY, uint32(c.Chain.Priority))
	end()
	a.uint32(unix.NFTA_CHAIN_POLICY, netfilterAccept)
	a.string(unix.NFTA_CHAIN_TYPE, "nat")
	m.Data = a
	return m
}

func hookNumber(h nft.Hook) uint32 {
	switch h {
	case nft.Prerouting:
		return unix.NF_INET_PRE_ROUTING
	case nft.Input:
		return unix.NF_INET_LOCAL_IN
	case nft.Output:
		return unix.NF_INET_LOCAL_OUT
	}
	return unix.NF_INET_POST_ROUTING
}

func (e *encoder) newSet(c *plan.Change) Message {
	e.nextID++
	s := c.Set
	m := named(unix.NFT_MSG_NEWSET, c, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, s.Name)
	m.Flags = netlink.Create
	a := attributes(m.Data)
	a.uint32(unix.NFTA_SET_FLAGS, setFlags(s))
	a.uint32(unix.NFTA_SET_KEY_TYPE, nftTypes(s.Key, c.Family))
	a.uint32(unix.NFTA_SET_KEY_LEN, uint32(widths(s.Key, c.Family)))
	if len(s.Data) > 0 {
		a.uint32(unix.NFTA_SET_DATA_TYPE, nftTypes(s.Data, c.Family))
		a.uint32(unix.NFTA_SET_DATA_LEN, dataLength(s, c.Family))
	}
	a.uint32(unix.NFTA_SET_ID, e.nextID)
	if s.Counters {
		appendCounter(&a)
	}
	appendDescription(&a, s, c.Family)
	a.bytes(unix.NFTA_SET_USERDATA, setUserdata(s, c.Family))
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
		flags |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	return flags
}

// nftSetConcat is NFT_SET_CONCAT: intervals of concatenations, since kernel
// 5.6. Other concatenations go without.
const nftSetConcat = 0x80

// appendDescription tells the kernel how many elements there may be, and the
// sizes of the fields in an interval set of concatenations.
func appendDescription(a *attributes, s *nft.Set, f model.Family) {
	if s.Size == 0 && setFlags(s)&nftSetConcat == 0 {
		return
	}
	end := a.nest(unix.NFTA_SET_DESC)
	defer end()
	if s.Size > 0 {
		a.uint32(unix.NFTA_SET_DESC_SIZE, s.Size)
	}
	if setFlags(s)&nftSetConcat == 0 {
		return
	}
	endConcat := a.nest(setDescConcat)
	defer endConcat()
	for _, d := range s.Key {
		endField := a.nest(unix.NFTA_LIST_ELEM)
		a.uint32(setFieldLength, size(d, f))
		endField()
	}
}

const (
	setDescConcat  = 2 // NFTA_SET_DESC_CONCAT
	setFieldLength = 1 // NFTA_SET_FIELD_LEN
)

// dataLength returns the size of a map's data; the kernel knows that of a
// verdict.
func dataLength(s *nft.Set, f model.Family) uint32 {
	if s.Data[0] == nft.Verdicts {
		return 0
	}
	return uint32(widths(s.Data, f))
}

// replaceRules empties a chain and gives it new rules. Rule handles are thus
// never needed.
func (e *encoder) replaceRules(c *plan.Change) error {
	if len(c.OldRules) > 0 {
		e.messages = append(e.messages, named(unix.NFT_MSG_DELRULE, c, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, c.Chain.Name))
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
	a := begin(c.Family)
	a.string(unix.NFTA_RULE_TABLE, nft.TableName)
	a.string(unix.NFTA_RULE_CHAIN, c.Chain.Name)
	end := a.nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, s := range r {
		if err := appendStatement(&a, s, c.Family); err != nil {
			return Message{}, err
		}
	}
	end()
	object := fmt.Sprintf("add rule to chain %s: %s", c.Chain.Name, r.Text(c.Family))
	return Message{Type: unix.NFT_MSG_NEWRULE, Flags: netlink.Create | netlink.Append, Data: a, Object: object}, nil
}
