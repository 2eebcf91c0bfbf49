package neighbours

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// buildIstio builds the program that writes Istio's rules, and returns its path
// and which Istio it is of.
func buildIstio(t *testing.T) (program, version string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "istio-iptables")
	if _, err := testbed.GoCommand("-C", "../tools/istio", "build", "-o", program, "."); err != nil {
		t.Fatal(err)
	}
	version, err := testbed.GoCommand("-C", "../tools/istio", "list", "-m", "-f", "{{.Version}}", "istio.io/istio")
	if err != nil {
		t.Fatal(err)
	}
	commit, _, _ := strings.Cut(version[strings.LastIndex(version, "-")+1:], "\n")
	return program, "at commit " + commit
}

// proxyUser is that of a sidecar: what it sends is not redirected.
const proxyUser = 1337

// addSidecar writes Istio's rules in a pod and starts a proxy there.
func (h *host) addSidecar(pod *netlab.Host, program string, flags ...string) *testbed.Process {
	h.t.Helper()
	args := append(strings.Fields("-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -b * -d 15090,15021,15020 --dual-stack"), flags...)
	r := newRoom(h.t, pod)
	r.run(program, args...)
	cmd := exec.Command(buildPeer(h.t), "proxy", "15001", "15006")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: proxyUser, Gid: proxyUser}}
	return testbed.StartCommand(h.t, pod, "sidecar", cmd)
}

// Istio's rules are in the pods and nftproxy's on the node, so a connection meets
// one after the other: sidecar of the client, Service, sidecar of the endpoint.
func TestIstioSidecar(t *testing.T) {
	program, version := buildIstio(t)
	for mode, flags := range map[string][]string{"iptables": nil, "nftables": {"--native-nftables"}} {
		t.Run(mode, func(t *testing.T) {
			finds(t, finding{Group: "Service meshes", Neighbour: "Istio", Version: version, Verdict: works,
				Case: "sidecars in clients and endpoints of a Service, redirected with " + mode})
			h := newHost(t)
			h.serve(h.Pods[0])
			client := h.addSidecar(h.Pods[1], program, flags...)
			server := h.addSidecar(h.Pods[0], program, flags...)
			h.startProxy()
			h.answers("with sidecars", h.Pods[0].Name, h.paths()...)
			for _, family := range model.Families {
				for _, p := range []struct {
					process *testbed.Process
					line    string
				}{
					{client, fmt.Sprintf("outbound %s\n", clusterIP(family))},
					{server, fmt.Sprintf("inbound %s\n", netip.AddrPortFrom(h.Pods[0].Address(family), testbed.EchoPort))},
				} {
					if !strings.Contains(p.process.Log.String(), p.line) {
						h.t.Errorf("a sidecar has not seen %q", p.line)
					}
				}
			}
		})
	}
}

// probeAddress is the source that Istio gives the kubelet's probes, so that pods
// in ambient mode tell them from other traffic of the node.
func probeAddress(f model.Family) netip.Addr {
	return map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("169.254.7.127"),
		model.IPv6: netip.MustParseAddr("fd16:9254:7127:1337:ffff:ffff:ffff:ffff")}[f]
}

// translateProbes writes the rules that Istio has on a node in ambient mode: what
// processes of the node send to its pods gets another source.
func (h *host) translateProbes() {
	h.t.Helper()
	for f, c := range map[model.Family]struct {
		command string
		family  uint8
	}{model.IPv4: {"iptables", unix.AF_INET}, model.IPv6: {"ip6tables", unix.AF_INET6}} {
		set := fmt.Sprintf("istio-inpod-probes-v%d", f)
		err := h.Node.Do(func() error {
			if err := netlink.IpsetCreate(set, "hash:ip", netlink.IpsetCreateOptions{Family: c.family}); err != nil {
				return err
			}
			return netlink.IpsetAdd(set, &netlink.IPSetEntry{IP: h.Pods[0].Address(f).AsSlice()})
		})
		if err != nil {
			h.t.Fatalf("make set %s: %v", set, err)
		}
		h.run(c.command, "-t", "nat", "-N", "ISTIO_POSTRT")
		h.run(c.command, "-t", "nat", "-I", "POSTROUTING", "1", "-j", "ISTIO_POSTRT")
		h.run(c.command, "-t", "nat", "-A", "ISTIO_POSTRT", "-m", "owner", "--socket-exists", "-p", "tcp",
			"-m", "set", "--match-set", set, "dst", "-j", "SNAT", "--to-source", probeAddress(f).String())
	}
}

// Probes keep Istio's source. Traffic of the node to Services does not get it, so
// the pod's proxy does not take it for a probe.
func TestIstioAmbientProbes(t *testing.T) {
	_, version := buildIstio(t)
	finds(t, finding{Group: "Service meshes", Neighbour: "Istio", Version: version, Verdict: works,
		Case: "the rules on a node in ambient mode, for probes (as Istio's CNI agent writes them)"})
	inEitherOrder(t, func(h *host, start func(func())) {
		h.serve(h.Pods[0])
		start(h.translateProbes)
		h.answers("probes translated", h.Pods[0].Name, h.paths()...)
		for _, f := range model.Families {
			for _, c := range []struct {
				to   netip.AddrPort
				want netip.Addr
			}{{netip.AddrPortFrom(h.Pods[0].Address(f), testbed.EchoPort), probeAddress(f)},
				{clusterIP(f), h.Gateway(h.Pods[0], f)}, {h.nodePort(f), h.Gateway(h.Pods[0], f)}} {
				if answer, err := h.Node.Ask("tcp", c.to, testbed.Strict); err != nil || answer.Client != c.want {
					h.t.Errorf("node to %s: seen as %v, %v, want %s", c.to, answer, err, c.want)
				}
			}
		}
	})
}
