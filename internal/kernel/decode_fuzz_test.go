package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// frames are answers of the kernel in a row, each behind a header of three
// bytes: what was asked for, and the length of the answer.
type frames []byte

func (fr *frames) add(asked uint16, answer []byte) {
	*fr = binary.LittleEndian.AppendUint16(append(*fr, byte(asked)), uint16(len(answer)))
	*fr = append(*fr, answer...)
}

// each calls f for every frame that is complete.
func (fr frames) each(f func(asked uint16, answer []byte)) {
	for len(fr) >= 3 {
		n := int(binary.LittleEndian.Uint16(fr[1:]))
		if len(fr) < 3+n {
			return
		}
		f(uint16(fr[0]), fr[3:3+n])
		fr = fr[3+n:]
	}
}

// record asks the kernel for all that a dump asks for.
func record(t testing.TB, c *Conn, rs *nft.Ruleset) (out frames) {
	ask := func(typ uint16, flags netlink.HeaderFlags, a codec.Attributes) {
		replies, err := c.sendRequest(typ, netlink.Request|flags, a)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range replies {
			out.add(typ, m.Data)
		}
	}
	for _, table := range rs.Tables {
		of := func(attr uint16) codec.Attributes {
			a := codec.Begin(table.Family)
			a.Text(attr, nft.TableName)
			return a
		}
		ask(unix.NFT_MSG_GETTABLE, 0, of(unix.NFTA_TABLE_NAME))
		ask(unix.NFT_MSG_GETSET, netlink.Dump, of(unix.NFTA_SET_TABLE))
		for _, s := range table.Sets {
			a := of(unix.NFTA_SET_ELEM_LIST_TABLE)
			a.Text(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
			ask(unix.NFT_MSG_GETSETELEM, netlink.Dump, a)
		}
		ask(unix.NFT_MSG_GETCHAIN, netlink.Dump, of(unix.NFTA_CHAIN_TABLE))
		ask(unix.NFT_MSG_GETRULE, netlink.Dump, of(unix.NFTA_RULE_TABLE))
	}
	return out
}

// silent returns a socket on which nothing arrives.
var silent = sync.OnceValue(func() int {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	return ends[0]
})

// played is a connection to a kernel that answers with frames. Of an answer that is not read to its end,
// nothing is left.
func played(fr frames) *Conn {
	return &Conn{socket: &socket{fd: silent(), buffer: make([]byte, 1)}, nl: nltest.Dial(func(requests []netlink.Message) ([]netlink.Message, error) {
		if len(requests) == 0 {
			return nil, nil
		}
		q := requests[0]
		asked := uint16(q.Header.Type) & 0xff
		header := netlink.Header{Sequence: q.Header.Sequence, PID: q.Header.PID, Flags: netlink.Multi}
		var out []netlink.Message
		fr.each(func(typ uint16, answer []byte) {
			if typ == asked && len(answer) >= netlinkio.HeaderLength && answer[0] == q.Data[0] && (setIn(q.Data) == nil || bytes.Equal(setIn(q.Data), setIn(answer))) {
				out = append(out, netlink.Message{Header: header, Data: answer})
			}
		})
		if asked == unix.NFT_MSG_GETTABLE && len(out) == 0 {
			return nltest.Error(int(unix.ENOENT), requests)
		}
		header.Type = netlink.Done
		return append(out, netlink.Message{Header: header}), nil
	})}
}

// TestPlayed: a connection with frames can be asked after an answer that is none.
func TestPlayed(t *testing.T) {
	c := played(nil)
	c.noteFailure(errMalformed)
	if _, _, err := c.Set(nft.AffinityMap, model.IPv4); c.dirty {
		t.Error("the connection waits for the rest of an answer:", err)
	}
}

func dumped(c *Conn) (*nft.Ruleset, error) { return reading{expected: &nft.Ruleset{}}.readTables(c) }

// setIn returns the name of the set that a message about sets or elements is
// about, nil if about all.
func setIn(data []byte) (name []byte) {
	var err error // ends the list
	a := netlinkio.ReadMessage(data, &err)
	for a.Next() {
		if a.Type == unix.NFTA_SET_NAME { // as NFTA_SET_ELEM_LIST_SET
			name = a.Data
		}
	}
	return name
}

// foreignCommands put things into our tables that we never write.
var foreignCommands = []string{
	`table ip nftproxy { chain a { tcp dport { 22, 80 } log prefix "x" limit rate 1/second accept; }; }`,
	"table ip nftproxy { chain b { type filter hook input priority 5; policy drop; meta mark set 0x4000; ct state new counter; }; }",
	"table ip nftproxy { set s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.168.0.1-192.168.0.9, 255.255.255.255 }; }; }",
	"table ip nftproxy { map m { type inet_service : ipv4_addr; elements = { 80 : 10.0.0.1 }; }; }",
	"table ip nftproxy { map m { type ipv4_addr : ipv4_addr; elements = { 10.0.0.2 : 10.0.0.1 }; }; }",
	"table ip nftproxy { set p { type inet_service; flags interval; elements = { 80-90 }; }; }",
	"table ip nftproxy { set n { typeof numgen inc mod 2; flags interval; elements = { 1-9 }; }; }",
	"table ip6 nftproxy { set c { type ipv6_addr . inet_proto . inet_service; flags interval; elements = { fd00::/8 . tcp . 1-9 }; }; }",
	"table ip nftproxy { set d { type ipv4_addr; flags dynamic,timeout; timeout 1m; counter; }; chain e { type nat hook output priority -100; ip daddr 10.1.0.0/17 dnat to 10.0.0.1; redirect; }; }",
	"add element ip nftproxy services { * : 0:2 }",
	"add element ip nftproxy source-ranges { * }",
}

// TestForeign: changes of our tables by other programs are read well enough to be
// reverted (13.11, 13.17; several found by FuzzDump).
func TestForeign(t *testing.T) {
	for _, command := range foreignCommands {
		t.Run(command, func(t *testing.T) {
			s := newSandbox(t)
			s.apply(t, farmland(2))
			s.nft(t, command)
			if s.plan(t, farmland(2)).Empty() {
				t.Error("the change is not found")
			}
			s.apply(t, farmland(2))
		})
	}
}

// recordings are the kernel's answers about rules of ours, and, without what these have, about foreign
// changes of our tables: a fuzzer runs short inputs more often.
func recordings(f *testing.F) (out []frames) {
	f.Helper()
	known := make(map[string]bool)
	for _, rs := range []*nft.Ruleset{workload.Sample(), farmland(1), farmland(2)} {
		s := newSandbox(f)
		s.apply(f, rs)
		fr := record(f, s.Conn, rs)
		got, err := dumped(played(fr))
		if err != nil {
			f.Fatal(err)
		}
		if diff := cmp.Diff(workload.Sorted(rs), workload.Sorted(got)); diff != "" {
			f.Fatalf("the recording differs from what was applied (-want +got):\n%s", diff)
		}
		out = append(out, fr)
		fr.each(func(asked uint16, answer []byte) { known[answerKey(asked, answer)] = true })
	}
	for _, command := range foreignCommands {
		s := newSandbox(f)
		s.apply(f, farmland(2))
		s.nft(f, command)
		current, _, err := s.Read()
		if err != nil {
			f.Fatal(err)
		}
		var changed frames
		record(f, s.Conn, current).each(func(asked uint16, answer []byte) {
			if asked == unix.NFT_MSG_GETTABLE || !known[answerKey(asked, answer)] {
				changed.add(asked, answer)
			}
		})
		out = append(out, changed)
	}
	return out
}

// answerKey is the same for answers of the same shape: handles and names of the same length make no difference.
func answerKey(asked uint16, answer []byte) string {
	var shape func(b []byte, depth int) string
	shape = func(b []byte, depth int) (text string) {
		var err error
		for a := netlinkio.Read(b, &err); a.Next(); {
			text += fmt.Sprintf(" %d:%d", a.Type, len(a.Data))
			if depth > 0 {
				text += "(" + shape(a.Data, depth-1) + ")"
			}
		}
		return text
	}
	return fmt.Sprint(asked, answer[:1], shape(answer[netlinkio.HeaderLength:], 5))
}

// farmland is a ruleset of one service with a little of everything.
func farmland(seed byte) *nft.Ruleset {
	c := workload.NewRivals()
	// created, addresses, ports, node ports, policies, affinity, scheduler, and so on
	c.Specs[0] = [workload.Traits]byte{1, 2, 4, 1, 2, 3 - seed, 1 + seed, 1, 1, 1 + seed, 0}
	copy(c.Specs[0][11:], []byte{0, 1, 11 + 64, 19, 0, 2, 1, 3})
	c.Config.Counters = seed == 1
	c.Config.DetectLocal, c.Config.PodInterface = model.DetectMode(2+seed%2), "cali"
	c.Cidrs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/112")}
	return c.Render()
}

// FuzzDump: any answer of the kernel leads to an error or to a ruleset, which can be
// compared and printed. If the ruleset is possible, the plan turns it into the wanted
// one.
func FuzzDump(f *testing.F) {
	for _, fr := range recordings(f) {
		f.Add([]byte(fr))
		f.Add(withCounts(fr))
	}
	desired := farmland(1)
	f.Fuzz(func(t *testing.T, data []byte) {
		c := played(data)
		for _, family := range model.Families {
			for _, name := range slices.Concat(nft.ServiceMaps, nft.LocalServiceMaps) { // as counters does
				if s, _, err := c.Set(name, family); err == nil {
					_ = c.EachElement(s, family, func(*codec.Element) error { return nil })
				}
			}
			_, _ = c.affinityUse(nft.AffinityMap, family)
			_, _ = c.readBindings(nft.AffinityMap, family, 10)
			_, _ = c.lookUp(nft.AffinityMap, family, nft.Key{})
		}
		current, err := dumped(c)
		if err != nil {
			return
		}
		elements := 0
		for _, table := range current.Tables {
			for _, s := range table.Sets {
				elements += len(s.Elements)
			}
		}
		if elements > len(data) {
			t.Errorf("%d elements in %d bytes", elements, len(data))
		}
		settled := plan.Settle(current, desired)
		workload.Printed(t, plan.Diff(current, settled))
		if !possible(current) {
			return
		}
		carried := workload.Clone(current)
		for _, phase := range plan.Diff(current, settled).Phases() {
			for i := range phase.Changes {
				if err := workload.CarryOut(carried, &phase.Changes[i]); err != nil {
					t.Fatal(err)
				}
			}
			workload.CheckReferences(t, carried)
		}
		workload.ForgetBindings(carried)
		if diff := cmp.Diff(workload.Sorted(settled), workload.Sorted(carried)); diff != "" {
			t.Errorf("the plan leads elsewhere (-want +got):\n%s", diff)
		}
	})
}

// FuzzWatch: 13.17. Whatever messages about changes of our tables say, the transaction at their end has a few texts, of
// bounded length, and numbers of what was changed.
func FuzzWatch(f *testing.F) {
	events := map[uint16]uint16{unix.NFT_MSG_GETTABLE: unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_GETSET: unix.NFT_MSG_NEWSET, unix.NFT_MSG_GETSETELEM: unix.NFT_MSG_DELSETELEM,
		unix.NFT_MSG_GETCHAIN: unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_GETRULE: unix.NFT_MSG_NEWRULE}
	all := recordings(f)
	for _, fr := range all[len(all)-len(foreignCommands):] {
		var changes frames
		fr.each(func(asked uint16, answer []byte) { changes.add(events[asked], answer) })
		changes.add(unix.NFT_MSG_NEWOBJ, changes[3:])
		f.Add([]byte(changes))
		f.Add([]byte(changes[:len(changes)/2]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := &Watcher{seen: make(map[model.Family]*touched), name: "nftproxy", ask: played(data)}
		recorded := 0
		event := func(kind uint16, content []byte) *Intervention {
			return w.recordMessage(netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind)}, Data: content})
		}
		frames(data).each(func(kind uint16, content []byte) {
			if recorded++; kind != unix.NFT_MSG_NEWGEN && event(kind, content) != nil {
				t.Error("a transaction ends before its end")
			}
		})
		i := event(unix.NFT_MSG_NEWGEN, make([]byte, netlinkio.HeaderLength))
		if len(w.seen) > 0 {
			t.Error("the next transaction would have these changes")
		}
		if i == nil {
			return
		}
		if len(i.Touched) > maxTouched || recorded == 0 {
			t.Errorf("%d texts of %d messages", len(i.Touched), recorded)
		}
		for _, text := range i.Touched {
			if len(text) > 8*len(data)+200 {
				t.Errorf("a text of %d bytes for %d", len(text), len(data))
			}
		}
	})
}

// withCounts returns frames in which sets have four billion elements, as far as
// this kernel counts them (found by FuzzDump: room was made for all).
func withCounts(fr frames) []byte {
	header := binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, unix.SizeofNlAttr+4), codec.SetCount)
	out := bytes.Clone(fr)
	for rest := out; ; {
		i := bytes.Index(rest, header)
		if i < 0 {
			return out
		}
		rest = rest[i+len(header):]
		copy(rest, "\xff\xff\xff\xff")
	}
}

// possible reports whether the kernel would have accepted the ruleset: names and
// keys are unique, and everything referred to exists.
func possible(r *nft.Ruleset) bool {
	for _, t := range r.Tables {
		leads := func(v nft.Verdict) bool {
			return v.Chain == "" || t.Chain(v.Chain) != nil && t.Chain(v.Chain).Hook == nft.NoHook
		}
		for _, s := range t.Sets {
			if s.Name == "" || t.Set(s.Name) != s {
				return false
			}
			for i := range s.Elements {
				if i > 0 && s.Elements[i-1].Key.Compare(s.Elements[i].Key) >= 0 || !leads(s.Elements[i].Value.Verdict) {
					return false
				}
			}
		}
		for _, c := range t.Chains {
			if c.Name == "" || t.Chain(c.Name) != c {
				return false
			}
			for _, s := range slices.Concat(c.Rules...) {
				name, _ := nft.SetOf(s)
				if v, ok := s.(nft.Verdict); ok && !leads(v) || name != "" && t.Set(name) == nil {
					return false
				}
			}
		}
	}
	return true
}

// FuzzDecode: a message of the kernel is an error or something that, if we could have
// written it, is the same after it is written and read again.
func FuzzDecode(f *testing.F) {
	seen := make(map[string]bool)
	for _, fr := range recordings(f) {
		fr.each(func(asked uint16, answer []byte) {
			if key := answerKey(asked, answer); !seen[key] {
				seen[key] = true
				f.Add(append([]byte{byte(asked)}, answer...))
			}
		})
	}
	ours := farmland(2)
	f.Add(append([]byte{unix.NFT_MSG_GETRULE}, brokenVerdict()...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 1+netlinkio.HeaderLength {
			return
		}
		m, family := netlink.Message{Data: data[1:]}, model.IPv4
		if data[1] == codec.FamilyNumber(model.IPv6) {
			family = model.IPv6
		}
		switch uint16(data[0]) {
		case unix.NFT_MSG_GETCHAIN:
			chainAgain(t, m, family)
		case unix.NFT_MSG_GETRULE:
			ruleAgain(t, m, family)
		case unix.NFT_MSG_GETSET:
			setAgain(t, m, family)
		case unix.NFT_MSG_GETSETELEM:
			for _, table := range ours.Tables {
				for _, s := range table.Sets {
					if table.Family == family {
						elementsAgain(t, m, s, family)
					}
				}
			}
		}
	})
}

// brokenVerdict is a rule with a verdict without content, on which the library
// panics (found by FuzzDump).
func brokenVerdict() []byte {
	a := codec.Begin(model.IPv4)
	endRule := a.Nest(unix.NFTA_RULE_EXPRESSIONS)
	endExpression := a.Nest(unix.NFTA_LIST_ELEM)
	a.Text(unix.NFTA_EXPR_NAME, "immediate")
	endImmediate := a.Nest(unix.NFTA_EXPR_DATA)
	a.Uint32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
	endValue := a.Nest(unix.NFTA_IMMEDIATE_DATA)
	a.Nest(unix.NFTA_DATA_VERDICT)()
	endValue()
	endImmediate()
	endExpression()
	endRule()
	return a
}

// again encodes a change and returns its messages for decoding.
func again(t *testing.T, c plan.Change) []netlink.Message {
	t.Helper()
	tx, err := codec.Encode(&plan.Plan{Changes: []plan.Change{c}})
	if err != nil {
		t.Fatal(err)
	}
	var out []netlink.Message
	for _, m := range tx.Messages {
		out = append(out, netlink.Message{Data: m.Data})
	}
	return out
}

func chainAgain(t *testing.T, m netlink.Message, f model.Family) {
	c, _, err := codec.DecodeChain(m)
	if err != nil || c.Hook == nft.ForeignHook {
		return
	}
	got, table, err := codec.DecodeChain(again(t, plan.Change{Verb: plan.Add, Family: f, Chain: c})[0])
	if err != nil || table != nft.TableName || !reflect.DeepEqual(c, got) {
		t.Errorf("chain %+v is %+v in table %q, %v", c, got, table, err)
	}
}

func ruleAgain(t *testing.T, m netlink.Message, f model.Family) {
	rule, _, _, err := codec.DecodeRule(m, f)
	if err != nil {
		return
	}
	text := rule.Text(f)
	if slices.ContainsFunc(rule, func(s nft.Statement) bool { _, foreign := s.(nft.Foreign); return foreign }) {
		return
	}
	c := &nft.Chain{Name: "c", Rules: []nft.Rule{rule}}
	got, table, chain, err := codec.DecodeRule(again(t, plan.Change{Verb: plan.Replace, Family: f, Chain: c})[0], f)
	if err != nil || table != nft.TableName || chain != c.Name || got.Text(f) != text {
		t.Errorf("rule %q is %q in chain %q of table %q, %v", text, got.Text(f), chain, table, err)
	}
}

func setAgain(t *testing.T, m netlink.Message, f model.Family) {
	s, _, err := codec.DecodeSet(m, f)
	if err != nil || s == nil || s.Key == nil {
		return
	}
	got, _, err := codec.DecodeSet(again(t, plan.Change{Verb: plan.Add, Family: f, Set: s})[0], f)
	if err != nil || !reflect.DeepEqual(s, got) {
		t.Errorf("set %+v is %+v, %v", s, got, err)
	}
}

func elementsAgain(t *testing.T, m netlink.Message, s *nft.Set, f model.Family) {
	all, err := elementsIn(m, s, f)
	if err != nil {
		return
	}
	if len(all) > len(m.Data)/4 {
		t.Errorf("%d elements in %d bytes", len(all), len(m.Data))
	}
	if s.Interval { // FuzzDump reads them
		return
	}
	for _, e := range all {
		if !ours(s, &e.Element) {
			continue
		}
		got, err := elementsIn(again(t, plan.Change{Verb: plan.Add, Family: f, Set: s, New: &e.Element})[0], s, f)
		if err != nil || len(got) != 1 || got[0].Element != e.Element {
			t.Errorf("%s of set %s is %+v, %v", s.ElementText(&e.Element), s.Name, got, err)
		}
	}
}

// ours reports whether an element has a key, and data of the type of the set.
func ours(s *nft.Set, e *nft.Element) bool {
	hasEndpoint, verdict := e.Value.Endpoint.IsValid(), e.Value.Verdict
	switch {
	case !e.Key.Address.IsValid() || verdict.Action == nft.NoAction && verdict.Chain != "":
		return false
	case len(s.Data) == 0:
		return !hasEndpoint && verdict.Action == nft.NoAction
	case s.Data[0] == nft.Verdicts:
		return !hasEndpoint && verdict.Action != nft.NoAction
	}
	return hasEndpoint && verdict.Action == nft.NoAction
}

func elementsIn(m netlink.Message, s *nft.Set, f model.Family) (all []codec.Element, err error) {
	err = codec.NewElementDecoder(s, f).Message(m.Data, func(e *codec.Element) error {
		all = append(all, *e)
		return nil
	})
	return all, err
}
