package test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// page waits until a page of the metrics server has all of these texts.
func (c *cluster) page(path string, texts ...string) {
	c.t.Helper()
	eventually(c.t, func() error {
		a, err := get(c.Node, "GET", metricsAddress, path, "")
		if err != nil {
			return err
		}
		for _, text := range texts {
			if !strings.Contains(a.body, text) {
				return fmt.Errorf("no %q in %s", text, path)
			}
		}
		return nil
	})
}

// has waits until a command succeeds and its output has all of these texts: status fails while a new
// process has not applied its rules.
func (c *cluster) has(command []string, texts ...string) {
	c.t.Helper()
	eventually(c.t, func() error {
		var out, log strings.Builder
		cmd := exec.Command(binary, command...)
		cmd.Stdout, cmd.Stderr = &out, &log
		if err := c.Node.Run(cmd); err != nil {
			return fmt.Errorf("%s: %w\n%s%s", command, err, &out, &log)
		}
		for _, text := range texts {
			if !strings.Contains(out.String(), text) {
				return fmt.Errorf("no %q in %s:\n%s", text, command, &out)
			}
		}
		return nil
	})
}

// TestHealthViews: 3.34, 3.35. What a running nftproxy says about an endpoint that fails
// its health check, and about endpoints that all fail.
func TestHealthViews(t *testing.T) {
	w := newWard(t, 2)
	web := checked(quickCheck, w.Pods...)
	w.write(web)
	w.start()
	w.answered(web, w.Pods...)
	dead := w.Pods[1].IPv4.String()
	to := web.clusterIP(model.IPv4).String()
	w.has([]string{"status"}, "checks     4 endpoints of 1 Service: 4 pass, 0 fail\n")

	w.kill(w.Pods[1])
	w.answered(web, w.Pods[0])
	w.has([]string{"status"}, "CheckFailing: endpoints fail their health check",
		"Service default/web: 2 of 4 endpoints fail their health check, such as "+dead+": connect: refused, for ", "checks     4 endpoints of 1 Service: 2 pass, 2 fail\n")
	w.has([]string{"describe", "web"}, "health check      tcp every 500ms, timeout 200ms, rise 2, fall 3\n", "  passes  ", "  fails  ", "its health check fails: connect: refused (since ")
	w.has([]string{"explain", "tcp", to}, dead, "its health check fails: connect: refused (since ")
	w.page("/live?service=default/web", `"failing":[{"address":"`+dead+`","message":"connect: refused","since":"`, `"failingCount":2`)
	w.page("/metrics", "\nnftproxy_health_check_endpoints{state=\"failing\"} 2\n", "\nnftproxy_health_check_endpoints{state=\"passing\"} 2\n",
		"\nnftproxy_health_check_failing_endpoints{namespace=\"default\",service=\"web\"} 2\n", "\nnftproxy_health_check_transitions_total{to=\"failing\"} 2\n",
		"\nnftproxy_health_checks_total{result=\"fail\",type=\"tcp\"} ", "\nnftproxy_health_check_duration_seconds_count{type=\"tcp\"} ")

	w.kill(w.Pods[0])
	w.has([]string{"status"}, "all 4 endpoints fail their health check", "; connections go there all the same")
	w.has([]string{"describe", "web"}, "all 4 endpoints that could take connections fail their health check, so all are used: ")
	w.has([]string{"explain", "tcp", to}, "fails its health check: connect: refused; it is used because no other endpoint passes")

	w.revive(w.Pods...)
	w.answered(web, w.Pods...)
	w.has([]string{"status"}, "healthy\n", "checks     4 endpoints of 1 Service: 4 pass, 0 fail\n")
}
