package importer

import (
	"cmp"
	"strings"
	"time"
)

// maxAffinity is the longest one of a Balance.
const maxAffinity = 24 * time.Hour

// readTable reads the time of a stick table. Without one, an entry stays.
func (p *proxy) readTable(s *statement) {
	if p.kind == "frontend" {
		s.readRest(1)
		p.addNote(s, "no equivalent: limits.rate and limits.perClient limit connections")
		return
	}
	p.stick, p.one, p.table = 0, false, s
	for i := 1; i < len(s.words); i += 2 {
		switch value := s.readWord(i + 1); s.readWord(i) {
		case "type":
			if value != "ip" && value != "ipv6" {
				p.refuseBalance("line %d: type %s: affinity goes by the address of the client", s.line, value)
			}
		case "size":
			if p.one = value == "1"; !p.one {
				p.addNote(s, "no equivalent of size")
			}
			if strings.Trim(value, "0123456789") != "" && !strings.Contains("kmg", value[len(value)-1:]) || value == "" {
				p.refuseBalance("line %d: %q is no size", s.line, value)
			}
		case "expire":
			p.stick = p.readDuration(s, i+1)
		case "nopurge":
			i-- // has no value
		case "peers", "store", "srvkey", "write-to":
			p.addNote(s, "no equivalent of %s", s.readWord(i))
		default:
			p.refuseBalance("line %d: %s: not known in this place", s.line, s.readWord(i))
		}
	}
}

func (p *proxy) readStick(s *statement) {
	rest := s.readRest(3)
	switch what := s.readWord(2); {
	case len(rest) > 0:
		p.refuseBalance("line %d: stick on %s %s: affinity has no table and no condition", s.line, what, strings.Join(rest, " "))
	case what == "src":
		p.sticks = true
	case what == "dst" && p.one:
		p.sticks = false
	default:
		p.one = false
		p.refuseBalance("line %d: stick on %s: affinity goes by the address of the client, so clients would not stay together", s.line, what)
	}
	p.stuck = true
}

// finishProxy replaces what several lines say together.
func (p *proxy) finishProxy() {
	p.joinSteps()
	switch {
	case p.one && p.stuck:
		if p.sticks {
			p.refuseBalance("a stick table of one entry keeps one client: write affinity, or priorities of the servers")
		}
		for i := range p.servers {
			p.servers[i].backup = i > 0
		}
		p.allBackups = false
		p.noteDifference("all connections go to the first server that passes its check, by priority, and return to an earlier one when it is back")
	case p.sticks && (p.stick == 0 || p.stick > maxAffinity):
		if p.table == nil {
			p.refuseBalance("it sticks on clients and has no stick-table")
			return
		}
		p.noteChange(p.table, "affinity lasts 24h, the longest time there is")
		p.stick = maxAffinity
	}
	if p.sticks && p.table != nil && p.hasSeveralAddresses() {
		p.noteChange(p.table, "affinity binds a client at each address by itself: one that connects to several may reach several servers")
	}
	if p.check.timeout > 0 {
		for _, v := range p.servers {
			if limit := cmp.Or(v.check.interval, defaultInterval); v.checked && p.check.timeout > limit {
				p.noteChange(p.timeout, "a check waits for its interval at most, here %s", limit)
				break
			}
		}
	}
}

// hasSeveralAddresses reports whether a client can connect to more than one address of its family.
func (p *proxy) hasSeveralAddresses() bool {
	first := make(map[bool]string) // by whether it is of IPv6
	for _, b := range p.binds {
		v6 := strings.Contains(b.address, ":")
		if first[v6] == "" {
			first[v6] = b.address
		}
		if first[v6] != b.address {
			return true
		}
	}
	return false
}
