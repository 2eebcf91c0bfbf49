package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
	"github.com/nftproxy/nftproxy/internal/testkit/series"
)

// lab is an engine with fake endpoints, in a bubble of fake time.
type lab struct {
	*Engine
	t *testing.T

	mu      sync.Mutex
	answers map[netip.Addr]func(ctx context.Context) error // of endpoints; missing: healthy
	made    map[netip.AddrPort]int                         // checks
	times   []time.Time                                    // of all checks
	most    int                                            // checks at the same time
	room    atomic.Int32                                   // for checks; zero: as much as the budget allows
	now     int
	changes [][]model.ServiceName
	log     strings.Builder
}

// healthy and others are answers of an endpoint.
func healthy(context.Context) error { return nil }
func refused(context.Context) error { return errors.New("connect: refused") }
func silent(ctx context.Context) error {
	<-ctx.Done()
	return errors.New("connect: no answer")
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, answers: make(map[netip.Addr]func(context.Context) error), made: make(map[netip.AddrPort]int)}
	l.Engine = newEngine(&feature.Node{Config: new(config.Config)}, l, slog.New(slog.NewTextHandler(&l.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	return l
}

// Counts are numbers of the present.
type Counts struct {
	Services int // with a check
	Targets  int // that are checked: endpoints that several Services check in the same way are one
	Failing  int // of them
	Running  int // checks
	Waiting  int // checks that are due, because too many run
}

// Counts returns how much there is to do.
func (e *Engine) Counts() Counts {
	c := Counts{Waiting: e.Late()}
	e.mu.Lock()
	defer e.mu.Unlock()
	c.Services, c.Targets, c.Running = len(e.services), len(e.targets), e.network.running+e.programs.running
	for _, t := range e.targets {
		if !t.healthy {
			c.Failing++
		}
	}
	return c
}

// fakeChecker answers for an endpoint.
type fakeChecker struct {
	*lab
	checker.Target
	timeout time.Duration
}

func (l *lab) New(c *model.Check, t checker.Target) (checker.Checker, error) {
	return fakeChecker{l, t, c.Timeout}, nil
}

// Room implements [maker].
func (l *lab) Room() (network, programs int) {
	if n := int(l.room.Load()); n > 0 {
		return n, 1
	}
	return budget.Checks, budget.CheckPrograms
}

func (f fakeChecker) Check(ctx context.Context) error {
	f.mu.Lock()
	f.made[f.Address]++
	f.times = append(f.times, time.Now())
	f.now++
	f.most = max(f.most, f.now)
	answer := f.answers[f.Address.Addr()]
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}()
	if answer == nil {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	return answer(limit)
}

func (l *lab) answer(address string, answer func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[netip.MustParseAddr(address)] = answer
}

func (l *lab) start() {
	ctx, stop := context.WithCancel(l.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx, func(names ...model.ServiceName) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.changes = append(l.changes, names)
		})
	}()
	l.t.Cleanup(func() { stop(); <-done })
}

// logged returns the log since the last call.
func (l *lab) logged() string {
	l.Engine.mu.Lock()
	defer l.Engine.mu.Unlock()
	defer l.log.Reset()
	return l.log.String()
}

// after lets time pass, and returns the Services whose edits have changed in it, one
// batch in each line.
func (l *lab) after(d time.Duration) string {
	time.Sleep(d)
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, names := range l.changes {
		slices.SortFunc(names, model.ServiceName.Compare)
		out = append(out, fmt.Sprint(names))
	}
	l.changes = nil
	return strings.Join(out, "\n")
}

func name(n string) model.ServiceName { return model.ServiceName{Namespace: "default", Name: n} }

// tcp is the check that the tests use: an endpoint fails after three failures.
var tcp = &model.Check{Type: model.CheckTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}

// service returns a Service with a check and ready endpoints on port 8080.
func serviceOf(n string, c *model.Check, addresses ...string) model.ServiceState {
	s := model.ServiceState{Service: &model.Service{Name: name(n), Check: c, Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}}}}
	for _, f := range model.Families {
		slice := &model.EndpointSlice{Namespace: "default", Name: n, Service: n, Family: f, Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}}}
		for _, a := range addresses {
			if a := netip.MustParseAddr(a); model.FamilyOf(a) == f {
				slice.Hosts = append(slice.Hosts, model.Host{Address: a, Ready: true, Serving: true})
			}
		}
		if len(slice.Hosts) > 0 {
			s.Slices = append(s.Slices, slice)
		}
	}
	return s
}

// failing returns the addresses that an edit marks.
func (l *lab) failing(s model.ServiceState) string {
	before := fmt.Sprintf("%+v", *s.Slices[0])
	edited := l.Edit(s.Service.Name, s)
	if after := fmt.Sprintf("%+v", *s.Slices[0]); after != before {
		l.t.Errorf("the state was changed: %s", after)
	}
	var out []string
	for _, slice := range edited.Slices {
		for _, h := range slice.Hosts {
			if h.Failing {
				out = append(out, h.Address.String())
			}
		}
	}
	return strings.Join(out, " ")
}

// TestFirstResult: 3.24. The first result decides, and is there before Await returns.
func TestFirstResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.answer("10.0.0.2", refused)
		l.answer("fd00::1", silent)
		l.start()
		s := serviceOf("web", tcp, "10.0.0.1", "10.0.0.2", "fd00::1")
		if got := l.failing(s); got != "" {
			t.Errorf("before any check these fail: %s", got)
		}
		begin := time.Now()
		if err := l.Await(t.Context()); err != nil || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		synctest.Wait()
		if got := l.failing(s); got != "10.0.0.2 fd00::1" {
			t.Errorf("these fail: %s", got)
		}
		if r, ok := l.Result(name("web"), netip.MustParseAddr("10.0.0.2")); !ok || r.Healthy || r.Message != "connect: refused" || !r.Since.Equal(begin) {
			t.Errorf("result %+v, %t", r, ok)
		}
		if r, ok := l.Result(name("web"), netip.MustParseAddr("10.0.0.1")); !ok || !r.Healthy || r.Message != "" || r.Checked.IsZero() {
			t.Errorf("result %+v, %t", r, ok)
		}
		if r, ok := l.Result(name("web"), netip.MustParseAddr("10.0.0.9")); ok {
			t.Errorf("result of an unknown endpoint: %+v", r)
		}
		if c := l.Counts(); c.Services != 1 || c.Targets != 3 || c.Failing != 2 {
			t.Errorf("counts %+v", c)
		}
	})
}

// TestAwaitIsLimited: 3.26. A check that takes long does not hold up the start, and
// without checks there is nothing to wait for.
func TestAwaitIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.answer("10.0.0.1", silent)
		l.start()
		begin := time.Now()
		if err := l.Await(t.Context()); err != nil || time.Since(begin) != 0 {
			t.Errorf("without checks: %v after %v", err, time.Since(begin))
		}
		slow := *tcp
		slow.Timeout, slow.Interval = time.Minute, time.Hour
		l.Edit(name("web"), serviceOf("web", &slow, "10.0.0.1"))
		if err := l.Await(t.Context()); err != nil || time.Since(begin) != firstResults {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if got := l.logged(); !strings.Contains(got, "starting before all endpoints have been checked") {
			t.Errorf("log %s", got)
		}
		l.Edit(name("web"), model.ServiceState{}) // what is gone needs no result
		if err := l.Await(t.Context()); err != nil || time.Since(begin) != firstResults {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// TestRiseAndFall: 3.24, 3.25. An endpoint fails after three failures in a row, which
// takes less than an interval from the first one, and is healthy again after two
// successes, which takes an interval. A single failure changes nothing.
func TestRiseAndFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.start()
		s := serviceOf("web", tcp, "10.0.0.1", "10.0.0.2")
		l.Edit(name("web"), s)
		if got := l.after(10 * time.Second); got != "" {
			t.Errorf("healthy endpoints: %s", got)
		}
		once := 0
		l.answer("10.0.0.1", func(context.Context) error {
			if once++; once%3 == 0 { // one result in three is good
				return nil
			}
			return errors.New("connect: refused")
		})
		if got := l.after(time.Minute); got != "" || once < 30 {
			t.Errorf("flapping: %q after %d checks", got, once)
		}
		l.answer("10.0.0.1", refused)
		if got := l.after(2200*time.Millisecond + 2*400*time.Millisecond + batchTime); got != "[default/web]" || l.failing(s) != "10.0.0.1" {
			t.Errorf("dead: %q, failing %s", got, l.failing(s))
		}
		if got := l.logged(); !strings.Contains(got, `level=WARN msg="endpoint fails its health check" service=default/web endpoint=10.0.0.1 error="connect: refused"`) {
			t.Errorf("log %s", got)
		}
		l.answer("10.0.0.1", healthy)
		if got := l.after(1600 * time.Millisecond); got != "" {
			t.Errorf("one success is enough")
		}
		if got := l.after(3 * time.Second); got != "[default/web]" || l.failing(s) != "" {
			t.Errorf("recovered: %q, failing %s", got, l.failing(s))
		}
		if got := l.logged(); !strings.Contains(got, `level=INFO msg="endpoint healthy again" service=default/web endpoint=10.0.0.1`) {
			t.Errorf("log %s", got)
		}
	})
}

// TestSpread: checks of many endpoints are spread over the interval, and their number at
// the same time is limited.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		const n = 5000
		l.start()
		l.Edit(name("web"), serviceOf("web", tcp, addresses(n)...))
		l.after(20 * time.Second)
		l.mu.Lock()
		l.times = nil
		l.mu.Unlock()
		l.after(20 * time.Second)
		l.mu.Lock()
		defer l.mu.Unlock()
		perSecond := make(map[int]int)
		for _, at := range l.times {
			perSecond[at.Second()]++
		}
		for second, count := range perSecond {
			if count < n/2*8/10 || count > n/2*12/10 {
				t.Errorf("%d checks in second %d, want about %d", count, second, n/2)
			}
		}
		if len(perSecond) < 20 || l.most > budget.Checks {
			t.Errorf("%d seconds, %d checks at the same time", len(perSecond), l.most)
		}
	})
}

func addresses(n int) (out []string) {
	for i := range n {
		out = append(out, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String())
	}
	return out
}

// TestRackDies: 3.27. A thousand endpoints of a hundred Services that stop answering
// give few changes, and few lines of log.
func TestRackDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		all := addresses(2000)
		l.start()
		for i := range 100 {
			n := fmt.Sprintf("s%d", i)
			l.Edit(name(n), serviceOf(n, tcp, all[i*20:i*20+20]...))
		}
		l.after(10 * time.Second)
		for i, a := range all {
			if i%2 == 0 {
				l.answer(a, silent)
			}
		}
		batches := strings.Count(l.after(10*time.Second), "\n") + 1
		if c := l.Counts(); c.Failing != 1000 || batches > 10_000/int(batchTime/time.Millisecond) {
			t.Errorf("%+v in %d batches", c, batches)
		}
		log := l.logged()
		if n := strings.Count(log, "endpoint fails"); n > 6*budget.HealthLines || !strings.Contains(log, `msg="health changed (more endpoints)" failing=`) {
			t.Errorf("%d lines:\n%.2000s", n, log)
		}
	})
}

// TestServerDies: 3.27. A server of many Services that dies, or recovers, is one line of the log.
func TestServerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.start()
		for i := range 200 {
			n := fmt.Sprintf("s%d", i)
			l.Edit(name(n), serviceOf(n, tcp, "10.0.0.1", "10.0.0.2"))
		}
		l.after(10 * time.Second)
		l.answer("10.0.0.1", silent)
		l.after(10 * time.Second)
		log := l.logged()
		if strings.Count(log, "\n") != 1 || !strings.Contains(log, `msg="endpoint fails its health check" service=default/s0 endpoint=10.0.0.1 services=200`) {
			t.Errorf("log of a dead server:\n%.2000s", log)
		}
		l.answer("10.0.0.1", healthy)
		l.after(10 * time.Second)
		log = l.logged()
		if strings.Count(log, "\n") != 1 || !strings.Contains(log, `msg="endpoint healthy again" service=default/s0 endpoint=10.0.0.1 services=200`) {
			t.Errorf("log of one that recovers:\n%.2000s", log)
		}
	})
}

// TestTogether: results at the same time are one change.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		all := addresses(500)
		for _, a := range all {
			l.answer(a, silent)
		}
		l.start()
		for i := range 50 {
			n := fmt.Sprintf("s%d", i)
			l.Edit(name(n), serviceOf(n, tcp, all[i*10:i*10+10]...))
		}
		if got := l.after(5 * time.Second); strings.Count(got, "\n") != 0 || strings.Count(got, "default/") != 50 {
			t.Errorf("changes:\n%s", got)
		}
	})
}

// TestManyHang: endpoints beyond the limit wait for their turn, and all are checked.
func TestManyHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		all := addresses(3 * budget.Checks)
		for _, a := range all {
			l.answer(a, silent)
		}
		l.start()
		l.Edit(name("web"), serviceOf("web", tcp, all...))
		l.after(1500 * time.Millisecond)
		if c := l.Counts(); c.Running != budget.Checks || c.Waiting == 0 {
			t.Errorf("%+v", c)
		}
		l.after(10 * time.Second)
		if c := l.Counts(); c.Failing != len(all) || l.most > budget.Checks {
			t.Errorf("%+v, %d at the same time", c, l.most)
		}
		l.Edit(name("web"), model.ServiceState{})
		l.after(10 * time.Second)
		if c := l.Counts(); c != (Counts{}) || len(l.queue) > 0 {
			t.Errorf("%+v, %d queued", c, len(l.queue))
		}
	})
}

// TestCheckHangs: a check that does not end with its context is a failure, holds up no
// other one, and counts again when it ends.
func TestCheckHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		release := make(chan struct{})
		l.Engine.network.limit = 1
		l.start()
		s := serviceOf("web", tcp, "10.0.0.1", "10.0.0.2")
		l.Edit(name("web"), s)
		l.after(10 * time.Second)
		l.answer("10.0.0.1", func(context.Context) error { <-release; return nil })
		l.after(20 * time.Second)
		r, _ := l.Result(name("web"), netip.MustParseAddr("10.0.0.1"))
		if got := l.failing(s); got != "10.0.0.1" || r.Message != errHangs.Error() {
			t.Errorf("failing %s, %+v", got, r)
		}
		l.mu.Lock()
		before := l.made[netip.MustParseAddrPort("10.0.0.2:8080")]
		l.mu.Unlock()
		l.after(20 * time.Second)
		l.mu.Lock()
		if n := l.made[netip.MustParseAddrPort("10.0.0.2:8080")] - before; n < 8 {
			t.Errorf("%d checks of the other endpoint", n)
		}
		l.mu.Unlock()
		close(release)
		l.after(10 * time.Second)
		if got := l.failing(s); got != "" {
			t.Errorf("failing %s", got)
		}
		if c := l.Counts(); c.Running != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// TestRoom: 3.25. How many checks run at the same time follows the room that there is.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.room.Store(2)
		addresses := make([]string, 10)
		for i := range addresses {
			addresses[i] = fmt.Sprintf("10.0.0.%d", i+1)
			l.answer(addresses[i], func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
		}
		l.start()
		l.Edit(name("web"), serviceOf("web", tcp, addresses...))
		for _, n := range []int{2, 3, 1} {
			l.room.Store(int32(n))
			l.after(10 * time.Second) // those that run have ended
			l.mu.Lock()
			l.most = 0
			l.mu.Unlock()
			l.after(10 * time.Second)
			l.mu.Lock()
			if l.most != n {
				t.Errorf("with room for %d, %d checks run", n, l.most)
			}
			l.mu.Unlock()
		}
	})
}

// TestPanic: a panic in a check is logged, says nothing about the endpoint, and stops no
// other check.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.answer("10.0.0.1", func(context.Context) error { panic("boom") })
		l.answer("10.0.0.2", refused)
		l.start()
		s := serviceOf("web", tcp, "10.0.0.1", "10.0.0.2")
		l.Edit(name("web"), s)
		begin := time.Now()
		if err := l.Await(t.Context()); err != nil || time.Since(begin) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		l.after(20 * time.Second)
		if got := l.failing(s); got != "10.0.0.2" {
			t.Errorf("failing %s", got)
		}
		if got := l.logged(); !strings.Contains(got, "internal error in a health check") || !strings.Contains(got, "boom") || !strings.Contains(got, "engine_test.go") {
			t.Errorf("log %s", got)
		}
	})
}

// TestLocalErrors: a machine without descriptors fails no endpoint, and says so once a
// minute.
func TestLocalErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.start()
		s := serviceOf("web", tcp, "10.0.0.1", "10.0.0.2")
		l.Edit(name("web"), s)
		l.after(10 * time.Second)
		for _, a := range []string{"10.0.0.1", "10.0.0.2"} {
			l.answer(a, func(context.Context) error { return fmt.Errorf("%w: too many open files", checker.ErrLocal) })
		}
		if got := l.after(50 * time.Second); got != "" || l.failing(s) != "" {
			t.Errorf("changes %s, failing %s", got, l.failing(s))
		}
		if got := l.logged(); strings.Count(got, "health checks cannot be made") != 1 {
			t.Errorf("log %s", got)
		}
	})
}

// TestEdits: 3.28. Results survive edits of a Service as long as it has the endpoint and
// the check, another check begins with what is known, and what is gone is forgotten.
func TestEdits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.answer("10.0.0.1", refused)
		l.start()
		l.Edit(name("web"), serviceOf("web", tcp, "10.0.0.1", "10.0.0.2"))
		l.after(10 * time.Second)
		since, _ := l.Result(name("web"), netip.MustParseAddr("10.0.0.1"))

		same := *tcp // as a file that is read again has it
		if got := l.failing(serviceOf("web", &same, "10.0.0.3", "10.0.0.1")); got != "10.0.0.1" {
			t.Errorf("another endpoint: failing %s", got)
		}
		if now, _ := l.Result(name("web"), netip.MustParseAddr("10.0.0.1")); now != since {
			t.Errorf("the result was %+v and is %+v", since, now)
		}
		if _, ok := l.Result(name("web"), netip.MustParseAddr("10.0.0.2")); ok {
			t.Error("an endpoint that is gone has a result")
		}

		slower := *tcp
		slower.Interval = 10 * time.Second
		l.answer("10.0.0.1", healthy) // the edit starts a check, beside the test
		if got := l.failing(serviceOf("web", &slower, "10.0.0.1", "10.0.0.3")); got != "10.0.0.1" {
			t.Errorf("another check: failing %s", got)
		}
		if l.after(time.Second); l.failing(serviceOf("web", &slower, "10.0.0.1", "10.0.0.3")) != "" {
			t.Error("the first result of another check does not count")
		}

		l.answer("10.0.0.1", refused)
		l.Edit(name("web"), serviceOf("web", nil, "10.0.0.1"))
		if c := l.Counts(); c != (Counts{}) {
			t.Errorf("without a check: %+v", c)
		}
		l.after(time.Minute)
		l.mu.Lock()
		l.made = make(map[netip.AddrPort]int)
		l.mu.Unlock()
		if l.after(time.Minute); len(l.made) > 0 || len(l.targets)+len(l.queue) > 0 {
			t.Errorf("checks %v, %d targets, %d queued", l.made, len(l.targets), len(l.queue))
		}
	})
}

// TestShared: 3.25. An address that several Services check in the same way is checked once, and
// fails for all; another port or another check is another target.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.start()
		reject, other, slower := *tcp, *tcp, *tcp
		reject.AllFailing, other.Port, slower.Interval = model.RejectAll, 9090, 4*time.Second
		states := []model.ServiceState{serviceOf("a", tcp, "10.0.0.1"), serviceOf("b", &reject, "10.0.0.1", "10.0.0.2"), serviceOf("c", &other, "10.0.0.1"), serviceOf("d", &slower, "10.0.0.1")}
		for _, s := range states {
			l.Edit(s.Service.Name, s)
		}
		if c := l.Counts(); c.Services != 4 || c.Targets != 4 {
			t.Errorf("%+v", c)
		}
		l.after(10 * time.Second)
		l.answer("10.0.0.1", refused)
		// The other targets may be checked at the same moment: each has a random one.
		if got := l.after(20 * time.Second); !strings.Contains(got, "[default/a default/b") {
			t.Errorf("changes\n%s", got)
		}
		for _, s := range states {
			if got := l.failing(s); got != "10.0.0.1" {
				t.Errorf("%s: failing %s", s.Service.Name, got)
			}
		}
		l.Edit(name("a"), model.ServiceState{})
		if c := l.Counts(); c.Services != 3 || c.Targets != 4 || c.Failing != 3 || l.failing(states[1]) != "10.0.0.1" {
			t.Errorf("%+v, failing %s", c, l.failing(states[1]))
		}
	})
}

// TestPort: a check is made at the port that it names, or at the first port of the
// Service that fits and that the endpoint has; one without any is not checked.
func TestPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.start()
		s := serviceOf("web", tcp, "10.0.0.1")
		s.Service.Ports = []model.ServicePort{{Name: "dns", Protocol: model.UDP, Port: 53}, {Name: "admin", Protocol: model.TCP, Port: 81}, {Name: "http", Protocol: model.TCP, Port: 80}}
		more := *s.Slices[0]
		more.Name, more.Ports = "more", []model.EndpointPort{{Name: "admin", Protocol: model.TCP, Port: 8081}, {Name: "dns", Protocol: model.UDP, Port: 53}}
		foreign := *s.Slices[0]
		foreign.Ports, foreign.Hosts = nil, []model.Host{{Address: netip.MustParseAddr("10.0.0.2"), Ready: true}}
		unready := *s.Slices[0]
		unready.Hosts = []model.Host{{Address: netip.MustParseAddr("10.0.0.3"), Serving: true}, {Address: netip.MustParseAddr("10.0.0.4"), Serving: true, Terminating: true}, {Address: netip.MustParseAddr("10.0.0.5"), Ready: true, Drain: true}}
		s.Slices = append(s.Slices, &more, &foreign, &unready)
		l.Edit(name("web"), s)
		named := *tcp
		named.Port = 9000
		l.Edit(name("named"), serviceOf("named", &named, "10.0.0.6"))
		l.after(time.Second)
		l.mu.Lock()
		defer l.mu.Unlock()
		var got []string
		for a := range l.made {
			got = append(got, a.String())
		}
		slices.Sort(got)
		if want := "[10.0.0.1:8081 10.0.0.4:8080 10.0.0.5:8080 10.0.0.6:9000]"; fmt.Sprint(got) != want {
			t.Errorf("checked are %s, want %s", got, want)
		}
	})
}

// serving is a node without IPv6, which may serve a virtual address.
type serving struct {
	feature.Serving
	vip atomic.Bool
}

func (s *serving) Families() []model.Family { return []model.Family{model.IPv4} }

func (s *serving) Serves(f model.Frontend) (model.ServiceName, bool) {
	return name("vip"), s.vip.Load() && f == model.Frontend{Address: netip.MustParseAddr("10.0.0.1"), Port: 8080, Protocol: model.TCP}
}

// TestNotChecked: 3.29. A check that would go through a frontend of this node is not made,
// which the log says once; an address of a family that the machine lacks fails.
func TestNotChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var node serving
		node.vip.Store(true)
		l.node.Serve(&node)
		l.answer("10.0.0.1", refused)
		l.start()
		s := serviceOf("web", tcp, "10.0.0.1", "10.0.0.2", "fd00::1")
		l.Edit(name("web"), s)
		if err := l.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.after(30 * time.Second)
		if got := l.failing(s); got != "fd00::1" || l.made[netip.MustParseAddrPort("10.0.0.1:8080")] > 0 {
			t.Errorf("failing %s, checks %v", got, l.made)
		}
		for address, want := range map[string]string{"10.0.0.1": "not checked: the address belongs to Service default/vip", "fd00::1": "this machine has no IPv6"} {
			if r, _ := l.Result(name("web"), netip.MustParseAddr(address)); !strings.Contains(r.Message, want) {
				t.Errorf("%s: %+v", address, r)
			}
		}
		if got := l.logged(); strings.Count(got, "is not checked") != 1 || !strings.Contains(got, "endpoint=10.0.0.1:8080 service=default/vip") {
			t.Errorf("log %s", got)
		}
		node.vip.Store(false)
		if l.after(10 * time.Second); l.failing(s) != "10.0.0.1 fd00::1" {
			t.Errorf("failing %s", l.failing(s))
		}
	})
}

// noted are the Services that the engine names to others.
type noted []model.ServiceName

func (n *noted) Note(names ...model.ServiceName) { *n = append(*n, names...) }

// TestCount: 3.35. Each check and each transition is counted, and others learn which Service it is of.
func TestCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var names noted
		l.node.Features = []feature.Feature{&names}
		l.answer("10.0.0.1", silent)
		l.start()
		l.Edit(name("web"), serviceOf("web", tcp, "10.0.0.1"))
		l.after(1500 * time.Millisecond)
		series.Expect(t, map[string]float64{
			`nftproxy_health_checks_total{result="fail",type="tcp"}`: 1,
			`nftproxy_health_check_duration_seconds{type="tcp"}`:     1,
			`nftproxy_health_check_transitions_total{to="failing"}`:  1,
			`nftproxy_health_check_endpoints{state="failing"}`:       1,
		}, l.Collectors()...)
		if !slices.Equal(names, noted{name("web")}) {
			t.Errorf("noted are %v", names)
		}
	})
}

// TestOwnAtStart: 3.29. The addresses of Services with a check are known before any rules.
func TestOwnAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.start()
		vip, loop := serviceOf("vip", tcp, "10.0.0.2"), serviceOf("loop", tcp, "203.0.113.1", "fd00::9")
		vip.Service.External = &model.External{LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("203.0.113.1")}}
		vip.Service.ClusterIPs = []netip.Addr{netip.MustParseAddr("fd00::9")}
		vip.Service.Ports[0].Port = 8080
		l.Edit(name("vip"), vip)
		l.Edit(name("loop"), loop)
		l.after(10 * time.Second)
		if len(l.made) != 1 || strings.Count(l.logged(), "is not checked") != 2 {
			t.Errorf("checks %v", l.made)
		}
		moved := *vip.Service
		moved.External, moved.ClusterIPs = nil, nil
		l.Edit(name("vip"), model.ServiceState{Service: &moved, Slices: vip.Slices})
		if l.after(10 * time.Second); len(l.made) != 3 || len(l.frontends) != 0 {
			t.Errorf("checks %v, frontends %v", l.made, l.frontends)
		}
	})
}
