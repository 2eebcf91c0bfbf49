package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// TestPaced: 12.68, a long load logs its state every 5 seconds, and a short one
// nothing.
func TestPaced(t *testing.T) {
	part := nft.Delta{After: &nft.Ruleset{Tables: []*nft.Table{{Sets: []*nft.Set{{Name: nft.ServicesMap, Elements: make([]nft.Element, 10)}}}}}}
	for _, c := range []struct {
		parts int
		want  string
	}{
		{2, ""},
		{7, "frontends=30 of=70\nfrontends=60 of=70\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			parts := func(yield func(nft.Delta) bool) {
				for range c.parts {
					if !yield(part) {
						return
					}
				}
			}
			n, beats := 0, 0
			for range paceParts(parts, func() int { return 10 * c.parts }, func() { beats++ }, slog.New(slog.NewTextHandler(&log, nil))) {
				n++
				time.Sleep(2 * time.Second)
			}
			got := ""
			for line := range strings.Lines(log.String()) {
				_, rest, _ := strings.Cut(line, `msg="loading rules" `)
				got += rest
			}
			if n != c.parts || beats != n || got != c.want {
				t.Errorf("%d of %d parts, %d beats, %q", n, c.parts, beats, got)
			}
		})
	}
}

// TestSlowRead: 12.68, the first read of the source is logged if it takes long, and
// later ones never.
func TestSlowRead(t *testing.T) {
	for took, want := range map[time.Duration]int{10 * time.Millisecond: 0, 3 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture()
			f.load = func() (*model.Snapshot, error) {
				time.Sleep(took)
				return snapshot(), nil
			}
			f.start(t)
			time.Sleep(took)
			synctest.Wait()
			f.agent.Changed()
			time.Sleep(took)
			synctest.Wait()
			if n := strings.Count(f.log.String(), "msg=\"objects read\" services=1 duration=3s"); n != want {
				t.Errorf("after %v: %d lines in %s", took, n, f.log)
			}
		})
	}
}
