// Package healthcheck reads the health checks that annotations and Balances ask for.
//
// docs/health-checks.md lists all fields.
package healthcheck

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// Limits of a check.
const (
	MinInterval, MaxInterval = 100 * time.Millisecond, time.Hour
	MinTimeout, MaxTimeout   = 10 * time.Millisecond, time.Minute

	MaxCount = 100 // of rise and fall
)

// TooLong and TooManyValues are the problems with a check that is too long, or has too many
// values.
var (
	TooLong       = fmt.Sprintf("is longer than %d bytes: shorten it", budget.CheckText)
	TooManyValues = fmt.Sprintf("has more than %d values: a health check has few", budget.CheckValues)
)

// Decode reads the text of a check, or returns the problem. The library compares each key
// of a mapping with all others, and reads the target of an alias again, so the text is
// checked before that.
func Decode(text string) (value any, problem string) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, "cannot be read: " + Forms
	}
	values := 0
	if problem := checkCost(&doc, &values); problem != "" {
		return nil, problem
	}
	if err := doc.Decode(&value); err != nil {
		return nil, "cannot be read: " + Forms
	}
	return value, ""
}

// checkCost counts the values below a node, and returns the problem with one that could take
// long to read.
func checkCost(n *yaml.Node, values *int) string {
	*values++
	switch {
	case *values > budget.CheckValues:
		return TooManyValues
	case n.Kind == yaml.AliasNode, n.Anchor != "":
		return "has an anchor or an alias (& or *): write the values out"
	case n.ShortTag() == "!!merge":
		return "merges fields (<<): write them out"
	}
	for _, child := range n.Content {
		if problem := checkCost(child, values); problem != "" {
			return problem
		}
	}
	return ""
}

// Forms is the advice for a value that is no check.
const Forms = `write a type such as tcp, or a mapping such as {http: /healthz, interval: 5s}`

// Parse reads a health check from a value of YAML or JSON: the name of a type, or a
// mapping. The field is the path of the value for the findings. With any finding, the
// check is nil.
func Parse(field string, value any) (*model.Check, []*manifest.FieldError) {
	p := parser{field: field}
	p.parse(value)
	if p.Count > 0 {
		return nil, p.All()
	}
	return &p.Check, nil
}

type parser struct {
	manifest.Findings
	model.Check
	field string
	given map[string]any
}

// addProblem reports a field of the check; empty: the check.
func (p *parser) addProblem(name string, value any, problem string) {
	path := p.field
	if name != "" {
		path += "." + name
	}
	switch value.(type) {
	case string, bool, int, int64, float64, time.Duration:
	default: // not in one line
		value = nil
	}
	p.Add(path, value, problem)
}

func (p *parser) parse(value any) {
	switch v := value.(type) {
	case string:
		p.given = map[string]any{v: nil}
		if p.setType(v); p.Type == 0 {
			p.addProblem("", v, "is not a type of health check"+p.suggestName(v, model.CheckTypes[:])+": "+suggest.OneOf(model.CheckTypes[:]...))
		}
	case map[string]any:
		p.given = v
		p.findType()
	default:
		p.addProblem("", nil, "is not a health check: "+Forms)
	}
	if p.Type == 0 || p.Count > 0 {
		return
	}
	p.setDefaults()
	for _, name := range slices.Sorted(maps.Keys(p.given)) {
		p.parseField(name, p.given[name])
	}
	if p.Count == 0 {
		p.checkFields()
	}
}

// suggestName returns for example " (did you mean http?)".
func (p *parser) suggestName(word string, names []string) string {
	if similar := suggest.Similar(word, names); len(similar) > 0 {
		return " (did you mean " + similar[0] + "?)"
	}
	return ""
}

func (p *parser) setType(name string) {
	if i := slices.Index(model.CheckTypes[:], name); i >= 0 {
		p.Type = model.CheckTCP + model.CheckType(i)
	}
}

func (p *parser) findType() {
	var types []string
	for _, name := range model.CheckTypes {
		if _, given := p.given[name]; given {
			types = append(types, name)
		}
	}
	switch len(types) {
	case 1:
		p.setType(types[0])
	case 0:
		for _, name := range slices.Sorted(maps.Keys(p.given)) {
			if _, known := checkFields[name]; !known {
				p.addUnknown(name)
			}
		}
		if p.Count == 0 {
			p.addProblem("", nil, "has no type: add a field named like one, such as {http: /healthz}; "+suggest.OneOf(model.CheckTypes[:]...))
		}
	default:
		p.addProblem(types[1], nil, "is a second type beside "+types[0]+": an endpoint has one check")
	}
}

func (p *parser) addUnknown(name string) {
	known := slices.Concat(model.CheckTypes[:], Fields())
	switch similar := p.suggestName(name, known); {
	case similar != "":
		p.addProblem(name, nil, "unknown field"+similar)
	case p.Type != 0:
		of := slices.DeleteFunc(Fields(), func(name string) bool { return !checkFields[name].isOf(p.Type) })
		p.addProblem(name, nil, fmt.Sprintf("unknown field: a check of type %s has %s", p.Type, strings.Join(of, ", ")))
	}
}

func (p *parser) setDefaults() {
	p.Interval, p.Timeout = model.DefaultCheckInterval, model.DefaultCheckTimeout
	p.Rise, p.Fall = model.DefaultCheckRise, model.DefaultCheckFall
	switch p.Type {
	case model.CheckHTTP, model.CheckHTTPS:
		p.HTTP = &model.HTTPCheck{Method: "GET", Path: "/", Status: []model.StatusRange{model.DefaultCheckStatus}}
	case model.CheckPassive:
		p.Interval, p.Failures, p.Of = model.DefaultPassiveInterval, model.DefaultPassiveFailures, model.DefaultPassiveOf
	case model.CheckDNS:
		p.Name, p.Query, p.Rcodes = ".", "NS", model.DefaultCheckRcodes
	}
}

func (p *parser) parseField(name string, value any) {
	f, known := checkFields[name]
	switch {
	case name == p.Type.String():
		if value != nil && value != "" || p.Type == model.CheckExec { // else it has no target
			parseTarget[p.Type](p, name, value)
		}
	case !known:
		p.addUnknown(name)
	case !f.isOf(p.Type):
		p.addProblem(name, nil, fmt.Sprintf("does not belong to a check of type %s: leave it out, or use %s", p.Type, strings.Join(f.typeNames(), " or ")))
	case value == nil:
		p.addProblem(name, nil, "has no value: give one, or leave the field out")
	default:
		f.parse(p, name, value)
	}
}

func (p *parser) checkFields() {
	_, interval := p.given["interval"]
	if _, timeout := p.given["timeout"]; !timeout {
		p.Timeout = min(p.Timeout, p.Interval)
	} else if p.Timeout > p.Interval {
		remedy := "shorten it, or give a longer interval"
		if !interval {
			remedy = "give a longer interval, too"
		}
		p.addProblem("timeout", p.Timeout, fmt.Sprintf("is longer than the interval, %s: %s", p.Interval, remedy))
	}
	switch {
	case p.Type == model.CheckPassive && p.Interval < time.Second:
		p.addProblem("interval", p.Interval, "is too short for a passive check: use 1s to 1h")
	case p.Type == model.CheckTCP && p.Send != "" && p.Expect+p.ExpectMatches == "":
		p.addProblem("send", nil, "needs expect: without an answer, it does not matter what is sent")
	case p.Type == model.CheckUDP && p.Send == "" && !p.Echo:
		p.addProblem("", nil, `needs send, because servers answer only what they understand: {udp, send: "ping"}, or {udp: echo} for an echo service`)
	case p.Echo && p.Send+p.Expect != "":
		p.addProblem("udp", "echo", "sends and expects random text: leave out send and expect")
	case p.Verify && p.Type == model.CheckGRPC && !p.TLS:
		p.addProblem("verify", true, "needs tls: true")
	}
}

// wholeNumber returns a number of YAML or JSON, if it is a whole one.
func wholeNumber(value any) (int64, bool) {
	switch v := value.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case uint64:
		return math.MaxInt64, true // of yaml, beyond int64
	case float64:
		return int64(v), v == math.Trunc(v) && math.Abs(v) < 1<<53
	}
	return 0, false
}
