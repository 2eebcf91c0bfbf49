package apply

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// loader is a kernel of which one commit fails.
type loader struct {
	Kernel
	before  func() // is called before each commit
	commits int
	fails   int // number of the commit; 0: none
}

func (l *loader) Commit(p kernel.Prepared, generation uint32) (codec.Size, error) {
	if l.commits++; l.commits == l.fails {
		return codec.Size{}, unix.ENOMEM
	}
	l.before()
	return l.Kernel.Commit(p, generation)
}

// seesPackets reports whether there are base chains in the kernel.
func (s *sandbox) seesPackets(t *testing.T) bool {
	t.Helper()
	return strings.Contains(s.nft(t, "list", "chains"), "hook")
}

// largeRouting has Services of both families; some have session affinity.
func largeRouting(services int) *model.Routing {
	all := workload.Services(services, 4)
	i := 0
	for _, s := range all {
		s.Service.ClusterIPs = append(s.Service.ClusterIPs, netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}))
		if i++; i%10 == 0 {
			s.Service.AffinityTimeout = 3 * time.Hour
		}
	}
	router := model.NewRouter()
	router.Configure(model.Config{NodeName: "node-1"}, nil, nil)
	router.SetServices(all)
	return router.Routing()
}

func sameSizes(a, b []render.SetSize) bool {
	contains := func(o render.SetSize) bool { return !slices.Contains(b, o) }
	return len(a) == len(b) && !slices.ContainsFunc(a, contains)
}

// TestLoad: 13.14. A large start takes several transactions, and packets see nothing
// before the last one. What an interrupted one leaves is taken up by the next change.
// Programs that write to tables of their own do not disturb it.
func TestLoad(t *testing.T) {
	routing := largeRouting(2500)
	want := render.Render(routing)
	for _, fails := range []int{0, 2, 4} {
		s := newSandbox(t)
		l := &loader{Kernel: s.Conn, fails: fails}
		l.before = func() {
			if s.seesPackets(t) {
				t.Fatalf("before transaction %d there are base chains", l.commits)
			}
			s.nft(t, "add", "table", "ip", "foreign") // advances the generation
		}
		a := New(l, s.applier.log)
		if empty, err := a.Empty(); !empty || err != nil {
			t.Fatalf("empty: %v, %v", empty, err)
		}
		state, parts := render.Load(routing, render.Added(routing))
		p, err := a.Load(parts)
		if fails > 0 {
			if !errors.Is(err, unix.ENOMEM) || a.Known() || s.seesPackets(t) {
				t.Errorf("after a failure of transaction %d: %v, known: %v, base chains: %v", fails, err, a.Known(), s.seesPackets(t))
			}
		} else {
			all := plan.Diff(&nft.Ruleset{}, want)
			if err != nil || l.commits < 3 || !a.Known() || p.Count(plan.Add) != all.Count(plan.Add) {
				t.Errorf("%v after %d transactions: known: %v", err, l.commits, a.Known())
			}
			if rest, _, err := s.applier.Plan(want); err != nil || !rest.Empty() {
				t.Errorf("the kernel differs from what was loaded: %v, %v", rest, err)
			}
		}
		if start, _ := render.Start(routing); fails == 0 && !sameSizes(state.Sizes(), start.Sizes()) {
			t.Errorf("sizes are %v, want %v", state.Sizes(), start.Sizes())
		}
		if empty, err := a.Empty(); empty || err != nil {
			t.Errorf("empty afterwards: %v, %v", empty, err)
		}
		s.apply(t, want)
	}
}
