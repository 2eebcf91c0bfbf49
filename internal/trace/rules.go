package trace

import (
	"cmp"
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/nftconn"
)

// Rules looks up the rules that a packet has met, in the network namespace of the calling
// thread.
type Rules struct {
	// Own returns the texts of the rules of a chain of nftproxy's tables, in their order.
	Own func(Place) []string

	conn   *nftables.Conn
	chains []*nftables.Chain
	known  map[Place][]rule
}

// NewRules lists the chains of all tables.
func NewRules(own func(Place) []string) (*Rules, error) {
	r := &Rules{Own: own, known: make(map[Place][]rule)}
	var err error
	if r.conn, err = nftconn.Open(); err != nil {
		return nil, err
	}
	r.chains, err = r.conn.ListChains()
	return r, err
}

// rule is a rule of a chain.
type rule struct {
	number     int // in its chain, from 1
	handle     uint64
	text       string // empty: not known
	rejects    bool   // answers the sender
	translates bool   // sets an address
}

// findRule returns a rule; false: it is gone, or cannot be read.
func (r *Rules) findRule(p Place, handle uint64) (rule, bool) {
	all, ok := r.known[p]
	if !ok {
		all = r.read(p)
		r.known[p] = all
	}
	i := slices.IndexFunc(all, func(o rule) bool { return o.handle == handle })
	if i < 0 {
		return rule{handle: handle}, false
	}
	return all[i], true
}

// read reads the rules of a chain. A table that is gone has none.
func (r *Rules) read(p Place) (out []rule) {
	t := &nftables.Table{Family: nftables.TableFamily(p.Family), Name: p.Table}
	list, err := r.conn.GetRules(t, &nftables.Chain{Table: t, Name: p.Chain})
	if err != nil {
		return nil
	}
	for i, l := range list {
		out = append(out, rule{number: i + 1, handle: l.Handle, rejects: slices.ContainsFunc(l.Exprs, rejectsSender), translates: slices.ContainsFunc(l.Exprs, translatesAddress)})
	}
	texts := r.readTexts(p)
	for i := range out {
		if text, ok := texts[out[i].handle]; ok {
			out[i].text = text
		} else if text, ok := texts[uint64(out[i].number)]; ok && r.byNumber(p) {
			out[i].text = text
		}
	}
	return out
}

// rejectsSender reports whether an expression answers the sender of a packet.
func rejectsSender(e expr.Any) bool {
	t, isTarget := e.(*expr.Target)
	_, isReject := e.(*expr.Reject)
	return isReject || isTarget && t.Name == "REJECT"
}

// targets are the targets of iptables that set an address.
var targets = []string{"DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP"}

// translatesAddress reports whether an expression sets an address.
func translatesAddress(e expr.Any) bool {
	switch e := e.(type) {
	case *expr.NAT, *expr.Masq, *expr.Redir:
		return true
	case *expr.Target:
		return slices.Contains(targets, e.Name)
	}
	return false
}

// byNumber reports whether the texts of a chain are known by the numbers of its rules.
func (r *Rules) byNumber(p Place) bool { return isOurs(p) || isIPTables(p) }

// isOurs reports whether a chain is one of nftproxy's.
func isOurs(p Place) bool {
	return p.Table == nft.TableName && (p.Family == familyIPv4 || p.Family == familyIPv6)
}

const (
	familyIPv4 = Family(nftables.TableFamilyIPv4)
	familyIPv6 = Family(nftables.TableFamilyIPv6)
)

// isIPTables reports whether iptables-nft writes a table. Others may use these names, too, and
// then its command prints nothing.
func isIPTables(p Place) bool {
	return (p.Family == familyIPv4 || p.Family == familyIPv6) && slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, p.Table)
}

// readTexts returns the texts of the rules of a chain: by the number for nftproxy and iptables,
// else by the handle.
func (r *Rules) readTexts(p Place) map[uint64]string {
	switch {
	case isOurs(p) && r.Own != nil:
		out := make(map[uint64]string)
		for i, text := range r.Own(p) {
			out[uint64(i+1)] = text
		}
		return out
	case isIPTables(p):
		if out := readIPTables(p); len(out) > 0 {
			return out
		}
	}
	if !isPlain(p.Table) || !isPlain(p.Chain) {
		return nil
	}
	return parseListing(commandOutput("nft", "--terse", "--handle", "list", "chain", p.Family.String(), p.Table, p.Chain))
}

// readIPTables returns the rules of a chain as iptables has them, by number.
func readIPTables(p Place) map[uint64]string {
	command := "iptables-nft"
	if p.Family == familyIPv6 {
		command = "ip6tables-nft"
	}
	out := make(map[uint64]string)
	if !isPlain(p.Chain) {
		return nil
	}
	for line := range strings.Lines(commandOutput(command, "-w", "-t", p.Table, "-S", p.Chain)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "-A ") {
			out[uint64(len(out)+1)] = line
		}
	}
	return out
}

// isPlain reports whether commands take a name for one, and not for an option or a part of
// their language: the kernel has names of any bytes.
func isPlain(name string) bool {
	return name != "" && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./", r))
	})
}

// parseListing returns the rules in a listing of a chain, by handle.
func parseListing(listing string) map[uint64]string {
	out := make(map[uint64]string)
	for line := range strings.Lines(listing) {
		text, handle, found := cutLast(strings.TrimSpace(line), " # handle ")
		if n, err := strconv.ParseUint(handle, 10, 64); found && err == nil && !strings.HasSuffix(text, "{") {
			out[n] = strings.TrimSpace(text)
		}
	}
	return out
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// commandPatience is how long a command may take to list a chain.
const commandPatience = 5 * time.Second

// commandOutput returns the output of a command; nothing if it is not installed, or fails.
func commandOutput(name string, args ...string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		path = cmp.Or(findExecutable("/usr/sbin/"+name), findExecutable("/sbin/"+name))
	}
	if path == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandPatience)
	defer cancel()
	text, err := exec.CommandContext(ctx, path, args...).Output()
	if err != nil {
		return ""
	}
	return string(text)
}

func findExecutable(path string) string {
	path, err := exec.LookPath(path)
	if err != nil {
		return ""
	}
	return path
}

// findBase returns the declaration of a base chain; nil: it is none, or gone.
func (r *Rules) findBase(p Place) *nftables.Chain {
	i := slices.IndexFunc(r.chains, func(c *nftables.Chain) bool { return c.Hooknum != nil && placeOf(c) == p })
	if i < 0 {
		return nil
	}
	return r.chains[i]
}

func placeOf(c *nftables.Chain) Place { return Place{Family(c.Table.Family), c.Table.Name, c.Name} }

// isNAT reports whether a base chain translates addresses.
func (r *Rules) isNAT(p Place) bool {
	c := r.findBase(p)
	return c != nil && c.Type == nftables.ChainTypeNAT
}

// findProgram returns the name of the program that has written a rule, or a policy, for which
// text and to are empty.
func (r *Rules) findProgram(p Place, to, text string) string {
	name := cmp.Or(machine.Program(p.Table, p.Chain), machine.ProgramOfRule(to, text))
	switch iptables := isIPTables(p) && r.madeByIPTables(p); {
	case name != "" && iptables:
		return name + ", iptables-nft"
	case iptables:
		return "iptables-nft"
	}
	return name
}

// madeByIPTables reports whether a table has a base chain with a name of iptables.
func (r *Rules) madeByIPTables(p Place) bool {
	return slices.ContainsFunc(r.chains, func(c *nftables.Chain) bool {
		return c.Hooknum != nil && placeOf(c).Table == p.Table && Family(c.Table.Family) == p.Family && strings.ToUpper(c.Name) == c.Name
	})
}

// otherPrograms returns the programs with chains in a table.
func (r *Rules) otherPrograms(p Place) (names []string) {
	for _, c := range r.chains {
		if at := placeOf(c); at.Family == p.Family && at.Table == p.Table {
			if name := machine.Program(at.Table, at.Chain); name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
