package importer

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// block is a statement of keepalived, with what is in its braces.
type block struct {
	statement
	inside []*block
}

// blocks reads the text of a keepalived.conf: words, and blocks in braces. A comment
// begins with # or !.
func blocks(text string) (*block, error) {
	root := new(block)
	open := []*block{root}
	n := 0
	for line := range strings.Lines(text) {
		n++
		if i := strings.IndexAny(line, "#!"); i >= 0 {
			line = line[:i]
		}
		line = strings.NewReplacer("{", " { ", "}", " } ").Replace(line)
		var b *block
		for _, word := range strings.Fields(line) {
			last := open[len(open)-1]
			switch word {
			case "{":
				if b == nil {
					if len(last.inside) == 0 {
						return nil, fmt.Errorf("line %d: a block has no name", n)
					}
					b = last.inside[len(last.inside)-1]
				}
				if len(open) > maxNesting {
					return nil, fmt.Errorf("line %d: more than %d blocks are in each other", n, maxNesting)
				}
				open, b = append(open, b), nil
			case "}":
				if len(open) == 1 {
					return nil, fmt.Errorf("line %d: no block begins before this }", n)
				}
				open, b = open[:len(open)-1], nil
			default:
				if b == nil {
					b = &block{statement: statement{line: n}}
					last.inside = append(last.inside, b)
				}
				b.words = append(b.words, strings.Trim(word, `"`))
				b.text = strings.Join(b.words, " ")
			}
		}
	}
	if len(open) > 1 {
		return nil, fmt.Errorf("line %d: the block %q has no end", open[len(open)-1].line, open[len(open)-1].text)
	}
	return root, nil
}

const maxNesting = 16

// readKeepalived reads the virtual servers of a keepalived.conf.
func readKeepalived(text string) (*Config, error) {
	root, err := blocks(text)
	if err != nil {
		return nil, err
	}
	c := new(Config)
	groups := make(map[string]*block)
	for _, b := range root.inside {
		if b.word(0) == "virtual_server_group" {
			groups[b.word(1)] = b
		}
	}
	for _, b := range root.inside {
		switch word := b.word(0); {
		case word == "virtual_server":
			c.Balances = append(c.Balances, virtualServer(b, groups))
		case word == "virtual_server_group":
		case strings.HasPrefix(word, "vrrp_") || word == "global_defs" || word == "track_file":
			c.Notes = append(c.Notes, Note{b.line, b.text, "stays with keepalived"})
		default:
			c.Notes = append(c.Notes, Note{b.line, b.text, "no equivalent"})
		}
	}
	return c, nil
}

// virtual collects a virtual server.
type virtual struct {
	*Balance
	protocol string
	shares   []int
	check    check
	checked  int // servers
	delay    time.Duration
	sorry    *balance.Backend
}

func virtualServer(b *block, groups map[string]*block) *Balance {
	v := virtual{Balance: &Balance{Origin: fmt.Sprintf("%s, line %d", b.text, b.line)}, delay: time.Minute}
	v.Kind = balance.Kind
	switch b.word(1) {
	case "fwmark":
		v.Name, v.Problem = nameOf("mark-"+b.word(2)), "it goes by a mark of the firewall: listen names addresses and ports"
	case "group":
		v.Name = nameOf(b.word(2))
		v.group(groups[b.word(2)])
	default:
		v.Name = nameOf("vip-" + b.word(1) + "-" + b.word(2))
		v.Listen = append(v.Listen, join(b.word(1), portOf(b.word(2))))
	}
	for _, one := range b.inside {
		v.read(one)
	}
	v.finish()
	return v.Balance
}

// portOf returns the port of an entry of listen: none, or 0, is all of them.
func portOf(text string) string {
	if text == "" || text == "0" {
		return "all"
	}
	return text
}

// maxExpanded limits the addresses of a range like 192.0.2.1-100.
const maxExpanded = 256

// group adds the addresses of a virtual_server_group.
func (v *virtual) group(g *block) {
	if g == nil {
		v.Problem = "its virtual_server_group is not in the file"
		return
	}
	for _, one := range g.inside {
		if one.word(0) == "fwmark" {
			v.note(one.line, one.text, "listen names addresses and ports")
			continue
		}
		first, last, isRange := strings.Cut(one.word(0), "-")
		a, err := netip.ParseAddr(first)
		n := 1
		if isRange && err == nil {
			base, bits := 10, 8
			if a.Is6() {
				base, bits = 16, 16
			}
			end, err := strconv.ParseUint(last, base, bits)
			octets := a.AsSlice()
			start := uint64(octets[len(octets)-1])
			if a.Is6() {
				start |= uint64(octets[len(octets)-2]) << 8
			}
			if n = int(end) - int(start) + 1; err != nil || n < 1 || n > maxExpanded {
				v.note(one.line, one.text, "write the addresses out: at most %d of a range are", maxExpanded)
				continue
			}
		}
		if err != nil {
			v.note(one.line, one.text, "is no address and port")
			continue
		}
		for range n {
			v.Listen = append(v.Listen, join(a.String(), portOf(one.word(1))))
			a = a.Next()
		}
	}
}

// read reads a line or block of a virtual server.
func (v *virtual) read(one *block) {
	value := one.word(1)
	switch one.word(0) {
	case "delay_loop":
		if d := seconds(value); d > 0 {
			v.delay = d
		}
	case "lb_algo", "lvs_sched":
		v.scheduler(one.line, one.text, value, one.words)
	case "lb_kind", "lvs_method":
		v.method(one.line, one.text, value)
	case "persistence_timeout":
		v.affinity(seconds(value))
	case "protocol":
		v.protocol = strings.ToLower(value)
	case "real_server":
		v.server(one)
	case "sorry_server":
		v.sorry = &balance.Backend{Address: join(value, serverPort(one.word(2))), Backup: true}
	case "virtualhost":
		v.check.host = value
	case "quorum", "quorum_up", "quorum_down", "hysteresis", "alpha", "omega", "ha_suspend":
		v.note(one.line, one.text, "no equivalent: a backend with backup: true takes over when no other one is usable")
	default:
		v.note(one.line, one.text, "no equivalent")
	}
}

// serverPort returns the port of a backend: none, or 0, is the port that clients use.
func serverPort(text string) string {
	if text == "0" {
		return ""
	}
	return text
}

// server reads a real_server.
func (v *virtual) server(b *block) {
	s := balance.Backend{Address: join(b.word(1), serverPort(b.word(2)))}
	weight := 1
	for _, one := range b.inside {
		switch word := one.word(0); {
		case word == "weight":
			weight, _ = strconv.Atoi(one.word(1))
		case word == "inhibit_on_failure" || word == "delay_loop" || word == "notify_up" || word == "notify_down":
			v.note(one.line, one.text, "no equivalent")
		case checkers[word] != nil:
			v.checker(one)
		case strings.HasSuffix(word, "_CHECK"):
			v.note(one.line, one.text, "a check of type exec can do that: docs/health-checks.md")
		default:
			v.note(one.line, one.text, "no equivalent")
		}
	}
	v.Backends = append(v.Backends, s)
	v.shares = append(v.shares, weight)
}

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
	if one.word(0) != "url" {
		return false
	}
	for _, line := range one.inside {
		switch line.word(0) {
		case "path":
			c.target = line.word(1)
		case "status_code":
			c.status = line.word(1)
		case "virtualhost":
			c.host = line.word(1)
		}
	}
	return true
}

// checker reads the check of a server. The first one counts, since a Balance has one.
func (v *virtual) checker(b *block) {
	c := check{kind: map[string]string{"HTTP_GET": "http", "SSL_GET": "http", "DNS_CHECK": "dns"}[b.word(0)], tls: b.word(0) == "SSL_GET", host: v.check.host}
	for _, one := range b.inside {
		value := one.word(1)
		switch word := one.word(0); {
		case checkers[b.word(0)](&c, one):
		case word == "connect_port":
			c.port, _ = strconv.Atoi(value)
		case word == "connect_timeout":
			c.timeout = seconds(value)
		case word == "retry" || word == "nb_get_retry":
			if n, _ := strconv.Atoi(value); n > 0 {
				c.fall = n + 1 // the first one is no retry
			}
		default:
			v.note(one.line, one.text, "no equivalent")
		}
	}
	if v.checked++; v.checked == 1 {
		v.check = c
	} else if c != v.check {
		v.note(b.line, b.text, "a Balance has one check: this is another one than that of the first server")
	}
}

// finish adds what depends on several lines.
func (v *virtual) finish() {
	if v.protocol != "" && v.protocol != "tcp" {
		v.Protocol = []string{v.protocol}
	}
	v.weights(v.shares)
	if v.sorry != nil {
		v.Backends = append(v.Backends, *v.sorry)
	}
	if v.checked > 0 {
		v.check.interval = v.delay
		v.Check = v.check.value()
	}
	if len(v.Backends) == 0 && v.Problem == "" {
		v.Problem = "it has no real_server"
	}
}

func seconds(text string) time.Duration {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n > 1e6 {
		return 0
	}
	return time.Duration(n * float64(time.Second))
}

// affinity sets the time of persistent connections.
func (b *Balance) affinity(d time.Duration) {
	if d > 0 {
		b.Affinity = &metav1.Duration{Duration: d}
	}
}
