package importer

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// proxy collects what a frontend and its backend, or a listen section, say.
type proxy struct {
	*Balance
	binds    []bind
	backend  string // without a condition
	standard string // default_backend
	acls     map[string]*addressList
	requests []request
	hosts    map[string]netip.Addr
	traffic  string // mode of the section that listens
	front    bool   // the section that listens is read
	kind     string // of the section that is read

	connections int64 // the limits
	rate        string
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
		p.refuse(nil, "%s", s.problem)
	}
	return s.problem == ""
}

// readStatement reads a line, and refuses one with words that nothing has read.
func (p *proxy) readStatement(s *statement) {
	s.takeUnread() // by another section
	if !p.isCertain(s) {
		return
	}
	switch k, n := s.keyword(); {
	case s.peekWord(0) == "no":
		p.readNo(s)
	case n == 0 || s.isMisplaced(p.kind):
	case k.read != nil:
		s.readWord(0)
		s.readWord(n - 1)
		k.read(p, s)
	default:
		s.readRest(0)
		p.noteUnsupported(s, strings.Join(s.words[:n], " "), k)
	}
	switch rest := s.takeUnread(); len(rest) {
	case 0:
	case len(s.words):
		p.refuse(s, "%s: not known in this place", s.text)
	default:
		p.refuse(s, "%s: not known in this place", strings.Join(rest, ", "))
	}
}

// keyword returns the meaning of the line's first two words, or of the first one, and how many words these are; 0: there
// is none.
func (s *statement) keyword() (k keyword, words int) {
	for n := min(2, len(s.words)); n > 0; n-- {
		if k, known := keywords[s.key(0, n)]; known {
			return k, n
		}
	}
	return k, 0
}

// key returns n words from one on, or less if the line is shorter.
func (s *statement) key(from, n int) string {
	return strings.Join(s.words[min(from, len(s.words)):min(from+n, len(s.words))], " ")
}

// misplaced are lines that HAProxy ignores in a frontend or backend.
var misplaced = map[string][]string{
	"frontend": {"server", "default-server", "server-template", "balance", "hash-type", "source", "stick on", "timeout check", "http-check", "tcp-check",
		"option allbackups", "option tcp-check", "option redis-check", "option httpchk"},
	"backend": {"bind", "default_backend", "use_backend", "maxconn", "rate-limit sessions"},
}

func (s *statement) isMisplaced(kind string) bool {
	return slices.Contains(misplaced[kind], s.key(0, 1)) || slices.Contains(misplaced[kind], s.key(0, 2))
}

func (p *proxy) noteUnsupported(s *statement, key string, k keyword) {
	switch k.fate {
	case remarked:
		p.addNote(s, "%s", k.why)
	case differs:
		p.noteChange(s, "%s", k.why)
	case refused:
		p.refuse(s, "%s: %s", key, k.why)
	}
}

func (p *proxy) readMode(s *statement) {
	mode := s.readWord(1)
	if !slices.Contains([]string{"tcp", "http", "health", "log", "spop", "haterm"}, mode) {
		p.refuse(s, "%q is no mode", mode)
	}
	if p.front {
		p.traffic = mode
	} else if mode != "tcp" && mode != p.traffic {
		p.refuse(s, "mode %s: the section that listens has another one", mode)
	}
}

// readNo reads a line that takes an option of the defaults back.
func (p *proxy) readNo(s *statement) {
	k, known := keywords[s.key(1, len(s.words))]
	if !known {
		return
	}
	if s.readRest(0); k.read == nil && k.fate != refused {
		p.addNote(s, "no equivalent")
	} else {
		p.refuse(s, "no %s: delete the option instead", s.key(1, len(s.words)))
	}
}

func (p *proxy) readHash(s *statement) {
	if len(s.readRest(2)) > 0 {
		p.addNote(s, "the hash is nftproxy's own")
	}
	kind := s.readWord(1)
	if kind != "consistent" && kind != "map-based" {
		p.refuse(s, "%q is no type of hash", kind)
	}
	p.consistent = kind == "consistent"
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
			p.refuse(s, "balance %s: it looks into connections, or is not known", name)
		}
	}
}

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

func (p *proxy) readSource(s *statement) {
	p.keep = s.readWord(2) == "usesrc" && strings.HasPrefix(s.peekWord(3), "client")
	if slices.Contains([]string{"0.0.0.0", "*", "::"}, s.readWord(1)) && p.keep {
		s.readWord(3)
		return
	}
	s.readRest(1)
	p.refuse(s, "source: connections to servers come from the address that the machine's routes choose")
}

type bind struct{ address, ports string }

// groupBinds returns the entries of Balances: addresses with the same ports are together. Wildcards stand for an
// address that is not specified.
func groupBinds(binds []bind, wildcards []netip.Addr) (out [][]string) {
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
	for _, b := range binds {
		a, err := netip.ParseAddr(b.address)
		if len(wildcards) == 0 || b.address != "" && (err != nil || !a.IsUnspecified()) {
			add(b.address, b.ports)
			continue
		}
		for _, w := range wildcards {
			add(w.String(), b.ports)
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

// leaveOutFamilies leaves out the addresses whose clients a list of the other family refuses.
func (b *Balance) leaveOutFamilies() {
	if len(b.Clients) == 0 {
		return
	}
	kept := b.Listen[:0:0]
	for _, entry := range b.Listen {
		if slices.ContainsFunc(b.Clients, func(c string) bool { return strings.Contains(c, ":") == strings.HasPrefix(entry, "[") }) {
			kept = append(kept, entry)
			continue
		}
		b.noteChange(nil, "%s is left out: no client of its family is allowed", entry)
	}
	if len(kept) > 0 {
		b.Listen = kept
	}
}

func join(address, port string) string {
	if port == "" {
		return strings.Trim(address, "[]")
	}
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	return address + ":" + port
}

func (p *proxy) finishProxy() {
	p.joinSteps()
	p.finishSticking()
	if p.check.timeout > 0 {
		for _, v := range p.servers {
			if limit := cmp.Or(v.check.interval, defaultInterval); v.checked && p.check.timeout > limit {
				p.noteChange(p.timeout, "a check waits for its interval at most, here %s", limit)
				break
			}
		}
	}
	p.Scheduler = p.schedulerName()
	if p.sticks && p.stick > 0 {
		p.Affinity = &metav1.Duration{Duration: p.stick}
	}
	if p.keep {
		p.ClientAddresses = "keep"
	}
	if p.connections > 0 || p.rate != "" {
		p.Limits = &balance.Limits{Rate: p.rate}
		if p.connections > 0 {
			p.Limits.Connections = &p.connections
		}
	}
	p.addServers()
	if len(p.Backends) == 0 {
		p.refuse(nil, "it has no server")
	}
}
