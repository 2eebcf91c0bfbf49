package metrics_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
)

// manyResults are the checks of so many Services: of each, one endpoint fails, one passes
// and one was not checked yet. Of the last one, two fail.
type manyResults int

func (n manyResults) Result(model.ServiceName, netip.Addr) (model.CheckResult, bool) {
	return model.CheckResult{}, false
}

func (n manyResults) Each(f func(model.ServiceName, netip.Addr, model.CheckResult)) {
	for i := range int(n) {
		name := model.ServiceName{Namespace: "shop", Name: fmt.Sprintf("web-%04d", i)}
		f(name, netip.MustParseAddr("10.0.0.1"), model.CheckResult{Since: started, Message: "connect: refused"})
		f(name, netip.MustParseAddr("10.0.0.2"), model.CheckResult{Since: started, Healthy: true})
		f(name, netip.MustParseAddr("10.0.0.3"), model.CheckResult{Healthy: true})
		if i == int(n)-1 {
			f(name, netip.MustParseAddr("10.0.0.4"), model.CheckResult{Since: started, Message: "connect: refused"})
		}
	}
}

// TestChecks: 3.35. However many Services have failing endpoints, the number of series is
// limited, and those with the most of them have one.
func TestChecks(t *testing.T) {
	s := newSet()
	s.FollowChecks(manyResults(5000), func() int { return 3 })
	s.Checked(model.CheckGRPC, 30*time.Millisecond, metrics.CheckFailed)
	s.Checked(model.CheckGRPC, 20*time.Millisecond, metrics.CheckNotMade)
	s.HealthChanged(true)
	series := scrape(t, s, "/metrics")
	expect(t, series, map[string]float64{
		`nftproxy_health_check_endpoints{state="passing"}`:                             5000,
		`nftproxy_health_check_endpoints{state="failing"}`:                             5001,
		`nftproxy_health_check_endpoints{state="waiting"}`:                             5000,
		`nftproxy_health_check_failing_endpoints{namespace="shop",service="web-4999"}`: 2,
		`nftproxy_health_check_failing_endpoints{namespace="shop",service="web-0098"}`: 1,
		`nftproxy_health_check_failing_endpoints{namespace="shop",service="web-0099"}`: absent,
		`nftproxy_health_checks_late`:                                                  3,
		`nftproxy_health_checks_total{result="fail",type="grpc"}`:                      1,
		`nftproxy_health_checks_total{result="not_made",type="grpc"}`:                  1,
		`nftproxy_health_check_duration_seconds_sum{type="grpc"}`:                      0.05,
		`nftproxy_health_check_transitions_total{to="passing"}`:                        1,
	})
	n := 0
	for name := range series {
		if strings.HasPrefix(name, "nftproxy_health_check_failing_endpoints{") {
			n++
		}
	}
	if n != 100 {
		t.Errorf("%d series of failing endpoints", n)
	}
}
