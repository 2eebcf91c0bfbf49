package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// statement is a line of a section. It records which of its words are read, so that the
// others are reported without help of what reads the line.
type statement struct {
	line  int
	text  string
	words []string
	read  []bool // by the index of a word
	// problem is why the line may be another one, or none; empty: it is as it stands there.
	problem string
}

// peekWord returns a word without reading it; empty: the line is shorter.
func (s *statement) peekWord(i int) string {
	if i < len(s.words) {
		return s.words[i]
	}
	return ""
}

// readWord reads a word; empty: the line is shorter.
func (s *statement) readWord(i int) string {
	if i < len(s.words) {
		if s.read == nil {
			s.read = make([]bool, len(s.words))
		}
		s.read[i] = true
	}
	return s.peekWord(i)
}

// readRest reads the words from one on.
func (s *statement) readRest(i int) []string {
	for j := i; j < len(s.words); j++ {
		s.readWord(j)
	}
	return s.words[min(i, len(s.words)):]
}

// takeUnread returns the words that nothing has read since the last call.
func (s *statement) takeUnread() (out []string) {
	for i, word := range s.words {
		if s.read == nil || !s.read[i] {
			out = append(out, word)
		}
	}
	s.read = nil
	return out
}

// readHAProxy reads a haproxy.cfg.
func readHAProxy(text string, o Options) (*Config, error) {
	all, notes, err := readSections(text)
	if err != nil {
		return nil, err
	}
	c := &Config{Notes: notes}
	backends := make(map[string]*section)
	for _, s := range all {
		if s.kindWord() != "backend" {
			continue
		}
		if other := backends[s.nameWord()]; other != nil {
			other.problem = cmp.Or(other.problem, fmt.Sprintf("line %d: another backend has the name %s", s.line, s.nameWord()))
			continue
		}
		backends[s.nameWord()] = s
	}
	used := make(map[*section][]string) // the kinds of the sections that use one
	for _, s := range all {
		switch {
		case s.onlyStatistics():
			c.noteSection(s, meanings["stats"].why)
		case s.kindWord() == "frontend" || s.kindWord() == "listen":
			if err := c.addProxy(s, backends, used, o); err != nil {
				return nil, err
			}
		case s.kindWord() != "backend" && s.kindWord() != "defaults":
			c.noteSection(s, cmp.Or(withoutConnections[s.kindWord()], "no equivalent"))
		}
	}
	c.noteRest(all, used)
	slices.SortStableFunc(c.Notes, func(a, b Note) int { return cmp.Compare(a.Line, b.Line) })
	return c, nil
}

// noteRest adds the remarks about defaults, and about sections that no other one uses.
func (c *Config) noteRest(all []*section, used map[*section][]string) {
	for _, s := range all {
		switch {
		case used[s] != nil && s.kindWord() == "defaults":
			c.noteDefaults(s, used[s])
		case used[s] != nil:
		case s.kindWord() == "backend":
			c.noteSection(s, "no frontend has it as its default_backend")
		case s.kindWord() == "defaults":
			c.noteSection(s, "no section that is used has these defaults")
		}
	}
}

// noteDefaults adds the remarks about defaults that sections of some kinds use.
func (c *Config) noteDefaults(d *section, kinds []string) {
	p := &proxy{front: true}
	p.read(d)
	c.Notes = append(c.Notes, p.notes...)
	for role, ignored := range misplaced {
		if slices.ContainsFunc(kinds, func(kind string) bool { return kind != role }) {
			continue
		}
		for _, s := range d.statements {
			if slices.Contains(ignored, s.peekWord(0)) || slices.Contains(ignored, s.peekWord(0)+" "+s.peekWord(1)) {
				c.Notes = append(c.Notes, Note{Line: s.line, Text: s.text, Why: "only a " + role + " has these defaults, which ignores it"})
			}
		}
	}
}

// noteSection names the lines of a section that has no equivalent.
func (c *Config) noteSection(s *section, why string) {
	c.Notes = append(c.Notes, Note{Line: s.line, Text: s.text, Why: why, Differs: s.kindWord() == "peers" || s.kindWord() == "log-forward"})
	for _, one := range s.statements {
		n := Note{Line: one.line, Text: one.text}
		if s.kindWord() == "global" && slices.Contains([]string{"maxconn", "maxconnrate", "maxsessrate"}, one.peekWord(0)) {
			n.Why, n.Differs = "a limit for all sections together has no equivalent", true
		}
		c.Notes = append(c.Notes, n)
	}
}

// onlyStatistics reports whether a section serves HAProxy's page of statistics and nothing else.
func (s *section) onlyStatistics() bool {
	found := false
	for _, one := range s.statements {
		switch word := one.peekWord(0); {
		case word == "stats":
			found = true
		case strings.HasPrefix(word, "server"), word == "default_backend", word == "use_backend", word == "dispatch", !isKeyword(word):
			return false
		}
	}
	return found && (s.kindWord() == "frontend" || s.kindWord() == "listen")
}

// maxServers limits the servers of all Balances: a backend that many frontends share is
// written for each of them.
const maxServers = 100_000

// withoutConnections are sections that serve no clients of their own, with what nftproxy has instead.
var withoutConnections = map[string]string{
	"global":      "settings of the process HAProxy",
	"resolvers":   "nftproxy asks the servers of /etc/resolv.conf, or of --dns-servers",
	"peers":       "affinity belongs to this machine: tables are not shared",
	"program":     "nftproxy starts no programs: a unit of systemd does",
	"log-forward": "nftproxy forwards no logs: keep HAProxy for it",
}

// addProxy adds the Balances of a section: one for the addresses that have the same ports.
func (c *Config) addProxy(s *section, backends map[string]*section, used map[*section][]string, o Options) error {
	p := proxy{front: true, hosts: o.Hosts}
	p.inheritDefaults(s, s.kindWord(), used)
	p.read(s)
	p.accessOf("connection", "session", "content")
	if p.traffic != "" && p.traffic != "tcp" {
		p.problem = fmt.Sprintf("mode %s: nftproxy balances connections, not what is in them; mode tcp is possible", p.traffic)
	}
	servers := p.readBackend(s, backends, used)
	groups := p.listen(o.Addresses)
	if len(groups) == 0 {
		p.refuseBalance("it has no address to listen on")
		groups = [][]string{nil}
	}
	p.finishProxy()
	for i, listen := range groups {
		if c.servers += len(p.servers); c.servers > maxServers {
			return fmt.Errorf("line %d: the Balances up to here have more than %d servers: import a part of the sections, or give a backend one frontend with several bind lines", s.line, maxServers)
		}
		b := p.newBalance(s)
		b.servers = servers.nameWord()
		if b.Listen = listen; i > 0 {
			b.Notes = nil // are above
		}
		p.ofFamilies(b)
		c.Balances = append(c.Balances, b)
	}
	return nil
}

// readBackend reads the backend of a frontend, and returns the section that has the servers.
func (p *proxy) readBackend(s *section, backends map[string]*section, used map[*section][]string) *section {
	name := cmp.Or(p.backend, p.standard)
	b := backends[name]
	switch {
	case name == "" && s.kindWord() == "frontend":
		p.refuseBalance("it has no default_backend, and nftproxy chooses no server by content")
		return s
	case name == "":
		return s
	case b == nil:
		p.refuseBalance("its backend %q is no section", name)
		return s
	}
	used[b] = append(used[b], s.kindWord())
	p.front = false
	p.pool = pool{} // the defaults of the frontend are not those of its backend
	p.inheritDefaults(b, b.kindWord(), used)
	if b.defaults == s.defaults {
		p.requests = nil // have been read
	}
	p.read(b)
	p.accessOf("connection", "session", "content")
	return b
}
