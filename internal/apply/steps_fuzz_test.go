package apply

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/steer"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// strict is a fake kernel that checks the plans that it gets, and their results.
type strict struct {
	*fake
	t *testing.T
}

func newStrict(t *testing.T) strict {
	k := strict{newFake(), t}
	k.seen = func(_, after *nft.Ruleset) { workload.CheckReferences(t, after) }
	return k
}

func (k strict) Commit(p kernel.Prepared, generation uint32) (codec.Size, error) {
	tx, err := codec.Encode(p.Plan)
	if err != nil {
		k.t.Errorf("encode: %v", err)
	}
	for _, m := range tx.Messages {
		if err := checkAttributes(m.Data); err != nil {
			k.t.Errorf("message about %s: %v", m.Object, err)
		}
	}
	if size, err := k.fake.Commit(p, generation); err == nil {
		return tx.Size(), nil
	} else {
		return size, err
	}
}

// checkAttributes reports whether the lengths of attributes fit: the outer ones
// have 16 bits and fill the message.
func checkAttributes(data []byte) error {
	if len(data) >= 1<<16 {
		return fmt.Errorf("%d bytes do not fit in a message", len(data))
	}
	var err error
	a := netlinkio.ReadMessage(data, &err)
	for a.Next() {
	}
	return err
}

// marcher keeps a kernel at rivals, as the agent does.
type marcher struct {
	*workload.Rivals
	*follower
	kernel strict
}

func newMarcher(t *testing.T) *marcher {
	k := newStrict(t)
	return &marcher{workload.NewRivals(), newFollower(k), k}
}

// step does what the bytes say next. It returns true if nothing should be left
// over then.
func (m *marcher) step(t *testing.T, r *rand.Rand) (tidy bool) {
	switch r.IntN(16) {
	case 15:
		m.Configure(r)
		m.router.Configure(m.Config, m.Nodes(), m.Cidrs)
		m.router.SetServices(m.States(m.All()...))
		m.compare(t)
	case 14: // a restart
		m.applier = New(m.kernel, slog.New(slog.DiscardHandler))
		m.compare(t)
	case 13:
		m.kernel.bind(r)
	case 12: // done, but the answer is lost; or not done
		fault := []error{errAfter{unix.ENOBUFS}, unix.EINTR, unix.ENOMEM}[r.IntN(3)]
		m.kernel.fails = func(*plan.Plan) error {
			m.kernel.fails = func(*plan.Plan) error { return nil }
			return fault
		}
	case 11:
		m.tidy(t)
		return true
	default:
		var changed []int
		for range 1 + r.IntN(3) {
			changed = append(changed, m.Change(r))
		}
		var moved []model.RouteChange
		base := false // the address changed from which the node answers echo requests
		if r.IntN(8) == 7 && len(m.Config.NodePortAddresses) > 0 {
			m.Move(r)
			moved, base = m.router.Configure(m.Config, m.Nodes(), m.Cidrs)
		}
		if r.IntN(4) == 3 {
			changed = m.All()
		}
		m.follow(t, model.JoinChanges(moved, m.router.SetServices(m.States(changed...))), base)
	}
	return false
}

// check compares with what a start from nothing would give.
func (m *marcher) check(t *testing.T, tidy bool) {
	t.Helper()
	want := m.Resolve()
	if got := m.router.Routing(); !reflect.DeepEqual(want, got) {
		t.Fatalf("the router says otherwise than a fresh one (-fresh +router):\n%s", cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got)))
	}
	fresh := render.Render(want)
	current, _, _ := m.kernel.Read()
	serves := service(current)
	for key := range serves {
		if strings.HasPrefix(key, nft.AffinityMap+" ") || strings.HasPrefix(key, nft.LocalAffinityMap+" ") {
			delete(serves, key)
		}
	}
	if should := service(fresh); !reflect.DeepEqual(should, serves) {
		t.Fatalf("the kernel serves otherwise (-fresh +kernel):\n%s", cmp.Diff(should, serves))
	}
	if should, does := reaches(fresh), reaches(current); !reflect.DeepEqual(should, does) {
		t.Fatalf("clients reach other endpoints (-fresh +kernel):\n%s", cmp.Diff(should, does))
	}
	if !tidy {
		return
	}
	if p := plan.Diff(current, plan.Settle(current, fresh)); !p.Empty() {
		t.Fatalf("a comparison of everything finds %s", workload.Printed(t, p))
	}
	workload.ForgetBindings(current)
	if diff := cmp.Diff(workload.Sorted(plan.Settle(current, fresh)), workload.Sorted(current)); diff != "" {
		t.Fatalf("the kernel differs from a fresh render (-fresh +kernel):\n%s", diff)
	}
}

// reaches returns the endpoints, in no order, that clients of each frontend get,
// and those outside of the cluster where it makes a difference.
func reaches(r *nft.Ruleset) map[string][]string {
	out := make(map[string][]string)
	for _, t := range r.Tables {
		lanes := plan.NewLanes(t)
		for _, e := range t.Set(nft.EndpointsMap).Elements {
			for _, name := range []string{nft.ServicesMap, nft.LocalServicesMap} {
				if slots, ok := lanes.Of(name, e.Key.Frontend()); ok && slots.Has(e.Key.Slot) {
					key := name + " " + e.Key.Frontend().String()
					out[key] = append(out[key], e.Value.Endpoint.String())
				}
			}
		}
	}
	for _, v := range out {
		slices.Sort(v)
	}
	return out
}

// FuzzSteps: 13.13, 13.14, 13.15. Any sequence of changes, faults and restarts
// ends where a fresh render of the final state ends; no transaction adds what
// exists, deletes what does not or leads to what is not there; and a packet that
// is in flight finds lanes and slots.
func FuzzSteps(f *testing.F) {
	steer.Seed(f, 0, 60, 200, 600, 1200)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1200 {
			t.Skip("more takes long and shows nothing else")
		}
		r, left := steer.New(data)
		m := newMarcher(t)
		look := m.kernel.seen
		m.kernel.seen = func(before, after *nft.Ruleset) {
			look(before, after)
			for _, family := range model.Families {
				if cur, next := before.Table(family), after.Table(family); cur != nil && next != nil {
					checkBetween(t, cur, next)
				}
			}
		}
		m.router.Configure(m.Config, m.Nodes(), m.Cidrs)
		m.compare(t)
		for left.Left() > 0 {
			m.check(t, m.step(t, r))
		}
		m.kernel.fails = func(*plan.Plan) error { return nil }
		m.tidy(t)
		m.check(t, true)
	})
}
