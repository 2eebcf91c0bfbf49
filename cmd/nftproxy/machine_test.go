package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// problems returns the problems of the machine in the status of the daemon, by reason.
func problems(t *testing.T, ns *netlab.Namespace) map[string]string {
	t.Helper()
	_, body := get(t, ns, "http://127.0.0.1:10249/status")
	var r api.Status
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return map[string]string{"status": body}
	}
	found := make(map[string]string)
	for _, p := range r.Problems {
		if p.Object.Kind == "Machine" {
			found[string(p.Reason)] = p.Message
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
	answers := func() bool { return answersOn(lab.Client, netip.MustParseAddr("10.96.0.10")) }
	ns.TestForwarding(t, "0")
	p := start(t, ns, "nftproxy", "run", "-f", writeFile(t, webOn(lab.Pods[0].IPv4)))
	eventually(t, "a warning in the log", func() bool {
		return strings.Contains(p.log.String(), `level=WARN msg="this machine keeps Services from being served" check=forwarding problem="net.ipv4.ip_forward is 0`)
	})
	eventually(t, "this problem alone in the status", func() bool { // the server may start after the first check
		got := problems(t, ns)
		return len(got) == 1 && strings.Contains(got["ForwardingOff"], "such as "+lab.Pods[0].IPv4.String()+": sysctl -w net.ipv4.ip_forward=1")
	})
	if answers() {
		t.Error("it forwards")
	}
	metric := func(line string) bool { return strings.Contains(metricsIn(t, ns), line) }
	if !metric("nftproxy_machine_problems{check=\"forwarding\"} 1\n") || !metric("nftproxy_conntrack_entries_limit ") {
		t.Error("the metrics lack it")
	}

	ns.TestForwarding(t, "1")
	eventually(t, "no problem in the status", func() bool { return len(problems(t, ns)) == 0 })
	eventually(t, "it forwards", answers)
	if !metric("nftproxy_machine_problems{check=\"forwarding\"} 0\n") {
		t.Error("the metrics have it still")
	}
	p.says(t, `msg="a problem of this machine is gone" check="forwarding IPv4"`)

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
	eventually(t, "the remedy helps", answers)
}

// TestMachineWithLocalEndpoints is not about forwarding: nothing has to be forwarded.
func TestMachineWithLocalEndpoints(t *testing.T) {
	lab := netlab.TestLab(t, 1)
	ns := lab.Node.Namespace
	ns.TestForwarding(t, "0")
	p := start(t, ns, "nftproxy", "run", "-f", writeFile(t, webOn(lab.Node.IPv4)))
	eventually(t, "rules and a server", func() bool {
		log := p.log.String()
		return strings.Contains(log, "rules applied") && strings.Contains(log, "msg=listening")
	})
	if got := problems(t, ns); len(got) > 0 {
		t.Errorf("status: %v", got)
	}
	if strings.Contains(p.log.String(), "this machine keeps") {
		t.Errorf("log: %s", p.log.String())
	}
}

// dualService is a Service in both families with an endpoint in each.
func dualService(at, endpoint map[model.Family]netip.Addr) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: "%[1]s", clusterIPs: ["%[1]s", "%[2]s"], ipFamilies: [IPv4, IPv6], ports: [{name: tcp, port: 80}]}
`, at[model.IPv4], at[model.IPv6])
	for _, f := range model.Families {
		fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%s, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{name: tcp, port: 8080}]
endpoints: [{addresses: ["%s"]}]
`, strings.ToLower(f.String()), f, endpoint[f])
	}
	return b.String()
}

func answersOn(from *netlab.Host, to netip.Addr) bool {
	_, err := from.Ask("tcp", netip.AddrPortFrom(to, 80), 100*time.Millisecond)
	return err == nil
}

// sysctls returns settings of a namespace.
func sysctls(t *testing.T, ns *netlab.Namespace, names ...string) string {
	t.Helper()
	var out []string
	err := ns.Do(func() error {
		for _, name := range names {
			text, err := os.ReadFile("/proc/sys/net/" + name)
			if err != nil {
				return err
			}
			out = append(out, strings.TrimSpace(string(text)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

// setSysctl changes a setting of a namespace.
func setSysctl(t *testing.T, ns *netlab.Namespace, name, value string) {
	t.Helper()
	if err := ns.Do(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) }); err != nil {
		t.Fatal(err)
	}
}

// 12.76 to 12.78: forwarding is turned on when an endpoint needs it, in that family, also
// when another program turns it off again. Router advertisements are accepted as before, and
// other settings stay.
func TestManageSysctl(t *testing.T) {
	lab := netlab.TestLab(t, 1)
	if err := lab.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	ns := lab.Node.Namespace
	const v4, v6 = "ipv4/ip_forward", "ipv6/conf/all/forwarding"
	setSysctl(t, ns, v4, "0")
	setSysctl(t, ns, v6, "0")
	accept := "ipv6/conf/" + interfaceOf(t, lab.Node) + "/accept_ra"
	setSysctl(t, ns, accept, "1")
	others := []string{"ipv4/conf/all/rp_filter", "ipv4/conf/all/arp_ignore", "ipv6/conf/default/accept_ra", "ipv6/conf/all/proxy_ndp"}
	setSysctl(t, ns, others[0], "1")
	before := sysctls(t, ns, others...)
	at := map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("10.96.0.10"), model.IPv6: netip.MustParseAddr("fd00:10:96::10")}
	here := map[model.Family]netip.Addr{model.IPv4: lab.Node.IPv4, model.IPv6: lab.Node.IPv6}
	file := writeFile(t, dualService(at, here))
	p := start(t, ns, "nftproxy", "run", "-f", file, "--manage-sysctl")
	eventually(t, "rules", func() bool { return strings.Contains(p.log.String(), "rules applied") })
	_ = problems(t, ns) // checks the machine
	if got := sysctls(t, ns, v4, v6, accept); got != "0 0 1" {
		t.Errorf("without need: %s", got)
	}
	for _, f := range model.Families {
		here[f] = lab.Pods[0].Address(f)
		if err := os.WriteFile(file, []byte(dualService(at, here)), 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "an answer over "+f.String(), func() bool { return answersOn(lab.Client, at[f]) })
		if f == model.IPv4 {
			if got := sysctls(t, ns, v4, v6, accept); got != "1 0 1" {
				t.Errorf("IPv4: %s", got)
			}
		}
	}
	if got := sysctls(t, ns, v4, v6, accept); got != "1 1 2" {
		t.Errorf("both: %s", got)
	}
	for _, want := range []string{`msg="kernel setting changed" file=/proc/sys/net/ipv4/ip_forward from=0 to=1`, "file=/proc/sys/net/" + accept + " from=1 to=2", "file=/proc/sys/net/ipv6/conf/all/forwarding from=0 to=1"} {
		p.says(t, want)
	}
	if got := ask(t, ns, "status").stdout; !strings.Contains(got, "net.ipv4.ip_forward: 0 → 1 (--manage-sysctl)") {
		t.Errorf("status:\n%s", got)
	}
	setSysctl(t, ns, v4, "0")
	eventually(t, "forwarding again", func() bool {
		_ = problems(t, ns)
		return sysctls(t, ns, v4) == "1"
	})
	p.kill()
	if got := sysctls(t, ns, v4, v6, accept); got != "1 1 2" {
		t.Errorf("after the end: %s", got)
	}
	if got := sysctls(t, ns, others...); got != before {
		t.Errorf("others: %s, were %s", got, before)
	}
}

// interfaceOf returns the interface with the address of a host.
func interfaceOf(t *testing.T, h *netlab.Host) (name string) {
	t.Helper()
	err := h.Do(func() error {
		all, err := net.Interfaces()
		for _, i := range all {
			addresses, _ := i.Addrs()
			for _, a := range addresses {
				if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == h.IPv4 {
					name = i.Name
				}
			}
		}
		return err
	})
	if err != nil || name == "" {
		t.Fatal("no interface has the address", err)
	}
	return name
}

// 12.79: for an address in a network of the machine that no interface has, nothing answers
// ARP or neighbour discovery: log, status, metrics, check and explain say so, and the
// remedy works.
func TestAddressNotAnswered(t *testing.T) {
	lan, err := netlab.NewSwitch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lan.Close() })
	client, err1 := lan.AddHost("client", 1)
	node, err2 := lan.AddRouter("node", 2)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	echo, err := node.Echo(8080)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = echo.Close() })
	ns := node.Namespace
	at, here := map[model.Family]netip.Addr{}, map[model.Family]netip.Addr{model.IPv4: node.IPv4, model.IPv6: node.IPv6}
	for f, a := range here {
		raw := a.AsSlice()
		raw[len(raw)-1] = 77
		at[f], _ = netip.AddrFromSlice(raw)
	}
	file := writeFile(t, dualService(at, here))
	p := start(t, ns, "nftproxy", "run", "-f", file)
	eventually(t, "warnings in the log", func() bool {
		return strings.Count(p.log.String(), `msg="this machine may keep Services from being served" check=service-addresses`) == len(at)
	})
	eventually(t, "warnings in the metrics", func() bool { // the server may start after the first check
		return strings.Contains(metricsIn(t, ns), "nftproxy_machine_warnings{check=\"service-addresses\"} 2\n")
	})
	remedy := regexp.MustCompile(`ip address add \S+ dev [^\s,]+( nodad)?`)
	for _, f := range model.Families {
		says := "for " + at[f].String() + ", which is in the network of"
		answer := ask(t, ns, "explain", "tcp", netip.AddrPortFrom(at[f], 80).String(), "--from", client.Address(f).String())
		for what, out := range map[string]string{"status": ask(t, ns, "status").stdout, "check": ask(t, ns, "check", "-f", file).stdout, "explain": answer.stdout} {
			if !strings.Contains(out, says) {
				t.Errorf("%s lacks %q:\n%s", what, says, out)
			}
		}
		if answersOn(client, at[f]) {
			t.Errorf("%s answers", at[f])
		}
		if err := ns.Run(exec.Command("sh", "-ec", remedy.FindString(answer.stdout))); err != nil {
			t.Fatalf("%q: %v", remedy.FindString(answer.stdout), err)
		}
		eventually(t, "an answer with the remedy", func() bool { return answersOn(client, at[f]) })
	}
	eventually(t, "no warning with the remedy", func() bool {
		return strings.Contains(metricsIn(t, ns), "nftproxy_machine_warnings{check=\"service-addresses\"} 0\n")
	})
}
