package test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// 9.35: a kernel without flow tables keeps all connections with the rules, and the log, status and check
// say why. Others say that connections take the fast path.
func TestFastPathTested(t *testing.T) {
	c := newCluster(t, 1)
	ask := exec.Command("nft", "-f", "-")
	ask.Stdin = strings.NewReader("table inet has { flowtable f { hook ingress priority 0; }; chain c { flow add @f; }; }")
	has := c.Node.Run(ask) == nil
	c.flags = append([]string{"--fast-path=all"}, c.flags...)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	d := c.start()
	c.answersFrom(web, c.Pods[0].Name)
	to := web.clusterIP(model.IPv4).String()
	if has {
		d.logs(t, "established connections take the fast path")
		c.has([]string{"explain", "tcp", to}, takesFastPath)
		c.has([]string{"check", "--fast-path=all"}, "the kernel passes the test")
		return
	}
	d.logs(t, "the fast path stays off", "CONFIG_NF_FLOW_TABLE")
	c.has([]string{"status"}, "NoFastPath: ", "CONFIG_NF_FLOW_TABLE")
	c.has([]string{"check", "--fast-path=all"}, "--fast-path has no effect: ", "CONFIG_NF_FLOW_TABLE")
	c.has([]string{"explain", "-f", c.file, "--fast-path=all", "tcp", to}, takesFastPath) // on another machine
	if out := c.mustRun(0, exec.Command(binary, "explain", "tcp", to)); strings.Contains(out, "fast path") {
		t.Errorf("explain speaks of a fast path that is off:\n%s", out)
	}
}

const takesFastPath = "take the fast path: they skip the rules of all programs"

// logs waits until the log has a line with all of these texts.
func (d *daemon) logs(t *testing.T, texts ...string) {
	t.Helper()
	eventually(t, func() error {
		for line := range strings.Lines(d.log.String()) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return nil
			}
		}
		return fmt.Errorf("no line with %q in the log:\n%s", texts, d.log.String())
	})
}
