package importer

import (
	"slices"
	"strings"
	"time"
)

var checkers = []string{"TCP_CHECK", "HTTP_GET", "SSL_GET", "DNS_CHECK"}

// readURL reads a block of a check with a request; false: it says nothing that a check can do.
func (c *check) readURL(b *block) bool {
	if c.kind != "http" || c.target != "" { // a second one is refused
		return false
	}
	c.target, c.status = "/", "200-299" // keepalived.conf(5)
	for _, line := range b.inside {
		switch line.peekWord(0) {
		case "path":
			c.target = line.readWord(1)
		case "status_code":
			c.status = strings.Join(line.readRest(1), " ")
		case "virtualhost":
			c.host = line.readWord(1)
		default: // such as a digest: what is not read is refused
			continue
		}
		line.readWord(0)
	}
	return c.target != "" && c.status != ""
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
		s := &one.statement
		switch word := s.readWord(0); {
		case word == "url" && c.readURL(one):
		case word == "name" && c.kind == "dns":
			c.target = s.readWord(1)
		case word == "type" && c.kind == "dns":
			c.query = s.readWord(1)
		case word == "connect_port":
			if s.readWord(1) != port { // else its own
				c.port = v.readNumber(s, 1)
			}
		case word == "connect_timeout":
			c.timeout = v.readSeconds(one, 0)
		case word == "retry" || word == "nb_get_retry":
			c.fall = v.readNumber(s, 1) + 1 // the first one is no retry
		case slices.Contains([]string{"delay_before_retry", "nb_get_retry_delay", "warmup", "enable_sni", "http_protocol"}, word):
			v.leaveOut(s, v.addNote, "no equivalent")
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
