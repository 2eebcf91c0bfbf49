package preflight

import (
	"slices"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"golang.org/x/sys/unix"
)

// feature is something that the rules of a family are made of.
type feature struct {
	name     string
	remedy   Remedy
	messages []netlink.Message // that need it
}

// features returns all of a family. The first is what the others stand on.
func (t table) features() []feature {
	return slices.Concat([]feature{t.foundation()}, t.chainsAndSets(), t.expressions())
}

// The chain that the rules are in. What a statement may do there depends on who
// calls it, which nobody does.
const chain = "chain"

func (t table) foundation() feature {
	return feature{
		name:   "tables and chains",
		remedy: Remedy{Module: "nf_tables", Option: t.byFamily("NF_TABLES_IPV4", "NF_TABLES_IPV6")},
		messages: []netlink.Message{
			t.create(unix.NFT_MSG_NEWTABLE, func(a *netlink.AttributeEncoder) {
				a.String(unix.NFTA_TABLE_NAME, tableName)
				a.Uint32(unix.NFTA_TABLE_FLAGS, unix.NFT_TABLE_F_DORMANT)
			}),
			t.create(unix.NFT_MSG_NEWCHAIN, func(a *netlink.AttributeEncoder) {
				a.String(unix.NFTA_CHAIN_TABLE, tableName)
				a.String(unix.NFTA_CHAIN_NAME, chain)
			}),
		},
	}
}

func (t table) chainsAndSets() []feature {
	ranges := set{name: "ranges", key: []uint32{t.width()}, flags: unix.NFT_SET_INTERVAL}
	concatenated := set{name: "concatenated", key: []uint32{t.width(), 2, t.width()}, flags: unix.NFT_SET_INTERVAL | nftSetConcat}
	verdicts := set{name: "verdicts", key: []uint32{t.width()}, flags: unix.NFT_SET_MAP, dataType: verdictData}
	dynamic := set{name: "dynamic", key: []uint32{t.width()}, flags: unix.NFT_SET_MAP | unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL, dataType: plainData}
	counting := set{name: "counting", key: []uint32{t.width()}, counter: true}
	return []feature{
		{"NAT chains", Remedy{Module: "nft_chain_nat", Option: "NFT_NAT"}, []netlink.Message{
			t.baseChain("prerouting", unix.NF_INET_PRE_ROUTING, -100),
			t.baseChain("postrouting", unix.NF_INET_POST_ROUTING, 100),
		}},
		{"sets of ranges", Remedy{Module: "nf_tables_set", Option: "NF_TABLES_SET"}, []netlink.Message{
			t.set(ranges),
			t.rule(t.address(), &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: ranges.name}),
		}},
		{"sets of concatenated ranges", Remedy{Since: "5.6"}, []netlink.Message{t.set(concatenated)}},
		{"verdict maps", Remedy{Module: "nf_tables_set", Option: "NF_TABLES_SET"}, []netlink.Message{
			t.set(verdicts),
			t.rule(t.address(), &expr.Lookup{
				SourceRegister: unix.NFT_REG_1, SetName: verdicts.name, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true}),
		}},
		{"maps that packets fill", Remedy{Module: "nf_tables_set", Option: "NF_TABLES_SET"}, []netlink.Message{
			t.set(dynamic),
			t.rule(t.address(), &expr.Dynset{
				SrcRegKey: unix.NFT_REG_1, SrcRegData: unix.NFT_REG_1, SetName: dynamic.name, Operation: unix.NFT_DYNSET_OP_UPDATE}),
		}},
		{"counters of set elements", Remedy{Module: "nft_counter", Option: "NFT_COUNTER", Since: "5.7"}, []netlink.Message{t.set(counting)}},
	}
}

func (t table) expressions() []feature {
	originalAddress := expr.CtKeyDSTIP
	if t.family == model.IPv6 {
		originalAddress = expr.CtKeyDSTIP6
	}
	return []feature{
		{"matches on connections", Remedy{Module: "nft_ct", Option: "NFT_CT", Since: "4.17"}, []netlink.Message{
			t.rule(&expr.Ct{Key: expr.CtKeySTATUS, Register: unix.NFT_REG_1}),
			t.rule(&expr.Ct{Key: originalAddress, Register: unix.NFT_REG_1, Direction: expr.CtDirOriginal}),
		}},
		{"destination NAT", Remedy{Module: "nft_nat", Option: "NFT_NAT"}, []netlink.Message{
			t.rule(t.address(), &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(t.number()), RegAddrMin: unix.NFT_REG_1}),
		}},
		{"masquerading", Remedy{Module: "nft_masq", Option: "NFT_MASQ"}, []netlink.Message{
			t.rule(&expr.Masq{FullyRandom: true}),
		}},
		{"rejecting", Remedy{Module: t.byFamily("nft_reject_ipv4", "nft_reject_ipv6"), Option: t.byFamily("NFT_REJECT_IPV4", "NFT_REJECT_IPV6")}, []netlink.Message{
			t.rule(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}),
			t.rule(&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH}),
		}},
		{"round robin and random numbers", Remedy{Module: "nft_numgen", Option: "NFT_NUMGEN"}, []netlink.Message{
			t.rule(&expr.Numgen{Register: unix.NFT_REG_1, Modulus: 2, Type: unix.NFT_NG_INCREMENTAL}),
			t.rule(&expr.Numgen{Register: unix.NFT_REG_1, Modulus: 2, Type: unix.NFT_NG_RANDOM}),
		}},
		{"hashes of addresses", Remedy{Module: "nft_hash", Option: "NFT_HASH"}, []netlink.Message{
			t.rule(t.address(), &expr.Hash{
				SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_2, Length: t.width(), Modulus: 2, Seed: 1, Type: expr.HashTypeJenkins}),
		}},
		{"matches on addresses of the node", Remedy{Module: t.byFamily("nft_fib_ipv4", "nft_fib_ipv6"), Option: t.byFamily("NFT_FIB_IPV4", "NFT_FIB_IPV6")}, []netlink.Message{
			t.rule(&expr.Fib{Register: unix.NFT_REG_1, ResultADDRTYPE: true, FlagSADDR: true}),
		}},
	}
}

// conntrackRequest asks for the kernel's statistics of connections, which are
// short. Without anybody who knows what a connection is, the kernel calls it
// invalid.
func conntrackRequest() netlink.Message {
	const getStatistics = 4 // IPCTNL_MSG_CT_GET_STATS_CPU of linux/netfilter/nfnetlink_conntrack.h
	return netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | getStatistics, Flags: netlink.Request | netlink.Dump},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	}
}
