package proof

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/feature/relay"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/prove"
)

// Interval is addresses that another program adds to a set of our tables.
type Interval struct {
	Set         string
	First, Last netip.Addr
}

// proveRelayed proves the rules together with those that the relay process adds.
func proveRelayed(w *prove.World, rules *bytecode.Ruleset) (*prove.Report, error) {
	rules = rules.Clone()
	messages, err := messagesOf(func(c *nftables.Conn) error {
		for _, f := range model.Families {
			w.Relay(f)
			if err := relay.AddTable(c, f); err != nil {
				return err
			}
		}
		return nil
	})
	for i := 0; i < len(messages) && err == nil; i++ {
		err = rules.Change(messages[i])
	}
	if err != nil {
		return nil, err
	}
	return w.Prove(rules), nil
}

// add adds an interval to bytecode, and to rules as they are read from the kernel.
func (i Interval) add(rules *bytecode.Ruleset, current *nft.Ruleset) error {
	f, family, key := model.FamilyOf(i.First), nftables.TableFamilyIPv4, nftables.TypeIPAddr
	if f == model.IPv6 {
		family, key = nftables.TableFamilyIPv6, nftables.TypeIP6Addr
	}
	in := &nftables.Set{Name: i.Set, Table: &nftables.Table{Name: nft.TableName, Family: family}, KeyType: key, Interval: true}
	messages, err := messagesOf(func(c *nftables.Conn) error {
		ends := []nftables.SetElement{{Key: i.First.AsSlice()}, {Key: i.Last.Next().AsSlice(), IntervalEnd: true}}
		return errors.Join(c.SetAddElements(in, ends), c.Flush())
	})
	if err != nil {
		return err
	}
	set := current.Table(f).Set(i.Set)
	var ends []codec.Element
	for _, m := range messages {
		err := errors.Join(rules.Change(m), codec.NewElementDecoder(set, f).Message(m.Data, func(e *codec.Element) error {
			ends = append(ends, *e)
			return nil
		}))
		if err != nil {
			return err
		}
	}
	set.Elements = append(slices.Clip(set.Elements), codec.JoinIntervals(ends)...)
	set.Sort()
	return nil
}

// messagesOf returns the messages that a function sends to the kernel.
func messagesOf(send func(*nftables.Conn) error) (out []bytecode.Message, err error) {
	c, err := nftables.New(nftables.WithTestDial(func(sent []netlink.Message) ([]netlink.Message, error) {
		for _, m := range sent {
			if m.Header.Type>>8 == unix.NFNL_SUBSYS_NFTABLES {
				out = append(out, bytecode.Message{Type: uint16(m.Header.Type & 0xff), Data: m.Data})
			}
		}
		return nil, nil
	}))
	if err != nil {
		return nil, err
	}
	err = send(c)
	return out, err
}
