package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestWalk changes Services and endpoints at random, with few slots for checks. What the
// engine counts is what it has, each result is what its endpoint answers in the end, and
// nothing is left of what is gone.
func TestWalk(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { walk(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func walk(t *testing.T, r *rand.Rand) {
	l := newLab(t)
	l.network.limit, l.programs.limit = 1+r.IntN(5), 1
	l.start()
	all := addresses(12)
	program, slow := *tcp, *tcp
	program.Type, slow.Interval, slow.Fall = model.CheckExec, 3*time.Second, 1
	states := make(map[string]model.ServiceState)
	for range 300 {
		switch n := fmt.Sprintf("s%d", r.IntN(6)); r.IntN(5) {
		case 0:
			delete(states, n)
			l.Edit(name(n), model.ServiceState{})
		case 1, 2:
			check := []*model.Check{nil, tcp, &slow, &program}[r.IntN(4)]
			var some []string
			for range 1 + r.IntN(5) {
				some = append(some, all[r.IntN(len(all))])
			}
			states[n] = serviceOf(n, check, some...)
			l.Edit(name(n), states[n])
		case 3:
			l.answer(all[r.IntN(len(all))], []func(context.Context) error{healthy, refused, silent, func(context.Context) error { panic("boom") }}[r.IntN(4)])
		default:
			l.after(time.Duration(r.IntN(4000)) * time.Millisecond)
		}
		l.consistent()
	}
	for i, a := range all {
		l.answer(a, []func(context.Context) error{healthy, refused}[i%2])
	}
	l.after(2 * time.Minute)
	l.consistent()
	for n, s := range states {
		if s.Service.Check == nil {
			continue
		}
		for _, h := range s.Slices[0].Hosts {
			want := slices.Index(all, h.Address.String())%2 == 0
			if got, ok := l.Result(name(n), h.Address); !ok || got.Healthy != want {
				t.Errorf("%s %s: %+v, %t, want healthy: %t", n, h.Address, got, ok, want)
			}
		}
		l.Edit(name(n), model.ServiceState{})
	}
	l.after(time.Minute)
	if c := l.Counts(); c != (Counts{}) || len(l.queue)+len(l.frontends) > 0 || l.unknown != 0 {
		t.Errorf("%+v, %d queued, %d frontends, %d unknown are left", c, len(l.queue), len(l.frontends), l.unknown)
	}
}

// consistent checks what the engine knows about itself.
func (l *lab) consistent() {
	l.t.Helper()
	synctest.Wait()
	l.Engine.mu.Lock()
	defer l.Engine.mu.Unlock()
	unknown := 0
	busy := make(map[*pool]int)
	users := make(map[*target]int)
	for _, s := range l.services {
		bad := 0
		var before netip.Addr
		for _, m := range s.members {
			users[m.target]++
			if !m.target.healthy {
				bad++
			}
			if l.targets[m.target.targetKey] != m.target || before.IsValid() && !before.Less(m.address) {
				l.t.Errorf("%s has an endpoint %s that is not known, or not in order", s.name, m.address)
			}
			before = m.address
		}
		if bad != s.failing {
			l.t.Errorf("%s: %d endpoints fail, %d are counted", s.name, bad, s.failing)
		}
	}
	for _, x := range l.targets {
		if !x.tried {
			unknown++
		}
		if x.state == running {
			busy[l.poolOf(x)]++
		}
		if users[x] != len(x.users) || len(x.users) == 0 || x.state == idle && x.at == notQueued {
			l.t.Errorf("%s has %d users, %d are counted; it is in state %d at %d", x.address, users[x], len(x.users), x.state, x.at)
		}
	}
	for i, x := range l.queue {
		if x.at != i {
			l.t.Errorf("%s is at %d in the queue, not at %d", x.address, i, x.at)
		}
	}
	if unknown != l.unknown {
		l.t.Errorf("%d unknown, %d are counted", unknown, l.unknown)
	}
	for _, p := range []*pool{&l.network, &l.programs} {
		if p.running < busy[p] || p.running > p.limit {
			l.t.Errorf("%d checks run, %d are counted, the limit is %d", busy[p], p.running, p.limit)
		}
	}
}
