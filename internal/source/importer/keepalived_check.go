package importer

import "strings"

// checkers fill in what a block of a check says.
var checkers = map[string]func(c *check, one *block) bool{
	"TCP_CHECK": func(*check, *block) bool { return false },
	"HTTP_GET":  httpCheck,
	"SSL_GET":   httpCheck,
	"DNS_CHECK": func(c *check, one *block) bool {
		switch one.word(0) {
		case "name":
			c.target = one.word(1)
		case "type":
			c.query = one.word(1)
		default:
			return false
		}
		return true
	},
}

func httpCheck(c *check, one *block) bool {
	if one.word(0) != "url" || c.target != "" { // a second one is refused
		return false
	}
	c.target = "/"
	for _, line := range one.inside {
		switch line.peek(0) {
		case "path":
			if c.target = line.word(1); c.target == "" {
				return false
			}
		case "status_code":
			if c.status = strings.Join(line.rest(1), " "); c.status == "" {
				return false
			}
		case "virtualhost":
			c.host = line.word(1)
		default: // such as a digest: what is not read is refused
			continue
		}
		line.word(0)
	}
	return true
}

// checker reads the check of a server. The first one counts, since a Balance has one.
func (v *virtual) checker(b *block) {
	c := check{kind: map[string]string{"HTTP_GET": "http", "SSL_GET": "http", "DNS_CHECK": "dns"}[b.word(0)], tls: b.word(0) == "SSL_GET", host: v.check.host}
	for _, one := range b.inside {
		switch word := one.word(0); {
		case checkers[b.word(0)](&c, one):
		case word == "connect_port":
			c.port = v.number(one)
		case word == "connect_timeout":
			c.timeout = v.seconds(one, 0)
		case word == "retry" || word == "nb_get_retry":
			if n := v.number(one); n > 0 {
				c.fall = n + 1 // the first one is no retry
			}
		case word == "delay_before_retry" || word == "nb_get_retry_delay" || word == "warmup" || word == "enable_sni" || word == "http_protocol":
			v.leave(one, "no equivalent")
		default:
			v.cannot(one, "a check without it checks less, or another address")
		}
	}
	if v.checked++; v.checked == 1 {
		v.check = c
	} else if c != v.check {
		v.note(b.line, b.text, "a Balance has one check: this is another one than that of the first server")
	}
}
