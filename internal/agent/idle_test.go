package agent

import (
	"log/slog"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// scarce is the kernel, which lacks memory for one of the next commits.
type scarce struct {
	*kernel.Conn
	left int // commits before that one; negative: none fails
}

func (k *scarce) Commit(p kernel.Prepared, generation uint32) (codec.Size, error) {
	if k.left--; k.left == -1 {
		return codec.Size{}, unix.ENOMEM
	}
	return k.Conn.Commit(p, generation)
}

// web returns a Service with a number of endpoints, from the given one on.
func web(endpoints, first int) *model.Update {
	s := model.ServiceState{
		Service: &model.Service{Name: named(0), ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
			Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}}},
		Slices: []*model.EndpointSlice{{Namespace: "default", Name: "web", Service: named(0).Name, Family: model.IPv4,
			Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}}}},
	}
	for i := range endpoints {
		s.Slices[0].Hosts = append(s.Slices[0].Hosts, model.Host{Address: netip.AddrFrom4([4]byte{10, 128, 0, byte(first + i)}), Ready: true})
	}
	return &model.Update{Services: map[model.ServiceName]model.ServiceState{named(0): s}, Nodes: nodes}
}

// TestCheckWithoutMemory: 13.10, 13.18. A commit fails during a check, whichever it
// is. The changes that the check took with it are neither lost nor counted twice.
func TestCheckWithoutMemory(t *testing.T) {
	for nth := range 6 {
		w := newWorkshop(t, netlab.TestNamespace(t))
		k := &scarce{w.kernel, -1}
		w.Applier = apply.New(k, slog.New(slog.DiscardHandler))
		sync := func(cause Cause, u *model.Update) bool {
			w.pending.update = u
			return w.sync(cause)
		}
		for n, cause := range []Cause{Start, Change, Change} {
			if !sync(cause, web(n+1, 0)) {
				t.Fatal(w.log)
			}
		}
		k.left = nth
		sync(Check, web(3, 10))
		k.left = -1
		for _, first := range []int{20, 30} {
			if !sync(Change, web(3, first)) {
				t.Fatal(w.log)
			}
		}
		current, _, err := w.kernel.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range plan.Diff(current, plan.Settle(current, render.Render(w.Routing()))).WithoutIdleLanes().Changes {
			t.Errorf("commit %d failed; a fresh start does: %s", nth, c.Text())
		}
		if p, err := w.Applier.Apply(w.rules.Change(nil, nil)); err != nil || !p.Empty() {
			t.Errorf("commit %d failed: %v, %v", nth, p, err)
		}
		for _, s := range w.rules.Sizes() {
			if set := current.Table(s.Family).Set(s.Set); len(set.Elements) != s.Elements && s.Set != nft.ServiceCIDRsSet {
				t.Errorf("commit %d failed; %s: %d elements counted, %d in the kernel", nth, s.Set, s.Elements, len(set.Elements))
			}
		}
	}
}
