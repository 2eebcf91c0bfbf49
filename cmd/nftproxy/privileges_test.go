package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/apilab"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// startConfined starts the program as the manifests do: as root, with these
// capabilities and no others ("-all,+net_admin"), and without a way to more.
func startConfined(t *testing.T, ns *netlab.Namespace, capabilities string, args ...string) *process {
	t.Helper()
	return startCommand(t, ns, exec.Command("setpriv", append([]string{
		"--no-new-privs", "--inh-caps=-all", "--bounding-set=" + capabilities, "--", os.Args[0]}, args...)...))
}

const netAdmin = "-all,+net_admin"

// webOn is a Service with an endpoint.
func webOn(endpoint netip.Addr) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ipFamilies: [IPv4], sessionAffinity: ClientIP, ports: [{name: http, port: 80, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}, {name: dns, port: 8080, protocol: UDP}]
endpoints: [{addresses: [%s]}]
`, endpoint)
}

// TestOneCapability runs everything with CAP_NET_ADMIN alone (14.7): it takes
// over from kube-proxy, serves, follows a change and moves a UDP client with it,
// reports its state, and cleans up. Nothing is missing, and nothing is left out
// because it would not be permitted.
func TestOneCapability(t *testing.T) {
	lab := netlab.TestLab(t, 2)
	if err := lab.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	ns := lab.Node.Namespace
	api := apilab.Start(t, ns, node+"\n---\n"+webOn(lab.Pods[0].IPv4))
	left := exec.Command("nft", "add table ip kube-proxy; add chain ip kube-proxy services")
	if err := ns.Run(left); err != nil {
		t.Fatal(err)
	}

	// A kubelet gives the OOM score to the process; to lower it is another right.
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	p := startConfined(t, ns, netAdmin, "run", "--master", api.URL, "--hostname-override", "node-1", noLimit, "--service-metrics",
		"--oom-score-adj="+strings.TrimSpace(string(score)))
	served := func(network string, port uint16, by string) func() bool {
		return func() bool {
			a, err := lab.Client.Ask(network, netip.AddrPortFrom(netip.MustParseAddr("10.96.0.10"), port), 200*time.Millisecond)
			return err == nil && a.Name == by
		}
	}
	eventually(t, "it serves", served("tcp", 80, "pod-0"))
	rights := capabilities(t, p.Process.Pid)
	for _, want := range []string{"CapEff:\t0000000000001000\n", "CapPrm:\t0000000000001000\n", "CapBnd:\t0000000000001000\n", "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		if !strings.Contains(rights, want) {
			t.Errorf("rights of the process:\n%s want %q", rights, want)
		}
	}
	eventually(t, "it takes over", func() bool {
		return ns.Run(exec.Command("nft", "list", "chain", "ip", "kube-proxy", "services")) != nil
	})

	flow, err := lab.Client.Open("udp", netip.MustParseAddrPort("10.96.0.10:53"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close()
	if a, err := flow.Ask(); err != nil || a.Name != "pod-0" {
		t.Errorf("answer %v, %v", a, err)
	}
	flow.Within(200 * time.Millisecond) // it is asked again
	api.Set(t, webOn(lab.Pods[1].IPv4))
	eventually(t, "it follows a change", served("tcp", 80, "pod-1"))
	eventually(t, "a UDP client moves", func() bool { a, err := flow.Ask(); return err == nil && a.Name == "pod-1" })

	status := startConfined(t, ns, netAdmin, "status")
	status.ends(t, 0)
	if !strings.Contains(status.output.String(), "default/web:http") {
		t.Errorf("status says %s", &status.output)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(t, 0)
	for line := range strings.Lines(p.log.String()) {
		// Events have no place in this API server.
		if strings.Contains(line, "level=INFO") || strings.Contains(line, "cannot write events") {
			continue
		}
		t.Errorf("it says: %s", line)
	}
	for _, command := range []string{"diff", "explain", "apply"} {
		args := []string{command, "-f", writeFile(t, service)}
		if command == "explain" {
			args = []string{command, "tcp", "10.96.0.10:80"}
		}
		c := startConfined(t, ns, netAdmin, args...)
		_ = c.Wait()
		if code := c.ProcessState.ExitCode(); code >= cli.CodeError {
			t.Errorf("%s: code %d, %s", command, code, &c.log)
		}
	}
	startConfined(t, ns, netAdmin, "cleanup", "--kube-proxy").ends(t, 0)
	if err := ns.Run(exec.Command("nft", "list", "table", "ip", "nftproxy")); err == nil {
		t.Error("the table is left after cleanup")
	}
}

// capabilities returns what the kernel says about the rights of a process.
func capabilities(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestNoCapability: that one is necessary, and the error names it.
// What only computes needs none.
func TestNoCapability(t *testing.T) {
	ns := netlab.TestNamespace(t)
	path := writeFile(t, service)
	for _, args := range []string{"run -f FILE", "apply -f FILE", "diff -f FILE", "cleanup", "explain tcp 10.96.0.10:80", "trace 10.96.0.10:80", "status"} {
		p := startConfined(t, ns, "-all", strings.Fields(strings.ReplaceAll(args, "FILE", path))...)
		p.ends(t, failure(strings.Fields(args)[0]))
		const want = "permission denied: run as root, or with the capability CAP_NET_ADMIN\n"
		log := p.log.String()
		last := log[strings.LastIndexByte(strings.TrimSuffix(log, "\n"), '\n')+1:]
		if strings.TrimPrefix(last, "nftproxy: ") != want {
			t.Errorf("%s: %s", args, log)
		}
	}
	for _, args := range []string{"render -f FILE", "explain -f FILE tcp 10.96.0.10:80"} {
		startConfined(t, ns, "-all", strings.Fields(strings.ReplaceAll(args, "FILE", path))...).ends(t, 0)
	}
}
