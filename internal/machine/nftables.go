package machine

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/fastpath"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/nftconn"
)

// readNFTables reads the chains of other programs, and the rules that matter: all
// rules that packets may meet in a filter on the hook forward, and rules of base chains
// that may translate or exempt packets before ours.
func (f *Facts) readNFTables() {
	err := netlinkio.Retry(isRacing, func() error {
		f.Chains = nil
		conn, err := nftconn.Open()
		if err != nil {
			return err
		}
		r := &rules{conn: conn, chains: make(map[chainKey]*Chain)}
		if err := r.read(); err != nil {
			return err
		}
		for _, k := range r.order {
			f.Chains = append(f.Chains, *r.chains[k])
		}
		return f.readFlowTables(conn)
	})
	switch {
	case errors.Is(err, unix.EPERM):
		f.Hidden[NFTables] = errors.New("it needs the capability CAP_NET_ADMIN")
	case err != nil:
		f.Hidden[NFTables] = err
	}
}

// isRacing reports whether another program has changed the rules in between.
func isRacing(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) }

func (f *Facts) readFlowTables(conn *nftables.Conn) error {
	f.FlowTables, f.HardwareFlowTables = nil, nil
	tables, err := conn.ListTables()
	if err != nil {
		return err
	}
	for _, t := range tables {
		if t.Name == fastpath.TableName { // ours
			continue
		}
		found, err := conn.ListFlowtables(t)
		if err != nil {
			return err
		}
		for _, flow := range found {
			name := FamilyNames[t.Family] + " " + t.Name + " " + flow.Name
			f.FlowTables = append(f.FlowTables, name)
			if flow.Flags&nftables.FlowtableFlagsHWOffload != 0 {
				f.HardwareFlowTables = append(f.HardwareFlowTables, name)
			}
		}
	}
	return nil
}

type chainKey struct {
	family      nftables.TableFamily
	table, name string
}

// mostChains limits how many chains have their rules read: beyond that, what they do
// is unknown.
const mostChains = 300

// kubeChains are the prefix of the chains of kube-proxy and the kubelet, which may be many.
const kubeChains = "KUBE-"

type rules struct {
	conn   *nftables.Conn
	chains map[chainKey]*Chain
	order  []chainKey
	done   map[chainKey]bool // chains whose rules were read
}

func (r *rules) read() error {
	all, err := r.conn.ListChains()
	if err != nil {
		return err
	}
	r.done = make(map[chainKey]bool)
	for _, c := range all {
		if c.Table.Name == nft.TableName && (c.Table.Family == nftables.TableFamilyIPv4 || c.Table.Family == nftables.TableFamilyIPv6) || c.Table.Name == nft.RelayTable || c.Table.Name == fastpath.TableName {
			continue
		}
		k := chainKey{c.Table.Family, c.Table.Name, c.Name}
		r.chains[k] = chainOf(c)
		r.order = append(r.order, k)
	}
	for _, k := range r.order {
		c := r.chains[k]
		switch {
		case c.Type == "filter" && c.Hook == Forward:
			err = r.readChain(k)
		case c.Hook == Prerouting || c.Hook == Output:
			err = r.rulesOf(k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func chainOf(c *nftables.Chain) *Chain {
	out := &Chain{Family: FamilyNames[c.Table.Family], Table: c.Table.Name, Name: c.Name, Type: string(c.Type)}
	if c.Hooknum != nil {
		out.Hook = hookOf(c.Table.Family, *c.Hooknum)
	}
	if c.Priority != nil {
		out.Priority = int32(*c.Priority)
	}
	out.Drops = c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
	return out
}

func hookOf(f nftables.TableFamily, number nftables.ChainHook) Hook {
	if f != nftables.TableFamilyIPv4 && f != nftables.TableFamilyIPv6 && f != nftables.TableFamilyINet {
		return OtherHook
	}
	switch number {
	case *nftables.ChainHookPrerouting:
		return Prerouting
	case *nftables.ChainHookForward:
		return Forward
	case *nftables.ChainHookOutput:
		return Output
	}
	return OtherHook
}

// FamilyNames are the families as nft names them.
var FamilyNames = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
	nftables.TableFamilyARP: "arp", nftables.TableFamilyBridge: "bridge", nftables.TableFamilyNetdev: "netdev",
}

// readChain reads the rules of a chain and of those that it jumps to.
func (r *rules) readChain(k chainKey) error {
	if r.done[k] {
		return nil
	}
	if len(r.done) >= mostChains {
		r.chains[k].Unread = true
		return nil
	}
	if err := r.rulesOf(k); err != nil {
		return err
	}
	for _, rule := range r.chains[k].Rules {
		if rule.To == "" || strings.HasPrefix(rule.To, kubeChains) {
			continue
		}
		to := chainKey{k.family, k.table, rule.To}
		if _, exists := r.chains[to]; exists {
			if err := r.readChain(to); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *rules) rulesOf(k chainKey) error {
	if r.done[k] {
		return nil
	}
	r.done[k] = true
	table := &nftables.Table{Family: k.family, Name: k.table}
	list, err := r.conn.GetRules(table, &nftables.Chain{Table: table, Name: k.name})
	if err != nil {
		return err
	}
	for _, rule := range list {
		d := decoder{family: k.family, rules: r, table: table}
		r.chains[k].Rules = append(r.chains[k].Rules, d.decodeRule(rule.Exprs))
	}
	return nil
}

func (r *rules) readStates(t *nftables.Table, set string) (states uint32, ok bool) {
	elements, err := r.conn.GetSetElements(&nftables.Set{Table: t, Name: set})
	for _, e := range elements {
		if len(e.Key) == 4 {
			states |= binary.NativeEndian.Uint32(e.Key)
		}
	}
	return states, err == nil && len(elements) > 0
}

// is reports whether the chain is in one of these tables, or has one of these name
// prefixes.
func (c *Chain) is(tables []string, prefixes ...string) bool {
	return slices.Contains(tables, c.Table) ||
		slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.Name, p) })
}

// String returns the chain as nft names it.
func (c *Chain) String() string { return "chain " + c.Family + " " + c.Table + " " + c.Name }
