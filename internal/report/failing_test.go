package report_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/show"
)

// shared are checks of many Services with the same servers.
type shared struct {
	services int
	results
}

func (s shared) Each(f func(model.ServiceName, netip.Addr, model.CheckResult)) {
	for i := range s.services {
		for a, result := range s.results {
			f(model.ServiceName{Namespace: "default", Name: fmt.Sprintf("s%03d", i)}, a, result)
		}
	}
}

// TestFailingServers: 3.34, a server that fails in many Services is one problem for people.
func TestFailingServers(t *testing.T) {
	now := time.Now()
	checks := shared{200, results{
		addr("10.1.2.2"): {Since: now.Add(-2 * time.Minute), Checked: now, Message: "no answer within 1s"},
		addr("10.1.1.2"): {Healthy: true, Since: now.Add(-time.Hour), Checked: now},
	}}
	_, at := serveRouting(t, &model.Routing{}, report.Config{Checks: checks})
	report := ask(t, at, api.Filter{})
	if report.ProblemCounts[model.CheckFailing] != 200 || len(report.FailingServers) != 1 || report.FailingServers[0].Services != 200 {
		t.Errorf("counts %v, servers %+v", report.ProblemCounts, report.FailingServers)
	}
	out := text(t, report, show.View{Now: now})
	for _, want := range []string{"healthy, but 1 problem\n", "\n1 CheckFailing, in 200 Services: servers fail their health check\n    10.1.2.2: no answer within 1s, for 2m0s, in 200 Services\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "s000") {
		t.Errorf("Services one by one:\n%s", out)
	}
	if all := text(t, report, show.View{Now: now, All: true}); strings.Count(all, "    Service default/s") != 200 {
		t.Errorf("with all:\n%s", all)
	}
	if one := ask(t, at, api.Filter{Names: []string{"s007"}}); len(one.FailingServers) > 0 || len(one.Problems) != 1 {
		t.Errorf("selected: %+v, %v", one.FailingServers, one.Problems)
	}
}

// TestSettingsInOneLine: settings that stay changed do not fill the answer.
func TestSettingsInOneLine(t *testing.T) {
	report := &api.Status{From: api.FromDaemon, Healthy: true, Findings: api.Findings{Notes: []model.Notice{
		{Object: model.Machine(), Reason: model.SettingChanged, Message: "net.ipv4.ip_forward from 0 to 1"}, {Object: model.Machine(), Reason: model.SettingChanged, Message: "net.ipv6.conf.all.forwarding from 0 to 1"},
	}}}
	out := text(t, report, show.View{Now: time.Now()})
	if want := "  2 SettingChanged: settings of the kernel that Services need, changed since nftproxy started, such as net.ipv4.ip_forward from 0 to 1: nftproxy status --problems\n"; !strings.Contains(out, want) || strings.Contains(out, "ipv6") {
		t.Errorf("no %q in\n%s", want, out)
	}
	if all := text(t, report, show.View{Now: time.Now(), All: true}); !strings.Contains(all, "ipv6") {
		t.Errorf("with all:\n%s", all)
	}
}
