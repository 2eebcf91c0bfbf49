package support

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// 12.70: the exit code says whether the machine is ready, and the findings why.
func TestCheck(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	ns := netlab.TestNamespace(t)
	ns.TestForwarding(t, "0")
	r := program.RunIn(t, ns, "check")
	if r.Code != cli.CodeNo || r.Stderr != "" || !strings.HasPrefix(r.Stdout, "problem  forwarding: net.ipv4.ip_forward is 0") ||
		!strings.Contains(r.Stdout, "\nNOT READY as a single machine: 1 problem") {
		t.Errorf("without forwarding: %+v", r)
	}
	if strings.Contains(r.Stdout, "\x1b") {
		t.Error("in colour, and not on a terminal")
	}
	if r = program.RunIn(t, ns, "check", "--color=always"); !strings.Contains(r.Stdout, "\x1b") {
		t.Error("not in colour")
	}
	ns.TestForwarding(t, "1")
	if r = program.RunIn(t, ns, "check"); r.Code != 0 || !strings.Contains(r.Stdout, "ready as a single machine") {
		t.Errorf("with forwarding: %+v", r)
	}
	if r = program.RunIn(t, ns, "check", "--cluster-cidr=10.128.0.0/9", "--kubeconfig=/nowhere"); r.Code != 0 || !strings.Contains(r.Stdout, "ready as a node of a cluster") {
		t.Errorf("of a cluster: %+v", r)
	}
	if r = program.RunIn(t, ns, "check", "--service-proxy-name=nftproxy", "--master=https://192.0.2.1"); !strings.Contains(r.Stdout, "beside kube-proxy") {
		t.Errorf("beside kube-proxy: %+v", r)
	}

	if err := ns.Run(exec.Command("nft", "table ip kube-proxy { chain services { }; }")); err != nil {
		t.Fatal(err)
	}
	if r = program.RunIn(t, ns, "check"); r.Code != 0 || !strings.Contains(r.Stdout, "ready as a single machine: 1 warning") && !strings.Contains(r.Stdout, "1 warning, ") {
		t.Errorf("with a warning: %+v", r)
	}
	if r = program.RunIn(t, ns, "check", "--strict", "-o", "json"); r.Code != cli.CodeNo {
		t.Errorf("with a warning, strict: %+v", r)
	}
	var report struct {
		Ready  bool
		Checks []struct{ Check, Level, Remedy string }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil || !report.Ready || len(report.Checks) == 0 || report.Checks[0].Level != "warning" {
		t.Errorf("JSON: %v, %s", err, r.Stdout)
	}
}

// TestCheckFiles: endpoints on this machine need no forwarding, and others do.
func TestCheckFiles(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	ns := netlab.TestNamespace(t)
	ns.TestForwarding(t, "0")
	files := commandline.WriteFile(t, commandline.Service)
	if r := program.RunIn(t, ns, "check", "-f", files); r.Code != cli.CodeNo || !strings.Contains(r.Stdout, "in pods, such as 10.") {
		t.Errorf("endpoints elsewhere: %+v", r)
	}
	if err := ns.Run(exec.Command("sh", "-c", "ip link set lo up; ip addr add 10.128.1.1/32 dev lo; ip addr add 10.128.1.2/32 dev lo")); err != nil {
		t.Fatal(err)
	}
	if r := program.RunIn(t, ns, "check", "-f", files); r.Code != 0 || !strings.Contains(r.Stdout, "no endpoint is on another machine") {
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
		if r := program.Run("", append([]string{"check"}, strings.Fields(args)...)...); r.Code != cli.CodeError || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
}
