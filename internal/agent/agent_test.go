package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// fakeKernel counts commits and fails while broken is set.
type fakeKernel struct {
	mu      sync.Mutex
	commits int
	reads   int
	broken  error
	rules   *nft.Ruleset
}

func (k *fakeKernel) breakWith(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken = err
}

func (k *fakeKernel) Claim() ([]model.Family, error) { return nil, nil }

func (k *fakeKernel) Generation() (uint32, error) { return 1, nil }

func (k *fakeKernel) ReadExpecting(*nft.Ruleset) (*nft.Ruleset, uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reads++
	if k.rules == nil {
		return &nft.Ruleset{}, 1, nil
	}
	return k.rules, 1, nil
}

func (k *fakeKernel) Empty() (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rules == nil, nil
}

// hold makes the kernel hold other rules; nil: none.
func (k *fakeKernel) hold(rules *nft.Ruleset) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rules = rules
}

func (k *fakeKernel) Bindings(model.Family, int) ([]*nft.Set, error) { return nil, nil }

func (k *fakeKernel) Unbind(model.Family, *nft.Set) error { return nil }

func (k *fakeKernel) Check(*plan.Plan) error { return nil }

func (k *fakeKernel) Commit(kernel.Prepared, uint32) (codec.Size, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broken != nil {
		return codec.Size{}, k.broken
	}
	k.commits++
	return codec.Size{}, nil
}

// fixture runs an agent in a bubble of fake time.
type fixture struct {
	kernel  *fakeKernel
	log     *bytes.Buffer
	load    func() (*model.Snapshot, error)
	use     atomic.Int64 // clients in the affinity map
	agent   *Agent
	period  time.Duration // MinSyncPeriod
	retry   time.Duration // SyncPeriod
	observe []func(*Sync)
	turn    atomic.Int64                             // orders what a test and its observers do, see pass
	before  map[model.ServiceName]model.ServiceState // of the last Load
	// addresses are those of the node's interfaces; nil: they do not matter.
	addresses  func() ([]netip.Addr, error)
	interfaces *host.Interfaces // which knows them
}

func snapshot() *model.Snapshot {
	return &model.Snapshot{Services: []*model.Service{{
		Name:       model.ServiceName{Namespace: "default", Name: "web"},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		Ports:      []model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: 30080}},
	}}}
}

func newFixture() *fixture {
	return &fixture{
		kernel: &fakeKernel{},
		log:    &bytes.Buffer{},
		load:   func() (*model.Snapshot, error) { return snapshot(), nil },
	}
}

// listed are the addresses of a test.
type listed func() ([]netip.Addr, error)

func (l listed) ServingAddresses() ([]netip.Addr, error) { return l() }

// make makes the agent.
func (f *fixture) make() {
	log := slog.New(slog.NewTextHandler(f.log, nil))
	node := model.Config{NodeName: "node-1"}
	if f.addresses != nil {
		f.interfaces = host.NewInterfaces(listed(f.addresses), log)
		node.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	}
	f.before = nil
	f.agent = New(Config{
		Source:        f,
		Interfaces:    f.interfaces,
		Node:          node,
		Applier:       apply.New(f.kernel, log),
		Affinity:      f,
		MinSyncPeriod: f.period,
		SyncPeriod:    f.retry,
		Observers:     f.observe,
		Log:           log,
	})
}

// Await implements [Source].
func (f *fixture) Await(context.Context) error { return nil }

// Load implements [Source].
func (f *fixture) Load() (u *model.Update, err error) {
	s, err := f.load()
	if s != nil {
		u, f.before = s.Since(f.before)
	}
	return u, err
}

// AffinityUse implements [Affinity].
func (f *fixture) AffinityUse() ([]kernel.AffinityUse, error) {
	return []kernel.AffinityUse{{Family: model.IPv4, Used: int(f.use.Load()), Size: 1000}}, nil
}

func (f *fixture) run(ctx context.Context) error {
	if f.agent == nil {
		f.make()
	}
	return f.agent.Run(ctx)
}

// start runs the agent in the background until the test ends, in a bubble.
func (f *fixture) start(t *testing.T) {
	f.background(t)
	synctest.Wait()
}

// pass lets time pass, in a bubble. Observers that load turn come after what the test did before.
func (f *fixture) pass(d time.Duration) {
	f.turn.Add(1)
	time.Sleep(d)
	synctest.Wait()
}

// background runs the agent until the test ends.
func (f *fixture) background(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestUnusableSourceAtStart(t *testing.T) {
	f := newFixture()
	broken := errors.New("broken file")
	f.load = func() (*model.Snapshot, error) { return nil, broken }
	if err := f.run(t.Context()); !errors.Is(err, broken) || f.kernel.commits != 0 {
		t.Errorf("error %v, %d commits", err, f.kernel.commits)
	}
}

// TestUnusableSourceLater: the log says once why a source cannot be used, and when
// it can be used again, with the same content.
func TestUnusableSourceLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.start(t)
		before := f.kernel.commits
		good := f.load
		for _, c := range []struct {
			err  string
			want string // part of the log
		}{
			{"", ""},
			{"broken file", "level=ERROR msg=\"source cannot be used; the rules stay unchanged\" error=\"broken file\"\n"},
			{"broken file", ""},
			{"no file", `error="no file"`},
			{"", "level=INFO msg=\"source usable again\"\n"},
			{"", ""},
		} {
			f.load = good
			if c.err != "" {
				f.load = func() (*model.Snapshot, error) { return nil, errors.New(c.err) }
			}
			f.log.Reset()
			f.agent.Changed()
			synctest.Wait()
			if got := f.log.String(); f.kernel.commits != before || !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("%q: %d commits after %d, log %q, want %q", c.err, f.kernel.commits, before, got, c.want)
			}
		}
	})
}

// TestUpdateBesideError: what does not depend on the source is applied while the source
// cannot be used: a health check that fails, while a file is broken.
func TestUpdateBesideError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.start(t)
		before := f.kernel.commits
		other := snapshot()
		other.Services[0].Ports[0].Port = 81
		f.load = func() (*model.Snapshot, error) { return other, errors.New("broken file") }
		for range 2 {
			f.agent.Changed()
			synctest.Wait()
		}
		if n := strings.Count(f.log.String(), "broken file"); f.kernel.commits == before || n != 1 {
			t.Errorf("%d commits after %d; the error was logged %d times:\n%s", f.kernel.commits, before, n, f.log)
		}
	})
}

// TestRetry lets commits fail for a while from the first one on (13.18, 13.19): attempts come at growing distances,
// and what is reported once it works again is that it works again.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.kernel.broken = errors.New("no memory")
		f.start(t)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := strings.Count(f.log.String(), "rules cannot be applied"); n < 5 || n > 10 {
			t.Errorf("%d attempts in ten seconds", n)
		}
		f.kernel.mu.Lock()
		f.kernel.broken = nil
		f.kernel.mu.Unlock()
		time.Sleep(DefaultSyncPeriod)
		synctest.Wait()
		if f.kernel.commits != 1 || strings.Count(f.log.String(), "rules applied") != 1 {
			t.Errorf("%d commits, log %s", f.kernel.commits, f.log)
		}
	})
}

// startTimed starts an agent with a least distance between syncs. It returns when the source is read, since
// the start.
func startTimed(t *testing.T, period time.Duration) (f *fixture, loads *[]time.Duration) {
	t.Helper()
	f, loads = newFixture(), new([]time.Duration)
	f.period = period
	start := time.Now()
	f.load = func() (*model.Snapshot, error) {
		*loads = append(*loads, time.Since(start))
		return snapshot(), nil
	}
	f.start(t)
	return f, loads
}

// TestMinSyncPeriod: 13.5. It asks for syncs at 0, 0.5 and 0.999 s, one second being the
// least distance: there are two, the second one a second after the first, and
// another request after a quiet time is served immediately.
func TestMinSyncPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, loads := startTimed(t, time.Second)
		for _, pause := range []time.Duration{500 * time.Millisecond, 499 * time.Millisecond, 9001 * time.Millisecond} {
			time.Sleep(pause)
			f.agent.Changed()
			synctest.Wait()
		}
		if want := []time.Duration{0, time.Second, 10 * time.Second}; !slices.Equal(*loads, want) {
			t.Errorf("source was read at %v, want %v", *loads, want)
		}
	})
}

// TestHurry: 9.37. While a command waits, a change is served immediately, and afterwards not before the least distance.
func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, loads := startTimed(t, time.Second)
		time.Sleep(100 * time.Millisecond)
		f.agent.Changed() // waits for its time
		synctest.Wait()
		done := f.agent.Hurry()
		for range 2 {
			time.Sleep(100 * time.Millisecond)
			f.agent.Changed()
			synctest.Wait()
		}
		done()
		f.agent.Changed()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if want := []time.Duration{0, 200 * time.Millisecond, 300 * time.Millisecond, 1300 * time.Millisecond}; !slices.Equal(*loads, want) {
			t.Errorf("source was read at %v, want %v", *loads, want)
		}
	})
}

// TestNoticesAreReportedOnce repeats a change that changes nothing (13.24):
// neither the log nor the observers get them again.
func TestNoticesAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		reported := 0
		f.observe = append(f.observe, func(s *Sync) {
			if s.NewNotices {
				reported += len(s.Router.Notices())
			}
		})
		f.start(t)
		for range 3 {
			f.agent.Changed()
			synctest.Wait()
		}
		if n := strings.Count(f.log.String(), "NodePorts are not served"); n != 1 {
			t.Errorf("reported %d times: %s", n, f.log)
		}
		if reported != 1 {
			t.Errorf("observers got %d notices", reported)
		}
	})
}

// TestFullAffinityMap warns once when the map fills (5.12), and again after it
// had room.
func TestFullAffinityMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.load = withAffinity(time.Hour)
		f.start(t)
		warnings := func(used int) int {
			f.use.Store(int64(used))
			time.Sleep(2*affinityCheck + time.Second)
			synctest.Wait()
			return strings.Count(f.log.String(), "affinity map is nearly full")
		}
		for i, c := range []struct{ used, want int }{{899, 0}, {900, 1}, {1000, 1}, {10, 1}, {950, 2}} {
			if got := warnings(c.used); got != c.want {
				t.Errorf("step %d, %d clients: %d warnings, want %d", i, c.used, got, c.want)
			}
		}
	})
}

// TestChangeReadsNothing: the cost of a change does not depend on what is there
// (13.15); after a failure everything is compared (13.12).
func TestChangeReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		var syncs []Sync
		f.observe = append(f.observe, func(s *Sync) { syncs = append(syncs, *s) })
		port := uint16(80)
		f.load = func() (*model.Snapshot, error) {
			s := snapshot()
			port++
			s.Services[0].Ports[0].Port = port
			return s, nil
		}
		f.start(t)
		reads := f.kernel.reads
		f.agent.Changed()
		synctest.Wait()
		if last := syncs[len(syncs)-1]; last.Compared || len(last.Routes) != 2 || last.Plan.Empty() || f.kernel.reads != reads {
			t.Errorf("a change: compared %t, %d routes, %d reads of the kernel", last.Compared, len(last.Routes), f.kernel.reads-reads)
		}
		f.kernel.breakWith(errors.New("no memory"))
		f.agent.Changed()
		synctest.Wait()
		f.kernel.breakWith(nil)
		f.agent.Changed()
		synctest.Wait()
		if last := syncs[len(syncs)-1]; !last.Compared || f.kernel.reads == reads {
			t.Errorf("after a failure: compared %t, %d reads of the kernel", last.Compared, f.kernel.reads-reads)
		}
	})
}
