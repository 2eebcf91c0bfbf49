package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// proxy collects what a frontend and its backend, or a listen section, say.
type proxy struct {
	binds       []bind
	backend     string // without a condition
	standard    string // default_backend
	acls        map[string]*addressList
	requests    []request
	clients     []string
	deny        []string
	hosts       map[string]netip.Addr
	connections int64
	rate        string
	problem     string
	traffic     string // mode of the section that listens
	front       bool   // the section that listens is read
	kind        string // of the section that is read
	silent      bool   // what is read belongs to another section
	notes       []Note
	pool
}

// pool is the part of a proxy that belongs to its backend.
type pool struct {
	servers    []server
	defaults   server // of default-server
	algorithm  string
	consistent bool
	stick      time.Duration // expiry of the stick table
	sticks     bool          // on the address of the client
	stuck      bool          // a line says what clients stick on
	table      *statement    // stick-table
	one        bool          // server for all clients: the stick table has one entry
	keep       bool          // the addresses of clients
	allBackups bool
	check      check
	timeout    *statement // of check
	steps      []step     // of a tcp-check
	connects   int        // lines that say where a check connects to
}

// bind is an address that is listened on, with its ports.
type bind struct{ address, ports string }

// refuseBalance says why the Balance cannot be used. The first reason counts.
func (p *proxy) refuseBalance(format string, args ...any) {
	if p.problem == "" {
		p.problem = fmt.Sprintf(format, args...)
	}
}

func (p *proxy) addNote(s *statement, format string, args ...any) {
	if !p.silent {
		p.notes = append(p.notes, Note{Line: s.line, Text: s.text, Why: fmt.Sprintf(format, args...)})
	}
}

// noteChange says how connections or checks differ from what a line says.
func (p *proxy) noteChange(s *statement, format string, args ...any) {
	if !p.silent {
		p.addNote(s, format, args...)
		p.notes[len(p.notes)-1].Differs = true
	}
}

// inheritDefaults reads the defaults of a section of some kind, whose notes are at its own place.
func (p *proxy) inheritDefaults(s *section, kind string, used map[*section][]string) {
	if s.defaults == nil {
		return
	}
	used[s.defaults] = append(used[s.defaults], kind)
	p.inheritDefaults(s.defaults, kind, used)
	p.silent = true
	p.read(s.defaults)
	p.silent = false
}

func (p *proxy) read(s *section) {
	p.isCertain(&s.statement)
	p.kind = s.kindWord()
	for i := range s.statements {
		p.readStatement(&s.statements[i])
	}
}

// isCertain refuses a line that may be another one.
func (p *proxy) isCertain(s *statement) bool {
	if s.problem != "" {
		p.refuseBalance("%s", s.problem)
	}
	return s.problem == ""
}

// readStatement reads a line: with the handler of its first two words, or the first one.
func (p *proxy) readStatement(s *statement) {
	s.takeUnread() // by another section
	if !p.isCertain(s) {
		return
	}
	defer func() {
		p.refuseUnread(s)
	}()
	if s.peekWord(0) == "no" {
		p.readNo(s)
		return
	}
	for i, key := range []string{s.peekWord(0) + " " + s.peekWord(1), s.peekWord(0)} {
		if slices.Contains(misplaced[p.kind], key) {
			return
		}
		if read := keywords[key]; read != nil {
			s.readWord(0)
			s.readWord(1 - i)
			read(p, s)
			return
		}
		if m, known := meanings[key]; known {
			s.readRest(0)
			p.noteUnsupported(s, key, m)
			return
		}
	}
}

// refuseUnread refuses a line with words that nothing has read.
func (p *proxy) refuseUnread(s *statement) {
	rest := s.takeUnread()
	switch len(rest) {
	case 0:
	case len(s.words):
		p.refuseBalance("line %d: %s: not known in this place", s.line, s.text)
	default:
		p.refuseBalance("line %d: %s: not known in this place", s.line, strings.Join(rest, ", "))
	}
}

// misplaced are lines that HAProxy ignores in a frontend or backend.
var misplaced = map[string][]string{
	"frontend": {"server", "default-server", "server-template", "balance", "hash-type", "source", "stick on", "timeout check", "http-check", "tcp-check",
		"option allbackups", "option tcp-check", "option redis-check", "option httpchk"},
	"backend": {"bind", "default_backend", "use_backend", "maxconn", "rate-limit sessions"},
}

// noteUnsupported treats a line without an equivalent.
func (p *proxy) noteUnsupported(s *statement, key string, m meaning) {
	switch m.fate {
	case remarked:
		p.addNote(s, "%s", m.why)
	case differs:
		p.noteChange(s, "%s", m.why)
	case refused:
		p.refuseBalance("line %d: %s: %s", s.line, key, m.why)
	}
}

// keywords are the lines with an equivalent.
var keywords = map[string]func(*proxy, *statement){
	"mode":                (*proxy).readMode,
	"bind":                (*proxy).readBind,
	"default_backend":     func(p *proxy, s *statement) { p.standard = s.readWord(1) },
	"use_backend":         (*proxy).readChoice,
	"balance":             (*proxy).readAlgorithm,
	"hash-type":           func(p *proxy, s *statement) { p.consistent = p.readHash(s) },
	"server":              (*proxy).readServer,
	"default-server":      (*proxy).readDefaults,
	"server-template":     (*proxy).readTemplate,
	"maxconn":             (*proxy).readConnections,
	"rate-limit sessions": (*proxy).readRate,
	"source":              (*proxy).readSource,
	"stick-table":         (*proxy).readTable,
	"stick on":            (*proxy).readStick,
	"acl":                 (*proxy).readACL,
	"tcp-request":         (*proxy).readRequest,
	"option allbackups":   func(p *proxy, _ *statement) { p.allBackups = true },
	"option tcp-check":    func(p *proxy, _ *statement) { p.check.kind = "tcp" },
	"option redis-check":  (*proxy).readRedisCheck,
	"option httpchk":      (*proxy).readHTTPCheck,
	"http-check":          (*proxy).readHTTPLine,
	"tcp-check":           (*proxy).readTCPLine,
	"timeout check":       func(p *proxy, s *statement) { p.check.timeout, p.timeout = p.readDuration(s, 2), s },
	"disabled":            func(p *proxy, _ *statement) { p.refuseBalance("it is disabled") },
	"enabled":             func(*proxy, *statement) {},
}

func (p *proxy) readMode(s *statement) {
	mode := s.readWord(1)
	if !slices.Contains([]string{"tcp", "http", "health", "log", "spop", "haterm"}, mode) {
		p.refuseBalance("line %d: %q is no mode", s.line, mode)
	}
	if p.front {
		p.traffic = mode
	} else if mode != "tcp" && mode != p.traffic {
		p.refuseBalance("line %d: mode %s: the section that listens has another one", s.line, mode)
	}
}

// readChoice reads use_backend: without a condition it is the backend of what is left.
func (p *proxy) readChoice(s *statement) {
	if name := s.readWord(1); len(s.readRest(2)) == 0 {
		p.backend = cmp.Or(p.backend, name)
	} else {
		p.refuseBalance("line %d: use_backend: nftproxy chooses no server by content: a Balance for each address and port does", s.line)
	}
}

// readNo reads a line that takes an option of the defaults back.
func (p *proxy) readNo(s *statement) {
	key := strings.Join(s.words[1:], " ")
	if m, known := meanings[key]; known && m.fate != refused {
		s.readRest(0)
		p.addNote(s, "no equivalent")
	} else if known || keywords[key] != nil {
		s.readRest(0)
		p.refuseBalance("line %d: no %s: delete the option instead", s.line, key)
	}
}

func (p *proxy) readHash(s *statement) bool {
	if len(s.readRest(2)) > 0 {
		p.addNote(s, "the hash is nftproxy's own")
	}
	kind := s.readWord(1)
	if kind != "consistent" && kind != "map-based" {
		p.refuseBalance("line %d: %q is no type of hash", s.line, kind)
	}
	return kind == "consistent"
}

func (p *proxy) readRedisCheck(s *statement) {
	p.check.kind, p.steps = "tcp", []step{{s, "", "PING\r\n"}, {s, "string", "+PONG"}}
}

func (p *proxy) readAlgorithm(s *statement) {
	p.algorithm = s.readWord(1)
	if len(s.readRest(2)) > 0 {
		p.addNote(s, "round robin is used, without parameters")
	}
	switch p.algorithm {
	case "roundrobin", "static-rr", "source":
	case "leastconn":
		p.noteChange(s, "nftables does not count the connections of a server: round robin spreads new ones evenly")
	case "first":
		p.noteChange(s, "round robin is used; priority of a server does a part of it")
	default:
		name, _, _ := strings.Cut(p.algorithm, "(")
		if p.algorithm = name; name != "random" {
			p.refuseBalance("line %d: balance %s: it looks into connections, or is not known", s.line, name)
		}
	}
}

// schedulerName returns the one of the Balance; empty: the default.
func (p *proxy) schedulerName() string {
	switch {
	case p.algorithm == "source" && p.consistent:
		return "maglev"
	case p.algorithm == "source":
		return "source-hash"
	case p.algorithm == "random":
		return "random"
	}
	return ""
}

func (p *proxy) readConnections(s *statement) {
	n := int64(p.readNumber(s, 1))
	if !p.front {
		return // of defaults that a frontend has, too
	}
	if p.connections = n; n > 0 {
		p.noteChange(s, "limits.connections is of each address and port, and more connections are dropped, not queued")
	}
}

func (p *proxy) readRate(s *statement) {
	if n := p.readNumber(s, 2); s.readWord(1) == "sessions" && p.front && n > 0 {
		p.rate = strconv.Itoa(n) + "/second"
	}
}

func (p *proxy) readSource(s *statement) {
	p.keep = s.readWord(2) == "usesrc" && strings.HasPrefix(s.peekWord(3), "client")
	if any := s.readWord(1); p.keep && (any == "0.0.0.0" || any == "*" || any == "::") {
		s.readWord(3)
		return
	}
	s.readRest(1)
	p.refuseBalance("line %d: source: connections to servers come from the address that the machine's routes choose", s.line)
}

// noteDifference adds a remark about the Balance as a whole.
func (p *proxy) noteDifference(format string, args ...any) {
	p.notes = append(p.notes, Note{Why: fmt.Sprintf(format, args...), Differs: true})
}

// listen returns the entries of Balances: addresses with the same ports are together.
func (p *proxy) listen(wildcards []netip.Addr) (out [][]string) {
	ports := make(map[string][]string)
	var addresses []string
	add := func(address, port string) {
		if ports[address] == nil {
			addresses = append(addresses, address)
		}
		if !slices.Contains(ports[address], port) {
			ports[address] = append(ports[address], port)
		}
	}
	for _, b := range p.binds {
		stand := wildcards
		if a, err := netip.ParseAddr(b.address); b.address != "" && (err != nil || !a.IsUnspecified()) {
			stand = nil
		}
		for _, a := range stand {
			add(a.String(), b.ports)
		}
		if len(stand) == 0 {
			add(b.address, b.ports)
		}
	}
	groups := make(map[string]int)
	for _, a := range addresses {
		key := strings.Join(slices.Sorted(slices.Values(ports[a])), ",")
		if _, known := groups[key]; !known {
			groups[key] = len(out)
			out = append(out, nil)
		}
		for _, port := range ports[a] {
			out[groups[key]] = append(out[groups[key]], join(a, port))
		}
	}
	return out
}

// ofFamilies leaves out the addresses whose clients a list of the other family refuses.
func (p *proxy) ofFamilies(b *Balance) {
	if len(b.Clients) == 0 {
		return
	}
	allowed := make(map[bool]bool) // by whether it is of IPv6
	for _, c := range b.Clients {
		allowed[strings.Contains(c, ":")] = true
	}
	kept := b.Listen[:0:0]
	for _, entry := range b.Listen {
		if allowed[strings.HasPrefix(entry, "[")] {
			kept = append(kept, entry)
			continue
		}
		b.addNote(0, "", "%s is left out: no client of its family is allowed", entry)
	}
	if len(kept) > 0 {
		b.Listen = kept
	}
}

// join returns an address with a port, and IPv6 in brackets.
func join(address, port string) string {
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	if port == "" {
		return strings.Trim(address, "[]")
	}
	return address + ":" + port
}

// newBalance returns the Balance without what it listens on.
func (p *proxy) newBalance(s *section) *Balance {
	b := &Balance{Origin: fmt.Sprintf("%s, line %d", strings.Join(s.words[:min(2, len(s.words))], " "), s.line), Notes: slices.Clone(p.notes), Problem: p.problem}
	b.Kind, b.Name = balance.Kind, nameOf(s.nameWord())
	b.Scheduler, b.Clients, b.Deny = p.schedulerName(), p.clients, p.deny
	if p.sticks && p.stick > 0 {
		b.Affinity = &metav1.Duration{Duration: p.stick}
	}
	if p.keep {
		b.ClientAddresses = "keep"
	}
	if p.connections > 0 || p.rate != "" {
		b.Limits = &balance.Limits{Rate: p.rate}
		if p.connections > 0 {
			b.Limits.Connections = &p.connections
		}
	}
	p.addServers(b)
	if len(b.Backends) == 0 && b.Problem == "" {
		b.Problem = "it has no server"
	}
	return b
}
