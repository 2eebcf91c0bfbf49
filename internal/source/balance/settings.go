package balance

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/source/healthcheck"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Limits are the limits of a Balance.
type Limits struct {
	Connections          *int64 `json:"connections,omitempty"`
	ConnectionsPerClient *int64 `json:"connectionsPerClient,omitempty"`
	Rate                 string `json:"rate,omitempty"`
	RatePerClient        string `json:"ratePerClient,omitempty"`
}

var indexes = func() map[reflect.Type]map[string][]int {
	out := make(map[reflect.Type]map[string][]int)
	for _, t := range []reflect.Type{reflect.TypeFor[Balance](), reflect.TypeFor[Limits]()} {
		out[t] = make(map[string][]int)
		for _, f := range reflect.VisibleFields(t) {
			out[t][tagOf(f)] = f.Index
		}
	}
	return out
}()

// givenValue returns the value of a field as rows of settings read it; nil: it is not given, or it stands
// for none in place of a default, like a time of zero.
func (b *Balance) givenValue(field string) any {
	v := reflect.ValueOf(b).Elem()
	for name := range strings.SplitSeq(field, ".") {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return nil
			}
			v = v.Elem()
		}
		v = v.FieldByIndex(indexes[v.Type()][name])
	}
	switch value := v.Interface().(type) {
	case string:
		if value != "" && (value != setting.None || !setting.ByField(field).HasNone) {
			return value
		}
	case *int64:
		if value != nil {
			return *value
		}
	case *metav1.Duration:
		if value != nil && value.Duration != 0 {
			return value.Duration
		}
	case bool:
		if value {
			return strconv.FormatBool(value)
		}
	default:
		if v.Kind() == reflect.Interface {
			return value
		}
	}
	return nil
}

// readSettings reads the fields that are settings, except the lists of clients.
func (e *expander) readSettings() {
	for _, s := range setting.All {
		if s.Field == "" || !s.IsParsed() {
			continue
		}
		value := e.givenValue(s.Field)
		if value == nil || (s == setting.Relay || s == setting.Timeout && e.isInherited(s)) && !e.isRelayed() {
			continue
		}
		if problem := s.Parse(&e.values, value); problem != "" {
			if d, ok := value.(time.Duration); ok {
				value = d.String()
			}
			e.Add(s.Field, value, words.Balance.Text(problem))
		}
	}
	e.check()
	e.reviewRelay()
	e.masqueradeFrom()
	if e.BackendsFrom == "" {
		return
	}
	name, problem := convert.ParseServiceName(e.BackendsFrom)
	if e.values.EndpointsFrom = &name; problem != "" {
		e.Add(setting.EndpointsFrom.Field, e.BackendsFrom, problem)
	}
}

// check reads the health check, within the limits of the annotation.
func (e *expander) check() {
	if e.Check == setting.None {
		e.Check = nil
	}
	if e.Check == nil {
		return
	}
	switch field := setting.Check.Field; {
	case len(e.checkText()) > budget.CheckText:
		e.Add(field, nil, healthcheck.TooLong)
	case values(e.Check) > budget.CheckValues:
		e.Add(field, nil, healthcheck.TooManyValues)
	default:
		check, found := healthcheck.Parse(field, e.Check)
		for _, f := range found {
			f.Problem = words.Balance.Text(f.Problem)
		}
		fits := func(r listening) bool { return check.Type.Fits(r.protocol) }
		if check != nil && check.Port == 0 && e.isInherited(setting.Check) && !slices.ContainsFunc(e.listened, fits) {
			e.Check = nil
			return
		}
		e.values.Check = check
		e.Put(found...)
	}
}

func values(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			n += values(item)
		}
	case map[string]any:
		for _, value := range v {
			n += 1 + values(value) // with the name
		}
	}
	return n
}

func (e *expander) checkText() string {
	if text, ok := e.Check.(string); ok {
		return text
	}
	text, _ := json.Marshal(e.Check) // it was read from JSON
	return string(text)
}

// isRelayed reports whether connections are relayed. A default is for Balances with a port of TCP.
func (e *expander) isRelayed() bool {
	isTCP := func(r listening) bool { return r.protocol == model.TCP }
	return e.givenValue(setting.Relay.Field) != nil && (!e.isInherited(setting.Relay) || slices.ContainsFunc(e.listened, isTCP))
}

func (e *expander) isInherited(s *setting.Setting) bool { return slices.Contains(e.inherited, s.Field) }

// parseServer reads the address of a backend. A relay reaches servers of this machine itself.
func (e *expander) parseServer(s string) (netip.Addr, string) {
	a, problem := parseServer(s)
	if problem == thisMachine && e.isRelayed() {
		return parseStrict(s, convert.ParseAddress)
	}
	return a, problem
}

func (e *expander) reviewRelay() {
	if e.values.Relay == model.NoRelay {
		if e.values.RelayTimeout != 0 && e.givenValue(setting.Relay.Field) == nil {
			e.Add(setting.Timeout.Field, nil, "is for connections that nftproxy relays: write relay: true, or remove it")
		}
		return
	}
	if e.isInherited(setting.MaglevSize) {
		e.values.MaglevSize = 0
	}
	for _, r := range e.listened {
		switch {
		case r.protocol != model.TCP:
			e.Add(r.fieldPath(), r.text, fmt.Sprintf("is of %s, and relay is for TCP: use another Balance for it, without relay", r.protocol))
		case r.Count() > 1:
			e.Add(r.fieldPath(), r.text, "is a range of ports, and relay is for single ports: write these, or relay: false")
		}
	}
	v := &e.values
	for _, r := range []struct {
		of      *setting.Setting
		refuses bool // a relay cannot fulfil it
		problem string
	}{
		{setting.ClientAddresses, v.ClientAddresses == model.KeepClientAddresses,
			"is not possible with relay: its connections come from this machine; write clientAddresses: masquerade, and relay: proxy-v2 for a server that reads the PROXY protocol, or relay: false"},
		{setting.Affinity, v.Affinity > 0,
			"is not possible with relay: write affinity: 0s and scheduler: source-hash, which gives a client the same server while the servers stay"},
		{setting.Scheduler, v.Scheduler.IsMaglev(),
			"is not possible with relay, which has no tables: use round-robin, random or source-hash"},
		{setting.MaglevSize, v.MaglevSize != 0,
			"is not possible with relay, which has no tables: remove it"},
		{setting.FastPath, v.FastPath == model.UseFastPath,
			"is not possible with relay: packets go to nftproxy run; write fastPath: avoid, or relay: false"},
		{setting.Observe, v.Observe,
			"is not possible with relay: rules do not know which server it uses; write observe: none, or relay: false"},
		{setting.Check, v.Check != nil && v.Check.Type == model.CheckPassive,
			"of type passive is not possible with relay: rules do not know which server it uses; use tcp or another type"},
	} {
		if r.refuses {
			e.Add(r.of.Field, nil, r.problem)
		}
	}
}

// readClients reads the ranges of allowed clients. An address is a range of its own.
func (e *expander) readClients() {
	limited := make(map[model.Family]bool)
	for i, text := range e.Clients {
		field := fmt.Sprintf("clients[%d]", i)
		p, problem := convert.ParsePrefix(text)
		if a, none := convert.ParseAddress(text); none == "" {
			p, problem = netip.PrefixFrom(a, a.BitLen()), ""
		}
		if problem != "" {
			e.Add(field, text, problem)
			continue
		}
		e.reviewRange(field, text, p)
		e.ranges = append(e.ranges, p.String())
		limited[model.FamilyOf(p.Addr())] = true
	}
	for _, l := range e.addresses {
		for _, f := range l.servedFamilies() {
			if len(e.Clients) > 0 && len(e.ranges) == len(e.Clients) && !limited[f] {
				every := map[bool]string{true: "0.0.0.0/0", false: "::/0"}[f == model.IPv4]
				e.Add("clients", nil, fmt.Sprintf("has no %s range, and listen has %s: add a range, or %q for all clients", f, l.where, every))
				return
			}
		}
	}
}

func (e *expander) readDeny() {
	if len(e.Deny) > budget.ListEntries { // as in the annotation
		e.Add("deny", nil, fmt.Sprintf("has more than %d entries: shorten the list", budget.ListEntries))
		return
	}
	var denied []netip.Prefix
	for i, text := range e.Deny {
		p, problem := convert.ParseClients(text)
		if problem != "" {
			e.Add(fmt.Sprintf("deny[%d]", i), text, problem)
			continue
		}
		e.reviewRange(fmt.Sprintf("deny[%d]", i), text, p)
		denied = append(denied, p)
	}
	e.values.Sources = model.NewSources(false, nil, denied)
}

// reviewRange reports leading zeros in a range of clients, and warns of one that is written
// as one of its addresses.
func (e *expander) reviewRange(field, text string, p netip.Prefix) {
	plain := p.String()
	if !strings.Contains(text, "/") {
		plain = p.Addr().String()
	}
	if problem := zeroProblem(text, plain); problem != "" {
		e.Add(field, text, problem)
	} else if given, err := netip.ParsePrefix(text); err == nil && given != given.Masked() {
		e.Warn(field, text, fmt.Sprintf("stands for %s, which has %q: write the range, or the address alone", given.Masked(), given.Addr().String()))
	}
}

// masqueradeFrom reads the addresses to masquerade from. A default is for Balances that masquerade.
func (e *expander) masqueradeFrom() {
	field, inherited := setting.MasqueradeFrom.Field, e.isInherited(setting.MasqueradeFrom)
	switch {
	case len(e.MasqueradeFrom) == 0:
		return
	case len(e.MasqueradeFrom) > budget.MasqueradeAddresses:
		e.Add(field, nil, fmt.Sprintf("has more than %d addresses: shorten the list", budget.MasqueradeAddresses))
		return
	case e.values.ClientAddresses == model.KeepClientAddresses:
		if !inherited {
			e.Add(field, nil, "is for connections that are masqueraded: write clientAddresses: masquerade, or remove it")
		}
		return
	case e.values.Relay != model.NoRelay:
		if !inherited {
			e.Add(field, nil, "is not possible with relay, whose connections begin on this machine: remove it, or write relay: false")
		}
		return
	}
	for i, text := range e.MasqueradeFrom {
		at := fmt.Sprintf("%s[%d]", field, i)
		a, problem := parseStrict(text, convert.ParseEndpoint)
		switch f := model.FamilyOf(a); {
		case problem != "":
			e.Add(at, text, problem)
		case slices.Contains(e.values.MasqueradeFrom, a):
			e.Add(at, text, "is given twice: remove one")
		case e.listensIn(f) < 0 && !inherited:
			e.Warn(at, text, fmt.Sprintf("has no effect: listen has no %s address", f))
		default:
			e.values.MasqueradeFrom = append(e.values.MasqueradeFrom, a)
		}
	}
}
