package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// readDuration reads a time of HAProxy: milliseconds, unless it has a unit (its manual,
// section 2.5).
func (p *proxy) readDuration(s *statement, i int) time.Duration {
	text := s.readWord(i)
	digits := strings.TrimRight(text, "usmhd")
	unit := map[string]time.Duration{
		"": time.Millisecond, "ms": time.Millisecond, "us": time.Microsecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
	}[text[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 || unit == 0 {
		p.refuse(s, "%q is no time", text)
		return 0
	}
	return time.Duration(n) * unit
}

// oneCheck refuses a second line that says the same of the check, and one without a value.
func (p *proxy) oneCheck(s *statement, value *string, text string) {
	if text == "" {
		p.refuse(s, "the check has no value")
	}
	if *value != "" && *value != text {
		p.refuse(s, "a check has several steps: a Balance checks one")
	}
	*value = text
}

// readHTTPCheck reads option httpchk [METHOD] [URI] [VERSION].
func (p *proxy) readHTTPCheck(s *statement) {
	p.check.kind = "http"
	switch args := s.readRest(2); {
	case len(args) == 1:
		p.check.target = args[0]
	case len(args) > 1:
		p.readMethod(s, args[0])
		p.check.target = args[1]
		version, headers, _ := strings.Cut(strings.Join(args[2:], " "), "\r\n")
		p.readVersion(s, version)
		for header := range strings.SplitSeq(headers, "\r\n") {
			name, value, _ := strings.Cut(header, ":")
			p.readHeader(s, name, strings.TrimSpace(value))
		}
	default: // OPTIONS of HAProxy is no method of nftproxy
		p.noteChange(s, "the check asks with GET")
	}
}

// readHeader keeps the host of a request. Others name the program that checks, or change the answer.
func (p *proxy) readHeader(s *statement, name, value string) {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "host":
		p.check.host = value
	case "":
	case "user-agent", "connection", "accept":
		p.addNote(s, "the check sends its own header %s", name)
	default:
		p.refuse(s, "a check sends no header %s", name)
	}
}

func (p *proxy) readVersion(s *statement, text string) {
	switch text {
	case "", "HTTP/1.1":
	case "HTTP/1.0":
		p.addNote(s, "a check asks with HTTP/1.1")
	default:
		p.refuse(s, "a check asks with HTTP/1.1, not with %s", text)
	}
}

// readMethod keeps one that checks have: GET is the default.
func (p *proxy) readMethod(s *statement, name string) {
	switch p.check.method = ""; name {
	case "HEAD":
		p.check.method = name
	case "GET":
	case "OPTIONS":
		p.noteChange(s, "a check asks with GET or HEAD, not with %s", name)
	default:
		p.refuse(s, "a check asks with GET or HEAD, not with %s", name)
	}
}

func (p *proxy) readHTTPExpect(s *statement) {
	switch value := s.readWord(3); s.readWord(2) {
	case "status":
		p.oneCheck(s, &p.check.status, value)
	case "string":
		p.oneCheck(s, &p.check.body, value)
	case "rstring":
		p.oneCheck(s, &p.check.bodyMatches, p.readPattern(s, value))
	default:
		p.refuse(s, "a check expects a status or a body")
	}
}

func (p *proxy) readHTTPSend(s *statement) {
	for i := 2; i < len(s.words); i += 2 {
		switch value := s.readWord(i + 1); s.readWord(i) {
		case "meth":
			p.readMethod(s, value)
		case "uri":
			p.check.target = value
		case "ver":
			p.readVersion(s, value)
		case "hdr":
			p.readHeader(s, value, s.readWord(i+2))
			i++
		default:
			p.refuse(s, "a check has no equivalent of %s", s.readWord(i))
		}
	}
}

func (p *proxy) readConnect(s *statement) {
	if p.connects++; p.connects > 1 {
		p.refuse(s, "a check connects once")
	}
	for i := 2; i < len(s.words); i++ {
		switch s.readWord(i) {
		case "default", "linger":
		case "port":
			i++
			p.check.port = p.readNumber(s, i)
		case "ssl":
			if p.check.tls = true; p.check.kind != "http" {
				p.refuse(s, "a check of type tcp does not start TLS")
			}
		default:
			p.refuse(s, "a check has no equivalent of %s", s.readWord(i))
		}
	}
}

type step struct {
	*statement
	expects string // string or rstring; empty: it sends the text
	text    string
}

// readStep reads the one whose text is word i.
func (p *proxy) readStep(s *statement, expects string, i int) {
	switch {
	case i >= len(s.words):
		p.refuse(s, "the check has no value")
	case !slices.Contains([]string{"", "string", "rstring"}, expects):
		p.refuse(s, "a check of type tcp sends a text and expects one")
	}
	p.steps = append(p.steps, step{s, expects, s.readWord(i)})
}

// joinSteps makes one text to send and one to expect of the steps of a tcp-check. Where the verdict
// could be another one, it refuses the Balance.
func (p *proxy) joinSteps() {
	if p.check.kind == "" && len(p.steps)+p.connects > 0 {
		p.refuse(nil, "it has lines of a check without its option, which HAProxy ignores: delete the lines, or add the option")
		return
	}
	for n := len(p.steps); n > 0 && p.steps[n-1].expects == ""; n-- {
		p.addNote(p.steps[n-1].statement, "left out: the verdict does not depend on it")
		p.steps = p.steps[:n-1]
	}
	var expects []step
	redis, sent := true, "" // the server answers each line, in order, also if they arrive together
	for _, s := range p.steps {
		if s.expects == "" {
			sent += s.text
			continue
		}
		redis = redis && s.expects == "string" && isRedis(sent)
		expects = append(expects, s)
		p.check.send += sent
		sent = ""
	}
	switch {
	case len(expects) == 1 && expects[0].expects == "string":
		p.check.expect = expects[0].text
	case len(expects) == 1:
		p.check.expectMatches = p.readPattern(expects[0].statement, expects[0].text)
	case redis:
		for i, s := range expects {
			p.check.expectMatches += []string{"(?s)", ".*"}[min(i, 1)] + regexp.QuoteMeta(s.text)
		}
	default:
		p.refuse(expects[1].statement, "a check has one answer: several are joined only for commands of Redis")
	}
}

// isRedis reports whether a text has whole commands of Redis, each of which gets one answer.
func isRedis(text string) bool {
	body, whole := strings.CutSuffix(text, "\r\n")
	for line := range strings.SplitSeq(body, "\r\n") {
		command, _, _ := strings.Cut(line, " ")
		whole = whole && slices.Contains([]string{"AUTH", "PING", "SELECT", "INFO", "ROLE", "QUIT"}, strings.ToUpper(command))
	}
	return whole
}

// readPattern returns a regular expression of HAProxy, unless it means something else here.
func (p *proxy) readPattern(s *statement, text string) string {
	if strings.Contains(text, "$") {
		p.refuse(s, "$ is also before the last end of a line there: write the expression by hand")
	}
	return text
}

type check struct {
	kind         string // of nftproxy; empty: tcp
	tls          bool
	port         int
	interval     time.Duration
	timeout      time.Duration
	rise, fall   int
	target       string // path, or name that is asked for
	method, host string
	status, body string
	bodyMatches  string
	query, rcode string
	send, expect string

	expectMatches string
}

// defaultInterval is that of checks, in HAProxy, too.
const defaultInterval = 2 * time.Second

// MarshalJSON implements [json.Marshaler]: it returns the field check of a Balance.
func (c check) MarshalJSON() ([]byte, error) {
	kind, target := cmp.Or(c.kind, "tcp"), any(c.target)
	switch {
	case kind == "http":
		target = cmp.Or(c.target, "/")
		if c.tls {
			kind = "https"
		}
	case c.target == "":
		target = nil
	}
	var status any = c.status
	if list := strings.FieldsFunc(c.status, func(r rune) bool { return r == ',' || r == ' ' }); len(list) > 1 {
		status = list
	}
	limit := cmp.Or(c.interval, defaultInterval) // a longer timeout is an error
	out := []byte("{")
	for field := range slices.Chunk([]any{
		kind, target, "method", c.method, "host", c.host, "status", status, "body", c.body, "bodyMatches", c.bodyMatches, "query", c.query, "rcode", c.rcode,
		"send", c.send, "expect", c.expect, "expectMatches", c.expectMatches, "port", c.port, "rise", c.rise, "fall", c.fall,
		"interval", textOf(c.interval), "timeout", textOf(min(cmp.Or(c.timeout, limit), limit)),
		"whenAllFail", "reject", // as the other programs do
	}, 2) {
		if field[1] == "" || field[1] == 0 {
			continue
		}
		value, err := json.Marshal(field[1])
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(out, "%q:%s,", field[0], value)
	}
	return append(bytes.TrimSuffix(out, []byte(",")), '}'), nil
}

func textOf(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return model.DurationText(d)
}
