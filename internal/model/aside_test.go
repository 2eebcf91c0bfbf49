package model

import (
	"maps"
	"reflect"
	"slices"
	"testing"
)

// TestSetAside: 13.25. It walks through random changes after which random
// Services are set aside, some of them twice, and others are accepted. The router
// says what a fresh one says in which those are as they were accepted last, or
// left out; the change of a Service, and of what concerns all, ends that, and
// telling the same again does not.
func TestSetAside(t *testing.T) {
	town := newTown(42)
	r := NewRouter()
	r.Configure(town.config, town.nodes, town.cidrs)
	good := make(map[ServiceName]ServiceState)   // accepted
	aside := make(map[ServiceName]ServiceState)  // as they were wanted
	served := make(map[ServiceName]ServiceState) // of those aside
	times := 0
	for step := range 2000 {
		switch town.IntN(12) {
		case 0:
			town.configure()
			if _, all := r.Configure(town.config, town.nodes, town.cidrs); all {
				clear(aside)
			}
		case 3:
			town.move()
			r.Configure(town.config, town.nodes, town.cidrs)
		case 1:
			r.TryAgain()
			clear(aside)
		case 2:
			r.Replace(town.states)
		default:
			name := town.service()
			r.SetServices(map[ServiceName]ServiceState{name: town.states[name]})
		}
		for name, was := range aside {
			if !reflect.DeepEqual(was, town.states[name]) {
				delete(aside, name)
			}
		}
		for name, now := range town.states {
			for range town.IntN(3) * town.IntN(2) {
				_, again := aside[name]
				last, known := good[name]
				switch {
				case !again && known && !reflect.DeepEqual(last, now):
					served[name] = last
				default:
					served[name] = ServiceState{}
				}
				_, there := r.services[name]
				if ok := r.SetAside(name, "reason"); ok != there {
					t.Fatalf("step %d: set aside %t, although it was served: %t", step, ok, there)
				}
				aside[name] = now
				times++
			}
		}
		want := *town
		want.states = maps.Clone(town.states)
		for name := range aside {
			if want.states[name] = served[name]; served[name].Service == nil {
				delete(want.states, name)
			}
		}
		fresh, got := want.resolve(), r.Routing()
		notices := 0
		got.Notices = slices.DeleteFunc(slices.Clone(got.Notices), func(n Notice) bool {
			if n.Reason == RefusedByKernel {
				notices++
			}
			return n.Reason == RefusedByKernel
		})
		if len(got.Notices) == 0 {
			got.Notices = fresh.Notices[:0:len(fresh.Notices)] // nil or empty
		}
		if !reflect.DeepEqual(fresh, got) {
			t.Fatalf("step %d: the router says\n%+v\na fresh one\n%+v", step, got, fresh)
		}
		if notices != len(aside) || r.Aside() != len(aside) {
			t.Fatalf("step %d: %d Services set aside, %d notices, want %d", step, r.Aside(), notices, len(aside))
		}
		if town.IntN(3) > 0 {
			r.Accept()
			good = want.states
		}
	}
	if times < 1000 {
		t.Errorf("only %d Services were set aside", times)
	}
}
