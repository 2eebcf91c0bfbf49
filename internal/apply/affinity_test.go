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
	"github.com/nftproxy/nftproxy/internal/workload"
)

// bind adds a binding of a client at the NodePort for each endpoint.
func bind(rs *nft.Ruleset, endpoints ...int) *nft.Ruleset {
	rs = workload.Clone(rs)
	s := rs.Tables[0].Set(nft.AffinityMap)
	for i, e := range endpoints {
		s.Elements = append(s.Elements, nft.Element{
			Key:   nft.Key{Address: workload.Addr("192.168.7.1"), Protocol: model.TCP, Port: 30080, Source: netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})},
			Value: nft.Value{Endpoint: workload.AddrPort(fmt.Sprintf("10.128.0.%d", e), 8080)},
		})
	}
	s.Sort()
	return rs
}

// TestDeparted shows which of the endpoints 1, 2 and 3 depart from the frontend
// with a change, so that a sweep releases their clients, and which bindings hold in
// a table that is replaced.
func TestDeparted(t *testing.T) {
	const cluster, local = model.PolicyCluster, model.PolicyLocal
	for _, c := range []struct {
		name           string
		before, after  *nft.Ruleset
		departed, kept []int
	}{
		{"nothing changes", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, time.Hour, "1 2 3"), nil, []int{1, 2, 3}},
		{"5.6 an endpoint goes", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, time.Hour, "1 3"), []int{2}, []int{1, 3}},
		{"5.8 an endpoint comes", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, time.Hour, "1 2 3 4"), nil, []int{1, 2, 3}},
		{"5.6 all endpoints go", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, time.Hour, ""), []int{1, 2, 3}, nil},
		{"5.9 another timeout", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, time.Minute, "1 2 3"), nil, []int{1, 2, 3}},
		{"5.10 affinity is turned off", workload.Sticky(cluster, time.Hour, "1 2 3"), workload.Sticky(cluster, 0, "1 2 3"), []int{1, 2, 3}, nil},
		// Bindings from before are in a map that these frontends do not ask.
		{"5.5 the policy becomes Local", workload.Sticky(cluster, time.Hour, "1:L 2 3"), workload.Sticky(local, time.Hour, "1:L 2 3"), nil, nil},
		{"5.5 hints keep a local endpoint from pods", workload.Sticky(local, time.Hour, "1:L 2 3"), workload.Sticky(local, time.Hour, "1:Lb 2:a 3:a"), nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := bind(c.before, 1, 2, 3)
			after := plan.Settle(before, c.after)
			d := make(departed)
			d.note(plan.Diff(before, after))
			var gone, kept []int
			if clients := before.Tables[0].Set(nft.AffinityMap); clients != nil {
				for i := range clients.Elements {
					if e := &clients.Elements[i]; d.has(e) {
						gone = append(gone, int(e.Value.Endpoint.Addr().As4()[3]))
					}
				}
				for _, change := range keptBindings(after.Tables[0], clients) {
					kept = append(kept, int(change.New.Value.Endpoint.Addr().As4()[3]))
				}
			}
			if !slices.Equal(gone, c.departed) {
				t.Errorf("endpoints %v departed, want %v", gone, c.departed)
			}
			if !slices.Equal(kept, c.kept) {
				t.Errorf("bindings to %v are kept, want %v", kept, c.kept)
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
