package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

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
			other.problem = cmp.Or(other.problem, s.problemf("another backend has the name %s", s.nameWord()))
			continue
		}
		backends[s.nameWord()] = s
	}
	used := make(map[*section][]string) // the kinds of the sections that use one
	for _, s := range all {
		switch {
		case s.onlyStatistics():
			c.noteSection(s, keywords["stats"].why)
		case s.kindWord() == "frontend" || s.kindWord() == "listen":
			if err := c.addProxy(s, backends, used, o); err != nil {
				return nil, err
			}
		case s.kindWord() != "backend" && s.kindWord() != "defaults":
			c.noteSection(s, cmp.Or(withoutConnections[s.kindWord()], "no equivalent"))
		}
	}
	c.noteRest(all, used)
	c.sortNotes()
	return c, nil
}

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

func (c *Config) noteDefaults(d *section, kinds []string) {
	p := &proxy{Balance: new(Balance), front: true}
	p.read(d)
	c.Notes = append(c.Notes, p.Notes...)
	for role := range misplaced {
		if slices.ContainsFunc(kinds, func(kind string) bool { return kind != role }) {
			continue
		}
		for _, s := range d.statements {
			if s.isMisplaced(role) {
				c.Notes = append(c.Notes, s.note("only a "+role+" has these defaults, which ignores it"))
			}
		}
	}
}

func (c *Config) noteSection(s *section, why string) {
	head := s.note(why)
	head.Differs = s.kindWord() == "peers" || s.kindWord() == "log-forward"
	c.Notes = append(c.Notes, head)
	for _, one := range s.statements {
		n := one.note("")
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
	p := proxy{Balance: newBalance(strings.Join(s.words[:min(2, len(s.words))], " "), s.line), front: true, hosts: o.Hosts}
	p.Name = nameOf(s.nameWord())
	p.inheritDefaults(s, s.kindWord(), used)
	p.read(s)
	p.readAccess()
	if p.traffic != "" && p.traffic != "tcp" {
		p.Problem = fmt.Sprintf("mode %s: nftproxy balances connections, not what is in them; mode tcp is possible", p.traffic)
	}
	p.section = p.readBackend(s, backends, used).nameWord()
	groups := groupBinds(p.binds, o.Addresses)
	if len(groups) == 0 {
		p.refuse(nil, "it has no address to listen on")
		groups = [][]string{nil}
	}
	p.finishProxy()
	for i, listen := range groups {
		if c.servers += len(p.Backends); c.servers > maxServers {
			return fmt.Errorf("line %d: the Balances up to here have more than %d servers: import a part of the sections, or give a backend one frontend with several bind lines", s.line, maxServers)
		}
		b := p.Balance.at(listen, i == 0)
		b.leaveOutFamilies()
		c.Balances = append(c.Balances, b)
	}
	return nil
}

func (p *proxy) readBackend(s *section, backends map[string]*section, used map[*section][]string) *section {
	name := cmp.Or(p.backend, p.standard)
	b := backends[name]
	switch {
	case name == "" && s.kindWord() == "frontend":
		p.refuse(nil, "it has no default_backend, and nftproxy chooses no server by content")
		return s
	case name == "":
		return s
	case b == nil:
		p.refuse(nil, "its backend %q is no section", name)
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
	p.readAccess()
	return b
}
