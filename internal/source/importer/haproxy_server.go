package importer

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// server is one of HAProxy, or the defaults of some.
type server struct {
	address, port string
	weight        int
	backup        bool
	disabled      bool
	checked       bool
	tls           bool
	closes        bool // connections when it is down
	weighed       bool // the weight is given
	header        bool // of the PROXY protocol, version 2
	slowStart     time.Duration
	check         check
}

// withValue are parameters of bind and server with a value that is skipped, too.
var withValue = []string{"name", "cookie", "id", "maxconn", "minconn", "maxqueue", "addr", "observe", "error-limit", "on-error", "on-marked-up",
	"track", "sni", "verify", "verifyhost", "ca-file", "crt", "crl-file", "ciphers", "alpn", "npn", "proto", "resolvers", "resolve-prefer", "resolve-net",
	"init-addr", "interface", "mss", "backlog", "user", "group", "mode", "uid", "gid", "process", "thread", "level", "nice", "namespace", "tcp-ut", "agent-port",
	"agent-inter", "agent-addr", "agent-send", "source", "redir", "pool-max-conn", "pool-purge-delay", "check-sni", "check-alpn", "check-proto", "ws", "proxy-v2-options", "set-proxy-v2-tlv-fmt"}

// readBind reads the addresses of a bind line.
func (p *proxy) readBind(s *statement) {
	for text := range strings.SplitSeq(s.word(1), ",") {
		host, port, ok := readAddress(text)
		if !ok {
			p.note(s, "%s is no address and port", text)
			continue
		}
		if host == "*" || host == "" {
			host = "0.0.0.0"
		}
		if host == "::" && slices.Contains(s.words, "v4v6") {
			host = ""
		}
		if b := (bind{host, port}); !slices.Contains(p.binds, b) {
			p.binds = append(p.binds, b)
		}
	}
	var rest []string
	for i := 2; i < len(s.words); i++ {
		switch word := s.words[i]; {
		case word == "ssl":
			p.refuse("it ends TLS, and nftproxy passes connections on as they are: let the servers do it")
		case word == "accept-proxy":
			rest = append(rest, word)
		case slices.Contains(withValue, word):
			if i++; word == "interface" {
				rest = append(rest, word)
			}
		}
	}
	if len(rest) > 0 {
		p.note(s, "no equivalent of %s", strings.Join(rest, ", "))
	}
}

// readAddress returns host and port of an address of HAProxy, which may have a prefix for its
// family; false: it is a socket of another kind.
func readAddress(text string) (host, port string, ok bool) {
	text = strings.TrimPrefix(strings.TrimPrefix(text, "ipv4@"), "ipv6@")
	if strings.HasPrefix(text, "/") || strings.Contains(text, "@") {
		return "", "", false
	}
	host, port = splitAddress(text)
	return host, port, true
}

// splitAddress returns host and port of a text as HAProxy writes it: the last colon
// separates them.
func splitAddress(text string) (host, port string) {
	if strings.HasSuffix(text, "]") {
		return strings.Trim(text, "[]"), ""
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return text, ""
	}
	return strings.Trim(text[:i], "[]"), text[i+1:]
}

func (p *proxy) readDefaults(s *statement) { p.parameters(&p.defaults, s, 1) }

func (p *proxy) readServer(s *statement) {
	if len(s.words) < 3 {
		p.note(s, "it has no address")
		return
	}
	v := p.defaults
	if v.weight == 0 && !p.defaults.weighed {
		v.weight = 1
	}
	var ok bool
	if v.address, v.port, ok = readAddress(s.word(2)); !ok {
		p.note(s, "%s is no address", s.word(2))
		return
	}
	if strings.HasPrefix(v.port, "+") || strings.HasPrefix(v.port, "-") {
		p.note(s, "the port is relative to the client's: write a range of the same length as in listen")
		return
	}
	v.port = serverPort(v.port)
	p.parameters(&v, s, 3)
	p.servers = append(p.servers, v)
}

func (p *proxy) readTemplate(s *statement) {
	p.note(s, "write the name into backends: each of its addresses is a server")
}

// parameters reads those of a server from word i on.
func (p *proxy) parameters(v *server, s *statement, i int) {
	var rest []string
	for ; i < len(s.words); i++ {
		word, value := s.words[i], s.word(i+1)
		if read := parameters[word]; read != nil {
			if read(v, value) {
				i++
			}
			continue
		}
		switch {
		case word == "on-marked-down":
			v.closes = value == "shutdown-sessions"
			i++
		case strings.HasPrefix(word, "send-proxy"):
			rest = append(rest, word+": write relay: proxy-v2 if the server reads version 2 of the PROXY protocol without TLVs, or turn it off at the server, too")
		case slices.Contains([]string{"maxconn", "track", "observe", "on-error", "agent-port", "proxy-v2-options"}, word):
			rest = append(rest, word)
			i++
		case word == "agent-check":
			rest = append(rest, word)
		case slices.Contains(withValue, word):
			i++
		}
	}
	if len(rest) > 0 {
		p.note(s, "no equivalent of %s", strings.Join(rest, ", "))
	}
}

// parameters of a server with an equivalent; true: the value has been read.
var parameters = map[string]func(v *server, value string) bool{
	"check":     func(v *server, _ string) bool { v.checked = true; return false },
	"no-check":  func(v *server, _ string) bool { v.checked = false; return false },
	"backup":    func(v *server, _ string) bool { v.backup = true; return false },
	"no-backup": func(v *server, _ string) bool { v.backup = false; return false },
	"disabled":  func(v *server, _ string) bool { v.disabled = true; return false },
	"enabled":   func(v *server, _ string) bool { v.disabled = false; return false },
	"ssl":       func(v *server, _ string) bool { v.tls = true; return false },
	"check-ssl": func(v *server, _ string) bool { v.check.tls = true; return false },
	"weight": func(v *server, value string) bool {
		v.weight, _ = strconv.Atoi(value)
		v.weighed = true
		return true
	},
	"send-proxy-v2":    func(v *server, _ string) bool { v.header = true; return false },
	"no-send-proxy-v2": func(v *server, _ string) bool { v.header = false; return false },
	"slowstart":        func(v *server, value string) bool { v.slowStart = durationOf(value); return true },
	"inter":            func(v *server, value string) bool { v.check.interval = durationOf(value); return true },
	"rise":             func(v *server, value string) bool { v.check.rise, _ = strconv.Atoi(value); return true },
	"fall":             func(v *server, value string) bool { v.check.fall, _ = strconv.Atoi(value); return true },
	"port":             func(v *server, value string) bool { v.check.port, _ = strconv.Atoi(value); return true },
}

// maxPriority is the last one of a backend.
const maxPriority = 9

// addServers adds the servers and their check to a Balance.
func (p *proxy) addServers(b *Balance) {
	var weights []int
	backups := int32(0)
	for _, v := range p.servers {
		s := balance.Backend{Address: join(v.address, v.port), Drain: v.disabled}
		if v.tls {
			b.refuse("it starts TLS to its servers, and nftproxy passes connections on as they are")
		}
		if v.backup {
			if backups++; p.allBackups || backups == 1 {
				s.Backup = true
			} else { // HAProxy uses one backup at a time
				priority := min(backups, maxPriority)
				s.Priority = &priority
			}
		}
		if v.closes {
			b.OnFailure = "close"
		}
		b.Backends = append(b.Backends, s)
		weights = append(weights, v.weight)
	}
	b.weights(weights)
	p.addSlowStart(b)
	p.addCheck(b)
	p.addRelay(b)
}

// addCheck adds the health check, of the first server that has one.
func (p *proxy) addCheck(b *Balance) {
	first := slices.IndexFunc(p.servers, func(v server) bool { return v.checked })
	if first < 0 {
		return
	}
	c, of := p.check, p.servers[first].check
	for _, v := range p.servers {
		if v.checked && v.check != of {
			b.note(0, "", "servers have different checks: a Balance has one, here the first")
			break
		}
	}
	if slices.ContainsFunc(p.servers, func(v server) bool { return !v.checked }) {
		b.note(0, "", "some servers had no check: all have one here")
	}
	if of.port > 0 {
		c.port = of.port
	}
	c.tls, c.interval, c.rise, c.fall = of.tls, of.interval, of.rise, of.fall
	b.Check = c.value()
}
