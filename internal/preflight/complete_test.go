package preflight

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/netlink"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"golang.org/x/sys/unix"
)

// TestComplete compares what is tried with what a ruleset of everything is
// made of: no expression and no kind of set that we use goes without a trial.
func TestComplete(t *testing.T) {
	transaction, err := kernel.Encode(plan.Diff(&nft.Ruleset{}, everything()))
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, m := range transaction.Messages {
		parts(t, m.Type, m.Data, used)
	}
	tried := make(map[string]bool)
	for _, m := range messages(model.Families[:]) {
		parts(t, typeOf(m), m.Data, tried)
	}
	t.Log("used:", slices.Sorted(maps.Keys(used)))
	if len(used) < 20 {
		t.Error("these are too few to be all")
	}
	// Every kernel with nf_tables has these.
	for _, old := range []string{"bitwise", "cmp", "immediate", "meta"} {
		tried[old+" ip"], tried[old+" ip6"] = true, true
	}
	for part := range used {
		if !tried[part] {
			t.Errorf("%s is used and not tried", part)
		}
	}
}

// everything is a ruleset with all that Services can ask for.
func everything() *nft.Ruleset {
	s := &model.Snapshot{
		Nodes:        []*model.Node{{Name: "node", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:10:96::/112")},
	}
	for i, scheduler := range []model.Scheduler{model.RoundRobin, model.Random, model.SourceHash} {
		name := model.ServiceName{Namespace: "default", Name: fmt.Sprint("web-", i)}
		s.Services = append(s.Services, &model.Service{
			Name: name, Scheduler: scheduler, ExternalPolicy: model.PolicyLocal, AffinityTimeout: time.Hour,
			ClusterIPs:      []netip.Addr{netip.MustParseAddr(fmt.Sprint("10.96.0.", 10+i)), netip.MustParseAddr(fmt.Sprint("fd00:10:96::", 10+i))},
			LoadBalancerIPs: []netip.Addr{netip.MustParseAddr(fmt.Sprint("203.0.113.", 10+i)), netip.MustParseAddr(fmt.Sprint("2001:db8:1::", 10+i))},
			SourceRanges:    []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:2::/64")},
			Ports:           []model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: uint16(30080 + i)}},
		})
		for _, f := range model.Families {
			s.Slices = append(s.Slices, &model.EndpointSlice{
				Namespace: name.Namespace, Name: fmt.Sprint(name.Name, f), Service: name.Name, Family: f,
				Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}},
				Hosts: []model.Host{host(f, 1), host(f, 2)},
			})
		}
	}
	return render.Render(model.Resolve(s, model.Config{NodeName: "node", Counters: true,
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9"), netip.MustParsePrefix("fd00:10:128::/48")}}))
}

func host(f model.Family, n int) model.Host {
	address := fmt.Sprint("10.128.0.", n)
	if f == model.IPv6 {
		address = fmt.Sprint("fd00:10:128::", n)
	}
	return model.Host{Address: netip.MustParseAddr(address), Ready: true, Serving: true, Node: "node"}
}

// parts notes the expressions and the kinds of sets and chains in a message,
// each with its family.
func parts(t *testing.T, typ uint16, data []byte, into map[string]bool) {
	t.Helper()
	family := " ip"
	if data[0] == unix.NFPROTO_IPV6 {
		family = " ip6"
	}
	ad, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		t.Fatal(err)
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		switch {
		case typ == unix.NFT_MSG_NEWRULE && ad.Type() == unix.NFTA_RULE_EXPRESSIONS:
			ad.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					list.Nested(func(x *netlink.AttributeDecoder) error { return expressionName(x, family, into) })
				}
				return nil
			})
		case typ == unix.NFT_MSG_NEWSET && ad.Type() == unix.NFTA_SET_FLAGS:
			into[fmt.Sprintf("set with flags %#x", ad.Uint32())+family] = true
		case typ == unix.NFT_MSG_NEWSET && ad.Type() == setExpression:
			ad.Nested(func(x *netlink.AttributeDecoder) error { return expressionName(x, family, into) })
		case typ == unix.NFT_MSG_NEWCHAIN && ad.Type() == unix.NFTA_CHAIN_TYPE:
			into["chain of type "+ad.String()+family] = true
		}
	}
	if err := ad.Err(); err != nil {
		t.Fatal(err)
	}
}

func expressionName(x *netlink.AttributeDecoder, family string, into map[string]bool) error {
	for x.Next() {
		if x.Type() == unix.NFTA_EXPR_NAME {
			into[x.String()+family] = true
		}
	}
	return nil
}
