package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// states is what is known of Services, those without a Service but with slices
// included.
type states map[model.ServiceName]model.ServiceState

// take applies an update as its readers do.
func (s states) take(u *model.Update) {
	for name, state := range u.Services {
		s[name] = state
		if state.Service == nil && len(state.Slices) == 0 {
			delete(s, name)
		}
	}
}

// served returns the states that have a Service.
func (s states) served() states {
	out := maps.Clone(s)
	maps.DeleteFunc(out, func(_ model.ServiceName, state model.ServiceState) bool { return state.Service == nil })
	return out
}

// diff names the Services of which o has other objects, or other versions.
func (s states) diff(o states) []string {
	var out []string
	all := maps.Clone(s)
	maps.Copy(all, o)
	for name := range all {
		a, b := s[name], o[name]
		if a.Service != b.Service || !slices.Equal(byName(a.Slices), byName(b.Slices)) {
			out = append(out, name.String())
		}
	}
	slices.Sort(out)
	return out
}

func byName(all []*model.EndpointSlice) []*model.EndpointSlice {
	return slices.SortedFunc(slices.Values(all), func(a, b *model.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
}

// statesOf groups what a snapshot has.
func statesOf(t *testing.T, c *Cluster) states {
	t.Helper()
	s, err := c.Snapshot()
	check(t, err)
	out := make(states)
	for _, svc := range s.Services {
		out[svc.Name] = model.ServiceState{Service: svc}
	}
	for _, slice := range s.Slices {
		name := slice.ServiceName()
		out[name] = model.ServiceState{Service: out[name].Service, Slices: append(out[name].Slices, slice)}
	}
	return out
}

// world is an API server whose objects change at random.
type world struct {
	*rand.Rand
	*lab
	services map[cache.ObjectName]*corev1.Service
	slices   map[cache.ObjectName]*discoveryv1.EndpointSlice
}

// service returns a version of one of a few Services; some are not proxied.
func (w *world) service() *corev1.Service {
	s := sourcetest.Read[corev1.Service](w.t, fmt.Sprintf(
		`{metadata: {namespace: %c, name: s%d}, spec: {clusterIP: 10.96.0.1, ports: [{port: 8%d}]}}`, 'a'+w.IntN(2), w.IntN(3), w.IntN(2)))
	if w.IntN(5) == 0 {
		s.Labels = map[string]string{convert.LabelProxyName: "other"}
	}
	return s
}

// slice returns a version of one of a few slices, which may be of any Service;
// some cannot be used.
func (w *world) slice() *discoveryv1.EndpointSlice {
	text := fmt.Sprintf(`{metadata: {namespace: %c, name: e%d, labels: {kubernetes.io/service-name: s%d}}, addressType: IPv4, endpoints: [{addresses: [10.128.0.%d]}]}`,
		'a'+w.IntN(2), w.IntN(4), w.IntN(4), w.IntN(2))
	switch w.IntN(8) {
	case 0:
		text = strings.Replace(text, "IPv4", "FQDN", 1)
	case 1:
		text = strings.Replace(text, "service-name", "other", 1)
	}
	return sourcetest.Read[discoveryv1.EndpointSlice](w.t, text)
}

// edit changes one object without an event, and returns it and whether it exists
// now.
func edit[O any](w *world, objects map[cache.ObjectName]*O, o *O) (*O, bool) {
	name := must(cache.ObjectToName(o))
	if w.IntN(3) == 0 {
		delete(objects, name)
		return o, false
	}
	objects[name] = o
	return o, true
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// send sends an event about an object, or lists all of them after several edits.
func send[O any](w *world, store cache.ReflectorStore, objects map[cache.ObjectName]*O, version func() *O) {
	if w.IntN(4) > 0 {
		o, exists := edit(w, objects, version())
		if exists {
			check(w.t, store.Update(o))
		} else {
			check(w.t, store.Delete(o))
		}
		return
	}
	for range w.IntN(4) {
		edit(w, objects, version())
	}
	var list []any
	for _, o := range objects {
		list = append(list, o)
	}
	check(w.t, store.Replace(list, "2"))
}

func (w *world) step() {
	if w.IntN(2) == 0 {
		send(w, w.Cluster.services, w.services, w.service)
	} else {
		send(w, w.Cluster.slices, w.slices, w.slice)
	}
}

// sameAs checks what is known against the objects themselves.
func (w *world) sameAs(known states) {
	w.t.Helper()
	var services, endpoints int
	for name, o := range w.services {
		if want, _ := convert.Service(o, ""); want != nil {
			services++
			if got := known[want.Name].Service; !reflect.DeepEqual(got, want) {
				w.t.Errorf("Service %s is known as %+v, want %+v", name, got, want)
			}
		}
	}
	for name, o := range w.slices {
		if want, _ := convert.EndpointSlice(o); want != nil {
			endpoints++
			all := known[want.ServiceName()].Slices
			if !slices.ContainsFunc(all, func(got *model.EndpointSlice) bool { return reflect.DeepEqual(got, want) }) {
				w.t.Errorf("EndpointSlice %s is not known: %+v", name, want)
			}
		}
	}
	for _, s := range known {
		endpoints -= len(s.Slices)
	}
	if n := len(known.served()); n != services || endpoints != 0 {
		w.t.Errorf("%d Services are known, want %d; %d slices are missing", n, services, endpoints)
	}
}

// TestClusterUpdates walks at random. The updates lead to what the snapshot has,
// object by object: nothing is copied, also where a list brings the same
// objects again. An update has what has changed; after one event, nothing else.
func TestClusterUpdates(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{rand.New(rand.NewPCG(seed, 0)), syncedLab(t),
				make(map[cache.ObjectName]*corev1.Service), make(map[cache.ObjectName]*discoveryv1.EndpointSlice)}
			for range w.IntN(10) {
				w.step()
			}
			known := make(states)
			for i := 0; i < 300 && !t.Failed(); i++ {
				before, copied := maps.Clone(known), make(states)
				for name, s := range known {
					copied[name] = model.ServiceState{Service: s.Service, Slices: slices.Clone(s.Slices)}
				}
				events := 1 + w.IntN(3)
				for range events {
					w.step()
				}
				if diff := copied.diff(known); diff != nil {
					t.Errorf("step %d changes an earlier update: %q", i, diff)
				}
				u, err := w.Load()
				check(t, err)
				known.take(u)
				now := statesOf(t, w.Cluster)
				w.sameAs(now)
				if i == 0 {
					if diff := known.diff(now.served()); diff != nil {
						t.Errorf("the whole differs from the snapshot: %q", diff)
					}
					known = now
					continue
				}
				if diff := known.diff(now); diff != nil {
					t.Errorf("step %d: what the updates lead to differs from the snapshot: %q", i, diff)
				}
				names := make([]string, 0, len(u.Services))
				for name := range u.Services {
					names = append(names, name.String())
				}
				slices.Sort(names)
				if changed := before.diff(now); events == 1 && !slices.Equal(names, changed) {
					t.Errorf("step %d: the update has %q, want %q", i, names, changed)
				}
			}
		})
	}
}

// updated checks the Services of an update by name, Service and slices.
func (l *lab) updated(want ...string) {
	l.t.Helper()
	u, err := l.Load()
	check(l.t, err)
	got := make([]string, 0, len(u.Services))
	for name, s := range u.Services {
		text := name.String()
		if s.Service == nil {
			text += " gone"
		}
		for _, slice := range s.Slices {
			text += " " + slice.Name
		}
		got = append(got, text)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		l.t.Errorf("the update has %q, want %q", got, want)
	}
}

// TestClusterUpdate has what each event adds to an update.
func TestClusterUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{})
		web, api := sourcetest.Read[corev1.Service](t, sourcetest.WebYAML), sourcetest.Read[corev1.Service](t, strings.Replace(sourcetest.WebYAML, "web", "api", 1))
		check(t, l.services.Replace([]any{web, api}, "1"))
		check(t, l.slices.Add(stamped(t, "web-1", "web", "10.128.0.1", "")))
		if _, err := l.Load(); err == nil {
			t.Error("Load gives an update before all is listed")
		}
		check(t, l.slices.Replace([]any{stamped(t, "web-1", "web", "10.128.0.1", ""), stamped(t, "none-1", "none", "10.128.0.1", "")}, "1"))
		l.updated("a/api", "a/web web-1")
		l.updated()

		check(t, l.slices.Add(stamped(t, "web-0", "web", "10.128.0.2", "")))
		l.updated("a/web web-0 web-1")
		check(t, l.slices.Add(touched(stamped(t, "web-0", "web", "10.128.0.2", ""))))
		check(t, l.services.Add(touched(web)))
		l.updated()
		check(t, l.slices.Add(stamped(t, "web-0", "api", "10.128.0.2", "")))
		l.updated("a/api web-0", "a/web web-1")
		check(t, l.services.Add(sourcetest.Read[corev1.Service](t, webSecondYAML)))
		l.updated("a/web web-1")
		check(t, l.services.Delete(web))
		l.updated("a/web gone web-1")
		check(t, l.services.Replace([]any{web, api}, "2"))
		l.updated("a/web web-1")
		check(t, l.services.Add(sourcetest.Read[corev1.Service](t, strings.Replace(sourcetest.WebYAML, "web", "none", 1))))
		l.updated("a/none none-1")
		check(t, l.slices.Replace([]any{stamped(t, "web-1", "web", "10.128.0.1", ""), stamped(t, "none-1", "none", "10.128.0.1", "")}, "3"))
		l.updated("a/api")
		check(t, l.slices.Replace(nil, "4"))
		l.updated("a/none", "a/web")
		if len(l.endpoints) != 0 {
			t.Errorf("Services without slices are kept: %v", l.endpoints)
		}
	})
}

// TestClusterUpdateStays: what an update has never changes afterwards, however
// the slices of its Services come, change and go.
func TestClusterUpdateStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := syncedLab(t)
		var given, copies [][]*model.EndpointSlice
		load := func() {
			u, err := l.Load()
			check(t, err)
			all := u.Services[model.ServiceName{Namespace: "a", Name: "web"}].Slices
			given, copies = append(given, all), append(copies, slices.Clone(all))
		}
		check(t, l.services.Add(sourcetest.Read[corev1.Service](t, sourcetest.WebYAML)))
		load()
		order := []int{5, 2, 8, 1, 9, 4, 7, 3, 6}
		for _, address := range []string{"10.128.0.1", "10.128.0.2"} {
			for _, i := range order {
				check(t, l.slices.Add(stamped(t, fmt.Sprintf("web-%d", i), "web", address, "")))
				load()
			}
		}
		for _, i := range order {
			check(t, l.slices.Delete(stamped(t, fmt.Sprintf("web-%d", i), "web", "10.128.0.2", "")))
			load()
		}
		for i := range given {
			if !slices.Equal(given[i], copies[i]) {
				t.Errorf("update %d has changed", i)
			}
		}
	})
}

// TestClusterUpdateNode: every update has the Node, as it was seen last (12.54),
// and the ServiceCIDRs.
func TestClusterUpdateNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := syncedLab(t)
		node := sourcetest.Read[corev1.Node](t, sourcetest.NodeYAML)
		check(t, l.nodes.Add(node))
		cidr := storesOf(t, l.Cluster)[3]
		check(t, cidr.store.Add(cidr.first))
		for _, event := range []func() error{
			func() error { return nil },
			func() error { return l.services.Add(sourcetest.Read[corev1.Service](t, sourcetest.WebYAML)) },
			func() error { return l.nodes.Delete(node) },
		} {
			check(t, event())
			u, err := l.Load()
			check(t, err)
			if len(u.Nodes) != 1 || u.Nodes[0].Name != "n1" || len(u.ServiceCIDRs) != 1 {
				t.Errorf("Nodes %v, ServiceCIDRs %v", u.Nodes, u.ServiceCIDRs)
			}
		}
	})
}

// TestClusterSnapshotTakesNothing: what is pending is still for Load.
func TestClusterSnapshotTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := syncedLab(t)
		l.updated()
		check(t, l.services.Add(sourcetest.Read[corev1.Service](t, sourcetest.WebYAML)))
		check(t, l.slices.Add(stamped(t, "web-1", "web", "10.128.0.1", time.Now().Add(time.Second).Format(time.RFC3339Nano))))
		counts := l.Counts()
		_, err := l.Snapshot()
		check(t, err)
		if l.Counts() != counts {
			t.Errorf("%+v is pending, want %+v", l.Counts(), counts)
		}
		u, err := l.Load()
		check(t, err)
		if len(u.Services) != 1 || len(u.Triggers) != 1 {
			t.Errorf("Load gives %+v", u)
		}
	})
}

// TestClusterLoadConcurrently loads beside the events of two reflectors, and
// reads the result at the same time. It is for the race detector.
func TestClusterLoadConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := syncedLab(t)
		const n = 200
		ended := make(chan struct{}, 2)
		go func() {
			for i := range n {
				s := sourcetest.Read[corev1.Service](t, sourcetest.WebYAML)
				s.Name = fmt.Sprintf("s%d", i%10)
				s.Spec.Ports[0].Port = int32(i + 1)
				if err := l.services.Add(s); err != nil {
					t.Error(err)
				}
			}
			ended <- struct{}{}
		}()
		go func() {
			for i := range n {
				s := stamped(t, fmt.Sprintf("e%d", i%5), fmt.Sprintf("s%d", i%7), fmt.Sprintf("10.128.0.%d", i), "")
				if err := l.slices.Add(s); err != nil {
					t.Error(err)
				}
			}
			ended <- struct{}{}
		}()
		known := make(states)
		load := func() {
			u, err := l.Load()
			check(t, err)
			known.take(u)
			for _, s := range known {
				model.Endpoints(model.PortName{Protocol: model.TCP}, model.IPv4, s.Slices)
			}
		}
		for left := 2; left > 0; {
			select {
			case <-ended:
				left--
			default:
			}
			load()
		}
		load()
		if diff := known.diff(statesOf(t, l.Cluster)); diff != nil {
			t.Errorf("what the updates lead to differs from the snapshot: %q", diff)
		}
	})
}
