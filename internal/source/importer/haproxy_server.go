package importer

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
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
	at            *statement
}

func (p *proxy) readBind(s *statement) {
	addresses := s.readWord(1)
	rest := s.readRest(2)
	for text := range strings.SplitSeq(addresses, ",") {
		host, port, ok := readAddress(text)
		if !ok {
			p.noteChange(s, "%s is no address and port", text)
			continue
		}
		if host == "*" || host == "" {
			host = "0.0.0.0"
		}
		if host == "::" && slices.Contains(rest, "v4v6") {
			host = ""
		}
		if b := (bind{host, port}); !slices.Contains(p.binds, b) {
			p.binds = append(p.binds, b)
		}
	}
	var left []string
	for i := 0; i < len(rest); i++ {
		word := rest[i]
		switch values, known := bindLeft[word]; {
		case word == "v4v6" || word == "v6only":
		case word == "ssl":
			p.refuse(nil, "it ends TLS, and nftproxy passes connections on as they are: let the servers do it")
		case known:
			left = append(left, word)
			i += values
		default:
			p.refuse(s, "no equivalent of %s", word)
		}
	}
	p.leftOut(s, left)
}

// bindLeft are parameters of bind that change nothing of who connects where, with the number
// of their values.
var bindLeft = map[string]int{
	"name": 1, "id": 1, "backlog": 1, "process": 1, "thread": 1, "shards": 1, "nice": 1, "mss": 1, "level": 1, "user": 1, "group": 1, "uid": 1, "gid": 1, "mode": 1,
	"maxconn": 1, "tcp-ut": 1, "tfo": 0, "transparent": 0, "defer-accept": 0,
}

func (p *proxy) leftOut(s *statement, words []string) {
	if len(words) == 0 {
		return
	}
	say := p.addNote
	if slices.ContainsFunc(words, func(w string) bool { return slices.Contains(missed, w) }) {
		say = p.noteChange
	}
	say(s, "no equivalent of %s", strings.Join(words, ", "))
}

// missed are parameters without which more connections are accepted, or a check finds a failure later.
var missed = []string{
	"maxconn", "minconn", "maxqueue", "observe", "error-limit", "on-error", "on-marked-up", "fastinter", "downinter", "non-stick", "strict-maxconn",
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

// addServer adds the server whose address is word i.
func (p *proxy) addServer(s *statement, i int) {
	v := p.defaults
	v.at = s
	if v.weight == 0 && !p.defaults.weighed {
		v.weight = 1
	}
	var ok bool
	if v.address, v.port, ok = readAddress(s.readWord(i)); !ok {
		p.refuse(s, "%s is no address", s.readWord(i))
	}
	if strings.HasPrefix(v.port, "+") || strings.HasPrefix(v.port, "-") {
		p.refuse(s, "the port of a server is relative to the client's: write a range of the same length as in listen")
	}
	if a, found := p.hosts[strings.ToLower(v.address)]; found {
		p.noteChange(s, "%s is %s in the hosts file, which nftproxy run does not read", v.address, a)
		v.address = a.String()
	} else if _, err := netip.ParseAddr(v.address); ok && err != nil && !strings.Contains(v.address, ".") {
		p.noteChange(s, "%s has to be a name of DNS: nftproxy run does not read the hosts file", v.address)
	}
	v.port = serverPort(v.port)
	p.readParameters(&v, s, i+1)
	if v.port != "" && v.port == strconv.Itoa(v.check.port) {
		v.check.port = 0 // its own
	}
	p.servers = append(p.servers, v)
}

func (p *proxy) readParameters(v *server, s *statement, i int) {
	var left []string
	for ; i < len(s.words); i++ {
		word := s.readWord(i)
		if read := parameters[word]; read != nil {
			read(v)
			continue
		}
		if read := values[word]; read != nil {
			i++
			read(p, v, s, i)
			continue
		}
		count, known := serverLeft[word]
		if !known {
			p.refuse(s, "no equivalent of %s", cmp.Or(hints[word], word))
			s.readRest(i)
			return
		}
		left = append(left, word)
		for range count {
			i++
			s.readWord(i)
		}
	}
	p.leftOut(s, left)
}

// hints are parameters of a server with what to do instead.
var hints = map[string]string{
	"send-proxy": "send-proxy: write relay: proxy-v2 if the server reads version 2 of the PROXY protocol without TLVs, or turn it off at the server, too",
	"track":      "track: the server would be used without the check of another one",
}

// serverLeft are parameters of a server that change nothing of where connections go and of what
// is checked, with the number of their values.
var serverLeft = map[string]int{
	"cookie": 1, "id": 1, "guid": 1, "maxconn": 1, "minconn": 1, "maxqueue": 1, "observe": 1, "error-limit": 1, "on-error": 1, "on-marked-up": 1,
	"fastinter": 1, "downinter": 1, "resolvers": 1, "resolve-prefer": 1, "resolve-net": 1, "init-addr": 1, "tcp-ut": 1, "tfo": 0, "non-stick": 0,
	"pool-max-conn": 1, "pool-purge-delay": 1, "pool-low-conn": 1, "proxy-v2-options": 1, "shard": 1, "hash-key": 1, "strict-maxconn": 0,
}

var parameters = map[string]func(v *server){
	"check":            func(v *server) { v.checked = true },
	"no-check":         func(v *server) { v.checked = false },
	"backup":           func(v *server) { v.backup = true },
	"no-backup":        func(v *server) { v.backup = false },
	"disabled":         func(v *server) { v.disabled = true },
	"enabled":          func(v *server) { v.disabled = false },
	"ssl":              func(v *server) { v.tls = true },
	"check-ssl":        func(v *server) { v.check.tls = true },
	"send-proxy-v2":    func(v *server) { v.header = true },
	"no-send-proxy-v2": func(v *server) { v.header = false },
}

// values are parameters of a server whose value is word i.
var values = map[string]func(p *proxy, v *server, s *statement, i int){
	"weight": func(p *proxy, v *server, s *statement, i int) {
		v.weight, v.weighed = p.readNumber(s, i), true
	},
	"on-marked-down": func(p *proxy, v *server, s *statement, i int) {
		if v.closes = s.readWord(i) == "shutdown-sessions"; !v.closes {
			p.refuse(s, "no equivalent of on-marked-down %s", s.readWord(i))
		}
	},
	"verify": func(p *proxy, _ *server, s *statement, i int) {
		if s.readWord(i) != "none" {
			p.refuse(s, "verify %s: write verify and ca of the check by hand", s.readWord(i))
		}
	},
	"slowstart": func(p *proxy, v *server, s *statement, i int) { v.slowStart = p.readDuration(s, i) },
	"inter":     func(p *proxy, v *server, s *statement, i int) { v.check.interval = p.readDuration(s, i) },
	"rise":      func(p *proxy, v *server, s *statement, i int) { v.check.rise = p.readNumber(s, i) },
	"fall":      func(p *proxy, v *server, s *statement, i int) { v.check.fall = p.readNumber(s, i) },
	"port":      func(p *proxy, v *server, s *statement, i int) { v.check.port = p.readNumber(s, i) },
}

// maxPriority is the last one of a backend.
const maxPriority = 9

func (p *proxy) addServers() {
	var weights []int
	backups := int32(0)
	for _, v := range p.servers {
		s := balance.Backend{Address: join(v.address, v.port), Drain: v.disabled}
		if v.tls {
			p.refuse(nil, "it starts TLS to its servers, and nftproxy passes connections on as they are")
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
			p.OnFailure = "close"
		}
		p.Backends = append(p.Backends, s)
		weights = append(weights, v.weight)
	}
	p.setWeights(weights)
	p.addSlowStart()
	p.addCheck()
	p.addRelay()
}

// addCheck adds the health check, of the first server that has one.
func (p *proxy) addCheck() {
	first := slices.IndexFunc(p.servers, func(v server) bool { return v.checked })
	if first < 0 {
		return
	}
	c, of := p.check, p.servers[first].check
	for _, v := range p.servers {
		switch {
		case !v.checked:
			p.noteChange(v.at, "a server without a check has the one of the others here")
		case v.check.port != of.port || v.check.tls != of.tls:
			p.refuse(v.at, "servers have different checks: a Balance has one")
		case v.check != of:
			p.noteChange(v.at, "a Balance has one check, with the times of the first server that has one")
		}
	}
	if of.port > 0 {
		c.port = of.port
	}
	c.tls, c.interval, c.rise, c.fall = c.tls || of.tls, of.interval, of.rise, of.fall
	p.Check = c
}

// addSlowStart adds the longest slow start of a server.
func (p *proxy) addSlowStart() {
	var longest time.Duration
	differ := false
	for _, v := range p.servers {
		differ = differ || v.slowStart != p.servers[0].slowStart
		longest = max(longest, v.slowStart)
	}
	switch {
	case longest == 0:
		return
	case setting.SlowStart.Parse(new(setting.Values), longest) != "":
		p.noteChange(nil, "slowstart of servers is left out: slowStart is from 1s to 1h")
		return
	case differ:
		p.noteChange(nil, "servers have different times of slowstart: a Balance has one, here the longest")
	}
	p.SlowStart = &metav1.Duration{Duration: longest}
}

// addRelay relays the connections if a server expects the header of the PROXY protocol, and
// replaces what a relay does not have.
func (p *proxy) addRelay() {
	headers := 0
	for _, v := range p.servers {
		if v.header {
			headers++
		}
	}
	if headers == 0 {
		return
	}
	p.Relay = model.RelayNames[model.ProxyV2Relay-1]
	if headers < len(p.servers) {
		p.refuse(nil, "some servers have send-proxy-v2 and others do not: a Balance with relay: proxy-v2 sends all of them the header")
	}
	if p.Scheduler == model.Maglev.String() || p.Affinity != nil {
		p.noteChange(nil, "with relay, scheduler: source-hash gives a client the same server while the servers stay")
		p.Scheduler, p.Affinity = model.SourceHash.String(), nil
	}
	if p.ClientAddresses != "" {
		p.noteChange(nil, "servers see this machine, and read the address of the client in the header of the PROXY protocol")
		p.ClientAddresses = ""
	}
	if c := p.check; p.Check != nil && c.port == 0 && (c.kind != "" || c.send != "" || c.expect != "") {
		p.noteChange(nil, "checks send no header of the PROXY protocol: give the check a port of the server that expects none")
	}
}
