package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

// source is a source of events that fails on demand.
type source struct {
	events chan nflog.Event
	fails  chan error
	closed chan struct{}
	lost   atomic.Uint64
	once   atomic.Bool
}

func newSource() *source {
	return &source{events: make(chan nflog.Event), fails: make(chan error), closed: make(chan struct{})}
}

func (s *source) Read(f func(*nflog.Event)) error {
	select {
	case e := <-s.events:
		f(&e)
		return nil
	case err := <-s.fails:
		return err
	case <-s.closed:
		return errors.New("closed")
	}
}
func (s *source) Lost() uint64 { return s.lost.Load() }
func (s *source) Close() error {
	if s.once.CompareAndSwap(false, true) {
		close(s.closed)
	}
	return nil
}

var (
	web     = model.ServiceName{Namespace: "shop", Name: "web"}
	webHTTP = model.PortName{Service: web, Port: "http", Protocol: model.TCP}
)

// fixture is a collector whose sources are opened when a test gives one.
type fixture struct {
	*traffic.Collector
	*node
	log strings.Builder
}

// node serves one Service, and logs all events.
type node struct {
	open     chan any // a source, or an error
	searches int
}

func (n *node) Open() (traffic.Source, error) {
	switch v := (<-n.open).(type) {
	case error:
		return nil, v
	case *source:
		return v, nil
	}
	return nil, errors.New("the end")
}

func (n *node) PortOf(f model.Frontend) (model.PortName, bool) {
	return webHTTP, f == model.Frontend{Address: netip.MustParseAddr("10.96.0.10"), Protocol: model.TCP, Port: 80}
}

func (n *node) Holder(a netip.Addr) (model.ServiceName, bool) {
	n.searches++
	return web, a == netip.MustParseAddr("10.96.0.10")
}

func (n *node) IsBalance(model.ServiceName) bool { return false }
func (n *node) Logs(model.Outcome) bool          { return true }

func newFixture() *fixture {
	f := &fixture{node: &node{open: make(chan any)}}
	log := slog.New(slog.NewTextHandler(&f.log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	f.Collector = traffic.NewCollector(traffic.Config{Node: f.node, Log: log})
	return f
}

func packet(prefix, to string) nflog.Event {
	return nflog.Event{Prefix: []byte(prefix), Protocol: model.TCP, Source: netip.MustParseAddrPort("192.0.2.7:4711"), Destination: netip.MustParseAddrPort(to)}
}

// TestCollector: events have the names of Services. After an error the collector tries again,
// and says so once; losses of all sources count.
func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, first, second := newFixture(), newSource(), newSource()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { f.Run(ctx); close(ended) }()
		taken := errors.New("group 5 is read by process 7")
		f.open <- taken
		f.open <- taken
		synctest.Wait()
		if s := f.State(); s.Err != taken {
			t.Errorf("state %+v, want %v", s, taken)
		}
		f.open <- first
		first.events <- packet("denied", "10.96.0.10:80")
		first.events <- packet("unknown-port", "10.96.0.10:81")
		first.events <- packet("unused-address", "10.96.0.99:80")
		first.lost.Store(3)
		first.fails <- errors.New("no more")
		f.open <- second
		second.events <- packet("hello\x1b[2J"+strings.Repeat("x", 99), "10.96.0.99:80")
		second.lost.Store(4)
		synctest.Wait()
		s := f.State()
		if want := "map[denied:1 other:1 unknown-port:1 unused-address:1]"; s.Err != nil || s.Lost != 7 || fmt.Sprint(s.Events) != want {
			t.Errorf("state %+v, want 7 lost, %s", s, want)
		}
		cancel()
		<-ended
		var got []string
		for _, e := range f.Select(traffic.Query{Limit: 9}, nil).Events {
			got = append(got, fmt.Sprintf("%.10q %s %s", e.Reason, e.Dialled, e.Service))
		}
		want := []string{`"denied" 10.96.0.10:80 shop/web:http`, `"unknown-po" 10.96.0.10:81 shop/web`, `"unused-add" 10.96.0.99:80 /`, `"hello\x1b[2Jx" 10.96.0.99:80 /`}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("events %q, want %q", got, want)
		}
		for line, n := range map[string]int{
			`level=ERROR msg="refused connections are not observed" error="group 5`:                                                   1,
			`level=INFO msg="refused connections are observed again"`:                                                                 2,
			`msg="connection refused" reason=denied protocol=tcp client=192.0.2.7:4711 to=10.96.0.10:80 service=shop/web:http` + "\n": 1,
			`msg="connection refused"`: 4,
		} {
			if strings.Count(f.log.String(), line) != n {
				t.Errorf("the log has %q not %d times:\n%s", line, n, f.log.String())
			}
		}
	})
}

// TestHolders: a flood of packets to unknown ports of many addresses does not cause as many
// searches for Services.
func TestHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, from := newFixture(), newSource()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.Run(ctx)
		f.open <- from
		for i := range 1000 {
			from.events <- packet("unknown-port", fmt.Sprintf("10.96.%d.%d:81", i/250, i%250))
			time.Sleep(2 * time.Millisecond)
		}
		if f.searches > 3 {
			t.Errorf("%d searches in two seconds", f.searches)
		}
	})
}
