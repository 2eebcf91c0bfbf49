package preflight

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// fake is a kernel that lacks something, and refuses what refers to it.
type fake struct {
	// refuses returns the answer to a message and, if it is a rule, the expression
	// that it is about.
	refuses func(*codec.Message) (expression string, answer error)
	whole   error // the answer to any batch
	other   error // the answer to the question for connections
}

// object is one that a kernel has refused.
type object struct {
	family byte
	name   string
}

func (k fake) Try(p *plan.Plan) (refused []kernel.Refusal, err error) {
	if k.whole != nil {
		return nil, k.whole
	}
	t, err := codec.Encode(p)
	if err != nil {
		return nil, err
	}
	var lost []object
	for i := range t.Messages {
		m := &t.Messages[i]
		expression, answer := k.refuses(m)
		for _, o := range lost {
			if answer == nil && o.family == m.Data[0] && (o.name == "table" || has(m, o.name)) {
				expression, answer = "lookup", unix.ENOENT
			}
		}
		if answer == nil {
			continue
		}
		refused = append(refused, kernel.Refusal{Message: m, Expression: expression, Err: answer})
		switch m.Type {
		case unix.NFT_MSG_NEWTABLE:
			lost = append(lost, object{m.Data[0], "table"})
		case unix.NFT_MSG_NEWCHAIN:
			lost = append(lost, object{m.Data[0], m.Chain.Name})
		case unix.NFT_MSG_NEWSET:
			lost = append(lost, object{m.Data[0], m.Set.Name})
		}
	}
	return refused, nil
}

func (k fake) connections() error { return k.other }

// has reports whether a message has an attribute that is this text. In front of
// it is the high byte of the attribute's type.
func has(m *codec.Message, text string) bool {
	return bytes.Contains(m.Data, []byte("\x00"+text+"\x00"))
}

// lacksNothing is a kernel that refuses nothing.
var lacksNothing = fake{refuses: func(*codec.Message) (string, error) { return "", nil }}

// lacksExpression is a kernel without an expression.
func lacksExpression(name string) fake {
	return fake{refuses: func(m *codec.Message) (string, error) {
		if (m.Type == unix.NFT_MSG_NEWRULE || m.Type == unix.NFT_MSG_NEWSET) && has(m, name) {
			return name, unix.ENOENT
		}
		return "", nil
	}}
}

// lacksSet is a kernel without a kind of sets, which answers as old ones do.
func lacksSet(kind func(*nft.Set) bool) fake {
	return fake{refuses: func(m *codec.Message) (string, error) {
		if m.Type == unix.NFT_MSG_NEWSET && kind(m.Set) {
			return "", unix.EINVAL
		}
		return "", nil
	}}
}

// 12.49: each missing feature has a name, with what brings it.
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		name   string
		kernel fake
		want   []string
	}{
		{"nothing", lacksNothing, nil},
		{"nf_tables", fake{whole: unix.EOPNOTSUPP}, []string{
			"nf_tables: operation not supported: load the module nf_tables, or use a kernel with CONFIG_NF_TABLES"}},
		{"permission", fake{whole: unix.EPERM}, []string{
			"permission denied: run as root, or with the capability CAP_NET_ADMIN"}},
		{"nf_conntrack_netlink", fake{refuses: lacksNothing.refuses, other: unix.EINVAL}, []string{
			"access to connection tracking: invalid argument: load the module nf_conntrack_netlink, or use a kernel with CONFIG_NF_CT_NETLINK"}},
		{"tables of IPv6", fake{refuses: func(m *codec.Message) (string, error) {
			if m.Type == unix.NFT_MSG_NEWTABLE && m.Data[0] == unix.NFPROTO_IPV6 {
				return "", unix.EAFNOSUPPORT
			}
			return "", nil
		}}, []string{
			"tables and chains (ip6): address family not supported by protocol: load the module nf_tables, or use a kernel with CONFIG_NF_TABLES_IPV6"}},
		{"NAT chains", fake{refuses: func(m *codec.Message) (string, error) {
			if m.Type == unix.NFT_MSG_NEWCHAIN && has(m, "nat") {
				return "", unix.ENOENT
			}
			return "", nil
		}}, both("NAT chains", "no such file or directory", "nft_chain_nat", "NFT_NAT")},
		{"nft_ct", lacksExpression("ct"), both("matches on connections", "no such file or directory", "nft_ct", "NFT_CT, and use kernel 4.17 or later")},
		{"nft_nat", lacksExpression("nat"), both("destination NAT", "no such file or directory", "nft_nat", "NFT_NAT")},
		{"nft_masq", lacksExpression("masq"), both("masquerading", "no such file or directory", "nft_masq", "NFT_MASQ")},
		{"nft_reject", lacksExpression("reject"), []string{
			"rejecting (ip): no such file or directory: load the module nft_reject_ipv4, or use a kernel with CONFIG_NFT_REJECT_IPV4",
			"rejecting (ip6): no such file or directory: load the module nft_reject_ipv6, or use a kernel with CONFIG_NFT_REJECT_IPV6"}},
		{"nft_numgen", lacksExpression("numgen"), both("round robin and random numbers", "no such file or directory", "nft_numgen", "NFT_NUMGEN")},
		{"nft_hash", lacksExpression("hash"), both("hashes of addresses", "no such file or directory", "nft_hash", "NFT_HASH")},
		{"nft_fib", lacksExpression("fib"), []string{
			"matches on addresses of the node (ip): no such file or directory: load the module nft_fib_ipv4, or use a kernel with CONFIG_NFT_FIB_IPV4",
			"matches on addresses of the node (ip6): no such file or directory: load the module nft_fib_ipv6, or use a kernel with CONFIG_NFT_FIB_IPV6"}},
		{"nft_counter", lacksExpression("counter"), both("counters of set elements", "no such file or directory", "nft_counter", "NFT_COUNTER, and use kernel 5.7 or later")},
		{"verdict maps", lacksSet(func(s *nft.Set) bool { return slices.Contains(s.Data, nft.Verdicts) && !s.Counters }), both("verdict maps", "invalid argument", "nf_tables_set", "NF_TABLES_SET")},
		{"ranges", lacksSet(func(s *nft.Set) bool { return s.Interval && len(s.Key) == 1 }), both("sets of ranges", "invalid argument", "nf_tables_set", "NF_TABLES_SET")},
		{"dynamic maps", lacksSet(func(s *nft.Set) bool { return s.Dynamic }), both("maps that packets fill", "invalid argument", "nf_tables_set", "NF_TABLES_SET")},
		{"concatenated ranges", lacksSet(func(s *nft.Set) bool { return s.Interval && len(s.Key) > 1 }), []string{
			"sets of concatenated ranges (ip): invalid argument: use kernel 5.6 or later",
			"sets of concatenated ranges (ip6): invalid argument: use kernel 5.6 or later"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems, err := check(c.kernel, model.Families[:], Use{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// both returns a problem of either family.
func both(feature, answer, module, option string) []string {
	var out []string
	for _, family := range []string{"ip", "ip6"} {
		out = append(out, feature+" ("+family+"): "+answer+": load the module "+module+", or use a kernel with CONFIG_"+option)
	}
	return out
}

// TestKernelText has the kernel's own explanation in a problem.
func TestKernelText(t *testing.T) {
	p := Problem{Feature: "hashes", Answer: &netlink.OpError{Op: "receive", Err: unix.ENOENT, Message: "unknown"}, Remedy: Remedy{Module: "nft_hash", Option: "NFT_HASH"}}
	if want := "hashes: kernel: no such file or directory: unknown: load the module nft_hash"; !strings.HasPrefix(p.String(), want) {
		t.Errorf("%q does not begin with %q", p, want)
	}
}

// A failure of the asking is no missing feature.
func TestAskingFails(t *testing.T) {
	sound := lacksNothing.refuses
	for name, k := range map[string]fake{
		"batch":   {whole: unix.ENOBUFS},
		"request": {refuses: sound, other: unix.EINTR},
	} {
		t.Run(name, func(t *testing.T) {
			problems, err := check(k, model.Families[:], Use{})
			if len(problems) != 0 || err == nil {
				t.Errorf("%v, %v", problems, err)
			}
			if !errors.Is(err, k.whole) && !errors.Is(err, k.other) {
				t.Errorf("%v has no cause", err)
			}
		})
	}
}
