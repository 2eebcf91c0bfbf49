package importer

import (
	"strings"
	"time"
)

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

// finishSticking replaces a stick table.
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
