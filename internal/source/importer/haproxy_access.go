package importer

import (
	"slices"
	"strings"
	"time"
)

// addressList is an acl: a list of client addresses.
type addressList struct {
	addresses []string
	unknown   bool // a line of it compares something else, or reads a file
}

func (p *proxy) readACL(s *statement) {
	if p.acls == nil {
		p.acls = make(map[string]*addressList)
	}
	list := p.acls[s.peekWord(1)]
	if list == nil {
		list = new(addressList)
		p.acls[s.peekWord(1)] = list
	}
	values := s.readRest(3)
	if s.readWord(1) == "" || s.readWord(2) != "src" || !areAddresses(values) {
		list.unknown = true
		p.addNote(s, noContent)
		return
	}
	list.addresses = append(list.addresses, values...)
}

func areAddresses(values []string) bool {
	return len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool {
		return strings.HasPrefix(v, "-") || v == "{" || v == "}" || v == "||"
	})
}

// joinDistinct returns the texts of two lists, each once: lines that name the same list again and
// again would multiply it.
func joinDistinct(a, b []string) (out []string) {
	seen := make(map[string]bool)
	for _, list := range [][]string{a, b} {
		for _, text := range list {
			if !seen[text] {
				seen[text] = true
				out = append(out, text)
			}
		}
	}
	return out
}

// request is a tcp-request line that accepts or rejects connections.
type request struct {
	at      *statement
	layer   string // connection, session or content
	accepts bool
	always  bool
	negated bool // clients that are not in the list
	list    []string
	unknown bool // the condition is not about the addresses of clients
}

// readRequest reads which clients are rejected, in one of three sets of rules.
func (p *proxy) readRequest(s *statement) {
	r := request{at: s, layer: s.readWord(1)}
	switch action := s.readWord(2); {
	case r.layer == "inspect-delay":
		s.readRest(2)
		p.addNote(s, "connections have no content: nothing waits for it")
		return
	case action == "accept":
		r.accepts = true
	case action == "reject":
		p.noteChange(s, "packets of these clients are dropped: they wait, where HAProxy ends the connection")
	case action == "silent-drop":
	case strings.HasPrefix(action, "track-sc"):
		s.readRest(2)
		p.addNote(s, tracked)
		return
	default:
		s.readRest(2)
		p.refuse(s, "tcp-request %s %s has no equivalent", r.layer, action)
		return
	}
	p.readCondition(s.readRest(3), &r)
	p.requests = append(p.requests, r)
}

// readCondition reads a condition: terms that have to be true together, or (with || or or)
// one of them.
func (p *proxy) readCondition(words []string, r *request) {
	if len(words) == 0 {
		r.always = true
		return
	}
	turned := words[0] == "unless"
	if !turned && words[0] != "if" || len(words) == 1 {
		r.unknown = true
		return
	}
	negated, terms, either := false, 0, false
	for rest := words[1:]; len(rest) > 0; {
		word := rest[0]
		if rest = rest[1:]; word == "||" || word == "or" {
			either = true
			continue
		}
		not := false
		for strings.HasPrefix(word, "!") {
			not, word = !not, word[1:]
			if word == "" && len(rest) > 0 {
				word, rest = rest[0], rest[1:]
			}
		}
		list := p.acls[word]
		if word == "{" {
			end := slices.Index(rest, "}")
			list = nil
			if end > 1 && rest[0] == "src" && areAddresses(rest[1:end]) {
				list = &addressList{addresses: rest[1:end]}
			}
			rest = rest[max(end+1, 0):]
		}
		if list == nil || list.unknown || terms > 0 && negated != not {
			r.unknown = true
			return
		}
		negated = not
		terms++
		r.list = joinDistinct(r.list, list.addresses)
	}
	// "a and b" is no list, and neither is "not a or not b".
	r.unknown = terms == 0 || terms > 1 && either == negated
	r.negated = negated != turned
}

// readAccess turns the rules of each layer into clients and deny. What these two cannot say refuses the Balance, because
// it would serve more clients.
func (p *proxy) readAccess() {
	for _, layer := range []string{"connection", "session", "content"} {
		p.readLayer(layer)
	}
	p.requests = nil
}

func (p *proxy) readLayer(layer string) {
	var accepted []string
	accepts, unknown, closed := false, false, false
	for _, r := range p.requests {
		switch {
		case r.layer != layer:
		case r.accepts && r.always || closed:
			return
		case r.accepts:
			accepts, unknown = true, unknown || r.unknown || r.negated
			accepted = joinDistinct(accepted, r.list)
		case r.unknown || unknown:
			p.refuse(r.at, "not all clients that it rejects are a list of addresses: clients and deny are lists")
		case r.always && !accepts:
			p.refuse(r.at, "it rejects all clients")
		case r.always || r.negated:
			if p.Clients != nil {
				p.refuse(r.at, "a Balance has one list of allowed clients")
			}
			p.Clients = joinDistinct(accepted, r.list)
			closed = r.always
		case accepts:
			p.refuse(r.at, "an accept before it takes some clients out: write clients and deny by hand")
		default:
			p.Deny = joinDistinct(p.Deny, r.list)
		}
	}
}

// maxAffinity is the longest one of a Balance.
const maxAffinity = 24 * time.Hour

// readTable reads the time of a stick table. Without one, an entry stays.
func (p *proxy) readTable(s *statement) {
	if p.kind == "frontend" {
		s.readRest(1)
		p.addNote(s, tracked)
		return
	}
	p.stick, p.one, p.table = 0, false, s
	for i := 1; i < len(s.words); i += 2 {
		switch value := s.readWord(i + 1); s.readWord(i) {
		case "type":
			if value != "ip" && value != "ipv6" {
				p.refuse(s, "type %s: affinity goes by the address of the client", value)
			}
		case "size":
			if p.one = value == "1"; !p.one {
				p.addNote(s, "no equivalent of size")
			}
			if rest := strings.TrimLeft(value, "0123456789"); value == "" || len(rest) > 1 || !strings.Contains("kmg", rest) {
				p.refuse(s, "%q is no size", value)
			}
		case "expire":
			p.stick = p.readDuration(s, i+1)
		case "nopurge":
			i-- // has no value
		case "peers", "store", "srvkey", "write-to":
			p.addNote(s, "no equivalent of %s", s.readWord(i))
		default:
			p.refuse(s, "%s: not known in this place", s.readWord(i))
		}
	}
}

// tracked is what replaces counters of clients.
const tracked = "no equivalent: limits.rate and limits.perClient limit connections"

func (p *proxy) readStick(s *statement) {
	rest := s.readRest(3)
	switch what := s.readWord(2); {
	case len(rest) > 0:
		p.refuse(s, "stick on %s %s: affinity has no table and no condition", what, strings.Join(rest, " "))
	case what == "src":
		p.sticks = true
	case what == "dst" && p.one:
		p.sticks = false
	default:
		p.one = false
		p.refuse(s, "stick on %s: affinity goes by the address of the client, so clients would not stay together", what)
	}
	p.stuck = true
}

func (p *proxy) finishSticking() {
	switch {
	case p.one && p.stuck:
		if p.sticks {
			p.refuse(nil, "a stick table of one entry keeps one client: write affinity, or priorities of the servers")
		}
		for i := range p.servers {
			p.servers[i].backup = i > 0
		}
		p.allBackups = false
		p.noteChange(nil, "all connections go to the first server that passes its check, by priority, and return to an earlier one when it is back")
	case p.sticks && p.table == nil:
		p.refuse(nil, "it sticks on clients and has no stick-table")
	case p.sticks && (p.stick == 0 || p.stick > maxAffinity):
		p.noteChange(p.table, "affinity lasts 24h, the longest time there is")
		p.stick = maxAffinity
	}
	if p.sticks && p.table != nil && p.hasSeveralAddresses() {
		p.noteChange(p.table, "affinity binds a client at each address by itself: one that connects to several may reach several servers")
	}
}

// hasSeveralAddresses reports whether a client can connect to more than one address of its family.
func (p *proxy) hasSeveralAddresses() bool {
	first := make(map[bool]string) // by whether it is of IPv6
	for _, b := range p.binds {
		v6 := strings.Contains(b.address, ":")
		if other := first[v6]; other != "" && other != b.address {
			return true
		}
		first[v6] = b.address
	}
	return false
}
