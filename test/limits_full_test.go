package test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestFullLimitOfOneService: 4.88. Forged clients use up the room of a limit per client: further clients of this Service are served
// without it, which status and a metric say; the limit of another Service with the same value holds.
func TestFullLimitOfOneService(t *testing.T) {
	w := newWard(t, 2)
	perClient := map[string]string{"connection-rate-per-client": "1/hour burst 2"}
	flooded, other := limited("flooded", 1, w.Pods[:1], perClient), limited("other", 2, w.Pods[:1], perClient)
	w.write(flooded, other)
	w.start()
	to := flooded.clusterIP(model.IPv4)
	metric := func(name string) string {
		return fmt.Sprintf("\nnftproxy_service_connections_unlimited_total{frontend=\"ClusterIP\",ip_family=\"IPv4\",limit=\"rate-per-client\",namespace=\"default\",port=\"udp\",protocol=\"UDP\",service=%q} ", name)
	}
	w.page("/metrics", metric("flooded")+"0\n", metric("other")+"0\n")
	forged := netip.MustParseAddr("11.0.0.0")
	eventually(t, func() error {
		packets := make([][]byte, budget.LimitedClients/8)
		for i := range packets {
			forged = forged.Next()
			packets[i] = expiring(firstPacket(model.UDP, netip.AddrPortFrom(forged, 4711), to))
		}
		if err := sendRaw(w.Pods[1], packets...); err != nil {
			t.Fatal(err)
		}
		a, err := get(w.Node, "GET", metricsAddress, "/metrics", "")
		if err == nil && strings.Contains(a.body, metric("flooded")+"0\n") {
			err = fmt.Errorf("there is room for %s and the addresses before", forged)
		}
		return err
	})
	w.has([]string{"status"}, "LimitFull: further clients are served without their limit", "Service default/flooded: the limit rate-per-client remembers 65536 clients over IPv4; ")
	w.has([]string{"describe", "flooded"}, " passed without it while it was full")
	for range 5 {
		ask(t, w.Client, "udp", to)
	}
	for _, client := range []*netlab.Host{w.Node, w.Pods[0]} {
		ask(t, client, "udp", other.clusterIP(model.IPv4))
		ask(t, client, "udp", other.clusterIP(model.IPv4))
		silent(t, []*netlab.Host{client}, "udp", other.clusterIP(model.IPv4))
	}
	w.page("/metrics", metric("other")+"0\n")
	if out := w.mustRun(0, exec.Command(binary, "status")); strings.Contains(out, "Service default/other: the limit") {
		t.Errorf("status blames the other Service:\n%s", out)
	}
}
