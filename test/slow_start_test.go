package test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// slowStart returns a Service with a health check and a slow start.
func slowStart(d string, pods ...*netlab.Host) service {
	s := checked(quickCheck, pods...)
	s.Annotations["nftproxy.dev/slow-start"] = d
	return s
}

// described returns the description of the Service web.
func (c *cluster) described() *api.Description {
	c.t.Helper()
	d := new(api.Description)
	if err := json.Unmarshal([]byte(c.mustRun(0, exec.Command(binary, "describe", "web", "-o", "json"))), d); err != nil {
		c.t.Fatal(err)
	}
	return d
}

// starts waits until the endpoints of a pod in both families, and no others, have at least so many
// tenths of their weight, with a slow start of d, and returns how many.
func (c *cluster) starts(pod *netlab.Host, d string, least int) (tenths int) {
	c.t.Helper()
	eventually(c.t, func() error {
		of, found := c.described(), 0
		tenths = model.StartParts
		for _, p := range of.Ports {
			for _, e := range p.Endpoints {
				if e.Starting == nil {
					continue
				}
				if e.Host() != pod.IPv4.String() && e.Host() != pod.IPv6.String() {
					return fmt.Errorf("%s starts slowly", e.Address)
				}
				found++
				tenths = min(tenths, int(model.StartParts*e.Starting.Part+0.5))
			}
		}
		if want := len(model.Families) * len(of.Ports); of.SlowStart != d || found != want || tenths < least {
			return fmt.Errorf("slow start %s, %d endpoints start, with %d tenths; want %d of %s, and %d tenths or more", of.SlowStart, found, tenths, want, d, least)
		}
		return nil
	})
	return tenths
}

// begun checks that new connections go to three pods in the ratio of ten to ten to a part.
func (w *ward) begun(s service, part int) {
	w.t.Helper()
	forEachFlow(w.t, func(t *testing.T, network string, family model.Family) {
		const turns = 4
		want := map[string]int{w.Pods[0].Name: turns * model.StartParts, w.Pods[1].Name: turns * model.StartParts, w.Pods[2].Name: turns * part}
		got := count(names(t, turns*(2*model.StartParts+part), w.Client, network, s.clusterIP(family)))
		for name, n := range want { // half of a turn may be left over, on two counters
			if d := got[name] - n; d < -model.StartParts || d > model.StartParts {
				t.Errorf("%d tenths: %v, want about %v", part, got, want)
				break
			}
		}
		if n := got[w.Pods[2].Name]; n == 0 || part < 3 && n > 3*turns*part {
			t.Errorf("%d tenths: %v, want about %v", part, got, want)
		}
	})
}

// TestSlowStart: 3.68 to 3.72. An endpoint whose check passes again gets a tenth of its weight first,
// which status, describe, top and diff know; connections follow each part, and end with the whole. A
// restart of nftproxy ends a slow start.
func TestSlowStart(t *testing.T) {
	w := newWard(t, 3)
	web := slowStart("1h", w.Pods...)
	back := w.Pods[2]
	w.write(web)
	d := w.start()
	w.answered(web, w.Pods...)
	w.has([]string{"status"}, "healthy\n")
	if text := w.mustRun(0, exec.Command(binary, "status")); strings.Contains(text, "starting") {
		t.Errorf("endpoints start slowly when nftproxy starts:\n%s", text)
	}
	again := func() {
		w.kill(back)
		w.answered(web, w.Pods[:2]...)
		w.revive(back)
		w.starts(back, "1h", 1)
	}
	again()
	w.begun(web, 1)
	w.has([]string{"status"}, fmt.Sprintf("starting   %s:%d of Service default/web, 10 %% of its weight, all of it in ", back.IPv4, echoPort))
	w.has([]string{"describe", "web"}, "slow start        1h\n", "1 (10 % now)")
	if out := w.mustRunCombined(0, w.command("diff")); !strings.Contains(out, "No changes.") {
		t.Errorf("a slow start is a difference:\n%s", out)
	}
	w.page("/live?service=default/web", `"starting":{"part":0.1,"full":"`)

	w.replace(slowStart("12s", w.Pods...))
	w.starts(back, "12s", 3)
	w.replace(web)
	w.begun(web, w.starts(back, "1h", 3))

	w.replace(slowStart("1s", w.Pods...))
	eventually(t, func() error {
		if text := w.mustRun(0, exec.Command(binary, "status")); strings.Contains(text, "starting") {
			return fmt.Errorf("endpoints start:\n%s", text)
		}
		return nil
	})
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		roundRobin(t, names(t, 12, w.Client, network, web.clusterIP(family)), 3)
	})

	w.replace(web)
	again()
	d.stop(t)
	w.begun(web, 1) // the rules stay
	w.start()
	w.has([]string{"status"}, "healthy\n")
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		roundRobin(t, names(t, 12, w.Client, network, web.clusterIP(family)), 3)
	})
}

// TestSlowStartOfNewEndpoint: 3.68. An endpoint that is added while others serve starts slowly. One
// that is alone takes all connections.
func TestSlowStartOfNewEndpoint(t *testing.T) {
	w := newWard(t, 3)
	web := slowStart("1h", w.Pods[:2]...)
	w.write(web)
	w.start()
	w.answered(web, w.Pods[:2]...)
	web.Pods = w.Pods
	w.replace(web)
	w.starts(w.Pods[2], "1h", 1)
	w.begun(web, 1)
	w.kill(w.Pods[:2]...)
	w.answered(web, w.Pods[2])
}
