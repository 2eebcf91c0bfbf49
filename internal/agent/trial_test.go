package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// asked is a kernel that answers questions about Services only.
type asked struct {
	fakeKernel
	answer   func(names map[string]bool) error
	trials   int
	elements int // in all of them
}

func (k *asked) Check(p *plan.Plan) error {
	k.trials++
	names := make(map[string]bool)
	for i := range p.Changes {
		if c := &p.Changes[i]; c.New != nil && c.New.Comment != "" {
			port, _ := nft.ParseComment(c.New.Comment)
			names[port.Service.Name] = true
			k.elements++
		}
	}
	return k.answer(names)
}

// refuses returns the answer to rules that have all of some Services.
func refuses(errno error, all ...string) func(map[string]bool) error {
	return func(names map[string]bool) error {
		for _, name := range all {
			if !names[name] {
				return nil
			}
		}
		return &kernel.CommitError{Object: strings.Join(all, " and "), Err: errno}
	}
}

// simple returns a number of Services, the first of which is the oldest.
func simple(n int) states {
	out := make(states)
	for i := range n {
		out = out.add(model.ServiceState{Service: &model.Service{Name: named(i), Created: int64(i),
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
			Ports:      []model.ServicePort{{Protocol: model.TCP, Port: 80}}}})
	}
	return out
}

func (s states) add(state model.ServiceState) states {
	s[state.Service.Name] = state
	return s
}

// TestSearch: 13.29. Services that the kernel refuses are found with a few trials each, however
// many others there are, and these trials are small. An answer about anything else than
// the content ends the search.
func TestSearch(t *testing.T) {
	for _, c := range []struct {
		name     string
		services int
		answer   func(map[string]bool) error
		want     string
		fails    bool
		bad      int // how many to find
	}{
		{"nothing", 1000, refuses(unix.EINVAL, "no such"), "[]", false, 0},
		{"the first", 1000, refuses(unix.EINVAL, "service-0"), "[default/service-0]", false, 1},
		{"the last", 1000, refuses(unix.EINVAL, "service-999"), "[default/service-999]", false, 1},
		{"one of many", 10_000, refuses(unix.EINVAL, "service-4321"), "[default/service-4321]", false, 1},
		{"the only one", 1, refuses(unix.EINVAL, "service-0"), "[default/service-0]", false, 1},
		{"two", 1000, func(names map[string]bool) error {
			return errors.Join(refuses(unix.EINVAL, "service-7")(names), refuses(unix.ERANGE, "service-700")(names))
		}, "[default/service-7 default/service-700]", false, 2},
		{"one beside another", 1000, refuses(unix.EEXIST, "service-800", "service-300"), "[default/service-800]", false, 1},
		{"what all share", 1000, refuses(unix.EINVAL), "[]", true, 0},
		{"too many", 2000, func(names map[string]bool) error {
			if len(names) == 0 {
				return nil
			}
			return refuses(unix.EINVAL)(names)
		}, "[]", true, 2000},
		{"no memory", 1000, refuses(unix.ENOMEM, "service-7"), "[]", true, 0},
		{"busy", 1000, refuses(unix.EBUSY, "service-7"), "[]", true, 0},
		{"not permitted", 1000, refuses(unix.EPERM, "service-7"), "[]", true, 0},
		{"the answer is lost", 1000, refuses(unix.ENOBUFS, "service-7"), "[]", true, 0},
		{"interrupted", 1000, refuses(unix.EINTR, "service-7"), "[]", true, 0},
		{"another program is faster", 1000, refuses(unix.ERESTART, "service-7"), "[]", true, 0},
	} {
		k := &asked{answer: c.answer}
		a := New(Config{Applier: apply.New(k, slog.New(slog.DiscardHandler)), Log: slog.New(slog.DiscardHandler)})
		a.router.Configure(model.Config{NodeName: "node-1"}, nodes, nil)
		a.router.SetServices(simple(c.services))
		s := a.quarantine.newTrial(a.quarantine.routesOf(func(model.ServiceName) bool { return true }))
		refused, err := s.search(s.orderNames(nil))
		found := slices.SortedFunc(maps.Keys(refused), model.ServiceName.Compare)
		if fmt.Sprint(found) != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v", c.name, found, err)
		}
		most := 3 + 2*c.bad*bits.Len(uint(c.services))
		if k.trials > min(most, maxTrials+2) || strings.HasPrefix(c.name, "one of") && k.elements > 4*c.services {
			t.Errorf("%s: %d trials with %d elements", c.name, k.trials, k.elements)
		}
	}
}

// TestNoQuarantineCostsNothing: while no Service is quarantined, a change allocates nothing for
// the quarantine.
func TestNoQuarantineCostsNothing(t *testing.T) {
	a := New(Config{Log: slog.New(slog.DiscardHandler)})
	changes := make([]model.RouteChange, 100)
	if n := testing.AllocsPerRun(100, func() {
		if rest := a.quarantine.filterChanges(changes); len(rest) != len(changes) || a.quarantine.retryServices(true) {
			t.Fatal("something is quarantined")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
