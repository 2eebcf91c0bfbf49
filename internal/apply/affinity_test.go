package apply

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// bind adds a binding of a client at the NodePort for each endpoint, to each map.
func bind(rs *nft.Ruleset, endpoints ...int) *nft.Ruleset {
	rs = workload.Clone(rs)
	for _, name := range nft.AffinityMaps {
		s := rs.Tables[0].Set(name)
		if s == nil {
			continue
		}
		for i, e := range endpoints {
			s.Elements = append(s.Elements, nft.Element{
				Key:   nft.Key{Address: workload.Addr("192.168.7.1"), Protocol: model.TCP, Port: 30080, Source: netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})},
				Value: nft.Value{Endpoint: workload.AddrPort(fmt.Sprintf("10.128.0.%d", e), 8080)},
			})
		}
		s.Sort()
	}
	return rs
}

// follow returns the endpoints that depart from a map with a change, and those whose
// clients a table that replaces it keeps.
func follow(before, after *nft.Ruleset, bindings string) (gone, kept []int) {
	d := make(departed)
	d.recordPlan(plan.Diff(before, after))
	clients := before.Tables[0].Set(bindings)
	if clients == nil {
		return nil, nil
	}
	number := func(e *nft.Element) int { return int(e.Value.Endpoint.Addr().As4()[3]) }
	for i := range clients.Elements {
		if e := &clients.Elements[i]; d.leadsToDeparted(bindings, e) {
			gone = append(gone, number(e))
		}
	}
	for _, change := range keptBindings(after.Tables[0], clients) {
		kept = append(kept, number(change.New))
	}
	return gone, kept
}

// TestDeparted shows which of the endpoints 1, 2 and 3 depart from the frontend
// with a change, so that a sweep releases their clients, and which bindings hold in
// a table that is replaced.
func TestDeparted(t *testing.T) {
	const cluster, local = model.PolicyCluster, model.PolicyLocal
	var none [2][]int
	for _, c := range []struct {
		name           string
		before, after  *nft.Ruleset
		departed, kept []int    // of the clients of pods and of policy Cluster
		local          [2][]int // the same, of clients outside with policy Local
	}{
		{"nothing changes", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, time.Hour, "1 2 3"), nil, []int{1, 2, 3}, none},
		{"5.6 an endpoint goes", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, time.Hour, "1 3"), []int{2}, []int{1, 3}, none},
		{"5.8 an endpoint comes", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, time.Hour, "1 2 3 4"), nil, []int{1, 2, 3}, none},
		{"5.6 all endpoints go", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, time.Hour, ""), []int{1, 2, 3}, nil, none},
		{"5.9 another timeout", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, time.Minute, "1 2 3"), nil, []int{1, 2, 3}, none},
		{"5.10 affinity is turned off", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, 0, "1 2 3"), []int{1, 2, 3}, nil, none},
		// Clients outside ask another map.
		{"5.5 the policy becomes Local", workload.Sticky(cluster, time.Hour, "1:L 2 3"), workload.Sticky(local, time.Hour, "1:L 2 3"), nil, []int{1, 2, 3}, none},
		{"5.5 it becomes Cluster", workload.Sticky(local, time.Hour, "1:L 2 3"), workload.Sticky(cluster, time.Hour, "1:L 2 3"), nil, []int{1, 2, 3}, none}, // the other map leaves
		{"5.5 hints keep a local endpoint from pods", workload.Sticky(local, time.Hour, "1:L 2 3"), workload.Sticky(local, time.Hour, "1:Lb 2:a 3:a"), []int{1}, []int{2, 3}, [2][]int{nil, {1}}},
		{"5.6 a local endpoint goes", workload.Sticky(local, time.Hour, "1:L 2:L 3"), workload.Sticky(local, time.Hour, "2:L 3"), []int{1}, []int{2, 3}, [2][]int{{1}, {2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := bind(c.before, 1, 2, 3)
			after := plan.Settle(before, c.after)
			for name, want := range map[string][2][]int{nft.AffinityMap: {c.departed, c.kept}, nft.LocalAffinityMap: c.local} {
				gone, kept := follow(before, after, name)
				if !slices.Equal(gone, want[0]) {
					t.Errorf("%s: endpoints %v departed, want %v", name, gone, want[0])
				}
				if !slices.Equal(kept, want[1]) {
					t.Errorf("%s: bindings to %v are kept, want %v", name, kept, want[1])
				}
			}
		})
	}
}

// TestTableMadeAnew: of the clients that are bound as many stay bound as the new map
// has room for; and where they cannot be read, all are served.
func TestTableMadeAnew(t *testing.T) {
	resized := func(size uint32) *nft.Ruleset {
		rs := workload.Sticky(model.PolicyCluster, time.Hour, "1 2 3")
		rs.Tables[0].Set(nft.AffinityMap).Size = size
		return rs
	}
	for _, c := range []struct {
		size      uint32
		forgetful error
		want      int
	}{{2, nil, 2}, {1000, nil, 3}, {1000, errors.New("no memory"), 0}} {
		k := newFake()
		a := New(k, slog.New(slog.DiscardHandler))
		if _, err := a.Apply(nft.FromNothing(resized(500))); err != nil {
			t.Fatal(err)
		}
		k.ruleset, k.forgetful = *bind(&k.ruleset, 1, 2, 3), c.forgetful
		if _, err := a.Apply(nft.FromNothing(resized(c.size))); err != nil {
			t.Errorf("room for %d, %v: %v", c.size, c.forgetful, err)
		}
		if got := len(k.ruleset.Tables[0].Set(nft.AffinityMap).Elements); got != c.want {
			t.Errorf("room for %d, %v: %d clients stay bound, want %d", c.size, c.forgetful, got, c.want)
		}
	}
}

// TestSweepLeavesNewBindings: 5.8. A client that packets release and bind to another
// endpoint, after the sweep has read the bindings, stays bound.
func TestSweepLeavesNewBindings(t *testing.T) {
	s := newSandbox(t)
	s.apply(t, workload.Sticky(model.PolicyCluster, time.Hour, "1 2"))
	bind := func(client, endpoint int) {
		s.nft(t, "add", "element", "ip", "nftproxy", "affinity",
			fmt.Sprintf("{ 192.168.7.1 . tcp . 30080 . 198.51.100.%d timeout 1h : 10.128.0.%d . 8080 }", client, endpoint))
	}
	release := func(client int) {
		s.nft(t, "delete", "element", "ip", "nftproxy", "affinity", fmt.Sprintf("{ 192.168.7.1 . tcp . 30080 . 198.51.100.%d }", client))
	}
	for client := 1; client <= 6; client++ {
		bind(client, 1)
	}
	bind(7, 2)
	s.apply(t, workload.Sticky(model.PolicyCluster, time.Hour, "2"))
	sweep := s.applier.BeginSweep()
	if err := sweep.Read(); err != nil {
		t.Fatal(err)
	}
	for _, client := range []int{2, 3, 5} { // beside one without a binding, and before and after others
		release(client)
		if client != 3 {
			bind(client, 2)
		}
	}
	if more, err := s.applier.Release(sweep); err != nil || more {
		t.Fatal(more, err)
	}
	maps, err := s.Bindings(model.IPv4, 10)
	if err != nil || len(maps) != 1 {
		t.Fatal(maps, err)
	}
	var left []int
	for _, e := range maps[0].Elements {
		left = append(left, int(e.Key.Source.As4()[3]))
	}
	if !slices.Equal(left, []int{2, 5, 7}) {
		t.Errorf("clients %v are bound, want 2 and 5, which packets have bound again, and 7, whose endpoint stays", left)
	}
}
