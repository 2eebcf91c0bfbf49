package healthcheck

import (
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

type checkField struct {
	only  []model.CheckType // nil: all
	parse func(p *parser, name string, value any)
}

func (f checkField) isOf(t model.CheckType) bool { return f.only == nil || slices.Contains(f.only, t) }

func (f checkField) typeNames() (out []string) {
	for _, t := range f.only {
		out = append(out, t.String())
	}
	return out
}

var (
	ofText = []model.CheckType{model.CheckTCP, model.CheckUDP}
	ofHTTP = []model.CheckType{model.CheckHTTP, model.CheckHTTPS}
	ofGRPC = []model.CheckType{model.CheckGRPC}
	ofDNS  = []model.CheckType{model.CheckDNS}
	active = []model.CheckType{model.CheckTCP, model.CheckHTTP, model.CheckHTTPS, model.CheckGRPC, model.CheckUDP, model.CheckDNS, model.CheckExec}
)

var checkFields = map[string]checkField{
	"port": {nil, func(p *parser, name string, v any) { p.Port = uint16(p.parseNumber(name, v, 1, 65535)) }},
	"interval": {nil, func(p *parser, name string, v any) {
		p.Interval = p.parseDuration(name, v, MinInterval, MaxInterval)
	}},
	"timeout": {active, func(p *parser, name string, v any) {
		p.Timeout = p.parseDuration(name, v, MinTimeout, MaxTimeout)
	}},
	"rise": {active, func(p *parser, name string, v any) { p.Rise = p.parseNumber(name, v, 1, MaxCount) }},
	"fall": {active, func(p *parser, name string, v any) { p.Fall = p.parseNumber(name, v, 1, MaxCount) }},
	"whenAllFail": {active, func(p *parser, name string, v any) {
		words := []string{model.UseAll.String(), model.RejectAll.String()}
		p.AllFailing = model.AllFailing(max(0, slices.Index(words, p.oneOf(name, v, words...))))
	}},

	"send":      {ofText, func(p *parser, name string, v any) { p.Send = p.singleValue("sendHex", name, p.parseText(name, v)) }},
	"sendHex":   {ofText, func(p *parser, name string, v any) { p.Send = p.singleValue("send", name, p.parseHex(name, v)) }},
	"expect":    {ofText, func(p *parser, name string, v any) { p.Expect = p.singleValue("expectHex", name, p.parseText(name, v)) }},
	"expectHex": {ofText, func(p *parser, name string, v any) { p.Expect = p.singleValue("expect", name, p.parseHex(name, v)) }},
	"expectMatches": {[]model.CheckType{model.CheckTCP}, func(p *parser, name string, v any) {
		p.ExpectMatches = p.parsePattern(name, v)
	}},

	"method":      {ofHTTP, func(p *parser, name string, v any) { p.HTTP.Method = p.oneOf(name, v, "GET", "HEAD") }},
	"status":      {ofHTTP, func(p *parser, name string, v any) { p.HTTP.Status = p.parseStatus(name, v) }},
	"body":        {ofHTTP, func(p *parser, name string, v any) { p.HTTP.Body = p.parseText(name, v) }},
	"bodyMatches": {ofHTTP, func(p *parser, name string, v any) { p.HTTP.Matches = p.parsePattern(name, v) }},

	"host": {slices.Concat(ofHTTP, ofGRPC), func(p *parser, name string, v any) { p.Host = p.parseHost(name, v) }},
	"tls":  {ofGRPC, func(p *parser, name string, v any) { p.TLS = p.parseBool(name, v) }},
	"verify": {[]model.CheckType{model.CheckHTTPS, model.CheckGRPC}, func(p *parser, name string, v any) {
		p.Verify = p.parseBool(name, v)
	}},

	"query": {ofDNS, func(p *parser, name string, v any) {
		p.Query = p.oneOf(name, v, "A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT")
	}},
	"rcode": {ofDNS, func(p *parser, name string, v any) { p.Rcodes = p.parseRcodes(name, v) }},
}

// Fields returns the names of the fields of health checks, without types.
func Fields() []string { return slices.Sorted(maps.Keys(checkFields)) }

// parseTarget reads the field that names the type: empty, or with the target of the check.
var parseTarget = map[model.CheckType]func(p *parser, name string, value any){
	model.CheckTCP: func(p *parser, name string, v any) {
		p.addProblem(name, v, "has no value: write {tcp}, and a port as {tcp, port: 8080}")
	},
	model.CheckHTTP:    (*parser).parsePath,
	model.CheckHTTPS:   (*parser).parsePath,
	model.CheckGRPC:    func(p *parser, name string, v any) { p.Name = p.parsePlain(name, v) },
	model.CheckUDP:     func(p *parser, name string, v any) { p.Echo = p.oneOf(name, v, "echo") != "" },
	model.CheckDNS:     (*parser).parseDomain,
	model.CheckExec:    (*parser).parseCommand,
	model.CheckPassive: (*parser).parseShare,
}

func (p *parser) parseNumber(name string, value any, lowest, highest int64) int {
	n, whole := wholeNumber(value)
	switch _, text := value.(string); {
	case text:
		p.addProblem(name, value, "is text, not a number: leave out the quotes")
	case !whole || n < lowest || n > highest:
		p.addProblem(name, value, fmt.Sprintf("is not usable: use a whole number from %d to %d", lowest, highest))
	}
	return int(n)
}

func (p *parser) parseDuration(name string, value any, shortest, longest time.Duration) time.Duration {
	text, _ := value.(string)
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		p.addProblem(name, value, "is not a duration: write it like 2s or 500ms")
	case d < shortest || d > longest:
		p.addProblem(name, value, fmt.Sprintf("is out of range: use %s to %s", model.DurationText(shortest), model.DurationText(longest)))
	}
	return d
}

func (p *parser) parseBool(name string, value any) bool {
	b, ok := value.(bool)
	if !ok {
		p.addProblem(name, value, "is not a truth value: use true or false, without quotes")
	}
	return b
}

func (p *parser) parseText(name string, value any) string {
	s, ok := value.(string)
	switch {
	case !ok:
		p.addProblem(name, nil, "is not text: put it in quotes")
	case s == "":
		p.addProblem(name, nil, "is empty: give a text, or leave the field out")
	case len(s) > budget.CheckText:
		p.addProblem(name, nil, fmt.Sprintf("is longer than %d bytes: shorten it", budget.CheckText))
	}
	return s
}

// parsePlain returns a text of printable ASCII characters other than spaces.
func (p *parser) parsePlain(name string, value any) string {
	s, before := p.parseText(name, value), p.Count
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) && p.Count == before {
		p.addProblem(name, s, "contains spaces, control characters or other than ASCII: remove or escape them")
	}
	return s
}

func (p *parser) oneOf(name string, value any, words ...string) string {
	s, _ := value.(string)
	if slices.Contains(words, s) {
		return s
	}
	use := fmt.Sprintf("use %q", words[0])
	if len(words) > 1 {
		use = suggest.OneOf(words...)
	}
	p.addProblem(name, value, "is unknown"+p.suggestName(s, words)+": "+use)
	return ""
}

func (p *parser) parseHex(name string, value any) string {
	s := p.parseText(name, value)
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		p.addProblem(name, value, `is not hexadecimal: write two digits for each byte, in quotes, like "0a 1b"`)
	}
	return string(b)
}

// singleValue returns the value of a field, unless another field sets the same.
func (p *parser) singleValue(other, name, value string) string {
	if _, twice := p.given[other]; twice {
		p.addProblem(name, nil, "and "+other+" set the same: leave one of them out")
	}
	return value
}

// parseStatus reads 200, "200-399", "200,204" or a list of these.
func (p *parser) parseStatus(name string, value any) (out []model.StatusRange) {
	list, ok := value.([]any)
	if text, isText := value.(string); isText {
		for part := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(part))
		}
	} else if !ok {
		list = []any{value}
	}
	for _, v := range list {
		first, last, isRange := strings.Cut(fmt.Sprint(v), "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil || a < 100 || b > 599 || a > b {
			p.addProblem(name, v, "is not a status of HTTP: write it like 200 or 200-399, or several in a list")
			return nil
		}
		out = append(out, model.StatusRange{First: a, Last: b})
	}
	if len(out) == 0 {
		p.addProblem(name, nil, "is empty: give a status such as 200, or leave the field out")
	}
	return out
}

func (p *parser) parsePattern(name string, value any) string {
	s := p.parseText(name, value)
	if _, err := regexp.Compile(s); err != nil {
		p.addProblem(name, s, "is not a regular expression: "+strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return s
}

func (p *parser) parseHost(name string, value any) string {
	s := p.parsePlain(name, value)
	_, err := netip.ParseAddr(s)
	if s != "" && err != nil && len(validation.IsDNS1123Subdomain(strings.ToLower(s))) > 0 {
		p.addProblem(name, value, "is not a host name: write it like www.example.com, without a port")
	}
	return s
}

func (p *parser) parsePath(name string, value any) {
	s, before := p.parsePlain(name, value), p.Count
	switch _, err := url.ParseRequestURI(s); {
	case before != p.Count:
	case strings.Contains(s, "://"):
		p.addProblem(name, s, "is a URL: give only its path, such as /healthz; host and port are fields of their own")
	case !strings.HasPrefix(s, "/") || err != nil || strings.Contains(s, "#"):
		p.addProblem(name, s, "is not a path: begin with /, such as /healthz")
	}
	p.HTTP.Path = s
}

const maxDomain, maxLabel = 253, 63

func (p *parser) parseDomain(name string, value any) {
	s := p.parsePlain(name, value)
	p.Name = strings.TrimSuffix(s, ".") + "."
	if _, given := p.given["query"]; !given {
		p.Query = "A"
		if p.Name == "." {
			p.Query = "NS"
		}
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(p.Name, "."), ".") {
		if p.Name != "." && (label == "" || len(label) > maxLabel || len(p.Name) > maxDomain) {
			p.addProblem(name, value, "is not a name of DNS: write it like www.example.com")
			return
		}
	}
}

func (p *parser) parseRcodes(name string, value any) (out []string) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, v := range list {
		out = append(out, p.oneOf(name, v, "NOERROR", "NXDOMAIN", "SERVFAIL", "REFUSED", "NOTIMP", "FORMERR"))
	}
	if len(out) == 0 {
		p.addProblem(name, nil, "is empty: give a code such as NOERROR, or leave the field out")
	}
	return out
}

func (p *parser) parseCommand(name string, value any) {
	list, ok := value.([]any)
	if text, isText := value.(string); isText && text != "" {
		list = []any{text}
	} else if !ok {
		list = nil
	}
	for _, v := range list {
		s, isText := v.(string)
		if !isText || strings.ContainsRune(s, 0) {
			p.addProblem(name, v, "is not text: put it in quotes")
			return
		}
		p.Command = append(p.Command, s)
	}
	switch {
	case len(p.Command) == 0:
		p.addProblem(name, nil, "needs a program: write it like [/usr/local/bin/check, --verbose]")
	case !filepath.IsAbs(p.Command[0]):
		p.addProblem(name, p.Command[0], "is not an absolute path: begin with /, because there is no shell and no PATH to search")
	}
}

// parseShare reads how many failures of how many connections make an endpoint fail.
func (p *parser) parseShare(name string, value any) {
	text, _ := value.(string)
	failures, of, found := strings.Cut(text, " of ")
	n, errN := strconv.Atoi(failures)
	m, errM := strconv.Atoi(of)
	if !found || errN != nil || errM != nil || n < 2 || n > m || m > model.MaxPassiveOf {
		p.addProblem(name, value, fmt.Sprintf("is not usable: write for example 5 of 10, from 2 of 2 to %d of %d", model.MaxPassiveOf, model.MaxPassiveOf))
	}
	p.Failures, p.Of = n, m
}
