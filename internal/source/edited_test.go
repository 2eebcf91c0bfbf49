package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nftproxy/nftproxy/internal/model"
)

// fakeSource gives what is in next, and errs while there is an error.
type fakeSource struct {
	Source
	next    *model.Update
	err     error
	states  map[model.ServiceName]model.ServiceState
	looked  int // Services that were looked up
	changed func()
	awaited bool
}

func (f *fakeSource) Await(context.Context) error { f.awaited = true; return nil }

func (f *fakeSource) Run(ctx context.Context, changed func()) error {
	f.changed = changed
	<-ctx.Done()
	return nil
}

func (f *fakeSource) Load() (*model.Update, error) {
	if f.err != nil {
		return nil, f.err
	}
	for name, s := range f.next.Services {
		if f.states[name] = s; s.Service == nil {
			delete(f.states, name)
		}
	}
	return f.next, nil
}

func (f *fakeSource) Lookup(names []model.ServiceName) map[model.ServiceName]model.ServiceState {
	out := make(map[model.ServiceName]model.ServiceState)
	for _, name := range names {
		if s, ok := f.states[name]; ok {
			out[name] = s
		}
	}
	if names == nil {
		out = f.states
	}
	f.looked += len(out)
	return out
}

// fakeEditor gives the Services in affinity the affinity that it says.
type fakeEditor struct {
	affinity map[string]int // seconds, by the names of Services
	changed  func(...model.ServiceName)
	edits    []string // of which Services
	await    func()   // nil: none
}

func (f *fakeEditor) Run(ctx context.Context, changed func(...model.ServiceName)) {
	f.changed = changed
	<-ctx.Done()
}

func (f *fakeEditor) Edit(name model.ServiceName, s model.ServiceState) model.ServiceState {
	f.edits = append(f.edits, name.Name)
	if seconds := f.affinity[name.Name]; s.Service != nil && seconds > 0 {
		edited := *s.Service
		edited.HealthCheckNodePort += uint16(seconds)
		s.Service = &edited
	}
	return s
}

func (f *fakeEditor) Await(context.Context) error {
	if f.await != nil {
		f.await()
	}
	return nil
}

func updateOf(names ...string) *model.Update {
	u := &model.Update{Nodes: []*model.Node{{Name: "n1"}}, Services: make(map[model.ServiceName]model.ServiceState)}
	for _, name := range names {
		n := model.ServiceName{Namespace: "a", Name: strings.TrimPrefix(name, "-")}
		u.Services[n] = model.ServiceState{Service: &model.Service{Name: n}}
		if strings.HasPrefix(name, "-") {
			u.Services[n] = model.ServiceState{}
		}
	}
	return u
}

// printUpdate returns for example "db web=10 -old": Services with what the editors have set.
func printUpdate(u *model.Update) string {
	if u == nil {
		return "nothing"
	}
	var out []string
	for name, s := range u.Services {
		switch {
		case s.Service == nil:
			out = append(out, "-"+name.Name)
		case s.Service.HealthCheckNodePort > 0:
			out = append(out, fmt.Sprintf("%s=%d", name.Name, s.Service.HealthCheckNodePort))
		default:
			out = append(out, name.Name)
		}
	}
	slices.Sort(out)
	if len(u.Nodes) == 0 {
		out = append(out, "without a Node")
	}
	return strings.Join(out, " ")
}

// editing starts a source with editors in a bubble.
func editing(t *testing.T, f *fakeSource, editors []*fakeEditor, test func(t *testing.T, s Source, changed *int)) {
	synctest.Test(t, func(t *testing.T) {
		f.states = make(map[model.ServiceName]model.ServiceState)
		var all []Editor
		for _, e := range editors {
			all = append(all, e)
		}
		s, changed := Edited(f, all...), new(int)
		go func() { check(t, s.Run(t.Context(), func() { *changed++ })) }()
		synctest.Wait() // all run
		test(t, s, changed)
	})
}

// TestEdited walks through the changes of a source and of its editors.
func TestEdited(t *testing.T) {
	f := &fakeSource{next: updateOf("db", "web", "old")}
	first, second := &fakeEditor{affinity: map[string]int{"web": 10}}, &fakeEditor{affinity: map[string]int{"web": 1, "db": 2}}
	editing(t, f, []*fakeEditor{first, second}, func(t *testing.T, s Source, changed *int) {
		load := func(want, wantErr string) {
			t.Helper()
			u, err := s.Load()
			if got := printUpdate(u); got != want || fmt.Sprint(err) != wantErr {
				t.Errorf("loaded %q, %v; want %q, %s", got, err, want, wantErr)
			}
		}
		source := func(next *model.Update, err error) {
			f.next, f.err = next, err
			Reload(s)
		}
		name := func(n string) model.ServiceName { return model.ServiceName{Namespace: "a", Name: n} }

		check(t, s.Await(t.Context()))
		first.changed(name("web")) // before the first Load, which has all
		load("db=2 old web=11", "<nil>")
		if f.looked != 0 || f.states[name("web")].Service.HealthCheckNodePort != 0 {
			t.Errorf("%d Services were looked up; the source's own is %+v", f.looked, f.states[name("web")].Service)
		}
		load("nothing", "<nil>")

		first.affinity["web"] = 20 // one edit changes
		first.changed(name("web"))
		first.changed(name("web"))
		if *changed != 3 {
			t.Errorf("%d calls of changed, want 3", *changed)
		}
		load("web=21", "<nil>")
		load("nothing", "<nil>")

		source(updateOf("web", "-old"), nil) // the source changes, and an editor
		second.affinity["db"] = 0
		second.changed(name("db"), name("web"))
		load("-old db web=21", "<nil>")

		f.looked = 0
		first.changed(name("old"), name("unknown")) // what is gone stays gone
		load("-old -unknown", "<nil>")
		if f.looked != 0 {
			t.Errorf("%d Services were looked up", f.looked)
		}

		source(nil, errors.New("broken")) // edits go on while the source is broken
		load("nothing", "broken")
		first.affinity["db"] = 5
		first.changed(name("db"))
		load("db=5", "broken")
		source(updateOf("db"), nil)
		load("db=5", "<nil>")

		source(updateOf("a", "b", "c"), nil)
		load("a b c", "<nil>")
		delete(first.affinity, "db") // any may have changed: those that did, and those that were edited
		first.affinity["b"] = 7
		first.changed()
		first.changed(name("c"))
		load("b=7 db web=21", "<nil>")
		load("nothing", "<nil>")
	})
}

// TestEditedAwait: an editor that prepares sees all Services before the first Load, which
// has its result, and what the source had in the meantime.
func TestEditedAwait(t *testing.T) {
	f := &fakeSource{next: updateOf("db", "web")}
	e := &fakeEditor{affinity: map[string]int{}}
	editing(t, f, []*fakeEditor{e}, func(t *testing.T, s Source, _ *int) {
		e.await = func() {
			if len(e.edits) != 2 || !f.awaited {
				t.Errorf("Await was called after edits of %s", e.edits)
			}
			e.affinity["web"] = 3
			e.changed(model.ServiceName{Namespace: "a", Name: "web"})
			f.next = updateOf("new", "-db")
			f.changed()
		}
		check(t, s.Await(t.Context()))
		u, err := s.Load()
		if got := printUpdate(u); err != nil || got != "-db new web=3" {
			t.Errorf("loaded %q, %v", got, err)
		}
	})
}

// TestEditedUnusable: a source that cannot be read at the start is an error of Load, and
// prepared editors do not hide that.
func TestEditedUnusable(t *testing.T) {
	f := &fakeSource{err: errors.New("broken")}
	editing(t, f, []*fakeEditor{{}}, func(t *testing.T, s Source, _ *int) {
		check(t, s.Await(t.Context()))
		if u, err := s.Load(); u != nil || err == nil {
			t.Errorf("loaded %v, %v", u, err)
		}
	})
}

// BenchmarkEdited is the cost of one Service whose edit changes, and of a change that may
// concern any.
func BenchmarkEdited(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("service-%d", i)
		}
		f := &fakeSource{next: updateOf(names...), states: make(map[model.ServiceName]model.ServiceState)}
		e := &fakeEditor{affinity: map[string]int{"service-7": 1}}
		s := Edited(f, e)
		if u, err := s.Load(); err != nil || len(u.Services) != n {
			b.Fatal(err)
		}
		run := func(what string, names ...model.ServiceName) {
			b.Run(fmt.Sprintf("%s-of-%d", what, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					e.edits = e.edits[:0]
					s.(*edited).note(names)
					if _, err := s.Load(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("one", model.ServiceName{Namespace: "a", Name: "service-7"})
		run("any")
	}
}

// TestEditedNothing: without editors there is no wrapper.
func TestEditedNothing(t *testing.T) {
	f := &fakeSource{}
	if s := Edited(f); s != Source(f) {
		t.Error("a source without editors is wrapped")
	}
}
