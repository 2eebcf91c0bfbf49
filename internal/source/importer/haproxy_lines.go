package importer

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// duration reads a time of HAProxy: milliseconds, unless it has a unit (its manual,
// section 2.5).
func (p *proxy) duration(s *statement, i int) time.Duration {
	text := s.word(i)
	digits := strings.TrimRight(text, "usmhd")
	unit := map[string]time.Duration{
		"": time.Millisecond, "ms": time.Millisecond, "us": time.Microsecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
	}[text[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 || unit == 0 {
		p.refuse("line %d: %q is no time", s.line, text)
		return 0
	}
	return time.Duration(n) * unit
}

// number reads a number that is not negative.
func (p *proxy) number(s *statement, i int) int {
	n, err := strconv.ParseInt(s.word(i), 10, 32)
	if err != nil || n < 0 {
		p.refuse("line %d: %q is no number", s.line, s.word(i))
		return 0
	}
	return int(n)
}

// oneCheck refuses a second line that says the same of the check, and one without a value.
func (p *proxy) oneCheck(s *statement, value *string, text string) {
	if text == "" {
		p.refuse("line %d: the check has no value", s.line)
	}
	if *value != "" && *value != text {
		p.refuse("line %d: a check has several steps: a Balance checks one", s.line)
	}
	*value = text
}

// readHTTPCheck reads option httpchk [METHOD] [URI] [VERSION].
func (p *proxy) readHTTPCheck(s *statement) {
	p.check.kind = "http"
	switch args := s.rest(2); {
	case len(args) == 1:
		p.check.target = args[0]
	case len(args) > 1:
		p.method(s, args[0])
		p.check.target = args[1]
		headers := strings.Split(strings.Join(args[2:], " "), "\r\n")
		p.version(s, headers[0])
		for _, header := range headers[1:] {
			name, value, _ := strings.Cut(header, ":")
			p.header(s, name, strings.TrimSpace(value))
		}
	default: // OPTIONS of HAProxy is no method of nftproxy
		p.changed(s, "the check asks with GET")
	}
}

// header keeps the host of a request. Others name the program that checks, or change the answer.
func (p *proxy) header(s *statement, name, value string) {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "host":
		p.check.host = value
	case "":
	case "user-agent", "connection", "accept":
		p.note(s, "the check sends its own header %s", name)
	default:
		p.refuse("line %d: a check sends no header %s", s.line, name)
	}
}

// version reads the one of a request.
func (p *proxy) version(s *statement, text string) {
	switch text {
	case "", "HTTP/1.1":
	case "HTTP/1.0":
		p.note(s, "a check asks with HTTP/1.1")
	default:
		p.refuse("line %d: a check asks with HTTP/1.1, not with %s", s.line, text)
	}
}

// method keeps one that checks have: GET is the default.
func (p *proxy) method(s *statement, name string) {
	switch p.check.method = ""; name {
	case "HEAD":
		p.check.method = name
	case "GET":
	case "OPTIONS":
		p.changed(s, "a check asks with GET or HEAD, not with %s", name)
	default:
		p.refuse("line %d: a check asks with GET or HEAD, not with %s", s.line, name)
	}
}

// readHTTPLine reads the lines of a check with a request.
func (p *proxy) readHTTPLine(s *statement) {
	switch s.word(1) {
	case "send":
		p.readHTTPSend(s)
	case "expect":
		switch s.word(2) {
		case "status":
			p.oneCheck(s, &p.check.status, s.word(3))
		case "string":
			p.oneCheck(s, &p.check.body, s.word(3))
		case "rstring":
			p.oneCheck(s, &p.check.bodyMatches, p.pattern(s, s.word(3)))
		default:
			p.refuse("line %d: a check expects a status or a body", s.line)
		}
	case "connect":
		p.readConnect(s)
	case "disable-on-404", "send-state":
		p.changed(s, "no equivalent: an answer that is not expected leaves the server out")
	case "comment":
		p.note(s, "no equivalent")
		s.rest(2)
	default:
		s.rest(2)
		p.refuse("line %d: a check has no equivalent of http-check %s", s.line, s.word(1))
	}
}

func (p *proxy) readHTTPSend(s *statement) {
	for i := 2; i < len(s.words); i += 2 {
		switch s.word(i) {
		case "meth":
			p.method(s, s.word(i+1))
		case "uri":
			p.check.target = s.word(i + 1)
		case "ver":
			p.version(s, s.word(i+1))
		case "hdr":
			p.header(s, s.word(i+1), s.word(i+2))
			i++
		default:
			p.refuse("line %d: a check has no equivalent of %s", s.line, s.word(i))
			s.rest(i)
			return
		}
	}
}

// readConnect reads where a check connects to.
func (p *proxy) readConnect(s *statement) {
	if p.connects++; p.connects > 1 {
		p.refuse("line %d: a check connects once", s.line)
	}
	for i := 2; i < len(s.words); i++ {
		switch s.word(i) {
		case "default", "linger":
		case "port":
			i++
			p.check.port = p.number(s, i)
		case "ssl":
			if p.check.tls = true; p.check.kind != "http" {
				p.refuse("line %d: a check of type tcp does not start TLS", s.line)
			}
		default:
			p.refuse("line %d: a check has no equivalent of %s", s.line, s.word(i))
			s.rest(i)
		}
	}
}

// readTCPLine reads the steps of a check that sends and expects texts.
func (p *proxy) readTCPLine(s *statement) {
	switch what := s.word(1); {
	case what == "connect":
		p.readConnect(s)
	case what != "comment" && len(s.words) < 3, what == "expect" && len(s.words) < 4:
		p.refuse("line %d: the check has no value", s.line)
		s.rest(2)
	case what == "send":
		p.steps = append(p.steps, step{s, "", s.word(2)})
	case what == "expect" && (s.word(2) == "string" || s.word(2) == "rstring"):
		p.steps = append(p.steps, step{s, s.word(2), s.word(3)})
	case what == "comment":
		p.note(s, "no equivalent")
		s.rest(2)
	default:
		s.rest(2)
		p.refuse("line %d: a check of type tcp sends a text and expects one", s.line)
	}
}

// step is one of a tcp-check.
type step struct {
	*statement
	expects string // string or rstring; empty: it sends the text
	text    string
}

// joinSteps makes one text to send and one to expect of the steps of a tcp-check. Where the verdict
// could be another one, it refuses the Balance.
func (p *proxy) joinSteps() {
	if p.check.kind == "" && len(p.steps)+p.connects > 0 {
		p.refuse("it has lines of a check without its option, which HAProxy ignores: delete the lines, or add the option")
		return
	}
	for n := len(p.steps); n > 0 && p.steps[n-1].expects == ""; n-- {
		p.note(p.steps[n-1].statement, "left out: the verdict does not depend on it")
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
		p.check.expectMatches = p.pattern(expects[0].statement, expects[0].text)
	case redis:
		for i, s := range expects {
			p.check.expectMatches += []string{"(?s)", ".*"}[min(i, 1)] + regexp.QuoteMeta(s.text)
		}
	default:
		p.refuse("line %d: a check has one answer: several are joined only for commands of Redis", expects[1].line)
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

// pattern returns a regular expression of HAProxy, unless it means something else here.
func (p *proxy) pattern(s *statement, text string) string {
	if strings.Contains(text, "$") {
		p.refuse("line %d: $ is also before the last end of a line there: write the expression by hand", s.line)
	}
	return text
}
