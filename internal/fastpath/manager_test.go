package fastpath

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nftproxy/nftproxy/internal/model"
)

// change is a route of TCP that takes the fast path unless its Service avoids it, or none.
func change(port uint16, takes, exists bool) model.RouteChange {
	c := model.RouteChange{Frontend: model.Frontend{Address: netip.MustParseAddr("192.0.2.1"), Protocol: model.TCP, Port: port}}
	if exists {
		c.New = &model.Route{Frontend: c.Frontend, Service: &model.Service{}}
		if !takes {
			c.New.Service.Extras = &model.Extras{FastPath: model.AvoidFastPath}
		}
	}
	return c
}

func newManager() *Manager {
	node := &model.Config{FastPath: model.FastPath{Level: model.FastPathAll}}
	return New(Config{Node: node, Log: slog.New(slog.DiscardHandler)})
}

// 9.33: what the kernel gets is the difference to what it has, and connections leave the flow
// table only if their Service goes on.
func TestChanges(t *testing.T) {
	m := newManager()
	step := func(name string, add, remove []uint16, left, empty bool, routes ...model.RouteChange) {
		t.Helper()
		for _, r := range routes {
			m.Change([]model.RouteChange{r})
		}
		c := m.take()
		ports := func(all []model.Frontend) (out []uint16) {
			for _, f := range all {
				out = append(out, f.Port)
			}
			slices.Sort(out)
			return out
		}
		if !slices.Equal(ports(c.add), add) || !slices.Equal(ports(c.remove), remove) || c.left != left || c.empty != empty {
			t.Errorf("%s: got %+v, want %v to add, %v to remove, left %v, empty %v", name, c, add, remove, left, empty)
		}
	}
	step("two of three take it", []uint16{1, 2}, nil, false, false, change(1, true, true), change(2, true, true), change(3, false, true))
	step("nothing changes", nil, nil, false, false, change(1, true, true), change(3, false, true))
	step("one comes and goes before the kernel has it", nil, nil, true, false, change(4, true, true), change(4, false, true))
	step("one goes and comes back", nil, nil, true, false, change(1, false, true), change(1, true, true))
	step("a Service is removed", nil, []uint16{1}, false, false, change(1, false, false))
	step("a Service leaves the fast path", nil, []uint16{2}, true, true, change(2, false, true))
}

// 9.35: a kernel that fails the test never gets a table, and is tested once, when the first
// frontend takes the fast path.
func TestUntested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tests, failure := 0, errors.New("no flow tables")
		m := newManager()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.run(t.Context(), func(context.Context) error { tests++; return failure })
		}()
		m.Change([]model.RouteChange{change(1, false, true)})
		synctest.Wait()
		if s := m.State(); tests != 0 || s != (State{}) {
			t.Errorf("got %d tests and the state %+v, although no frontend takes the fast path", tests, s)
		}
		m.Change([]model.RouteChange{change(1, true, true)})
		<-ended
		if s := m.State(); tests != 1 || s.Active || !errors.Is(s.Err, failure) || s.Frontends != 1 {
			t.Errorf("got %d tests and the state %+v, want one test and its error", tests, s)
		}
	})
}

// 9.35: where nothing has the changes, frontends that come and go take no memory.
func TestComeAndGo(t *testing.T) {
	m := newManager()
	m.Change([]model.RouteChange{change(1, true, true)})
	for port := range uint16(100) {
		m.Change([]model.RouteChange{change(port+2, true, true)})
		m.Change([]model.RouteChange{change(port+2, false, false)})
	}
	if n := len(m.changed); n != 1 {
		t.Errorf("%d changes are kept for one frontend", n)
	}
}
