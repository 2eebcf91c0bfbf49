package cluster

import (
	"errors"
	"log/slog"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// BenchmarkClusterLoad loads all Services, and then one whose slice has changed.
func BenchmarkClusterLoad(b *testing.B) {
	const n = 10_000
	c := New(nil, Config{Log: slog.New(slog.DiscardHandler)})
	var services, slices []any
	for _, o := range sourcetest.ManyObjects(n) {
		if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
			slices = append(slices, slice)
		} else {
			services = append(services, o)
		}
	}
	if err := errors.Join(c.services.Replace(services, "1"), c.slices.Replace(slices, "1")); err != nil {
		b.Fatal(err)
	}
	load := func(b *testing.B, want int) {
		if u, err := c.Load(); err != nil || len(u.Services) != want {
			b.Fatalf("%d Services, want %d; %v", len(u.Services), want, err)
		}
	}
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.changes = nil
			load(b, n)
		}
	})
	first := slices[n/2].(*discoveryv1.EndpointSlice)
	second := first.DeepCopy()
	second.Endpoints = second.Endpoints[1:]
	var versions [2]any
	for i, o := range []any{second, first} {
		var err error
		if versions[i], err = c.slices.read(o); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("event-and-one", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := c.slices.Add(versions[i%2]); err != nil {
				b.Fatal(err)
			}
			load(b, 1)
		}
	})
	b.Run("nothing", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			load(b, 0)
		}
	})
}
