package importer

import (
	"cmp"
	"fmt"
	"maps"
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

// fate says how the report treats a line without an equivalent.
type fate int

const (
	remarked fate = iota // connections and checks stay as they are
	differs              // connections are not what the line says
	refused              // a Balance without it would check less, serve more clients, or use other servers
)

// keyword is the meaning of lines that begin with a word, or with two. Where there is no equivalent, it has a fate.
type keyword struct {
	read func(*proxy, *statement)
	fate fate
	why  string // what nftproxy does or has instead
}

var keywords = keywordsOf(map[string]func(*proxy, *statement){
	"mode":            (*proxy).readMode,
	"bind":            (*proxy).readBind,
	"default_backend": func(p *proxy, s *statement) { p.standard = s.readWord(1) },
	"use_backend": func(p *proxy, s *statement) { // without a condition, it is the backend of what is left
		if name := s.readWord(1); len(s.readRest(2)) == 0 {
			p.backend = cmp.Or(p.backend, name)
		} else {
			p.refuse(s, "use_backend: %s", byContent)
		}
	},
	"balance":   (*proxy).readAlgorithm,
	"hash-type": (*proxy).readHash,
	"server": func(p *proxy, s *statement) {
		if s.readWord(1); len(s.words) < 3 {
			p.refuse(s, "a server has no address")
		} else {
			p.addServer(s, 2)
		}
	},
	"default-server": func(p *proxy, s *statement) { p.readParameters(&p.defaults, s, 1) },
	"server-template": func(p *proxy, s *statement) { // PREFIX COUNT ADDRESS
		s.readWord(1)
		p.noteChange(s, "each address of the name is a server: %s is no limit", s.readWord(2))
		p.addServer(s, 3)
	},
	"maxconn": (*proxy).readConnections,
	"rate-limit sessions": func(p *proxy, s *statement) {
		if n := p.readNumber(s, 2); p.front && n > 0 {
			p.rate = fmt.Sprintf("%d/second", n)
		}
	},
	"source":            (*proxy).readSource,
	"stick-table":       (*proxy).readTable,
	"stick on":          (*proxy).readStick,
	"acl":               (*proxy).readACL,
	"tcp-request":       (*proxy).readRequest,
	"option allbackups": func(p *proxy, _ *statement) { p.allBackups = true },
	"option tcp-check":  func(p *proxy, _ *statement) { p.check.kind = "tcp" },
	"option redis-check": func(p *proxy, s *statement) {
		p.check.kind, p.steps = "tcp", []step{{s, "", "PING\r\n"}, {s, "string", "+PONG"}}
	},
	"option httpchk":     (*proxy).readHTTPCheck,
	"http-check connect": (*proxy).readConnect,
	"http-check send":    (*proxy).readHTTPSend,
	"http-check expect":  (*proxy).readHTTPExpect,
	"http-check": func(p *proxy, s *statement) {
		s.readRest(1)
		p.refuse(s, "a check has no equivalent of http-check %s", s.peekWord(1))
	},
	"tcp-check connect": (*proxy).readConnect,
	"tcp-check send":    func(p *proxy, s *statement) { p.readStep(s, "", 2) },
	"tcp-check expect":  func(p *proxy, s *statement) { p.readStep(s, s.readWord(2), 3) },
	"tcp-check": func(p *proxy, s *statement) {
		s.readRest(1)
		p.refuse(s, "a check of type tcp sends a text and expects one")
	},
	"timeout check": func(p *proxy, s *statement) { p.check.timeout, p.timeout = p.readDuration(s, 2), s },
	"disabled":      func(p *proxy, _ *statement) { p.refuse(nil, "it is disabled") },
	"enabled":       func(*proxy, *statement) {},
},
	// Lines without an equivalent (HAProxy's configuration manual, section 4.1).
	unsupported{remarked, "nftproxy observe shows connections, and --log-connections logs them",
		"log log-format log-format-sd log-tag log-steps error-log-format unique-id-format unique-id-header capture email-alert",
		"tcplog httplog httpslog dontlognull dontlog-normal logasap log-separate-errors contstats"},
	unsupported{remarked, "nftproxy run logs changes of health", "", "log-health-checks"},
	unsupported{remarked, "nftproxy status and top show them, and the page of --web", "stats", "socket-stats"},
	unsupported{remarked, "GET /healthz/NAMESPACE/NAME at --healthz-bind-address says whether a Balance has a usable server", "monitor-uri monitor", ""},
	unsupported{remarked, "nftproxy ends no connection: the kernel forgets an idle one after nf_conntrack_tcp_timeout_established",
		"timeout clitimeout contimeout srvtimeout", ""},
	unsupported{remarked, "the endpoints of a connection keep it alive, not the balancer",
		"clitcpka-cnt clitcpka-idle clitcpka-intvl srvtcpka-cnt srvtcpka-idle srvtcpka-intvl", "tcpka clitcpka srvtcpka"},
	unsupported{remarked, "a server that fails its check gets no new connection; relay: true also tries another server, at ten times the cost", "redispatch", "redispatch"},
	unsupported{remarked, "relay: true tries another server, at ten times the cost", "retries retry-on", ""},
	unsupported{remarked, "limits belong to addresses of listen, not to servers", "fullconn", ""},
	unsupported{remarked, "connections are passed on as they are: clientAddresses: keep shows servers the client", "", "forwardfor forwarded originalto"},
	unsupported{remarked, "connections are passed on as they are: affinity goes by the address of the client", "cookie dynamic-cookie-key", ""},
	unsupported{remarked, "connections are passed on as they are",
		"errorfile errorfiles errorloc errorloc302 errorloc303 http-error http-request http-response http-after-response http-reuse http-send-name-header redirect compression max-keep-alive-queue max-session-srv-conns",
		"httpclose http-server-close http-keep-alive http-buffer-request http-ignore-probes http-no-delay http-pretend-keepalive http-use-proxy-header http-use-htx accept-invalid-http-request accept-invalid-http-response idle-close-on-response prefer-last-server checkcache h1-case-adjust-bogus-client h1-case-adjust-bogus-server disable-h2-upgrade"},
	unsupported{remarked, "the kernel moves the data",
		"backlog bind-process", "splice-auto splice-request splice-response nolinger independent-streams tcp-smart-accept tcp-smart-connect abortonclose"},
	unsupported{remarked, "a name for people", "description id guid", ""},
	unsupported{remarked, "the system of the client repeats what a server does not answer; a server that fails its check gets no new connection", "timeout,connect", ""},
	unsupported{remarked, "no equivalent", "http-check,comment tcp-check,comment", ""},
	unsupported{differs, "no equivalent: an answer that is not expected leaves the server out", "http-check,disable-on-404 http-check,send-state", ""},
	unsupported{refused, otherTable, "stick,match stick,store-request stick,store-response", ""},
	unsupported{differs, "the clients of it reach a server", "monitor-net", ""},
	unsupported{differs, "all servers start as enabled, until nftproxy drain or disable", "load-server-state-from-file server-state-file-name", ""},
	unsupported{differs, "nftables does not count the connections of a server", "hash-balance-factor hash-preserve-affinity", ""},
	unsupported{refused, "write the address into backends", "dispatch", ""},
	unsupported{refused, "connections go to servers of a list", "transparent", "transparent"},
	unsupported{refused, byContent, "use-server force-persist ignore-persist persist", "persist"},
	unsupported{refused, "nftproxy sees no content, so it filters none", "tcp-response filter", ""},
	unsupported{refused, "write a check of type exec", "external-check", "external-check"},
	unsupported{refused, "no check knows this protocol: send and expect of type tcp can, or a program of type exec",
		"", "mysql-check pgsql-check ldap-check smtpchk spop-check ssl-hello-chk"},
)

// Reasons of several lines.
const (
	noContent  = "connections have no content: only lists of client addresses are used"
	byContent  = "nftproxy chooses no server by content: a Balance for each address and port does"
	otherTable = "affinity goes by the address of the client, and learns from no other table"
)

// unsupported has words, pairs of words with a comma between them, and options with the same meaning.
type unsupported struct {
	fate           fate
	why            string
	words, options string
}

func keywordsOf(read map[string]func(*proxy, *statement), rows ...unsupported) map[string]keyword {
	out := make(map[string]keyword)
	for _, r := range rows {
		for word := range strings.FieldsSeq(r.words) {
			out[strings.ReplaceAll(word, ",", " ")] = keyword{nil, r.fate, r.why}
		}
		for word := range strings.FieldsSeq(r.options) {
			out["option "+word] = keyword{nil, r.fate, r.why}
		}
	}
	for key, f := range read {
		out[key] = keyword{read: f}
	}
	return out
}

func isKeyword(word string) bool {
	for key := range maps.Keys(keywords) {
		if key == word || strings.HasPrefix(key, word+" ") {
			return true
		}
	}
	return word == "no"
}
