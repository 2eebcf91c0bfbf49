package importer

import (
	"strings"
	"time"
)

// checkers fill in what a block of a check says.
var checkers = map[string]func(c *check, one *block) bool{
	"TCP_CHECK": func(*check, *block) bool { return false },
	"HTTP_GET":  httpCheck,
	"SSL_GET":   httpCheck,
	"DNS_CHECK": func(c *check, one *block) bool {
		switch one.readWord(0) {
		case "name":
			c.target = one.readWord(1)
		case "type":
			c.query = one.readWord(1)
		default:
			return false
		}
		return true
	},
}

func httpCheck(c *check, one *block) bool {
	if one.readWord(0) != "url" || c.target != "" { // a second one is refused
		return false
	}
	c.target, c.status = "/", "200-299" // keepalived.conf(5)
	for _, line := range one.inside {
		switch line.peekWord(0) {
		case "path":
			if c.target = line.readWord(1); c.target == "" {
				return false
			}
		case "status_code":
			if c.status = strings.Join(line.readRest(1), " "); c.status == "" {
				return false
			}
		case "virtualhost":
			c.host = line.readWord(1)
		default: // such as a digest: what is not read is refused
			continue
		}
		line.readWord(0)
	}
	return true
}

// readChecker reads the check of a server with a port. All servers of a Balance have the same one.
func (v *virtual) readChecker(b *block, port string) {
	c := check{tls: b.readWord(0) == "SSL_GET", host: v.check.host, timeout: 5 * time.Second, rise: 1, fall: 2} // keepalived.conf(5)
	switch b.peekWord(0) {
	case "HTTP_GET", "SSL_GET":
		c.kind = "http"
	case "DNS_CHECK":
		c.kind, c.target, c.query, c.rcode, c.fall = "dns", ".", "SOA", "NOERROR", 4
	}
	for _, one := range b.inside {
		switch word := one.readWord(0); {
		case checkers[b.readWord(0)](&c, one):
		case word == "connect_port":
			if one.readWord(1) != port { // else its own
				c.port = v.readNumber(&one.statement, 1)
			}
		case word == "connect_timeout":
			c.timeout = v.readSeconds(one, 0)
		case word == "retry" || word == "nb_get_retry":
			c.fall = v.readNumber(&one.statement, 1) + 1 // the first one is no retry
		case word == "delay_before_retry" || word == "nb_get_retry_delay" || word == "warmup" || word == "enable_sni" || word == "http_protocol":
			v.leaveOut(&one.statement, v.addNote, "no equivalent")
		default:
			v.refuseBlock(one, "a check without it checks less, or another address")
		}
	}
	if v.checked++; v.checked == 1 {
		v.check = c
		return
	}
	first := v.check
	if first.fall, first.timeout = c.fall, c.timeout; c != first {
		v.refuse(&b.statement, "servers have different checks: a Balance has one")
	} else if c != v.check {
		b.walk(func(s *statement) {
			v.noteChange(s, "a Balance has one check, with the times of the first server")
		})
	}
}
