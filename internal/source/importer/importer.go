// Package importer turns the configuration of another load balancer into Balances: a
// haproxy.cfg, a keepalived.conf with virtual servers, or what "ipvsadm -S -n" prints. A
// line that nftproxy has no equivalent for becomes a comment with the reason.
package importer

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// Options say how a configuration is read.
type Options struct {
	// Format is HAProxy, Keepalived or IPVS; empty: recognized by the text.
	Format string
	// Addresses stand for the wildcards that a configuration listens on.
	Addresses []netip.Addr
	// Hosts are the addresses of names that the hosts file of this machine has.
	Hosts map[string]netip.Addr
}

// The formats.
const (
	HAProxy    = "haproxy"
	Keepalived = "keepalived"
	IPVS       = "ipvsadm"
)

// Formats are all of them.
var Formats = []string{HAProxy, Keepalived, IPVS}

// Config is what has been read.
type Config struct {
	Pools    []*balance.Pool // lists of servers that several Balances have
	Balances []*Balance
	Notes    []Note // of lines that belong to no Balance
	servers  int    // of all Balances
}

// Balance is one with its origin.
type Balance struct {
	balance.Balance
	remarks
	Origin  string // for example "frontend web, line 12"
	section string // that has its servers
}

func newBalance(text string, line int) *Balance {
	b := &Balance{Origin: fmt.Sprintf("%s, line %d", text, line)}
	b.Kind = balance.Kind
	return b
}

// at returns the Balance with what it listens on. Only the first one has the remarks.
func (b Balance) at(listen []string, first bool) *Balance {
	if b.Listen = listen; !first {
		b.Notes = nil
	}
	return &b
}

func (c *Config) sortNotes() {
	slices.SortStableFunc(c.Notes, func(a, b Note) int { return cmp.Compare(a.Line, b.Line) })
}

// setMark refuses a Balance of packets with a mark.
func (b *Balance) setMark(mark string) {
	b.Name, b.Problem = nameOf("mark-"+mark), "it goes by a mark of the firewall: listen names addresses and ports"
}

// Parse reads the text of a configuration.
func Parse(text string, o Options) (*Config, error) {
	if o.Format == "" {
		o.Format = recognizeFormat(text)
	}
	var c *Config
	var err error
	switch o.Format {
	case HAProxy:
		c, err = readHAProxy(text, o)
	case Keepalived:
		c, err = readKeepalived(text)
	case IPVS:
		c, err = readIPVS(text)
	case "":
		return nil, errors.New("is of no known format: it has no section of HAProxy, no virtual_server of keepalived, and no line of ipvsadm -S -n: name another file, or its format with --format")
	default:
		return nil, fmt.Errorf("%q is not a format: %s", o.Format, suggest.OneOf(Formats...))
	}
	if err != nil {
		return nil, err
	}
	if len(c.Balances) == 0 {
		return nil, fmt.Errorf("has nothing that balances connections: as a configuration of %s, it has no %s", o.Format, entries[o.Format])
	}
	used := make(map[string]bool)
	for _, b := range c.Balances {
		if b.Kind != "" { // else they are lines that are no Balance
			b.Name = unusedName(b.Name, used)
		}
	}
	c.resolveAddressConflicts()
	return c, nil
}

// entries are what each format calls a Balance.
var entries = map[string]string{
	HAProxy: "frontend or listen section", Keepalived: "virtual_server", IPVS: "line with -A",
}

// recognizeFormat returns the format of a text; empty: unknown.
func recognizeFormat(text string) string {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "global", "defaults", "frontend", "backend", "listen":
			return HAProxy
		case "global_defs", "virtual_server", "virtual_server_group", "vrrp_instance", "vrrp_sync_group", "vrrp_script":
			return Keepalived
		case "-A", "-a", "--add-service", "--add-server":
			return IPVS
		}
	}
	return ""
}

// sharePools gives servers that several Balances have from the same section a list of their own.
func (c *Config) sharePools() {
	users := make(map[string][]*Balance)
	var names []string
	for _, b := range c.Balances {
		if b.Problem != "" || len(b.Backends) < 2 || len(b.Backends) > budget.PoolServers {
			continue
		}
		if users[b.section] == nil {
			names = append(names, b.section)
		}
		users[b.section] = append(users[b.section], b)
	}
	used := make(map[string]bool)
	for _, section := range names {
		all := users[section]
		servers := all[0].Backends
		differs := func(b *Balance) bool { return !reflect.DeepEqual(b.Backends, servers) }
		if len(all) < 2 || slices.ContainsFunc(all, differs) {
			continue
		}
		name := unusedName(nameOf(section), used)
		c.Pools = append(c.Pools, &balance.Pool{Kind: balance.PoolKind, Name: name, Servers: servers})
		for _, b := range all {
			b.Backends = manifest.List[balance.Backend]{{Servers: name}}
		}
	}
}

func unusedName(wanted string, used map[string]bool) string {
	name, n := wanted, 1
	for used[name] {
		n++
		suffix := "-" + strconv.Itoa(n)
		name = strings.TrimRight(wanted[:min(len(wanted), maxName-len(suffix))], "-") + suffix
	}
	used[name] = true
	return name
}

// resolveAddressConflicts leaves an address and port to the first Balance that has it.
func (c *Config) resolveAddressConflicts() {
	first := make(map[string]*Balance)
	for _, b := range c.Balances {
		for _, entry := range b.Listen {
			key := strings.Join(b.Protocol, ",") + " " + entry
			if other := first[key]; other == nil {
				first[key] = b
			} else if other != b && b.Problem == "" {
				b.Problem = fmt.Sprintf("%s is an address of %s, too (%s)", entry, other.Name, other.Origin)
			}
		}
	}
}

// maxName is the length of a DNS label (RFC 1035, section 2.3.4).
const maxName = 63

func nameOf(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if s := b.String(); s != "" && s[len(s)-1] != '-' {
			b.WriteByte('-')
		}
	}
	name := strings.Trim(b.String(), "-")
	if name == "" {
		return "balance"
	}
	return strings.Trim(name[:min(len(name), maxName)], "-")
}

// maxWeight is that of a backend.
const maxWeight = 100

// setWeights sets the weights of the servers. Where one is too large, they are in the same
// proportion, which counts among the servers and among the backups.
func (b *Balance) setWeights(of []int) {
	backup := func(i int) bool { return b.Backends[i].Backup || b.Backends[i].Priority != nil }
	for _, spare := range []bool{false, true} {
		most, divisor := 0, 0
		for i, w := range of {
			if backup(i) == spare {
				most, divisor = max(most, w), commonDivisor(divisor, w)
			}
		}
		if most <= maxWeight {
			divisor = 1
		}
		for i, w := range of {
			if backup(i) != spare {
				continue
			}
			if w /= max(divisor, 1); most/max(divisor, 1) > maxWeight && w > 0 {
				w = max(1, (w*maxWeight*divisor+most/2)/most)
			}
			if scaled := int32(w); scaled != 1 {
				b.Backends[i].Weight = &scaled
			}
		}
		if most > maxWeight {
			b.noteChange(nil, "weights are in the proportion of the originals, which go up to %d: a Balance has at most %d", most, maxWeight)
		}
	}
}

func commonDivisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// statement is a line of a configuration. It records which of its words are read, so that the
// others are reported without help of what reads the line.
type statement struct {
	line  int
	text  string
	words []string
	read  []bool // by the index of a word
	// problem is why the line may be another one, or none; empty: it is as it stands there.
	problem string
}

// peekWord returns a word without reading it; empty: the line is shorter.
func (s *statement) peekWord(i int) string {
	if i < len(s.words) {
		return s.words[i]
	}
	return ""
}

// readWord reads a word; empty: the line is shorter.
func (s *statement) readWord(i int) string {
	if i < len(s.words) {
		if s.read == nil {
			s.read = make([]bool, len(s.words))
		}
		s.read[i] = true
	}
	return s.peekWord(i)
}

func (s *statement) readRest(i int) []string {
	for j := i; j < len(s.words); j++ {
		s.readWord(j)
	}
	return s.words[min(i, len(s.words)):]
}

// takeUnread returns the words that nothing has read since the last call.
func (s *statement) takeUnread() (out []string) {
	for i, word := range s.words {
		if s.read == nil || !s.read[i] {
			out = append(out, word)
		}
	}
	s.read = nil
	return out
}

func (s *statement) note(why string) Note { return Note{Line: s.line, Text: s.text, Why: why} }

func (s *statement) problemf(format string, args ...any) string {
	return fmt.Sprintf("line %d: "+format, append([]any{s.line}, args...)...)
}

// Note is a line without an equivalent.
type Note struct {
	Line int
	Text string // the line; empty: the remark is about the Balance
	Why  string // empty if the line before has the same reason
	// Differs: connections or checks are not what the line says.
	Differs bool
}

type remarks struct {
	Notes   []Note
	Problem string // why it is only a comment in the text; empty: it is not
	silent  bool   // what is read belongs to another section, which has the notes
}

func (r *remarks) addNote(s *statement, format string, args ...any) {
	if !r.silent {
		r.Notes = append(r.Notes, s.note(fmt.Sprintf(format, args...)))
	}
}

// noteChange says how connections or checks differ from what a line says; nil: the Balance.
func (r *remarks) noteChange(s *statement, format string, args ...any) {
	if s == nil {
		s = new(statement)
	}
	if r.addNote(s, format, args...); !r.silent {
		r.Notes[len(r.Notes)-1].Differs = true
	}
}

// refuse says why the Balance cannot be used, because of a line; nil: it is no single one. The first reason counts.
func (r *remarks) refuse(s *statement, format string, args ...any) {
	switch {
	case r.Problem != "":
	case s == nil:
		r.Problem = fmt.Sprintf(format, args...)
	default:
		r.Problem = s.problemf(format, args...)
	}
}

func (r *remarks) readNumber(s *statement, i int) int {
	n, err := strconv.ParseInt(s.readWord(i), 10, 32)
	if err != nil || n < 0 {
		r.refuse(s, "%s: is no number", strings.TrimSpace(s.peekWord(i-1)+" "+s.peekWord(i)))
	}
	return int(max(n, 0))
}
