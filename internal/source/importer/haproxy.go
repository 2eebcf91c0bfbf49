package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// statement is a line of a section. It records which of its words are read, so that the
// others are reported without help of what reads the line.
type statement struct {
	line  int
	text  string
	words []string
	read  []bool // by the index of a word
	// variable: a word has an environment variable, and is not what it seems.
	variable bool
}

// peek returns a word without reading it; empty: the line is shorter.
func (s *statement) peek(i int) string {
	if i < len(s.words) {
		return s.words[i]
	}
	return ""
}

// word reads a word; empty: the line is shorter.
func (s *statement) word(i int) string {
	if i < len(s.words) {
		if s.read == nil {
			s.read = make([]bool, len(s.words))
		}
		s.read[i] = true
	}
	return s.peek(i)
}

// rest reads the words from one on.
func (s *statement) rest(i int) []string {
	for j := i; j < len(s.words); j++ {
		s.word(j)
	}
	return s.words[min(i, len(s.words)):]
}

// unread returns the words that nothing has read since the last call.
func (s *statement) unread() (out []string) {
	for i, word := range s.words {
		if s.read == nil || !s.read[i] {
			out = append(out, word)
		}
	}
	s.read = nil
	return out
}

// section is a part of a haproxy.cfg.
type section struct {
	statement  // its first line
	statements []statement
	defaults   *section // whose statements come first
}

func (s *section) kind() string { return s.peek(0) }
func (s *section) name() string { return s.peek(1) }

// sectionNames begin a section (HAProxy's configuration manual, section 2.1).
var sectionNames = []string{
	"frontend", "backend", "listen", "defaults", "global", "resolvers", "peers", "userlist", "cache", "ring", "mailers", "program",
	"http-errors", "fcgi-app", "log-forward", "crt-store", "traces", "acme", "log-profile",
}

// sections reads the text of a haproxy.cfg.
func sections(text string) (out []*section, err error) {
	var defaults *section
	named := make(map[string]*section)
	n := 0
	for line := range strings.Lines(text) {
		n++
		s := statement{line: n, text: strings.TrimSpace(line)}
		if s.words, s.variable, err = splitWords(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(s.words) == 0 {
			continue
		}
		if !slices.Contains(sectionNames, s.peek(0)) {
			if len(out) == 0 {
				return nil, fmt.Errorf("line %d: %q is before the first section", n, s.words[0])
			}
			last := out[len(out)-1]
			last.statements = append(last.statements, s)
			continue
		}
		next := &section{statement: s, defaults: defaults}
		if i := slices.Index(s.words, "from"); i > 0 && named[s.peek(i+1)] != nil {
			next.defaults = named[s.peek(i+1)]
		}
		if next.kind() == "defaults" {
			defaults, named[next.name()] = next, next
		}
		out = append(out, next)
	}
	return out, nil
}

// splitWords splits a line as HAProxy does (its manual, section 2.2): a comment begins
// with #, and quotes and backslashes keep spaces. In double quotes, $ begins an environment
// variable (section 2.3).
func splitWords(line string) (words []string, variable bool, err error) {
	var word strings.Builder
	var quote byte
	inside := false
	end := func() {
		if inside {
			words = append(words, word.String())
		}
		word.Reset()
		inside = false
	}
	line = strings.TrimRight(line, "\r\n")
	for i := 0; i < len(line); i++ {
		switch r := line[i]; {
		case r == '\\' && quote != '\'':
			text, length := unescape(line[i+1:])
			word.WriteString(text)
			inside = true
			i += length
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			variable = variable || r == '$' && quote == '"'
			word.WriteByte(r)
		case r == '"' || r == '\'':
			quote, inside = r, true
		case r == '#':
			end()
			return words, variable, nil
		case r == ' ' || r == '\t':
			end()
		default:
			word.WriteByte(r)
			inside = true
		}
	}
	if quote != 0 {
		return nil, false, fmt.Errorf("a text in %c has no end", quote)
	}
	end()
	return words, variable, nil
}

// unescape returns what the text after a backslash begins with, and its length there.
func unescape(text string) (string, int) {
	if text == "" {
		return "", 0
	}
	switch text[0] {
	case 'r':
		return "\r", 1
	case 'n':
		return "\n", 1
	case 't':
		return "\t", 1
	case 'x':
		if len(text) > 2 {
			if n, err := strconv.ParseUint(text[1:3], 16, 8); err == nil {
				return string([]byte{byte(n)}), 3
			}
		}
	}
	return text[:1], 1
}

// readHAProxy reads a haproxy.cfg.
func readHAProxy(text string, o Options) (*Config, error) {
	all, err := sections(text)
	if err != nil {
		return nil, err
	}
	c := new(Config)
	backends := make(map[string]*section)
	for _, s := range all {
		if s.kind() == "backend" {
			backends[s.name()] = s
		}
	}
	used := make(map[*section]bool)
	for _, s := range all {
		switch {
		case s.onlyStatistics():
			c.Notes = append(c.Notes, Note{Line: s.line, Text: s.text, Why: withoutEquivalent["stats"]})
		case s.kind() == "frontend" || s.kind() == "listen":
			if err := c.addProxy(s, backends, used, o); err != nil {
				return nil, err
			}
		case s.kind() == "defaults":
			p := &proxy{front: true}
			p.read(s)
			c.Notes = append(c.Notes, p.notes...)
		case s.kind() != "backend":
			c.Notes = append(c.Notes, Note{Line: s.line, Text: s.text, Why: ofProcess(s)})
		}
	}
	for _, s := range all {
		if s.kind() == "backend" && !used[s] {
			c.Notes = append(c.Notes, Note{Line: s.line, Text: s.text, Why: "no frontend has it as its default_backend"})
		}
	}
	return c, nil
}

// onlyStatistics reports whether a section serves HAProxy's page of statistics and nothing else.
func (s *section) onlyStatistics() bool {
	found := false
	for _, one := range s.statements {
		switch one.peek(0) {
		case "stats":
			found = true
		case "server", "server-template", "default_backend", "use_backend", "dispatch":
			return false
		}
	}
	return found && (s.kind() == "frontend" || s.kind() == "listen")
}

// maxServers limits the servers of all Balances: a backend that many frontends share is
// written for each of them.
const maxServers = 100_000

// ofProcess returns why a section without connections has no equivalent.
func ofProcess(s *section) string {
	lines := terminal.Count(len(s.statements), "line")
	switch s.kind() {
	case "global":
		return "settings of the process HAProxy, " + lines
	case "resolvers":
		return "nftproxy asks the servers of /etc/resolv.conf, or of --dns-servers, " + lines
	}
	return "no equivalent, " + lines
}

// addProxy adds the Balances of a section: one for the addresses that have the same ports.
func (c *Config) addProxy(s *section, backends map[string]*section, used map[*section]bool, o Options) error {
	p := proxy{front: true, hosts: o.Hosts}
	p.inherit(s)
	p.read(s)
	p.accessOf("connection", "session", "content")
	if p.traffic != "" && p.traffic != "tcp" {
		p.problem = fmt.Sprintf("mode %s: nftproxy balances connections, not what is in them; mode tcp is possible", p.traffic)
	}
	if name := cmp.Or(p.backend, p.standard); name != "" {
		b := backends[name]
		if b == nil {
			p.refuse("its backend %q is no section", name)
		} else {
			used[b] = true
			p.front = false
			if b.defaults != s.defaults { // else they have been read
				p.inherit(b)
			}
			p.read(b)
			p.accessOf("connection", "session", "content")
		}
	} else if s.kind() == "frontend" {
		p.refuse("it has no default_backend, and nftproxy chooses no server by content")
	}
	groups := p.listen(o.Addresses)
	if len(groups) == 0 {
		p.refuse("it has no address to listen on")
		groups = [][]string{nil}
	}
	p.finish()
	for i, listen := range groups {
		if c.servers += len(p.servers); c.servers > maxServers {
			return fmt.Errorf("line %d: the Balances up to here have more than %d servers: import a part of the sections, or give a backend one frontend with several bind lines", s.line, maxServers)
		}
		b := p.balance(s)
		if b.Listen = listen; i > 0 {
			b.Notes = nil // are above
		}
		p.ofFamilies(b)
		c.Balances = append(c.Balances, b)
	}
	return nil
}
