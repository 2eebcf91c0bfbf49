package relay

import (
	"runtime"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestMemory: 4.99. A connection without data takes no more memory than docs/budgets.md says. The
// client and the server of the test are in the same process.
func TestMemory(t *testing.T) {
	const connections = 200
	s := newStation(t, 4*connections, model.KeepOnFailure, backend(t, "a"))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range connections {
		client, _, ended := s.opens()
		s.allow <- struct{}{}
		if _, err := read(t, client); err != nil {
			t.Fatal(err)
		}
		defer func() { client.Close(); <-ended }()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := func(m *runtime.MemStats) uint64 { return m.HeapInuse + m.StackInuse + m.MSpanInuse + m.GCSys }
	got := (used(&after) - used(&before)) / connections
	if most := uint64(budget.RelayMemory / budget.RelayConnections); got > most {
		t.Errorf("a connection takes %d bytes, want %d at most", got, most)
	}
	t.Logf("%d bytes for a connection", got)
}
