package golden

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// destinations prints where new connections go: first those to the frontends in
// the order of want, then those to all others of the ruleset.
func destinations(t *testing.T, rs *nft.Ruleset, want string) string {
	t.Helper()
	var lines, probed []string
	for line := range strings.Lines(want) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			t.Fatalf("want: %q is not a frontend and where its connections go", line)
		}
		frontend := fields[0] + " " + fields[1]
		probed = append(probed, frontend)
		lines = append(lines, frontend+" "+destination(t, rs, fields[0], fields[1]))
	}
	for _, table := range rs.Tables {
		for _, f := range frontends(table) {
			if frontend := f.String(); !slices.Contains(probed, frontend) {
				protocol, address, _ := strings.Cut(frontend, " ")
				lines = append(lines, frontend+" "+destination(t, rs, protocol, address))
			}
		}
	}
	return strings.Join(append(lines, ""), "\n")
}

// frontends returns what clients may dial: a NodePort on each of the addresses
// that serve it.
func frontends(table *nft.Table) []model.Frontend {
	var out []model.Frontend
	for _, e := range setOf(table, "services").Elements {
		f := e.Key.Frontend()
		if !f.Address.IsUnspecified() {
			out = append(out, f)
			continue
		}
		for _, e := range setOf(table, "node-addresses").Elements {
			f.Address = e.Key.Address
			out = append(out, f)
		}
	}
	return out
}

// destination returns where a new connection goes, for example "10.128.0.1:8080
// 10.128.0.2:8080 outside drop".
func destination(t *testing.T, rs *nft.Ruleset, protocol, address string) string {
	t.Helper()
	var key nft.Key
	if protocol == "icmp" {
		key.Address = netip.MustParseAddr(address)
	} else {
		to := netip.MustParseAddrPort(address)
		p, err := model.ParseProtocol(protocol)
		if err != nil {
			t.Fatal(err)
		}
		key = nft.Key{Address: to.Addr(), Protocol: p, Port: to.Port()}
	}
	for _, table := range rs.Tables {
		if table.Family == model.FamilyOf(key.Address) {
			return tableFate(t, table, key)
		}
	}
	return "pass"
}

func tableFate(t *testing.T, table *nft.Table, key nft.Key) string {
	t.Helper()
	e, ok := find(table, "services", key)
	if !ok && contains(table, "node-addresses", key.Address) && !contains(table, "cluster-ips", key.Address) {
		node := key
		node.Address = model.Wildcard(table.Family)
		if e, ok = find(table, "services", node); ok {
			key = node
		}
	}
	if !ok {
		switch {
		case contains(table, "cluster-ips", key.Address):
			return "reject"
		case contains(table, "service-cidrs", key.Address):
			return "drop"
		}
		return "pass"
	}
	inside := verdict(t, table, key, e.Value.Class)
	if e, ok := find(table, "local-services", key); ok {
		return inside + " outside " + verdict(t, table, key, e.Value.Class)
	}
	return inside
}

// verdict follows a class to the endpoints. One that has several slots is named as
// often.
func verdict(t *testing.T, table *nft.Table, key nft.Key, c nft.Class) string {
	t.Helper()
	e, ok := find(table, "lanes", nft.ClassKey(c))
	if !ok {
		t.Fatalf("class %s of %v has no verdict", c, key)
	}
	switch v := e.Value.Verdict; {
	case v.Action == nft.Drop:
		return "drop"
	case v.Chain == "refuse":
		return "reject"
	}
	lane := table.Chain(strings.TrimPrefix(strings.TrimPrefix(e.Value.Verdict.Chain, "local-"), "sticky-"))
	slots := lane.Rules[len(lane.Rules)-1][0].(nft.Choose) // before it, perhaps, a way to another lane
	var out []string
	for i := range slots.Count {
		key.Slot = slots.First + i
		e, ok := find(table, "endpoints", key)
		if !ok {
			t.Fatalf("slot %d of %v has no endpoint", key.Slot, key)
		}
		out = append(out, e.Value.Endpoint.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func setOf(table *nft.Table, name string) *nft.Set {
	return table.Sets[slices.IndexFunc(table.Sets, func(s *nft.Set) bool { return s.Name == name })]
}

func find(table *nft.Table, set string, key nft.Key) (nft.Element, bool) {
	for _, e := range setOf(table, set).Elements {
		if e.Key == key {
			return e, true
		}
	}
	return nft.Element{}, false
}

// contains reports whether an address is in a set of addresses or of ranges.
func contains(table *nft.Table, set string, a netip.Addr) bool {
	s := table.Set(set)
	return s != nil && slices.ContainsFunc(s.Elements, func(e nft.Element) bool {
		return s.Prefix(e.Key, nft.Address).Contains(a)
	})
}
