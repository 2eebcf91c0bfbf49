package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// forward switches forwarding.
func forward(t *testing.T, ns *netlab.Namespace, value string) {
	t.Helper()
	err := ns.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(value), 0); err != nil {
			return err
		}
		return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte(value), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// 12.70: the exit code says whether the machine is ready, and the findings why.
func TestCheck(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	ns := netlab.TestNamespace(t)
	forward(t, ns, "0")
	r := in(t, ns, "check")
	if r.code != cli.CodeNo || r.stderr != "" || !strings.HasPrefix(r.stdout, "problem  forwarding: net.ipv4.ip_forward is 0") ||
		!strings.Contains(r.stdout, "\nNOT READY as a single machine: 1 problem") {
		t.Errorf("without forwarding: %+v", r)
	}
	if strings.Contains(r.stdout, "\x1b") {
		t.Error("in colour, and not on a terminal")
	}
	if r = in(t, ns, "check", "--color=always"); !strings.Contains(r.stdout, "\x1b") {
		t.Error("not in colour")
	}
	forward(t, ns, "1")
	if r = in(t, ns, "check"); r.code != 0 || !strings.Contains(r.stdout, "ready as a single machine") {
		t.Errorf("with forwarding: %+v", r)
	}
	if r = in(t, ns, "check", "--cluster-cidr=10.128.0.0/9", "--kubeconfig=/nowhere"); r.code != 0 || !strings.Contains(r.stdout, "ready as a node of a cluster") {
		t.Errorf("of a cluster: %+v", r)
	}
	if r = in(t, ns, "check", "--service-proxy-name=nftproxy", "--master=https://192.0.2.1"); !strings.Contains(r.stdout, "beside kube-proxy") {
		t.Errorf("beside kube-proxy: %+v", r)
	}

	if err := ns.Run(exec.Command("nft", "table ip kube-proxy { chain services { }; }")); err != nil {
		t.Fatal(err)
	}
	if r = in(t, ns, "check"); r.code != 0 || !strings.Contains(r.stdout, "ready as a single machine: 1 warning") && !strings.Contains(r.stdout, "1 warning, ") {
		t.Errorf("with a warning: %+v", r)
	}
	if r = in(t, ns, "check", "--strict", "-o", "json"); r.code != cli.CodeNo {
		t.Errorf("with a warning, strict: %+v", r)
	}
	var report struct {
		Ready  bool
		Checks []struct{ Check, Level, Remedy string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || !report.Ready || len(report.Checks) == 0 || report.Checks[0].Level != "warning" {
		t.Errorf("JSON: %v, %s", err, r.stdout)
	}
}

// TestCheckFiles: endpoints on this machine need no forwarding, and others do.
func TestCheckFiles(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	ns := netlab.TestNamespace(t)
	forward(t, ns, "0")
	files := writeFile(t, service)
	if r := in(t, ns, "check", "-f", files); r.code != cli.CodeNo || !strings.Contains(r.stdout, "in pods, such as 10.") {
		t.Errorf("endpoints elsewhere: %+v", r)
	}
	if err := ns.Run(exec.Command("sh", "-c", "ip link set lo up; ip addr add 10.128.1.1/32 dev lo; ip addr add 10.128.1.2/32 dev lo")); err != nil {
		t.Fatal(err)
	}
	if r := in(t, ns, "check", "-f", files); r.code != 0 || !strings.Contains(r.stdout, "no endpoint is on another machine") {
		t.Errorf("endpoints here: %+v", r)
	}
}

func TestCheckUsage(t *testing.T) {
	for args, want := range map[string]string{
		"-o xml":                 `--output: unknown format "xml": use text, json or yaml`,
		"--color=red":            "--color",
		"-f /nowhere.yaml":       "/nowhere.yaml",
		"--config /nowhere.conf": "/nowhere.conf",
		"services.yaml":          "unexpected argument",
	} {
		if r := execute("", append([]string{"check"}, strings.Fields(args)...)...); r.code != cli.CodeError || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
}

// 14.15: without rights, what can be seen is checked, and the rest is named.
func TestCheckWithoutRights(t *testing.T) {
	ns := netlab.TestNamespace(t)
	forward(t, ns, "1")
	p := startConfined(t, ns, "-all", "check")
	err := p.Wait()
	out := p.output.String()
	if err != nil || !strings.Contains(out, "unseen   nat-chains: cannot read the rules of nf_tables: it needs the capability CAP_NET_ADMIN\n         do: run as root\n") ||
		!strings.Contains(out, "no problem seen as a single machine: ") || !strings.Contains(out, "ok       forwarding: IPv4 forwards") {
		t.Errorf("%v: %s%s", err, out, p.log.String())
	}
}

// 14.16: with --stay, the process runs on a machine that is ready, and ends on another one.
func TestCheckStays(t *testing.T) {
	ns := netlab.TestNamespace(t)
	forward(t, ns, "0")
	start(t, ns, "nftproxy", "check", "--stay").ends(t, cli.CodeNo)
	forward(t, ns, "1")
	p := start(t, ns, "nftproxy", "check", "--stay")
	eventually(t, "the verdict", func() bool { return strings.Contains(p.output.String(), "ready as") })
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(t, 0)
}
