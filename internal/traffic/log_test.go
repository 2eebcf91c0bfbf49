package traffic_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

// event returns an event of a client.
func event(client int, reason string, at time.Time) *traffic.Event {
	return &traffic.Event{
		Time: at, Reason: reason, Protocol: model.TCP,
		Client:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(client >> 16), byte(client >> 8), byte(client)}), 4000),
		Dialled: netip.MustParseAddrPort("10.96.0.10:80"),
		Service: model.PortName{Service: model.ServiceName{Namespace: "shop", Name: "web"}, Port: "http", Protocol: model.TCP},
	}
}

func numbers(s traffic.Selection) (out []uint64) {
	for _, e := range s.Events {
		out = append(out, e.Number)
	}
	return out
}

// TestSelect: the last events, or those after a number, also when older ones are no longer
// there, or when the number is of an earlier process.
func TestSelect(t *testing.T) {
	odd := func(e *traffic.Event) bool { return e.Number%2 == 1 }
	const many = traffic.Capacity + 10
	for _, c := range []struct {
		name         string
		events       int
		query        traffic.Query
		match        func(*traffic.Event) bool
		want         []uint64
		next, missed uint64
	}{
		{"empty", 0, traffic.Query{Limit: 3}, nil, nil, 0, 0},
		{"newest", 5, traffic.Query{Limit: 3}, nil, []uint64{3, 4, 5}, 5, 0},
		{"no room", 5, traffic.Query{}, nil, nil, 5, 0},
		{"newest that match", 6, traffic.Query{Limit: 2}, odd, []uint64{3, 5}, 6, 0},
		{"after", 5, traffic.Query{After: 2, Limit: 9}, nil, []uint64{3, 4, 5}, 5, 0},
		{"after the last", 5, traffic.Query{After: 5, Limit: 9}, nil, nil, 5, 0},
		{"after, the first", 5, traffic.Query{After: 1, Limit: 2}, nil, []uint64{2, 3}, 3, 0},
		{"after, none matches", 4, traffic.Query{After: 3, Limit: 2}, odd, nil, 4, 0},
		{"of an earlier process", 2, traffic.Query{After: 700, Limit: 9}, nil, []uint64{1, 2}, 2, 0},
		{"gone", many, traffic.Query{After: 3, Limit: 2}, nil, []uint64{11, 12}, 12, 7},
		{"not gone", many, traffic.Query{After: 10, Limit: 1}, nil, []uint64{11}, 11, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := traffic.NewLog()
			for i := range c.events {
				l.Add(event(i, "denied", time.Now()))
			}
			s := l.Select(c.query, c.match)
			if !slices.Equal(numbers(s), c.want) || s.Next != c.next || s.Missed != c.missed {
				t.Errorf("%d, next %d, missed %d; want %d, %d, %d", numbers(s), s.Next, s.Missed, c.want, c.next, c.missed)
			}
			for _, e := range s.Events {
				if want := event(int(e.Number)-1, "", time.Time{}).Client; e.Client != want {
					t.Errorf("event %d is of %s, want %s", e.Number, e.Client, want)
				}
			}
		})
	}
}

// TestAwait waits for an event that matches, and no longer than its context.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := traffic.NewLog()
		l.Add(event(1, "denied", time.Now()))
		answer := make(chan traffic.Selection)
		isRate := func(e *traffic.Event) bool { return e.Reason == "rate" }
		go func() { answer <- l.Await(t.Context(), traffic.Query{After: 1, Limit: 9}, isRate) }()
		synctest.Wait()
		l.Add(event(2, "denied", time.Now()))
		synctest.Wait()
		select {
		case s := <-answer:
			t.Errorf("an event that does not match: %+v", s)
		default:
		}
		l.Add(event(3, "rate", time.Now()))
		if s := <-answer; !slices.Equal(numbers(s), []uint64{3}) || s.Next != 3 {
			t.Errorf("%+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if s := l.Await(ctx, traffic.Query{After: 3, Limit: 1}, nil); len(s.Events) > 0 || s.Next != 3 || time.Since(begun) != time.Second {
			t.Errorf("%+v after %v", s, time.Since(begun))
		}
	})
}

// TestSums: who has the most events is known among 200,000 forged clients, and a minute
// later the sums are still there, until the window is over.
func TestSums(t *testing.T) {
	l := traffic.NewLog()
	begun := time.Now()
	const forged, genuine = 200_000, 1000
	for i := range forged {
		l.Add(event(i, "unused-address", begun))
		if i%(forged/genuine) == 0 {
			l.Add(event(1<<24-1, "denied", begun))
		}
	}
	l.Add(event(7, "hello", begun.Add(time.Minute)))
	sums, reasons := l.Sums(begun.Add(time.Minute), 3, nil)
	if first := event(1<<24-1, "", begun).Client.Addr(); len(sums) != 3 || sums[0].Client != first || sums[0].Events < genuine/2 || sums[0].Events > genuine || sums[0].Reason != "denied" || sums[0].Service.Port != "http" {
		t.Errorf("%+v, want %s with up to %d first", sums, first, genuine)
	}
	if want := map[string]uint64{"unused-address": forged, "denied": genuine, "other": 1}; fmt.Sprint(reasons) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", reasons, want)
	}
	all, _ := l.Sums(begun, 1<<30, nil)
	if len(all) > 600 {
		t.Errorf("%d combinations are kept", len(all))
	}
	none, _ := l.Sums(begun, 10, func(r *traffic.Refused) bool { return r.Reason == "rate" })
	if len(none) != 0 {
		t.Errorf("%+v are not asked for", none)
	}
	if later, reasons := l.Sums(begun.Add(traffic.Window+time.Minute), 10, nil); len(later) != 0 || len(reasons) != 0 {
		t.Errorf("after the window: %+v, %v", later, reasons)
	}
}

// TestMemory: a million events of a million clients leave a log of constant size.
func TestMemory(t *testing.T) {
	l := traffic.NewLog()
	at := time.Now()
	add := func(from int) {
		for i := range 100_000 {
			l.Add(event(from+i, fmt.Sprint("other ", i%1000), at))
		}
	}
	add(0)
	if grown := testing.AllocsPerRun(1, func() { l.Add(event(1, "denied", at)) }); grown > 4 {
		t.Errorf("an event takes %v allocations", grown)
	}
	sums, reasons := l.Sums(at, 1<<30, nil)
	if len(sums) > 600 || len(reasons) > 2 {
		t.Errorf("%d sums and %d reasons are kept", len(sums), len(reasons))
	}
}

// BenchmarkAdd adds events of forged clients.
func BenchmarkAdd(b *testing.B) {
	l := traffic.NewLog()
	e := event(0, "denied", time.Now())
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e.Client = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 4000)
		l.Add(e)
	}
}
