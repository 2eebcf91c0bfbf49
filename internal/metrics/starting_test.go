package metrics_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestStarting: 3.72. However many Services have endpoints that start slowly, the number of series is
// limited, and their sum has all.
func TestStarting(t *testing.T) {
	counts := make(map[model.ServiceName]int)
	for i := range 5000 {
		counts[model.ServiceName{Namespace: "shop", Name: fmt.Sprintf("web-%04d", i)}] = 1 + i/4999
	}
	s := newSet()
	s.FollowStarting(func() map[model.ServiceName]int { return counts })
	series := scrape(t, s, "/metrics")
	expect(t, series, map[string]float64{
		`nftproxy_slow_start_endpoints{namespace="shop",service="web-4999"}`: 2,
		`nftproxy_slow_start_endpoints{namespace="shop",service="web-0098"}`: 1,
		`nftproxy_slow_start_endpoints{namespace="shop",service="web-0099"}`: absent,
		`nftproxy_slow_start_endpoints{namespace="",service=""}`:             4900,
	})
	n := 0
	for name := range series {
		if strings.HasPrefix(name, "nftproxy_slow_start_endpoints") {
			n++
		}
	}
	if n != 101 {
		t.Errorf("%d series", n)
	}
	clear(counts)
	for name := range scrape(t, s, "/metrics") {
		if strings.HasPrefix(name, "nftproxy_slow_start_endpoints") {
			t.Errorf("%s without a slow start", name)
		}
	}
}
