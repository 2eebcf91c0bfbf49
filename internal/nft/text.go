package nft

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Text writes the ruleset in nft's syntax. Loading it with `nft -f` replaces our
// tables in one transaction. It can be loaded repeatedly: "table" adds a missing
// table, so "delete" never fails.
func (r *Ruleset) Text(w io.Writer) error {
	p := &printer{w: bufio.NewWriter(w)}
	for _, t := range r.Tables {
		name := FamilyKeyword(t.Family) + " " + TableName
		p.printLine("table %s", name)
		p.printLine("delete table %s", name)
		t.print(p)
	}
	return p.w.Flush()
}

// Text returns the declaration of the table as `nft list table` prints it, except
// for line breaks between elements.
func (t *Table) Text() string {
	var b strings.Builder
	p := &printer{w: bufio.NewWriter(&b)}
	t.print(p)
	_ = p.w.Flush() // a strings.Builder does not fail
	return b.String()
}

func (t *Table) print(p *printer) {
	p.open("table %s %s", FamilyKeyword(t.Family), TableName)
	for i, s := range t.Sets {
		if i > 0 {
			p.printNewline()
		}
		s.print(p, t.Family)
	}
	for _, c := range t.Chains {
		p.printNewline()
		c.print(p, t.Family)
	}
	p.close()
}

func (s *Set) print(p *printer, f model.Family) {
	p.open("%s %s", s.Keyword(), s.Name)
	p.printLine("%s", s.TypeText(f))
	if s.Size > 0 {
		p.printLine("size %d", s.Size)
	}
	if flags := s.flagKeywords(); len(flags) > 0 {
		p.printLine("flags %s", strings.Join(flags, ","))
	}
	if s.Counters {
		p.printLine("counter")
	}
	if s.Limits != NoLimits {
		p.printLine("%s", DefaultLimit(s.Limits).Text())
	}
	if len(s.Elements) > 0 {
		p.open("elements =")
		for i := range s.Elements {
			p.printLine("%s,", s.ElementText(&s.Elements[i]))
		}
		p.close()
	}
	p.close()
}

func (s *Set) flagKeywords() []string {
	switch {
	case s.Interval:
		return []string{"interval"}
	case s.Timeless:
		return []string{"dynamic"}
	case s.Dynamic:
		return []string{"dynamic", "timeout"}
	}
	return nil
}

func (s *Set) Keyword() string {
	if len(s.Data) > 0 {
		return "map"
	}
	return "set"
}

// TypeText returns the declaration of the set's key and data. The number of a slot that
// a rule computes has no type name in nft, so that a map with such a key is declared by
// expressions. The modulus in them has no meaning.
func (s *Set) TypeText(f model.Family) string {
	word, spell := "type ", Datatype.typeText
	if slices.Contains(s.Key, SlotNumber) {
		word, spell = "typeof ", Datatype.typeofText
	}
	text := word + concatText(s.Key, f, spell)
	if len(s.Data) > 0 {
		text += " : " + concatText(s.Data, f, spell)
	}
	return text
}

func concatText(types []Datatype, f model.Family, spell func(Datatype, model.Family) string) string {
	texts := make([]string, len(types))
	for i, t := range types {
		texts[i] = spell(t, f)
	}
	return strings.Join(texts, " . ")
}

func (d Datatype) typeText(f model.Family) string {
	switch d {
	case InetProto:
		return "inet_proto"
	case Port, PortRange, EndpointPort, ClientPort:
		return "inet_service"
	case Verdicts:
		return "verdict"
	case ClassID, RangeID:
		return "classid"
	case SlotNumber:
		return "integer"
	}
	if f == model.IPv6 {
		return "ipv6_addr"
	}
	return "ipv4_addr"
}

func (d Datatype) typeofText(f model.Family) string {
	switch d {
	case InetProto:
		return TransportProtocol.Text(f)
	case Port:
		return DestinationPort.Text(f)
	case RangeID:
		return PacketClass.Text(f)
	case SlotNumber:
		return Slots{Count: 2}.Text(f)
	}
	return DestinationAddress.Text(f)
}

// ElementText returns an element as nft prints it, without its counter.
func (s *Set) ElementText(e *Element) string {
	text := s.KeyText(e.Key)
	if s.Limits != NoLimits {
		text += " " + s.ValueText(e.Value)
	}
	if e.Comment != "" {
		text += fmt.Sprintf(` comment "%s"`, e.Comment)
	}
	if len(s.Data) > 0 {
		text += " : " + s.ValueText(e.Value)
	}
	return text
}

// KeyText returns the key of an element as nft prints it.
func (s *Set) KeyText(k Key) string {
	if k.Bits == Range {
		return fmt.Sprintf("%s-%s", k.Address, k.Source)
	}
	var texts []string
	for _, v := range s.keyFields(k) {
		switch v := v.(type) {
		case netip.Prefix:
			texts = append(texts, prefixText(v))
		case portSpan:
			texts = append(texts, fmt.Sprintf("%d-%d", v.first, v.last))
		default:
			texts = append(texts, fmt.Sprint(v))
		}
	}
	return strings.Join(texts, " . ")
}

// portSpan is the ports of a [PortRange].
type portSpan struct {
	first uint16
	last  uint32
}

// keyFields returns the fields of a key: numbers, words, a prefix or a span of ports.
func (s *Set) keyFields(k Key) []any {
	fields := make([]any, len(s.Key))
	for i, t := range s.Key {
		switch t {
		case InetProto:
			fields[i] = k.Protocol.String()
		case Port:
			fields[i] = k.Port
		case PortRange:
			if fields[i] = k.Port; k.Slot != uint32(k.Port) { // a foreign map may have single ones
				fields[i] = portSpan{k.Port, k.Slot}
			}
		case EndpointPort, ClientPort, SlotNumber:
			fields[i] = k.Slot
		case RangeID:
			fields[i] = Class(k.Port).String()
		case ClassID:
			fields[i] = Class(k.Slot).String()
		default:
			fields[i] = s.Prefix(k, t)
		}
	}
	return fields
}

// ValueText returns the value of a map element, or the limit of an element, as nft
// prints it.
func (s *Set) ValueText(v Value) string {
	if s.Limits != NoLimits {
		return v.Limit(s.Limits).Text()
	}
	switch s.Data[0] {
	case Verdicts:
		return v.Verdict.String()
	case ClassID:
		return v.Class.String()
	}
	if len(s.Data) == 1 {
		return v.Endpoint.Addr().String()
	}
	return fmt.Sprintf("%s . %d", v.Endpoint.Addr(), v.Endpoint.Port())
}

func (c *Chain) print(p *printer, f model.Family) {
	p.open("chain %s", c.Name)
	if c.Hook != NoHook {
		p.printLine("%s", c.HookText())
	}
	for _, r := range c.Rules {
		p.printLine("%s", r.Text(f))
	}
	p.close()
}

func (c *Chain) HookText() string {
	return fmt.Sprintf("type %s hook %s priority %d; policy accept;", c.Type(), c.Hook, c.Priority)
}

// printer writes indented lines. A bufio.Writer keeps the first error.
type printer struct {
	w     *bufio.Writer
	depth int
}

func (p *printer) printLine(format string, args ...any) {
	for range p.depth {
		_ = p.w.WriteByte('\t')
	}
	fmt.Fprintf(p.w, format, args...)
	p.printNewline()
}

func (p *printer) printNewline() { _ = p.w.WriteByte('\n') }

func (p *printer) open(format string, args ...any) {
	p.printLine(format+" {", args...)
	p.depth++
}

func (p *printer) close() {
	p.depth--
	p.printLine("}")
}
