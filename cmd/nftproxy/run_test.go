package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/testkit/apilab"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestNameKubeProxy: under that name, the program is "nftproxy run" (14.9).
func TestNameKubeProxy(t *testing.T) {
	for _, c := range []struct{ argv, want string }{
		{"/usr/local/bin/kube-proxy --config=a", "run --config=a"},
		{"kube-proxy", "run"},
		{"/bin/nftproxy render", "render"},
	} {
		if got := strings.Join(command.ArgumentsOf(strings.Fields(c.argv)), " "); got != c.want {
			t.Errorf("(14.9) %s: %q, want %q", c.argv, got, c.want)
		}
	}
	ns := netlab.TestNamespace(t)
	written := filepath.Join(t.TempDir(), "written.conf")
	start(t, ns, "kube-proxy", "--write-config-to", written).ends(t, 0)
	if _, err := os.Stat(written); err != nil {
		t.Error(err)
	}
	start(t, ns, "kube-proxy", "--no-such-flag").ends(t, cli.CodeNo)
}

// TestVersionFlag prints and does nothing else (12.6).
func TestVersionFlag(t *testing.T) {
	for _, args := range [][]string{{"--version"}, {"run", "--version", "--config", "missing"}} {
		if r := execute("", args...); r.code != 0 || !strings.HasPrefix(r.stdout, "nftproxy "+version+" (") {
			t.Errorf("(12.6) %s: code %d, %q", args, r.code, r.stdout)
		}
	}
}

// TestVersionRaw: as in kube-proxy, all that is known of the version (12.6).
func TestVersionRaw(t *testing.T) {
	for _, args := range [][]string{{"--version=raw"}, {"run", "--version=raw"}} {
		r := execute("", args...)
		if r.code != 0 || !strings.HasPrefix(r.stdout, "version.Info{") || !strings.Contains(r.stdout, fmt.Sprintf("GitVersion:%q", version)) {
			t.Errorf("%s: code %d, %s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	if r := execute("", "run", "--version=false", "--cleanup", "--version=perhaps"); r.code == 0 || !strings.Contains(r.stderr, "true, false or raw") {
		t.Errorf("code %d, %s", r.code, r.stderr)
	}
}

// TestEmptyArgument: a template may leave an empty argument on the command line,
// which kube-proxy accepts (12.1).
func TestEmptyArgument(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.conf")
	if r := execute("", "run", "", "--write-config-to", path, ""); r.code != 0 {
		t.Errorf("code %d, %s", r.code, r.stderr)
	}
	if r := execute("", "run", "", "x", "--write-config-to", path); r.code != cli.CodeNo || !strings.Contains(r.stderr, `unexpected argument "x"`) {
		t.Errorf("code %d, %s", r.code, r.stderr)
	}
}

// TestWriteConfig writes what the flags ask for, without kernel and API server;
// "_" is as good as "-" (12.58, 12.1). What cannot be used is not written.
func TestWriteConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "written.conf")
	if r := execute("", "run", "--write_config_to", path, "--cluster_cidr=10.0.0.0/8", "--masquerade-all"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nclusterCIDR: 10.0.0.0/8\n", "\nkind: KubeProxyConfiguration\n", "  masqueradeAll: true\n"} {
		if !strings.Contains("\n"+string(text), want) {
			t.Errorf("(12.58) no %q in\n%s", want, text)
		}
	}
	again := path + ".2"
	if r := execute("", "run", "--config", path, "--write-config-to", again); r.code != 0 || r.stderr != "" {
		t.Fatalf("code %d, %s", r.code, r.stderr)
	}
	if copied, err := os.ReadFile(again); err != nil || string(copied) != string(text) {
		t.Errorf("(12.58) %v, read and written again:\n%s", err, copied)
	}
	bad := path + ".3"
	if r := execute("", "run", "--write-config-to", bad, "--cluster-cidr=x", "--oom-score-adj=9999"); r.code != cli.CodeNo || !strings.Contains(r.stderr, "--cluster-cidr") || !strings.Contains(r.stderr, "--oom-score-adj") {
		t.Errorf("(12.5) code %d, %s", r.code, r.stderr)
	}
	if _, err := os.Stat(bad); !os.IsNotExist(err) {
		t.Errorf("(12.58) %v", err)
	}
}

// TestFlagsInTheLog: 12.7, and what --config overrides in one line (12.2).
func TestFlagsInTheLog(t *testing.T) {
	conf := writeFile(t, configHeader)
	path := writeFile(t, service)
	r := execute("", "render", "-f", path, "--config", conf, "-v1", "--masquerade-all", "--cluster-cidr=10.0.0.0/8")
	if strings.Count(r.stderr, `msg="flag in effect" flag=masquerade-all value=true`) != 1 {
		t.Errorf("(12.7) %s", r.stderr)
	}
	if strings.Count(r.stderr, "flags without effect") != 1 || !strings.Contains(r.stderr, "(flags: --cluster-cidr --masquerade-all, file: "+conf+")\n") {
		t.Errorf("(12.2) %s", r.stderr)
	}
	if r := execute("", "render", "-f", path, "--config", conf); r.stderr != "" {
		t.Errorf("the log is not quiet: %s", r.stderr)
	}
}

// TestCleanupFlag removes our tables, and does not mind that there are none
// (12.59).
func TestCleanupFlag(t *testing.T) {
	ns := netlab.TestNamespace(t)
	in(t, ns, "apply", "-f", writeFile(t, service))
	for _, want := range []string{"- table", "No changes."} {
		if r := in(t, ns, "run", "--cleanup"); r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("(12.59) code %d, no %q in %s%s", r.code, want, r.stdout, r.stderr)
		}
	}
}

// noLimit leaves a setting alone that only the first network namespace has.
const noLimit = "--conntrack-max-per-core=0"

// TestInitOnly waits for the Node, sets what connection tracking needs (9.19),
// makes no rules, and exits (12.60).
func TestInitOnly(t *testing.T) {
	ns := netlab.TestNamespace(t)
	api := apilab.Start(t, ns, nodeAndService)
	before := ns.TestGeneration(t)
	p := start(t, ns, "nftproxy", "run", "--init-only", "--master", api.URL, noLimit, "--hostname-override", " Node-1 ", "--conntrack-udp-timeout=61s")
	p.ends(t, 0)
	if !strings.Contains(p.log.String(), "addresses=[192.168.7.1]") {
		t.Errorf("(12.60) the Node was not waited for: %s", &p.log)
	}
	for _, kind := range []string{"Service", "EndpointSlice", "ServiceCIDR"} {
		if api.WasRead(kind) {
			t.Errorf("(12.60) reads each %s", kind)
		}
	}
	const timeout = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"
	var got []byte
	if err := ns.Do(func() (err error) { got, err = os.ReadFile(timeout); return err }); err != nil || strings.TrimSpace(string(got)) != "61" {
		t.Errorf("(9.19) %s is %q, %v", timeout, got, err)
	}
	if after := ns.TestGeneration(t); after != before {
		t.Errorf("(12.60) generation %d after %d", after, before)
	}
}

// TestWaitsForAnswer: without an answer about the Node nothing happens, however
// long that takes (12.45).
func TestWaitsForAnswer(t *testing.T) {
	ns := netlab.TestNamespace(t)
	api := apilab.Start(t, ns, nodeAndService)
	api.Withhold("Node")
	p := start(t, ns, "nftproxy", "run", "--init-only", "--master", api.URL, noLimit, "--hostname-override", "node-1")
	eventually(t, "the log says why it waits", func() bool { return strings.Contains(p.log.String(), "no such role") })
	if strings.Contains(p.log.String(), "msg=node ") {
		t.Errorf("(12.45) goes on without an answer: %s", &p.log)
	}
	api.Withhold("")
	p.ends(t, 0)
}

// TestRunEnds: a changed configuration file ends it with exit code 1 (12.50),
// a signal with 0, and the rules stay (12.57).
func TestRunEnds(t *testing.T) {
	const noLimit = "conntrack: {maxPerCore: 0}\n"
	conf := writeFile(t, configHeader+noLimit)
	path := writeFile(t, service)
	for _, c := range []struct {
		name string
		end  func(p *process) error
		code int
		says string
	}{
		{"12.50 changed", func(*process) error { return os.WriteFile(conf, []byte(configHeader+noLimit+"# more\n"), 0o600) }, cli.CodeNo, "has changed: ending"},
		{"12.57 SIGTERM", func(p *process) error { return p.Process.Signal(syscall.SIGTERM) }, 0, `msg=stopping reason="terminated signal received"`},
		{"12.57 SIGINT", func(p *process) error { return p.Process.Signal(syscall.SIGINT) }, 0, `msg=stopping reason="interrupt signal received"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := netlab.TestNamespace(t)
			p := start(t, ns, "nftproxy", "run", "-f", path, "--config", conf)
			eventually(t, "rules", func() bool { return rendered(t, ns, "10.96.0.10:80") })
			if err := c.end(p); err != nil {
				t.Fatal(err)
			}
			p.ends(t, c.code)
			if !strings.Contains(p.log.String(), c.says) || !rendered(t, ns, "10.96.0.10:80") {
				t.Errorf("no %q in the log, or the rules are gone: %s", c.says, &p.log)
			}
			log := p.log.String()
			for _, want := range []string{
				"msg=starting version=" + version + " kernel=", `source="files ` + path + `" node=`, " config=" + conf + " ",
				"metrics=127.0.0.1:10249 ownsTables=", "msg=\"stopped; the rules stay in the kernel\"\n",
			} {
				if strings.Count(log, want) != 1 {
					t.Errorf("13.24: no %q in %s", want, log)
				}
			}
			if n := strings.Count(log, "has changed: ending"); c.code == cli.CodeNo && n != 1 {
				t.Errorf("the reason is there %d times: %s", n, log)
			}
		})
	}
}

// rendered reports whether the rules in a namespace serve an address.
func rendered(t *testing.T, ns *netlab.Namespace, address string) bool {
	t.Helper()
	r := in(t, ns, "explain", "--from", "203.0.113.7", "tcp", address)
	return strings.Contains(r.stdout, ": forwarded")
}

// TestRunFollowsNode changes the Node of a running proxy (12.51, 12.52, 12.53,
// 12.54, P87, P88).
func TestRunFollowsNode(t *testing.T) {
	ns := netlab.TestNamespace(t)
	hinted := strings.NewReplacer("metadata: {name: web", "metadata: {namespace: default, name: web",
		"nodeName: node-2}\n- ", "nodeName: node-2, hints: {forZones: [{name: zone-a}]}}\n- ",
		"10.128.1.2], nodeName: node-2", "10.128.1.2], nodeName: node-2, hints: {forZones: [{name: zone-b}]}",
		"port: 80}", "port: 80, nodePort: 30080}").Replace(service)
	api := apilab.Start(t, ns, node+"\n---\n"+hinted)
	p := start(t, ns, "nftproxy", "run", "--master", api.URL, noLimit, "--hostname-override", "node-1", "--detect-local-mode=NodeCIDR")
	explained := func(from, to string) string {
		return in(t, ns, "explain", "--from", from, "tcp", to).stdout
	}
	uses := func(what, from, to, text string, absent ...string) {
		t.Helper()
		eventually(t, what, func() bool {
			got := explained(from, to)
			return strings.Contains(got, text) && !slices.ContainsFunc(absent, func(s string) bool { return strings.Contains(got, s) })
		})
	}
	const vip, outside = "10.96.0.10:80", "203.0.113.7"
	uses("(12.51) zone-a", outside, vip, "10.128.1.1:8080", "10.128.1.2:8080")
	uses("(12.52) pod range", "10.128.1.9", vip, "source     kept")

	api.Set(t, strings.Replace(node, "zone-a", "zone-b", 1))
	uses("(12.51) zone-b", outside, vip, "10.128.1.2:8080", "10.128.1.1:8080")

	api.Set(t, strings.Replace(node, "10.128.1.0/24", "10.128.7.0/24", 1))
	uses("(12.52) new pod range", "10.128.7.9", vip, "source     kept")

	uses("(12.53) address", outside, "192.168.7.1:30080", ": forwarded")
	api.Set(t, strings.Replace(node, "192.168.7.1", "192.168.7.2", 1))
	uses("(12.53) new address", outside, "192.168.7.2:30080", ": forwarded")

	before := ns.TestGeneration(t)
	api.Set(t, strings.Replace(node, "192.168.7.1", "192.168.7.2", 1)+"# the same\n")
	api.Set(t, strings.Replace(strings.Replace(node, "192.168.7.1", "192.168.7.2", 1), "labels: {", "labels: {other: label, ", 1))
	api.Remove("Node", "node-1")
	api.Set(t, strings.ReplaceAll(hinted, "10.96.0.10", "10.96.0.11"))
	uses("(12.54) a Service after the Node is gone", outside, "10.96.0.11:80", ": forwarded")
	if p.ProcessState != nil || ns.TestGeneration(t) == before {
		t.Errorf("(12.54) the process ended or does nothing")
	}
}
