package main

import (
	"encoding/json"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/netlab"
	"github.com/nftproxy/nftproxy/internal/status"
)

// problems returns the problems of the machine in the status of the daemon, by reason.
func problems(t *testing.T, ns *netlab.Namespace) map[string]string {
	t.Helper()
	_, body := get(t, ns, "http://127.0.0.1:10249/status")
	var r status.Report
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return map[string]string{"status": body}
	}
	found := make(map[string]string)
	for _, p := range r.Problems {
		if p.Object == "Machine" {
			found[p.Reason] = p.Message
		}
	}
	return found
}

// 11.20: a machine that does not forward says so in the log, in the status and in
// metrics, until it does; and so does a firewall that drops.
func TestMachineProblems(t *testing.T) {
	lab := netlab.TestLab(t, 1)
	if err := lab.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	ns := lab.Node.Namespace
	answers := func() bool {
		_, err := lab.Client.Ask("tcp", netip.MustParseAddrPort("10.96.0.10:80"), 100*time.Millisecond)
		return err == nil
	}
	forward(t, ns, "0")
	p := start(t, ns, "nftproxy", "run", "-f", writeFile(t, webOn(lab.Pods[0].IPv4)))
	eventually(t, "a warning in the log", func() bool {
		return strings.Contains(p.log.String(), `level=WARN msg="this machine keeps Services from being served" check=forwarding problem="net.ipv4.ip_forward is 0`)
	})
	if got := problems(t, ns); len(got) != 1 || !strings.Contains(got["ForwardingOff"], "such as "+lab.Pods[0].IPv4.String()+": sysctl -w net.ipv4.ip_forward=1") {
		t.Errorf("status: %v", got)
	}
	if answers() {
		t.Error("it forwards")
	}
	metric := func(line string) bool { return strings.Contains(metricsIn(t, ns), line) }
	if !metric("nftproxy_machine_problems{check=\"forwarding\"} 1\n") || !metric("nftproxy_conntrack_entries_limit ") {
		t.Error("the metrics lack it")
	}

	forward(t, ns, "1")
	eventually(t, "no problem in the status", func() bool { return len(problems(t, ns)) == 0 })
	if !answers() {
		t.Error("it does not forward")
	}
	if !metric("nftproxy_machine_problems{check=\"forwarding\"} 0\n") || !strings.Contains(p.log.String(), `msg="a problem of this machine is gone" check="forwarding IPv4"`) {
		t.Errorf("metrics or log: %s", p.log.String())
	}

	if err := ns.Run(exec.Command("iptables-nft", "-P", "FORWARD", "DROP")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the firewall in the status", func() bool { return problems(t, ns)["ForwardingFiltered"] != "" })
	if answers() {
		t.Error("the firewall does not drop")
	}
	if err := ns.Run(exec.Command("iptables-nft", strings.Fields("-I FORWARD -m conntrack --ctstate DNAT -j ACCEPT")...)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no problem with the remedy", func() bool { return len(problems(t, ns)) == 0 })
	if !answers() {
		t.Error("the remedy does not help")
	}
}

// TestMachineWithLocalEndpoints is not about forwarding: nothing has to be forwarded.
func TestMachineWithLocalEndpoints(t *testing.T) {
	lab := netlab.TestLab(t, 1)
	ns := lab.Node.Namespace
	forward(t, ns, "0")
	p := start(t, ns, "nftproxy", "run", "-f", writeFile(t, webOn(lab.Node.IPv4)))
	eventually(t, "rules", func() bool { return strings.Contains(p.log.String(), "rules applied") })
	if got := problems(t, ns); len(got) > 0 {
		t.Errorf("status: %v", got)
	}
	if strings.Contains(p.log.String(), "this machine keeps") {
		t.Errorf("log: %s", p.log.String())
	}
}
