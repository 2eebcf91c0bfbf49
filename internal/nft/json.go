package nft

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

type object map[string]any

// JSON writes the ruleset in nft's JSON schema, one object per line, as `nft -j list
// table` does, except for handles and counters.
func (r *Ruleset) JSON(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprint(b, `{"nftables": [`)
	separator := "\n"
	for _, t := range r.Tables {
		for _, o := range t.jsonObjects() {
			line, err := json.Marshal(o)
			if err != nil {
				return fmt.Errorf("write json: %w", err)
			}
			fmt.Fprintf(b, "%s  %s", separator, line)
			separator = ",\n"
		}
	}
	fmt.Fprintln(b, "\n]}")
	return b.Flush()
}

func (t *Table) jsonObjects() []object {
	family := FamilyKeyword(t.Family)
	out := []object{{"table": object{"family": family, "name": TableName}}}
	for _, s := range t.Sets {
		out = append(out, object{s.Keyword(): s.setJSON(t.Family)})
	}
	for _, c := range t.Chains {
		o := object{"family": family, "table": TableName, "name": c.Name}
		if c.Hook != NoHook {
			o["type"], o["hook"], o["prio"], o["policy"] = c.Type(), c.Hook.String(), c.Priority, "accept"
		}
		out = append(out, object{"chain": o})
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			out = append(out, object{"rule": object{"family": family, "table": TableName, "chain": c.Name, "expr": r.ruleJSON(t.Family)}})
		}
	}
	return out
}

func (s *Set) setJSON(f model.Family) object {
	key := concatText(s.Key, f, Datatype.typeText)
	o := object{"family": FamilyKeyword(f), "name": s.Name, "table": TableName, "type": key}
	if s.Concat() {
		o["type"] = strings.Split(key, " . ")
	}
	if len(s.Data) > 0 {
		o["map"] = concatText(s.Data, f, Datatype.typeText)
	}
	if flags := s.flagKeywords(); len(flags) > 0 {
		o["flags"] = flags
	}
	if s.Size > 0 {
		o["size"] = s.Size
	}
	if s.Counters {
		o["stmt"] = []object{{"counter": nil}}
	}
	if s.Limits != NoLimits {
		o["stmt"] = []object{DefaultLimit(s.Limits).limitJSON()}
	}
	elements := make([]any, len(s.Elements))
	for i := range s.Elements {
		elements[i] = s.elementJSON(&s.Elements[i])
	}
	if len(elements) > 0 {
		o["elem"] = elements
	}
	return o
}

func (s *Set) elementJSON(e *Element) any {
	key := s.keyJSON(e.Key)
	if s.Limits != NoLimits {
		limited := e.Value.Limit(s.Limits).limitJSON()
		limited["val"] = key
		key = object{"elem": limited}
	} else if e.Comment != "" {
		key = object{"elem": object{"val": key, "comment": e.Comment}}
	}
	switch {
	case len(s.Data) == 0:
		return key
	case s.Data[0] == Verdicts:
		return []any{key, e.Value.Verdict.verdictJSON()}
	case s.Data[0] == ClassID:
		return []any{key, e.Value.Class.String()}
	}
	address := e.Value.Endpoint.Addr().String()
	if len(s.Data) == 1 {
		return []any{key, address}
	}
	return []any{key, object{"concat": []any{address, e.Value.Endpoint.Port()}}}
}

func (s *Set) keyJSON(k Key) any {
	fields := s.keyFields(k)
	for i, v := range fields {
		switch v := v.(type) {
		case netip.Prefix:
			fields[i] = prefixJSON(v)
		case portSpan:
			fields[i] = object{"range": []uint32{uint32(v.first), v.last}}
		}
	}
	return concatJSON(fields)
}

func concatJSON(parts []any) any {
	if len(parts) == 1 {
		return parts[0]
	}
	return object{"concat": parts}
}

func prefixJSON(p netip.Prefix) any {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return object{"prefix": object{"addr": p.Addr().String(), "len": p.Bits()}}
}

// ruleJSON omits, as nft does, the match of TCP that a reset implies.
func (r Rule) ruleJSON(f model.Family) []any {
	var out []any
	for i, s := range r {
		if _, protocol := s.(ProtocolIs); protocol && i+1 < len(r) && r[i+1] == Reset {
			continue
		}
		out = append(out, statementJSON(s, f))
	}
	return out
}

func statementJSON(s Statement, f model.Family) any {
	match := func(op string, left, right any) object {
		return object{"match": object{"op": op, "left": left, "right": right}}
	}
	switch s := s.(type) {
	case Plain:
		return json.RawMessage(inFamily(plainStatements[s].json, f))
	case ProtocolIs:
		return match("==", TransportProtocol.operandJSON(f), s.Protocol.String())
	case ToPort:
		return match("==", object{"payload": object{"protocol": "tcp", "field": "dport"}}, s.Port)
	case NotClass:
		return match("!=", PacketClass.operandJSON(f), s.Class.String())
	case NotFrom:
		return match("!=", object{"meta": object{"key": "iifname"}}, s.namePattern())
	case NotTo:
		return match("!=", object{"meta": object{"key": "oifname"}}, NotFrom(s).namePattern())
	case OneIn:
		return match("==", s.Number().operandJSON(f), 0)
	case SourceNotIn:
		return match("!=", SourceAddress.operandJSON(f), prefixJSON(s.Prefix))
	case InSet:
		op := "=="
		if s.Not {
			op = "!="
		}
		return match(op, s.Key.keyJSON(f), "@"+s.Set)
	case Update:
		return s.updateJSON(f)
	case Within:
		return object{"limit": rateJSON(s.Rate, false)}
	case Log:
		return object{"log": object{"prefix": s.Prefix, "group": s.Group, "snaplen": s.Snaplen}}
	case VerdictMap:
		return object{"vmap": object{"key": s.Key.keyJSON(f), "data": "@" + s.Map}}
	case Classify:
		m := object{"map": object{"key": s.Key.keyJSON(f), "data": "@" + s.Map}}
		return object{"mangle": object{"key": PacketClass.operandJSON(f), "value": m}}
	case Choose:
		return object{"mangle": object{"key": PacketClass.operandJSON(f), "value": s.operandJSON(f)}}
	case DNAT:
		m := object{"map": object{"key": s.Key.keyJSON(f), "data": "@" + s.Map}}
		if s.KeepPort {
			return object{"dnat": object{"addr": m}}
		}
		return object{"dnat": object{"family": FamilyKeyword(f), "addr": m}}
	case DNATTo:
		return object{"dnat": object{"addr": s.Address.String()}}
	case SNATTo:
		return object{"snat": object{"addr": s.Address.String(), "flags": "fully-random"}}
	case Redirect:
		return object{"redirect": object{"port": s.Port}}
	case Verdict:
		return s.verdictJSON()
	}
	return object{"comment": s.Text(f)}
}

func (v Verdict) verdictJSON() object {
	if v.Chain == "" {
		return object{v.Action.String(): nil}
	}
	return object{v.Action.String(): object{"target": v.Chain}}
}

func (c Concat) keyJSON(f model.Family) any {
	parts := make([]any, len(c))
	for i, o := range c {
		parts[i] = o.(interface{ operandJSON(model.Family) object }).operandJSON(f)
	}
	return concatJSON(parts)
}

func (o Slots) operandJSON(f model.Family) object {
	if key, seed := o.Hash(); key != nil {
		hash := object{"mod": o.Count, "seed": seed, "expr": key.keyJSON(f)}
		if o.First > 0 {
			hash["offset"] = o.First
		}
		return object{"jhash": hash}
	}
	mode := "inc"
	if o.Scheduler == model.Random {
		mode = "random"
	}
	return object{"numgen": object{"mode": mode, "mod": o.Count, "offset": o.First}}
}

func (o SourceNetwork) operandJSON(f model.Family) object {
	return object{"&": []any{SourceAddress.operandJSON(f), o.maskAddress(f).String()}}
}

// operandJSON splits the text of the field into words.
func (o Field) operandJSON(f model.Family) object {
	if loaded := o.Loaded(); o == PacketGroup {
		return object{"&": []any{loaded.operandJSON(f), groupMask.String()}}
	} else if loaded != o {
		return object{"&": []any{loaded.operandJSON(f), model.Wildcard(f).String()}}
	}
	words := strings.Fields(o.Text(f))
	switch words[0] {
	case "meta":
		return object{"meta": object{"key": words[1]}}
	case "ct":
		return object{"ct": object{"key": strings.Join(words[2:], " "), "dir": words[1]}}
	}
	return object{"payload": object{"protocol": words[0], "field": words[1]}}
}
