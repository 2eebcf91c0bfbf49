package slowstart

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

var web = model.ServiceName{Namespace: "default", Name: "web"}

// state returns a Service with a slow start and these hosts: "1", "2f" fails its check, "3d" is
// drained, "4n" is not ready.
func state(d time.Duration, hosts string) model.ServiceState {
	s := &model.Service{Name: web, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}}
	if d != 0 {
		s.Extras = &model.Extras{SlowStart: d}
	}
	slice := &model.EndpointSlice{Namespace: "default", Service: "web", Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}}}
	for host := range strings.FieldsSeq(hosts) {
		h := model.Host{Address: netip.AddrFrom4([4]byte{10, 0, 0, host[0] - '0'}), Ready: true, Serving: true}
		switch host[1:] {
		case "f":
			h.Failing = true
		case "d":
			h.Drain = true
		case "n":
			h.Ready = false
		}
		slice.Hosts = append(slice.Hosts, h)
	}
	return model.ServiceState{Service: s, Slices: []*model.EndpointSlice{slice}}
}

// parts returns for example "2:1 3:4": what starting endpoints have of their weight.
func parts(s model.ServiceState) string {
	var out []string
	for _, p := range s.Service.Extra().Starting {
		out = append(out, fmt.Sprintf("%d:%d", p.Endpoint.Addr().As4()[3], p.Part))
	}
	return strings.Join(out, " ")
}

// TestParts: 3.68, 3.69. Which endpoints start, when, and how their part grows.
func TestParts(t *testing.T) {
	const d = 9 * time.Second
	type step struct {
		after time.Duration
		hosts string
		want  string
	}
	for name, steps := range map[string][]step{
		"all are new with the Service": {{0, "1 2 3", ""}},
		"an endpoint is added":         {{0, "1 2", ""}, {5, "1 2 3", "3:1"}, {1, "1 2 3", "3:2"}, {7, "1 2 3", "3:9"}, {1, "1 2 3", ""}},
		"it passes its check again":    {{0, "1 2f", ""}, {5, "1 2", "2:1"}, {4, "1 2", "2:5"}},
		"it fails meanwhile":           {{0, "1 2f", ""}, {5, "1 2", "2:1"}, {4, "1 2f", ""}, {1, "1 2", "2:1"}},
		"its drain is undone":          {{0, "1 2d", ""}, {5, "1 2", "2:1"}},
		"it becomes ready":             {{0, "1 2n", ""}, {5, "1 2", "2:1"}},
		"it leaves and returns":        {{0, "1 2", ""}, {5, "1", ""}, {1, "1 2", "2:1"}},
		"the first one of a Service":   {{0, "", ""}, {5, "1", "1:1"}, {3, "1 2", "1:4 2:1"}, {6, "1 2", "2:7"}},
		"all return":                   {{0, "1f 2f", ""}, {5, "1 2", "1:1 2:1"}},
		"between two steps":            {{0, "1", ""}, {5, "1 2", "2:1"}, {1, "1 2", "2:2"}, {0, "1 2 3", "2:2 3:1"}, {1, "1 2 3", "2:3 3:2"}},
		"late":                         {{0, "1", ""}, {5, "1 2", "2:1"}, {1000, "1 2", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := new(Engine)
				for i, s := range steps {
					time.Sleep(s.after * time.Second)
					given := state(d, s.hosts)
					got := e.Edit(web, given)
					if parts(got) != s.want || !slices.Equal(got.Slices, given.Slices) {
						t.Errorf("step %d: %q start, want %q", i, parts(got), s.want)
					}
					if s.want == "" && got.Service != given.Service {
						t.Errorf("step %d: the Service is copied, though no endpoint starts", i)
					}
				}
			})
		})
	}
}

// TestNames: 3.68. The first addresses of a name that is resolved after its Service was seen have the
// whole weight, as after a restart. Later ones, and a name that is added, start.
func TestNames(t *testing.T) {
	e := new(Engine)
	edit := func(hosts, want string, names ...model.NamedServer) {
		t.Helper()
		s := state(time.Minute, hosts)
		s.Service.Extras.Names = names
		if got := parts(e.Edit(web, s)); got != want {
			t.Errorf("%q start, want %q", got, want)
		}
	}
	name := func(text string, addresses ...byte) model.NamedServer {
		n := model.NamedServer{Text: text}
		for _, a := range addresses {
			n.Addresses = append(n.Addresses, model.NamedAddress{Address: netip.AddrFrom4([4]byte{10, 0, 0, a})})
		}
		return n
	}
	edit("1", "", name("a"), name("b"))
	edit("1 2", "", name("a", 2), name("b"))
	edit("1 2 3", "", name("a", 2), name("b", 3))
	edit("1 2 3 4", "4:1", name("a", 2, 4), name("b", 3))
	edit("1 2 3 4", "4:1", name("a", 2, 4), name("b", 3), name("c"))
	edit("1 2 3 4 5", "4:1 5:1", name("a", 2, 4), name("b", 3), name("c", 5))
}

// TestTime: 3.70. Another time changes the pace from here on, and none ends all starts.
func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := new(Engine)
		edit := func(d time.Duration, hosts, want string) {
			t.Helper()
			if got := parts(e.Edit(web, state(d, hosts))); got != want {
				t.Errorf("%q start, want %q", got, want)
			}
		}
		edit(9*time.Second, "1", "")
		edit(9*time.Second, "1 2", "2:1")
		time.Sleep(3 * time.Second)
		edit(90*time.Second, "1 2", "2:4")
		time.Sleep(9 * time.Second)
		edit(90*time.Second, "1 2", "2:4")
		time.Sleep(time.Second)
		edit(90*time.Second, "1 2", "2:5")
		if got := e.Starting(); len(got) != 1 || got[0].ServiceName().String() != "default/web" || got[0].Endpoint.String() != "10.0.0.2:8080" || got[0].Part != 5 {
			t.Errorf("report %v", got)
		}
		edit(0, "1 2", "")
		edit(90*time.Second, "1 2", "")
		if got := e.Edit(web, model.ServiceState{}); got.Service != nil || len(e.services) > 0 {
			t.Errorf("%v of a deleted Service, %d Services are left", got, len(e.services))
		}
	})
}

// TestRun: a Service is edited again at each step, once for all endpoints that start, and
// nothing is due when none does.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := new(Engine)
		current := state(9*time.Second, "1")
		var mu sync.Mutex // guards the next ones
		var seen []string
		begin := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.Run(ctx, func(names ...model.ServiceName) {
				mu.Lock()
				defer mu.Unlock()
				for _, name := range names {
					seen = append(seen, fmt.Sprintf("%s %s", time.Since(begin), parts(e.Edit(name, current))))
				}
			})
		}()
		e.Edit(web, current)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(seen) > 0 {
			t.Errorf("%v, though no endpoint starts", seen)
		}
		begin = time.Now()
		current = state(9*time.Second, "1 2")
		e.Edit(web, current)
		time.Sleep(6500 * time.Millisecond)
		synctest.Wait()
		current = state(9*time.Second, "1 2 3")
		e.Edit(web, current)
		time.Sleep(time.Hour)
		synctest.Wait()
		var want []string
		for i := 1; i <= 15; i++ {
			var now []string
			if i < 9 {
				now = append(now, fmt.Sprint("2:", i+1))
			}
			if i >= 7 {
				now = append(now, fmt.Sprint("3:", i-6))
			}
			want = append(want, fmt.Sprintf("%ds %s", i, strings.Join(now, " ")))
		}
		want = append(want, "16s ")
		if !slices.Equal(seen, want) {
			t.Errorf("steps %q\nwant  %q", seen, want)
		}
		cancel()
		<-done
	})
}

// TestRanges: an endpoint of a Service with ranges of ports starts for each port.
func TestRanges(t *testing.T) {
	e := new(Engine)
	ranged := func(hosts string) model.ServiceState {
		s := state(time.Minute, hosts)
		s.Service.Extras.Ranges = []model.PortRange{{ServicePort: model.ServicePort{Protocol: model.TCP, Port: 9000}, Last: 9010}}
		return s
	}
	e.Edit(web, ranged("1"))
	var got []string
	for _, s := range e.Edit(web, ranged("1 2")).Service.Extra().Starting {
		got = append(got, s.Endpoint.String())
	}
	if want := []string{"10.0.0.2:0", "10.0.0.2:8080"}; !slices.Equal(got, want) {
		t.Errorf("%v start, want %v", got, want)
	}
}

// TestOff: a Service without a slow start costs no allocation, and the engine remembers nothing
// of it. At rest, one with a slow start costs no copy.
func TestOff(t *testing.T) {
	e := new(Engine)
	off := state(0, "1 2 3")
	if n := testing.AllocsPerRun(100, func() { e.Edit(web, off) }); n > 0 || e.services != nil {
		t.Errorf("%.0f allocations, %d Services", n, len(e.services))
	}
	on := state(time.Minute, "1 2 3")
	e.Edit(web, on)
	if n := testing.AllocsPerRun(100, func() { e.Edit(web, on) }); n > 0 {
		t.Errorf("%.0f allocations at rest", n)
	}
}

// TestMark: a plan has the parts that a daemon reports, in Services with a slow start.
func TestMark(t *testing.T) {
	on, off := state(time.Minute, "1 2"), state(0, "1 2")
	other := *off.Service
	other.Name.Name = "other"
	s := &model.Snapshot{Services: []*model.Service{on.Service, &other}}
	two := netip.MustParseAddrPort("10.0.0.2:8080")
	of := func(name string, part uint8) model.StartingEndpoint {
		return model.StartingEndpoint{ServiceRef: model.ServiceRef{Namespace: "default", Service: name}, Endpoint: two, Part: part}
	}
	reported := []model.StartingEndpoint{of("web", 3), of("web", 99), of("other", 3), of("gone", 3)}
	out, marked := Mark(s, reported)
	if got := parts(model.ServiceState{Service: out.Services[0]}); got != "2:3" || out.Services[1] != &other || !slices.Equal(marked, []string{"10.0.0.2:8080 of default/web"}) {
		t.Errorf("%q start, marked %q", got, marked)
	}
	if out, _ := Mark(s, nil); out != s || parts(on) != "" {
		t.Error("the snapshot was changed")
	}
}
