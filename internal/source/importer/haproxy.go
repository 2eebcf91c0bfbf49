package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// statement is a line of a section.
type statement struct {
	line  int
	text  string
	words []string
}

func (s *statement) word(i int) string {
	if i < len(s.words) {
		return s.words[i]
	}
	return ""
}

// section is a part of a haproxy.cfg.
type section struct {
	statement  // its first line
	statements []statement
	defaults   *section // whose statements come first
}

func (s *section) kind() string { return s.word(0) }
func (s *section) name() string { return s.word(1) }

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
		if s.words, err = splitWords(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(s.words) == 0 {
			continue
		}
		if !slices.Contains(sectionNames, s.words[0]) {
			if len(out) == 0 {
				return nil, fmt.Errorf("line %d: %q is before the first section", n, s.words[0])
			}
			last := out[len(out)-1]
			last.statements = append(last.statements, s)
			continue
		}
		next := &section{statement: s, defaults: defaults}
		if i := slices.Index(s.words, "from"); i > 0 && named[s.word(i+1)] != nil {
			next.defaults = named[s.word(i+1)]
		}
		if next.kind() == "defaults" {
			defaults, named[next.name()] = next, next
		}
		out = append(out, next)
	}
	return out, nil
}

// splitWords splits a line as HAProxy does (its manual, section 2.2): a comment begins
// with #, and quotes and backslashes keep spaces.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	inside, escaped := false, false
	end := func() {
		if inside {
			words = append(words, word.String())
		}
		word.Reset()
		inside = false
	}
	for _, r := range strings.TrimRight(line, "\r\n") {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inside = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, inside = r, true
		case r == '#':
			end()
			return words, nil
		case r == ' ' || r == '\t':
			end()
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a text in %c has no end", quote)
	}
	end()
	return words, nil
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
		case s.kind() == "frontend" || s.kind() == "listen":
			c.addProxy(s, backends, used, o)
		case s.kind() == "defaults":
			p := new(proxy)
			p.read(s)
			c.Notes = append(c.Notes, p.notes...)
		case s.kind() != "backend":
			c.Notes = append(c.Notes, Note{s.line, s.text, ofProcess(s)})
		}
	}
	for _, s := range all {
		if s.kind() == "backend" && !used[s] {
			c.Notes = append(c.Notes, Note{s.line, s.text, "no frontend has it as its default_backend"})
		}
	}
	return c, nil
}

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
func (c *Config) addProxy(s *section, backends map[string]*section, used map[*section]bool, o Options) {
	p := proxy{front: true}
	p.inherit(s)
	p.read(s)
	if p.traffic != "" && p.traffic != "tcp" {
		p.refuse("mode %s: nftproxy balances connections, not what is in them; mode tcp is possible", p.traffic)
	}
	if name := p.backend; name != "" {
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
		}
	} else if s.kind() == "frontend" {
		p.refuse("it has no default_backend, and nftproxy chooses no server by content")
	}
	groups := p.listen(o.Addresses)
	if len(groups) == 0 {
		p.refuse("it has no address to listen on")
		groups = [][]string{nil}
	}
	for i, listen := range groups {
		b := p.balance(s)
		if b.Listen = listen; i > 0 {
			b.Notes = nil // are above
		}
		p.ofFamilies(b)
		c.Balances = append(c.Balances, b)
	}
}
