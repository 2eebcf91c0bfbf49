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
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/nftconn"
)

// Rules looks up the rules that a packet has met, in the network namespace of the calling
// thread.
type Rules struct {
	own    *nft.Ruleset // nftproxy's
	conn   *nftables.Conn
	chains []*nftables.Chain
	known  map[Place][]rule
}

// NewRules lists the chains of all tables. own are nftproxy's.
func NewRules(own *nft.Ruleset) (*Rules, error) {
	r := &Rules{own: own, known: make(map[Place][]rule)}
	var err error
	if r.conn, err = nftconn.Open(); err != nil {
		return nil, err
	}
	r.chains, err = r.conn.ListChains()
	return r, err
}

type rule struct {
	number  int // in its chain, from 1
	handle  uint64
	text    string // empty: not known
	rejects bool   // answers the sender
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
	numbered, byHandle := r.readTexts(p)
	for i, l := range list {
		text := byHandle[l.Handle]
		if i < len(numbered) {
			text = numbered[i]
		}
		rejects := slices.ContainsFunc(l.Exprs, func(e expr.Any) bool {
			t, isTarget := e.(*expr.Target)
			_, isReject := e.(*expr.Reject)
			return isReject || isTarget && t.Name == "REJECT"
		})
		out = append(out, rule{i + 1, l.Handle, text, rejects})
	}
	return out
}

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

// readTexts returns the texts of the rules of a chain: of all in their order for nftproxy and iptables, else by
// their handles.
func (r *Rules) readTexts(p Place) (numbered []string, byHandle map[uint64]string) {
	switch {
	case isOurs(p):
		return r.ownTexts(p), nil
	case !isPlain(p.Table) || !isPlain(p.Chain):
		return nil, nil
	case isIPTables(p):
		if numbered = readIPTables(p); len(numbered) > 0 {
			return numbered, nil
		}
	}
	return nil, parseListing(commandOutput("nft", "--terse", "--handle", "list", "chain", p.Family.String(), p.Table, p.Chain))
}

func (r *Rules) ownTexts(p Place) (out []string) {
	family := model.IPv4
	if p.Family == familyIPv6 {
		family = model.IPv6
	}
	if t := r.own.Table(family); t != nil && t.Chain(p.Chain) != nil {
		for _, rule := range t.Chain(p.Chain).Rules {
			out = append(out, rule.Text(family))
		}
	}
	return out
}

func readIPTables(p Place) (out []string) {
	command := "iptables-nft"
	if p.Family == familyIPv6 {
		command = "ip6tables-nft"
	}
	for line := range strings.Lines(commandOutput(command, "-w", "-t", p.Table, "-S", p.Chain)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "-A ") {
			out = append(out, line)
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
		const mark = " # handle "
		line = strings.TrimSpace(line)
		at := strings.LastIndex(line, mark) // comments may have it, too
		if at < 0 || strings.HasSuffix(line[:at], "{") {
			continue
		}
		if n, err := strconv.ParseUint(line[at+len(mark):], 10, 64); err == nil {
			out[n] = strings.TrimSpace(line[:at])
		}
	}
	return out
}

const commandPatience = 5 * time.Second

// commandOutput returns the output of a command; nothing if it is not installed, or fails.
func commandOutput(name string, args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), commandPatience)
	defer cancel()
	for _, path := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if path, err := exec.LookPath(path); err == nil {
			text, err := exec.CommandContext(ctx, path, args...).Output()
			if err != nil {
				return ""
			}
			return string(text)
		}
	}
	return ""
}

func placeOf(c *nftables.Chain) Place { return Place{Family(c.Table.Family), c.Table.Name, c.Name} }

func (r *Rules) isNAT(p Place) bool {
	return slices.ContainsFunc(r.chains, func(c *nftables.Chain) bool {
		return c.Hooknum != nil && placeOf(c) == p && c.Type == nftables.ChainTypeNAT
	})
}

// findProgram returns the name of the program that has written a rule, or a policy, for which
// text and to are empty. iptables-nft has base chains with names in capitals.
func (r *Rules) findProgram(p Place, to, text string) string {
	name := cmp.Or(machine.Program(p.Table, p.Chain), machine.ProgramOfRule(to, text))
	byIPTables := isIPTables(p) && slices.ContainsFunc(r.chains, func(c *nftables.Chain) bool {
		return c.Hooknum != nil && c.Table.Name == p.Table && Family(c.Table.Family) == p.Family && strings.ToUpper(c.Name) == c.Name
	})
	switch {
	case name != "" && byIPTables:
		return name + ", iptables-nft"
	case byIPTables:
		return "iptables-nft"
	}
	return name
}

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
