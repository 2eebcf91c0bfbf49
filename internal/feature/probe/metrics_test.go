package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
	"github.com/nftproxy/nftproxy/internal/testkit/series"
)

var since = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// manyResults are the checks of so many Services: of each, one endpoint fails, one passes
// and one was not checked yet. Of the last one, two fail.
type manyResults int

func (n manyResults) Late() int { return 3 }

func (n manyResults) Each(f func(model.ServiceName, netip.Addr, model.CheckResult)) {
	for i := range int(n) {
		name := model.ServiceName{Namespace: "shop", Name: fmt.Sprintf("web-%04d", i)}
		f(name, netip.MustParseAddr("10.0.0.1"), model.CheckResult{Since: since, Message: "connect: refused"})
		f(name, netip.MustParseAddr("10.0.0.2"), model.CheckResult{Since: since, Healthy: true})
		f(name, netip.MustParseAddr("10.0.0.3"), model.CheckResult{Healthy: true})
		if i == int(n)-1 {
			f(name, netip.MustParseAddr("10.0.0.4"), model.CheckResult{Since: since, Message: "connect: refused"})
		}
	}
}

// TestMetrics: 3.35. However many Services have failing endpoints, the number of series is
// limited, and those with the most of them have one.
func TestMetrics(t *testing.T) {
	m := newMetrics()
	m.countCheck(model.CheckGRPC, 30*time.Millisecond, errors.New("connect: refused"))
	m.countCheck(model.CheckGRPC, 20*time.Millisecond, checker.ErrLocal)
	m.countTransition(true)
	found := series.Expect(t, map[string]float64{
		`nftproxy_health_check_endpoints{state="passing"}`:                             5000,
		`nftproxy_health_check_endpoints{state="failing"}`:                             5001,
		`nftproxy_health_check_endpoints{state="waiting"}`:                             5000,
		`nftproxy_health_check_failing_endpoints{namespace="shop",service="web-4999"}`: 2,
		`nftproxy_health_check_failing_endpoints{namespace="shop",service="web-0098"}`: 1,
		`nftproxy_health_check_failing_endpoints{namespace="shop",service="web-0099"}`: -1,
		`nftproxy_health_checks_late`:                                                  3,
		`nftproxy_health_checks_total{result="fail",type="grpc"}`:                      1,
		`nftproxy_health_checks_total{result="not_made",type="grpc"}`:                  1,
		`nftproxy_health_check_duration_seconds{type="grpc"}`:                          0.05,
		`nftproxy_health_check_transitions_total{to="passing"}`:                        1,
	}, m.total, m.transitions, m.duration, newCollector(manyResults(5000)))
	n := 0
	for name := range found {
		if strings.HasPrefix(name, "nftproxy_health_check_failing_endpoints{") {
			n++
		}
	}
	if n != 100 {
		t.Errorf("%d series of failing endpoints", n)
	}
}
