package importer

import (
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
	servers     []server
	defaults    server // of default-server
	backend     string
	algorithm   string
	consistent  bool
	stick       time.Duration // expiry of the stick table
	sticks      bool          // on the address of the client
	acls        map[string][]string
	clients     []string
	deny        []string
	accepts     bool // some clients before others are refused
	connections int64
	rate        string
	keep        bool // the addresses of clients
	allBackups  bool
	check       check
	problem     string
	traffic     string // mode of the section that listens
	front       bool   // the section that listens is read
	silent      bool   // what is read belongs to another section
	notes       []Note
}

// bind is an address that is listened on, with its ports.
type bind struct{ address, ports string }

// refuse says why the Balance cannot be used. The first reason counts.
func (p *proxy) refuse(format string, args ...any) {
	if p.problem == "" {
		p.problem = fmt.Sprintf(format, args...)
	}
}

func (p *proxy) note(s *statement, format string, args ...any) {
	if !p.silent {
		p.notes = append(p.notes, Note{s.line, s.text, fmt.Sprintf(format, args...)})
	}
}

// inherit reads the defaults of a section, whose notes are at its own place.
func (p *proxy) inherit(s *section) {
	if s.defaults == nil {
		return
	}
	p.silent = true
	for i := range s.defaults.statements {
		p.statement(&s.defaults.statements[i])
	}
	p.silent = false
}

func (p *proxy) read(s *section) {
	for i := range s.statements {
		p.statement(&s.statements[i])
	}
}

// statement reads a line: with the handler of its first two words, or the first one.
func (p *proxy) statement(s *statement) {
	for _, key := range []string{s.word(0) + " " + s.word(1), s.word(0)} {
		if read := keywords[key]; read != nil {
			read(p, s)
			return
		}
		if why := withoutEquivalent[key]; why != "" {
			p.note(s, "%s", why)
			return
		}
	}
	p.note(s, "no equivalent")
}

// withoutEquivalent are keywords with what nftproxy does or has instead.
var withoutEquivalent = map[string]string{
	"acl":                      "connections have no content: only lists of client addresses are used",
	"use_backend":              "nftproxy chooses no server by content: a Balance for each address and port does",
	"use-server":               "nftproxy chooses no server by content",
	"timeout":                  "nftproxy ends no connection: the kernel forgets an idle one after nf_conntrack_tcp_timeout_established",
	"log":                      "nftproxy observe shows connections, and --log-connections logs them",
	"log-format":               "nftproxy observe shows connections, and --log-connections logs them",
	"option tcplog":            "nftproxy observe shows connections, and --log-connections logs them",
	"option httplog":           "nftproxy observe shows connections, and --log-connections logs them",
	"option dontlognull":       "nftproxy observe shows connections, and --log-connections logs them",
	"option log-health-checks": "nftproxy run logs changes of health",
	"stats":                    "nftproxy status and top show them, and the page of --web",
	"monitor-uri":              "GET /healthz/NAMESPACE/NAME at --healthz-bind-address says whether a Balance has a usable server",
	"timeout connect":          "the system of the client repeats what a server does not answer; a server that fails its check gets no new connection",
	"option tcpka":             "the endpoints of a connection keep it alive, not the balancer",
	"option clitcpka":          "the endpoints of a connection keep it alive, not the balancer",
	"option srvtcpka":          "the endpoints of a connection keep it alive, not the balancer",
	"option redispatch":        "a server that fails its check gets no new connection; relay: true also tries another server, at ten times the cost",
	"option forwardfor":        "connections are passed on as they are: clientAddresses: keep shows servers the client",
	"retries":                  "relay: true tries another server, at ten times the cost",
	"fullconn":                 "limits belong to addresses of listen, not to servers",
	"filter":                   "connections are passed on as they are",
	"errorfile":                "connections are passed on as they are",
	"http-request":             "connections are passed on as they are",
	"http-response":            "connections are passed on as they are",
	"tcp-response":             "connections are passed on as they are",
	"compression":              "connections are passed on as they are",
	"cookie":                   "connections are passed on as they are: affinity goes by the address of the client",
}

// keywords are the lines with an equivalent.
var keywords = map[string]func(*proxy, *statement){
	"mode":                   (*proxy).mode,
	"bind":                   (*proxy).readBind,
	"default_backend":        func(p *proxy, s *statement) { p.backend = s.word(1) },
	"balance":                (*proxy).readAlgorithm,
	"hash-type":              func(p *proxy, s *statement) { p.consistent = s.word(1) == "consistent" },
	"server":                 (*proxy).readServer,
	"default-server":         (*proxy).readDefaults,
	"server-template":        (*proxy).readTemplate,
	"maxconn":                (*proxy).readConnections,
	"rate-limit":             (*proxy).readRate,
	"source":                 (*proxy).readSource,
	"stick-table":            (*proxy).readTable,
	"stick on":               (*proxy).readStick,
	"acl":                    (*proxy).readACL,
	"tcp-request connection": (*proxy).readRequest,
	"option allbackups":      func(p *proxy, _ *statement) { p.allBackups = true },
	"option tcp-check":       func(p *proxy, _ *statement) { p.check.kind = "tcp" },
	"option httpchk":         (*proxy).readHTTPCheck,
	"http-check":             (*proxy).readHTTPLine,
	"tcp-check":              (*proxy).readTCPLine,
	"timeout check":          func(p *proxy, s *statement) { p.check.timeout = durationOf(s.word(2)) },
	"disabled":               func(p *proxy, _ *statement) { p.refuse("it is disabled") },
	"enabled":                func(*proxy, *statement) {},
	"description":            func(*proxy, *statement) {},
	"id":                     func(*proxy, *statement) {},
}

func (p *proxy) mode(s *statement) {
	if p.front { // a backend has the same
		p.traffic = s.word(1)
	}
}

func (p *proxy) readAlgorithm(s *statement) {
	p.algorithm = s.word(1)
	switch p.algorithm {
	case "roundrobin", "static-rr", "source":
	case "leastconn":
		p.note(s, "nftables does not count the connections of a server: round robin spreads new ones evenly")
	case "first":
		p.note(s, "round robin is used; priority of a server does a part of it")
	default:
		if p.algorithm, _, _ = strings.Cut(p.algorithm, "("); p.algorithm != "random" {
			p.note(s, "it looks into connections: round robin is used")
		}
	}
}

// scheduler returns the one of the Balance; empty: the default.
func (p *proxy) scheduler() string {
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
	if !p.front {
		return
	}
	if p.connections, _ = strconv.ParseInt(s.word(1), 10, 64); p.connections > 0 {
		p.note(s, "limits.connections is of each address and port, and more connections are dropped, not queued")
	}
}

func (p *proxy) readRate(s *statement) {
	if s.word(1) == "sessions" && p.front {
		p.rate = s.word(2) + "/second"
	}
}

func (p *proxy) readSource(s *statement) {
	if s.word(2) == "usesrc" && strings.HasPrefix(s.word(3), "client") {
		p.keep = true
		return
	}
	p.note(s, "connections to servers come from the address that the machine's routes choose")
}

func (p *proxy) readTable(s *statement) {
	for i, word := range s.words {
		if word == "expire" {
			p.stick = durationOf(s.word(i + 1))
		}
	}
}

func (p *proxy) readStick(s *statement) {
	if s.word(2) == "src" {
		p.sticks = true
		return
	}
	p.note(s, "affinity goes by the address of the client")
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
		b.note(0, "", "%s is left out: no client of its family is allowed", entry)
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

// balance returns the Balance without what it listens on.
func (p *proxy) balance(s *section) *Balance {
	b := &Balance{Origin: fmt.Sprintf("%s, line %d", strings.Join(s.words[:min(2, len(s.words))], " "), s.line), Notes: slices.Clone(p.notes), Problem: p.problem}
	b.Kind, b.Name = balance.Kind, nameOf(s.name())
	b.Scheduler, b.Clients, b.Deny = p.scheduler(), p.clients, p.deny
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
