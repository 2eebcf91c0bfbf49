package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlab"
	"github.com/nftproxy/nftproxy/internal/render"
)

// picky is the kernel, to which service ports called "bad" are told in a way
// that it refuses: now with a verdict to a chain that is not there, now with a
// comment that is too long.
type picky struct {
	*apply.Conn
	blames  bool // false: the kernel's hint at the element is lost
	refused int  // transactions
}

func (k *picky) Commit(p *apply.Plan, generation uint32) (apply.Size, error) {
	size, err := k.Conn.Commit(spoil(p), generation)
	return size, k.seen(err)
}

func (k *picky) Check(p *apply.Plan, generation uint32) error {
	return k.seen(k.Conn.Check(spoil(p), generation))
}

func (k *picky) seen(err error) error {
	var refused *apply.CommitError
	if !errors.As(err, &refused) {
		return err
	}
	k.refused++
	if !k.blames {
		refused.Set, refused.Element = nil, nil
	}
	return err
}

func spoil(p *apply.Plan) *apply.Plan {
	out := *p
	out.Changes = slices.Clone(p.Changes)
	for i := range out.Changes {
		c := &out.Changes[i]
		if c.New == nil || !strings.Contains(c.New.Comment, ":bad") {
			continue
		}
		e := *c.New
		if e.Key.Port%2 == 0 {
			e.Value.Verdict = render.Verdict{Action: render.Goto, Chain: "nowhere"}
		} else {
			e.Comment = strings.Repeat("x", 300)
		}
		c.New = &e
	}
	return &out
}

// workshop is an agent on the real kernel, whose syncs the test asks for, and
// the objects that it is told.
type workshop struct {
	*Agent
	kernel *picky
	log    *bytes.Buffer
	syncs  []*Sync
	wanted map[model.ServiceName]model.ServiceState
}

// newWorkshop opens the kernel of a namespace.
func newWorkshop(t *testing.T, ns *netlab.Namespace, blames bool) *workshop {
	t.Helper()
	w := &workshop{kernel: &picky{blames: blames}, log: new(bytes.Buffer), wanted: make(map[model.ServiceName]model.ServiceState)}
	if err := ns.Do(func() (err error) { w.kernel.Conn, err = apply.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.kernel.Close() })
	log := slog.New(slog.NewTextHandler(w.log, nil))
	w.Agent = New(Config{
		Applier:   apply.New(w.kernel, log),
		Observers: []func(*Sync){func(s *Sync) { w.syncs = append(w.syncs, s) }},
		Log:       log,
		Node:      model.Config{NodeName: "node-1"},
		Bindings:  func(model.Family, int) ([]*render.Set, error) { return nil, nil },
	})
	return w
}

var nodes = []*model.Node{{Name: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}

// tell gives the agent the present state of some Services, or of all, and has it
// sync. The sync must succeed.
func (w *workshop) tell(t *testing.T, cause Cause, names ...model.ServiceName) *Sync {
	t.Helper()
	u := &model.Update{Services: make(map[model.ServiceName]model.ServiceState), Nodes: nodes}
	for _, name := range names {
		u.Services[name] = w.wanted[name]
	}
	if len(names) == 0 {
		u.Services, u.Whole = maps.Clone(w.wanted), true
	}
	w.update = w.update.Then(u)
	if !w.sync(cause) {
		t.Fatalf("sync failed: %v\n%s", w.syncs[len(w.syncs)-1].Err, w.log)
	}
	return w.syncs[len(w.syncs)-1]
}

func named(i int) model.ServiceName {
	return model.ServiceName{Namespace: "default", Name: fmt.Sprintf("service-%d", i)}
}

// state returns a Service with two ports of that name and a number of endpoints
// on this node; some have affinity or another family, too.
func state(i int, port string, endpoints int) model.ServiceState {
	name := named(i)
	s := &model.Service{
		Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(i + 1)})},
		Ports: []model.ServicePort{
			{Name: port, Protocol: model.TCP, Port: uint16(80 + i), NodePort: uint16(30000 + i)},
			{Name: "fine", Protocol: model.UDP, Port: 53},
		},
	}
	if i%3 == 0 {
		s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", i+1)))
	}
	if i%4 == 0 {
		s.AffinityTimeout = time.Duration(1+endpoints%3) * time.Hour
	}
	slice := &model.EndpointSlice{
		Namespace: name.Namespace, Name: name.Name, Service: name.Name, Family: model.IPv4,
		Ports: []model.EndpointPort{{Name: port, Protocol: model.TCP, Port: 8080}, {Name: "fine", Protocol: model.UDP, Port: 53}},
	}
	for e := range endpoints {
		slice.Hosts = append(slice.Hosts, model.Host{Address: netip.AddrFrom4([4]byte{10, 128, 0, byte(e + 1)}), Ready: true, Node: "node-1"})
	}
	return model.ServiceState{Service: s, Slices: []*model.EndpointSlice{slice}}
}

func isBad(s model.ServiceState) bool { return s.Service != nil && s.Service.Ports[0].Name == "bad" }

// TestSetAside: 13.25. It walks through random changes of some Services at a
// time, among them such as the kernel refuses. After each sync, which succeeds,
// those are set aside and reported, and no others; the kernel is where a fresh
// render is in which they are as they were last when they were good.
func TestSetAside(t *testing.T) {
	for _, blames := range []bool{true, false} {
		t.Run(fmt.Sprintf("blames %t", blames), func(t *testing.T) {
			w := newWorkshop(t, netlab.TestNamespace(t), blames)
			r := rand.New(rand.NewPCG(5, 6))
			served := make(map[model.ServiceName]model.ServiceState)
			setAside := 0
			for step := range 50 {
				var changed []model.ServiceName
				for range 1 + r.IntN(4) {
					i := r.IntN(12)
					s := state(i, []string{"http", "web", "bad"}[r.IntN(3)], r.IntN(5))
					if r.IntN(6) == 0 {
						s = model.ServiceState{}
					}
					w.change(named(i), s)
					changed = append(changed, named(i))
				}
				switch r.IntN(8) {
				case 0:
					w.tell(t, Change)
				case 1:
					w.tell(t, Retry, changed...) // compares everything
				default:
					w.tell(t, Change, changed...)
				}
				if r.IntN(10) == 0 && w.tryAgain() {
					w.tell(t, Retry, changed...)
				}
				for i := range 12 {
					s, ok := w.wanted[named(i)]
					switch {
					case !ok:
						delete(served, named(i))
					case isBad(s):
						setAside++
					default:
						served[named(i)] = s
					}
				}
				w.check(t, step, served)
			}
			if setAside < 50 {
				t.Errorf("only %d times was a Service set aside", setAside)
			}
		})
	}
}

func (w *workshop) change(name model.ServiceName, s model.ServiceState) {
	if s.Service == nil {
		delete(w.wanted, name)
		return
	}
	w.wanted[name] = s
}

// check compares the kernel with what should be served, and the notices with
// what is wanted and bad.
func (w *workshop) check(t *testing.T, step int, served map[model.ServiceName]model.ServiceState) {
	t.Helper()
	fresh := model.NewRouter()
	fresh.Configure(w.Node, nodes, nil)
	fresh.SetServices(served)
	current, _, err := w.kernel.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range apply.Diff(current, apply.Settle(current, render.Render(fresh.Routing()))).Changes {
		if c.Verb != apply.Delete || c.Kind() != "chain" { // lanes are kept for use again
			t.Errorf("step %d: a comparison of everything finds %s", step, c.Text())
		}
	}
	var want, got []string
	for name, s := range w.wanted {
		if isBad(s) {
			want = append(want, "Service "+name.String())
		}
	}
	slices.Sort(want)
	for _, n := range w.Routing().Notices {
		if n.Reason == model.RefusedByKernel {
			got = append(got, n.Object)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("step %d: set aside (-bad +reported):\n%s", step, diff)
	}
}

// TestSetAsideUntilItChanges: what was refused is not tried again before it
// changes, but once an hour; it is logged once; and what was good goes on.
func TestSetAsideUntilItChanges(t *testing.T) {
	w := newWorkshop(t, netlab.TestNamespace(t), true)
	refused := func(f func()) int {
		before := w.kernel.refused
		f()
		return w.kernel.refused - before
	}
	logged := func() int { return strings.Count(w.log.String(), "the kernel refuses its rules") }
	expect := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d\n%s", what, got, want, w.log)
		}
	}
	w.wanted[named(1)], w.wanted[named(2)] = state(1, "http", 2), state(2, "bad", 2)
	if n := refused(func() { w.tell(t, Start) }); n == 0 {
		t.Fatal("the kernel takes everything")
	}
	expect("log lines after the start", logged(), 1)
	if !strings.Contains(w.log.String(), "it is not served until") || !strings.Contains(w.log.String(), "10.96.0.3 . tcp . 82") {
		t.Errorf("the log does not say what is refused and what becomes of it: %s", w.log)
	}

	w.wanted[named(1)] = state(1, "http", 3)
	expect("refusals while another Service changes", refused(func() { w.tell(t, Change, named(1)) }), 0)
	expect("refusals when the same comes again", refused(func() { w.tell(t, Change, named(1), named(2)) }), 0)
	expect("refusals when all comes again", refused(func() { w.tell(t, Change) }), 0)
	expect("refusals in a comparison of everything", refused(func() { w.tell(t, Check) }), 0)

	if !w.tryAgain() {
		t.Error("nothing to try again")
	}
	if n := refused(func() { w.tell(t, Retry) }); n == 0 {
		t.Error("it was not tried again")
	}
	expect("log lines after another attempt", logged(), 1)

	w.wanted[named(2)] = state(2, "http", 2)
	expect("refusals when it is good", refused(func() { w.tell(t, Change, named(2)) }), 0)
	expect("Services set aside", w.router.Aside(), 0)
	w.wanted[named(2)] = state(2, "bad", 3)
	w.tell(t, Change, named(2))
	expect("log lines after the next one", logged(), 2)
	if !strings.Contains(w.log.String(), "it stays as it was until") {
		t.Errorf("the log does not say what becomes of it: %s", w.log)
	}
	if route, ok := w.routeOf(2); !ok || len(route.Inside().Endpoints) != 2 {
		t.Errorf("what was good is not served any more: %+v", route)
	}
	delete(w.wanted, named(2))
	w.tell(t, Change, named(2))
	expect("Services set aside after it is gone", w.router.Aside(), 0)
	if _, ok := w.routeOf(2); ok {
		t.Error("a Service that is gone is served")
	}
}

// TestSetAsideForAnHour: after an hour without a sync there is a check, and after
// it what is set aside is tried again (13.10, 13.25).
func TestSetAsideForAnHour(t *testing.T) {
	w := newWorkshop(t, netlab.TestNamespace(t), true)
	synctest.Test(t, func(t *testing.T) {
		c := w.Config
		c.AffinityUse = func() ([]apply.AffinityUse, error) { return nil, nil }
		c.Load = func() (*model.Update, error) {
			bad := state(1, "bad", 1)
			return (&model.Snapshot{Nodes: nodes, Services: []*model.Service{bad.Service}, Slices: bad.Slices}).Update(), nil
		}
		start := time.Now()
		var causes []Cause
		var refused []int // by then
		c.Observers = []func(*Sync){func(s *Sync) {
			if after := s.Started.Sub(start).Round(time.Second); s.Cause != Start && after != time.Hour {
				t.Errorf("%s after %v", s.Cause, after)
			}
			causes, refused = append(causes, s.Cause), append(refused, w.kernel.refused)
		}}
		a := New(c)
		ended := make(chan error)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- a.Run(ctx) }()
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !slices.Equal(causes, []Cause{Start, Check, Retry}) || refused[1] != refused[0] || refused[2] == refused[1] {
			t.Errorf("syncs: %v, refused transactions by then: %v", causes, refused)
		}
		if n := strings.Count(w.log.String(), "the kernel refuses its rules"); n != 1 {
			t.Errorf("%d lines in the log: %s", n, w.log)
		}
	})
}

func (w *workshop) routeOf(i int) (model.Route, bool) {
	for _, r := range w.Routing().Routes {
		if r.Port.Service == named(i) && r.Kind == model.ClusterIP {
			return r, true
		}
	}
	return model.Route{}, false
}

// TestSetAsideWithTraffic: while the kernel refuses one Service after the other,
// no request to another one fails, and what changes about that one takes
// effect.
func TestSetAsideWithTraffic(t *testing.T) {
	lab := netlab.TestLab(t, 2)
	if err := lab.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	w := newWorkshop(t, lab.Node.Namespace, true)
	web := state(1, "http", 1)
	point := func(pod int) {
		web.Slices[0].Hosts = []model.Host{{Address: lab.Pods[pod].Address(model.IPv4), Ready: true}}
		web.Slices = []*model.EndpointSlice{ptr(*web.Slices[0])}
		w.wanted[named(1)] = web
	}
	point(0)
	w.tell(t, Start)
	stop, failed := make(chan bool), make(chan error, 1)
	requests := 0
	go func() {
		defer close(failed)
		for {
			select {
			case <-stop:
				return
			default:
			}
			requests++
			if _, err := lab.Client.Ask("tcp", netip.MustParseAddrPort("10.96.0.2:81"), 0); err != nil {
				failed <- err
				return
			}
		}
	}()
	for i := range 20 {
		w.wanted[named(2+i)] = state(2+i, "bad", 2)
		point(i % 2)
		w.tell(t, Change, named(1), named(2+i))
		got, err := lab.Client.Ask("tcp", netip.MustParseAddrPort("10.96.0.2:81"), 0)
		if err != nil || got.Name != lab.Pods[i%2].Name {
			t.Errorf("after %d refused Services: %v, %v", i+1, got, err)
		}
	}
	close(stop)
	if err := <-failed; err != nil || w.router.Aside() != 20 || requests == 0 {
		t.Errorf("%d Services set aside; request %d failed: %v", w.router.Aside(), requests, err)
	}
}

func ptr[T any](v T) *T { return &v }
