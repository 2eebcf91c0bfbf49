package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
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
	used   bool // a group, by a virtual server
}

func (b *block) walk(do func(*statement)) {
	do(&b.statement)
	for _, one := range b.inside {
		one.walk(do)
	}
}

// review refuses a Balance because of a block that has been read, with a line that may be another one, or a word that
// nothing has read.
func (r *remarks) review(b *block) {
	b.walk(func(s *statement) {
		if s.problem != "" {
			r.refuse(nil, "%s", s.problem)
		}
		if words := s.takeUnread(); len(words) > 0 {
			r.refuse(s, "%s: not known in this place", strings.Join(words, " "))
		}
	})
}

// readBlocks reads the text of a keepalived.conf: words, and blocks in braces. A comment
// begins with # or !.
func readBlocks(text string) (*block, error) {
	root := new(block)
	open := []*block{root}
	n := 0
	for line := range strings.Lines(text) {
		n++
		if i := strings.IndexAny(line, "#!"); i >= 0 {
			line = line[:i]
		}
		var b *block // that has the words of this line
		for _, word := range strings.Fields(strings.NewReplacer("{", " { ", "}", " } ").Replace(line)) {
			last := open[len(open)-1]
			switch word {
			case "{":
				if b == nil && len(last.inside) == 0 {
					return nil, fmt.Errorf("line %d: a block has no name", n)
				}
				if len(open) > maxNesting {
					return nil, fmt.Errorf("line %d: more than %d blocks are in each other", n, maxNesting)
				}
				open, b = append(open, last.inside[len(last.inside)-1]), nil
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
				b.add(word)
			}
		}
	}
	if len(open) > 1 {
		return nil, fmt.Errorf("line %d: the block %q has no end", open[len(open)-1].line, open[len(open)-1].text)
	}
	return root, nil
}

const maxNesting = 16

func (b *block) add(word string) {
	bare := strings.Trim(word, `"`)
	if strings.ContainsAny(bare, `"'\$~`) || strings.Count(word, `"`)%2 != 0 {
		b.problem = b.problemf("%s: texts with spaces, escapes and definitions are not read: write it without", word)
	}
	b.words = append(b.words, bare)
	b.text = withoutSecrets(strings.Join(b.words, " "))
}

// stays are the beginnings of blocks that have nothing to do with virtual servers.
var stays = []string{
	"vrrp_", "global_defs", "static_", "track_", "bfd_", "linkbeat_", "garp_group", "interface_up_down_delays", "$", "use_pid_dir", "child_wait_time", "instance",
}

func (c *Config) leaveBlock(b *block, why string) {
	b.walk(func(s *statement) {
		c.Notes = append(c.Notes, s.note(why))
		why = ""
	})
}

// addUnused adds a block that may have virtual servers, or change them, as one that is not used.
func (c *Config) addUnused(b *block, why string) {
	entry := newBalance(b.text, b.line)
	entry.Kind, entry.Problem = "", why
	for _, one := range b.inside {
		one.walk(func(s *statement) { entry.addNote(s, "") })
	}
	c.Balances = append(c.Balances, entry)
}

func readKeepalived(text string) (*Config, error) {
	root, err := readBlocks(text)
	if err != nil {
		return nil, err
	}
	c := new(Config)
	groups := make(map[string]*block)
	for _, b := range root.inside {
		if b.readWord(0) != "virtual_server_group" {
			continue
		}
		if other := groups[b.peekWord(1)]; other != nil {
			other.problem = b.problemf("another group has the name %s", b.peekWord(1))
			c.leaveBlock(b, "a second group of this name")
			continue
		}
		groups[b.peekWord(1)] = b
	}
	for _, b := range root.inside {
		switch word := b.readWord(0); {
		case word == "virtual_server":
			c.Balances = append(c.Balances, virtualServer(b, groups)...)
		case word == "virtual_server_group":
		case slices.ContainsFunc(stays, func(prefix string) bool { return strings.HasPrefix(word, prefix) }):
			c.leaveBlock(b, "stays with keepalived")
		case strings.HasPrefix(word, "include"):
			c.addUnused(b, "import the files that it names, too, or write them in its place")
		default:
			c.addUnused(b, "not known in this place")
		}
	}
	for _, g := range groups {
		if !g.used {
			c.leaveBlock(g, "no virtual server has it")
		}
	}
	c.sortNotes()
	return c, nil
}

type virtual struct {
	*Balance
	protocol string
	weights  []int
	check    check
	checked  int // checks of servers
	// unchecked are servers without one.
	unchecked []*block
	delay     time.Duration
	delayed   *block // that says so
	sorry     *balance.Backend
}

func (v *virtual) refuseBlock(b *block, why string) { v.refuse(&b.statement, "%s: %s", b.text, why) }

func virtualServer(b *block, groups map[string]*block) []*Balance {
	v := virtual{Balance: newBalance(b.text, b.line), delay: time.Minute}
	switch b.readWord(1) {
	case "fwmark":
		v.setMark(b.readWord(2))
	case "group":
		v.Name = nameOf(b.readWord(2))
		v.addGroup(groups[b.readWord(2)])
	default:
		v.Name = nameOf("vip-" + b.readWord(1) + "-" + b.readWord(2))
		v.Listen = append(v.Listen, join(b.readWord(1), portOf(b.readWord(2))))
	}
	for _, one := range b.inside {
		v.read(one)
	}
	v.review(b)
	v.finishVirtual()
	return v.split()
}

// split returns a Balance for the addresses that have the same ports.
func (v *virtual) split() (out []*Balance) {
	if len(v.Listen) < 2 {
		return []*Balance{v.Balance}
	}
	var binds []bind
	for _, entry := range v.Listen {
		host, port := splitAddress(entry)
		binds = append(binds, bind{host, port})
	}
	v.section = v.Name
	for _, listen := range groupBinds(binds, nil) {
		out = append(out, v.Balance.at(listen, len(out) == 0))
	}
	return out
}

// portOf returns the port of an entry of listen: none, or 0, is all of them.
func portOf(text string) string { return cmp.Or(serverPort(text), "all") }

// serverPort returns the port of a backend: none, or 0, is the port that clients use.
func serverPort(text string) string {
	if text == "0" {
		return ""
	}
	return text
}

// maxExpanded limits the addresses of a range like 192.0.2.1-100.
const maxExpanded = 256

func (v *virtual) addGroup(g *block) {
	if g == nil {
		v.refuse(nil, "its virtual_server_group is not in the file")
		return
	}
	g.used = true
	g.readRest(0)
	for _, one := range g.inside {
		one.takeUnread() // by another virtual server
		if one.readWord(0) == "fwmark" {
			v.noteChange(&one.statement, "listen names addresses and ports: packets with a mark are not served")
			one.readRest(1)
			continue
		}
		a, n, problem := readRange(one.readWord(0))
		if problem != "" {
			v.refuseBlock(one, problem)
		}
		for range n {
			v.Listen = append(v.Listen, join(a.String(), portOf(one.readWord(1))))
			a = a.Next()
		}
	}
	v.review(g)
}

// readRange returns the first address of a range like 192.0.2.1-100 or fd00::1-f, and how many it has. The end is the
// last part of the last address.
func readRange(text string) (a netip.Addr, n int, problem string) {
	first, last, isRange := strings.Cut(text, "-")
	a, err := netip.ParseAddr(first)
	if err != nil {
		return a, 0, "is no address and port"
	}
	if !isRange {
		return a, 1, ""
	}
	octets, base, bits := a.AsSlice(), 10, 8
	start := int(octets[len(octets)-1])
	if a.Is6() {
		base, bits = 16, 16
		start |= int(octets[len(octets)-2]) << 8
	}
	end, err := strconv.ParseUint(last, base, bits)
	if n = int(end) - start + 1; err != nil || n < 1 || n > maxExpanded {
		return a, 0, fmt.Sprintf("write the addresses out: at most %d of a range are", maxExpanded)
	}
	return a, n, ""
}

// needsValue are lines of a virtual server that say nothing without a value.
var needsValue = []string{"protocol", "lb_algo", "lvs_sched", "lb_kind", "lvs_method", "delay_loop", "virtualhost", "real_server", "sorry_server"}

func (v *virtual) read(one *block) {
	s := &one.statement
	word := s.readWord(0)
	if slices.Contains(needsValue, word) && len(s.words) < 2 {
		v.refuseBlock(one, "has no value")
	}
	switch word {
	case "delay_loop":
		v.delay, v.delayed = v.readSeconds(one, time.Minute), one
	case "lb_algo", "lvs_sched":
		v.setScheduler(s, s.readWord(1), s.readRest(2))
	case "lb_kind", "lvs_method":
		v.setForwarding(s, s.readWord(1))
	case "persistence_timeout":
		v.setAffinity(s, v.readSeconds(one, defaultPersistence))
	case "protocol":
		v.protocol = strings.ToLower(s.readWord(1))
	case "real_server":
		v.addServer(one)
	case "sorry_server":
		v.sorry = &balance.Backend{Address: join(s.readWord(1), serverPort(s.readWord(2))), Backup: true}
	case "virtualhost":
		v.check.host = s.readWord(1)
	case "quorum":
		if s.readWord(1) != "1" {
			v.leaveOut(s, v.noteChange, "no equivalent: the sorry_server takes over when no other one is usable")
		}
	case "persistence_granularity":
		v.leaveOut(s, v.noteChange, "affinity goes by the address of the client, not by a mask")
	case "hysteresis", "ha_suspend", "retry", "connect_timeout", "sorry_server_inhibit", "sorry_server_lvs_method":
		v.leaveOut(s, v.noteChange, "no equivalent")
	case "ops":
		v.refuseBlock(one, onePacket)
	case "delay_before_retry", "warmup", "ip_family", "notify_quorum_up", "quorum_up", "quorum_down", "smtp_alert", "alpha", "omega", "snmp_name":
		v.leaveOut(s, v.addNote, "no equivalent")
	default:
		v.refuseBlock(one, "no equivalent")
	}
}

// leaveOut makes a remark about a whole line.
func (v *virtual) leaveOut(s *statement, remark func(*statement, string, ...any), why string) {
	s.readRest(0)
	remark(s, "%s", why)
}

// defaultPersistence is that of keepalived and of ipvsadm for a persistence without a number
// (keepalived.conf(5); ipvsadm(8) has 300 s).
const defaultPersistence = 6 * time.Minute

func (v *virtual) addServer(b *block) {
	weight, checked := 1, v.checked
	for _, one := range b.inside {
		s := &one.statement
		switch word := s.readWord(0); {
		case word == "weight":
			weight = v.readNumber(s, 1)
		case slices.Contains([]string{"inhibit_on_failure", "notify_up", "notify_down", "smtp_alert", "alpha", "warmup", "delay_before_retry", "snmp_name"}, word):
			v.leaveOut(s, v.addNote, "no equivalent")
		case slices.Contains([]string{"uthreshold", "lthreshold", "delay_loop", "retry", "connect_timeout"}, word):
			v.leaveOut(s, v.noteChange, "no equivalent")
		case slices.Contains(checkers, word):
			v.readChecker(one, b.readWord(2))
		case strings.HasSuffix(word, "_CHECK"):
			v.refuseBlock(one, "a check of type exec can do that: docs/health-checks.md")
		case word == "virtualhost":
			v.check.host = s.readWord(1)
		default:
			v.refuseBlock(one, "no equivalent")
		}
	}
	if v.checked == checked {
		v.unchecked = append(v.unchecked, b)
	}
	v.Backends = append(v.Backends, balance.Backend{Address: join(b.readWord(1), serverPort(b.readWord(2)))})
	v.weights = append(v.weights, weight)
}

func (v *virtual) finishVirtual() {
	if v.protocol != "" && v.protocol != "tcp" {
		v.Protocol = []string{v.protocol}
	}
	v.setWeights(v.weights)
	if v.sorry != nil {
		v.Backends = append(v.Backends, *v.sorry)
	}
	if v.checked > 0 {
		v.check.interval = v.delay
		v.Check = v.check
		for _, b := range v.unchecked {
			v.noteChange(&b.statement, "a server without a check has the one of the others here")
		}
	} else if v.delayed != nil {
		v.addNote(&v.delayed.statement, "no server has a check")
	}
	if len(v.Backends) == 0 {
		v.refuse(nil, "it has no real_server")
	}
}

// readSeconds reads the time of a line; without a number it is the default.
func (v *virtual) readSeconds(b *block, standard time.Duration) time.Duration {
	if len(b.words) < 2 {
		return standard
	}
	n, err := strconv.ParseFloat(b.readWord(1), 64)
	if err != nil || n < 0 || n > 1e9 {
		v.refuseBlock(b, "is no time in seconds")
		return standard
	}
	return time.Duration(n * float64(time.Second))
}

func (b *Balance) setAffinity(s *statement, d time.Duration) {
	if d > maxAffinity {
		b.noteChange(s, "affinity lasts 24h, the longest time there is, not %s", d)
		d = maxAffinity
	}
	if d > 0 {
		b.Affinity = &metav1.Duration{Duration: d}
	}
}
