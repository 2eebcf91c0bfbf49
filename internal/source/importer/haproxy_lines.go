package importer

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// durationOf reads a time of HAProxy: milliseconds, unless it has a unit (its manual,
// section 2.5).
func durationOf(text string) time.Duration {
	digits := strings.TrimRight(text, "usmhd")
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return 0
	}
	switch text[len(digits):] {
	case "us":
		return time.Duration(n) * time.Microsecond
	case "s":
		return time.Duration(n) * time.Second
	case "m":
		return time.Duration(n) * time.Minute
	case "h":
		return time.Duration(n) * time.Hour
	case "d":
		return time.Duration(n) * 24 * time.Hour
	}
	return time.Duration(n) * time.Millisecond
}

// readACL keeps the lists of client addresses.
func (p *proxy) readACL(s *statement) {
	if s.word(2) != "src" || len(s.words) < 4 || strings.HasPrefix(s.word(3), "-") {
		p.note(s, "%s", withoutEquivalent["acl"])
		return
	}
	if p.acls == nil {
		p.acls = make(map[string][]string)
	}
	p.acls[s.word(1)] = append(p.acls[s.word(1)], s.words[3:]...)
}

// readRequest reads which clients are rejected.
func (p *proxy) readRequest(s *statement) {
	list, negated, ok := p.condition(s.words[min(3, len(s.words)):])
	switch verdict := s.word(2); {
	case verdict == "accept":
		p.accepts = true
		p.note(s, "a client is denied, or has to be allowed, whatever else is said about it")
	case verdict != "reject" || !ok:
		p.note(s, "only lists of client addresses are used: clients and deny")
	case p.accepts:
		p.note(s, "an accept before it takes some clients out: write clients and deny by hand")
	case !negated:
		p.deny = append(p.deny, list...)
	case p.clients != nil:
		p.note(s, "a Balance has one list of allowed clients")
	default:
		p.clients = list
	}
}

// condition returns the addresses that a condition of one term compares a client with.
func (p *proxy) condition(words []string) (list []string, negated, ok bool) {
	if len(words) < 2 || words[0] != "if" && words[0] != "unless" {
		return nil, false, false
	}
	negated = words[0] == "unless"
	words = slices.Clone(words[1:]) // other sections may read the line, too
	for words[0] == "!" || strings.HasPrefix(words[0], "!") {
		negated = !negated
		if words[0] = words[0][1:]; words[0] == "" {
			if words = words[1:]; len(words) == 0 {
				return nil, false, false
			}
		}
	}
	last := len(words) - 1
	if words[0] == "{" && last > 2 && words[last] == "}" && words[1] == "src" && !strings.HasPrefix(words[2], "-") {
		list = words[2:last]
		return list, negated, !slices.Contains(list, "{")
	}
	list = p.acls[words[0]]
	return list, negated, last == 0 && list != nil
}

// readHTTPCheck reads option httpchk [METHOD] [URI] [VERSION].
func (p *proxy) readHTTPCheck(s *statement) {
	p.check.kind = "http"
	switch args := s.words[2:]; {
	case len(args) == 1:
		p.check.target = args[0]
	case len(args) > 1:
		p.method(s, args[0])
		p.check.target = args[1]
		if _, host, found := strings.Cut(strings.Join(args[2:], " "), "Host:"); found {
			p.check.host = strings.TrimSpace(host)
		}
	default: // OPTIONS of HAProxy is no method of nftproxy
		p.note(s, "the check asks with GET")
	}
}

// method keeps one that checks have: GET is the default.
func (p *proxy) method(s *statement, name string) {
	switch name {
	case "HEAD":
		p.check.method = name
	case "GET":
	default:
		p.note(s, "a check asks with GET or HEAD, not with %s", name)
	}
}

// readHTTPLine reads http-check send and http-check expect.
func (p *proxy) readHTTPLine(s *statement) {
	value := func(i int) string { return s.word(i + 1) }
	switch s.word(1) {
	case "send":
		for i, word := range s.words {
			switch {
			case word == "meth":
				p.method(s, value(i))
			case word == "uri":
				p.check.target = value(i)
			case word == "hdr" && strings.EqualFold(value(i), "host"):
				p.check.host = s.word(i + 2)
			}
		}
	case "expect":
		switch s.word(2) {
		case "status":
			p.check.status = s.word(3)
		case "string":
			p.check.body = s.word(3)
		case "rstring":
			p.check.bodyMatches = s.word(3)
		default:
			p.note(s, "a check expects a status or a body")
		}
	default:
		p.note(s, "a check sends one request")
	}
}

// readTCPLine reads tcp-check connect, send and expect string, once each.
func (p *proxy) readTCPLine(s *statement) {
	switch what, text := s.word(1), s.word(2); {
	case what == "connect":
		if text == "port" {
			p.check.port, _ = strconv.Atoi(s.word(3))
		}
	case what == "send" && p.check.send == "":
		p.check.send = text
	case what == "expect" && text == "string" && p.check.expect == "":
		p.check.expect = s.word(3)
	default:
		p.note(s, "a check of type tcp sends one text and expects one")
	}
}
