package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/kube-proxy/config/v1alpha1"
)

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// load reads a command line with all flags.
func load(t *testing.T, args ...string) (*Config, error) {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := NewFlags(set)
	f.AddRules()
	f.AddCluster()
	f.AddLogging()
	f.AddDaemon()
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f.Load()
}

func mustLoad(t *testing.T, args ...string) *Config {
	t.Helper()
	c, err := load(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// write writes a configuration file with the header, and returns its path.
func write(t *testing.T, body string) string {
	t.Helper()
	return writeRaw(t, header+body)
}

func writeRaw(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.conf")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// remarks returns the warnings of a configuration, one a line.
func remarks(c *Config) string {
	var out []string
	for _, r := range c.Remarks {
		out = append(out, fmt.Sprint(append([]any{r.Message}, spaced(r.Args)...)...))
	}
	return strings.Join(out, "\n")
}

func spaced(args []any) []any {
	var out []any
	for _, a := range args {
		out = append(out, " ", a)
	}
	return out
}

// TestDefaults compares with the table of the reference (12.4, 6.2, P76): the
// flags and an empty file say the same.
func TestDefaults(t *testing.T) {
	fromFlags := mustLoad(t)
	fromFile := mustLoad(t, "--config", write(t, ""))
	if d := cmp.Diff(fromFlags.Kube, fromFile.Kube); d != "" {
		t.Errorf("flags and file differ:\n%s", d)
	}
	for _, c := range []*Config{fromFlags, fromFile} {
		k := c.Kube
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []struct{ name, got, want string }{
			{"node", c.Node.NodeName, strings.ToLower(host)},
			{"mode", string(k.Mode), "nftables"},
			{"bind address", k.BindAddress, "0.0.0.0"},
			{"health", c.HealthAddress(), "0.0.0.0:10256"},
			{"metrics", c.MetricsAddress(), "127.0.0.1:10249"},
			{"local mode", string(k.DetectLocalMode), "ClusterCIDR"},
			{"node ports", fmt.Sprint(k.NodePortAddresses), "[primary]"},
			{"periods", fmt.Sprint(c.SyncPeriod(), c.MinSyncPeriod(), k.ConfigSyncPeriod.Duration), "30s 100ms 15m0s"},
			{"client", fmt.Sprint(k.ClientConnection.QPS, " ", k.ClientConnection.Burst, " ", k.ClientConnection.ContentType), "5 10 application/vnd.kubernetes.protobuf"},
			{"memory", fmt.Sprint(*c.Kube.OOMScoreAdj), "-999"},
			{"bits", fmt.Sprint(*k.NFTables.MasqueradeBit, *k.IPTables.MasqueradeBit), "14 14"},
			{"conntrack", fmt.Sprint(*c.Kube.Conntrack.MaxPerCore, *c.Kube.Conntrack.Min, c.Kube.Conntrack.TCPEstablishedTimeout.Duration, c.Kube.Conntrack.TCPCloseWaitTimeout.Duration), "32768 131072 24h0m0s 1h0m0s"},
			{"logging", fmt.Sprint(k.Logging.Format, " ", k.Logging.Verbosity, " ", k.Logging.FlushFrequency.Duration.Duration), "text 0 5s"},
			{"own", fmt.Sprint(c.Own), "{round-robin 1000000  false false false false false true false false 0s false false [] [] [] off false 28272 off off /var/lib/nftproxy/drain.yaml /var/lib/nftproxy/changes.yaml    1m0s [] 2s 1s 1h0m0s}"},
			{"remarks", remarks(c), ""},
		} {
			if v.got != v.want {
				t.Errorf("%s: %q, want %q", v.name, v.got, v.want)
			}
		}
	}
}

// kubeadm is the file that kubeadm makes: zero and empty mean unset.
const kubeadm = `
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection: {acceptContentTypes: "", burst: 0, contentType: "", kubeconfig: /var/lib/kube-proxy/kubeconfig.conf, qps: 0}
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null, udpStreamTimeout: 0s, udpTimeout: 0s}
detectLocal: {bridgeInterface: "", interfaceNamePrefix: ""}
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: "", strictARP: false, syncPeriod: 0s, tcpFinTimeout: 0s, tcpTimeout: 0s, udpTimeout: 0s}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
metricsBindAddress: ""
mode: ""
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel: {enableDSR: false, forwardHealthCheckVip: false, networkName: "", rootHnsEndpointName: "", sourceVip: ""}
`

// TestFileOfKubeadm accepts the file that clusters have, without a remark
// (12.1, 12.4).
func TestFileOfKubeadm(t *testing.T) {
	c := mustLoad(t, "--config", write(t, kubeadm))
	if remarks(c) != "" {
		t.Errorf("remarks: %s", remarks(c))
	}
	want := newDefaults()
	want.ClusterCIDR, want.ClientConnection.Kubeconfig = "10.244.0.0/16", "/var/lib/kube-proxy/kubeconfig.conf"
	if d := cmp.Diff(want, &c.Kube); d != "" {
		t.Error(d)
	}
}

// TestServers: addresses get a port, the family of bindAddress, or no server at
// all (12.9, 12.4).
func TestServers(t *testing.T) {
	file := func(body string) []string { return []string{"--config", write(t, body)} }
	for _, c := range []struct {
		name            string
		args            []string
		health, metrics string
	}{
		{"IPv6", file("bindAddress: 'fd00::1'"), "[::]:10256", "[::1]:10249"},
		{"without port", file("healthzBindAddress: 10.0.0.1\nmetricsBindAddress: '::'"), "10.0.0.1:10256", "[::]:10249"},
		{"empty in a file means default (12.4)", file("healthzBindAddress: ''"), "0.0.0.0:10256", "127.0.0.1:10249"},
		{"port 0 in a file", file("healthzBindAddress: 0.0.0.0:0"), "", "127.0.0.1:10249"},
		{"empty flags", []string{"--healthz-bind-address=", "--metrics-bind-address="}, "", ""},
		{"port 0 by flag", []string{"--healthz-bind-address=0.0.0.0:0", "--metrics-port=0"}, "", ""},
		{"leading zeros (1.33)", file("healthzBindAddress: 010.0.0.1:10256\nmetricsBindAddress: 127.000.000.001"), "10.0.0.1:10256", "127.0.0.1:10249"},
		{"leading zeros by flag", []string{"--healthz-bind-address=010.0.0.1", "--metrics-bind-address=010.0.0.2:99"}, "10.0.0.1:10256", "10.0.0.2:99"},
		{"12.9 healthz-port", []string{"--healthz-port=0"}, "", "127.0.0.1:10249"},
		{"12.9 port for an address without", []string{"--healthz-bind-address=10.0.0.1", "--healthz-port=99", "--metrics-port=98"}, "10.0.0.1:99", "127.0.0.1:10249"},
		{"12.9 the file decides", append(file(""), "--healthz-port=0"), "0.0.0.0:10256", "127.0.0.1:10249"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := mustLoad(t, c.args...)
			if got.HealthAddress() != c.health || got.MetricsAddress() != c.metrics {
				t.Errorf("health %q, metrics %q, want %q, %q", got.HealthAddress(), got.MetricsAddress(), c.health, c.metrics)
			}
		})
	}
}

// TestMergeKeys reads merge keys as kube-proxy's YAML library does: of merged
// objects the first one counts, and a field counts that follows the merge (12.1).
func TestMergeKeys(t *testing.T) {
	c := mustLoad(t, "--config", write(t, `
nftables: &a {syncPeriod: 45s, minSyncPeriod: 2s}
iptables: &b {<<: *a, minSyncPeriod: 3s}
ipvs: {<<: [*b, *a], strictARP: true}
conntrack: {<<: {udpTimeout: 2s, udpStreamTimeout: 3s}, udpTimeout: 1s}
`))
	k := c.Kube
	got := fmt.Sprint(k.IPTables.SyncPeriod.Duration, " ", k.IPTables.MinSyncPeriod.Duration, " ", k.IPVS.SyncPeriod.Duration, " ",
		k.IPVS.MinSyncPeriod.Duration, " ", k.IPVS.StrictARP, " ", k.Conntrack.UDPTimeout.Duration, " ", k.Conntrack.UDPStreamTimeout.Duration)
	if want := "45s 3s 45s 3s true 1s 3s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if strings.Contains(remarks(c), "given twice") {
		t.Errorf("merged fields count as repeated: %s", remarks(c))
	}
}

// TestPeriods: zero in a file is the default, and zero by flag is zero; the
// flags of mode iptables count (12.4, 12.13, P78).
func TestPeriods(t *testing.T) {
	file := func(body string) []string { return []string{"--config", write(t, body)} }
	for _, c := range []struct {
		name string
		args []string
		want [2]time.Duration
	}{
		{"12.4 zero in a file", file("nftables: {minSyncPeriod: 0s, syncPeriod: 0s}"), [2]time.Duration{30 * time.Second, 100 * time.Millisecond}},
		{"12.4 set in a file", file("nftables: {minSyncPeriod: 1s, syncPeriod: 1m}"), [2]time.Duration{time.Minute, time.Second}},
		{"12.10 other modes", file("iptables: {minSyncPeriod: 1s, syncPeriod: 1m}"), [2]time.Duration{30 * time.Second, 100 * time.Millisecond}},
		{"short period", file("nftables: {syncPeriod: 5ms}"), [2]time.Duration{5 * time.Millisecond, 5 * time.Millisecond}},
		{"12.13 more than an hour", file("nftables: {syncPeriod: 3h, minSyncPeriod: 2h}"), [2]time.Duration{3 * time.Hour, 2 * time.Hour}},
		{"flags of kube-proxy", []string{"--iptables-sync-period=45s", "--iptables-min-sync-period=0"}, [2]time.Duration{45 * time.Second, 0}},
		{"our flags", []string{"--sync-period=45s", "--min-sync-period=2s"}, [2]time.Duration{45 * time.Second, 2 * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := mustLoad(t, c.args...)
			if got.SyncPeriod() != c.want[0] || got.MinSyncPeriod() != c.want[1] {
				t.Errorf("%v and %v, want %v", got.SyncPeriod(), got.MinSyncPeriod(), c.want)
			}
		})
	}
}

// TestFileAgainstFlags: the file takes precedence over most flags (12.2, P80).
func TestFileAgainstFlags(t *testing.T) {
	path := write(t, "hostnameOverride: File\nlogging: {verbosity: 1, vmodule: [{filePattern: foo, verbosity: 3}]}\n")
	c := mustLoad(t, "--config", path, "--masquerade-all", "--cluster-cidr=10.0.0.0/8", "--hostname-override=Flag", "-v=7", "--vmodule=goo=8",
		"--logging-format=json", "--master=https://10.0.0.1:6443", "--scheduler=random", "--service-metrics", "--take-over=false")
	if c.Node.MasqueradeAll || len(c.Node.ClusterCIDRs) > 0 {
		t.Errorf("flags go before the file: %+v", c.Node)
	}
	l := c.Kube.Logging
	got := fmt.Sprint(c.Node.NodeName, " ", l.Verbosity, " ", l.VModule, " ", l.Format, " ", c.Master, " ", c.Own.Scheduler, " ", c.Own.ServiceMetrics, " ", c.Own.TakeOver)
	if want := "flag 7 [{goo 8} {foo 3}] json https://10.0.0.1:6443 random true false"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if r := remarks(c); strings.Count(r, "flags without effect") != 1 || !strings.Contains(r, "--cluster-cidr --masquerade-all file "+path) {
		t.Errorf("remarks: %s", r)
	}
	if c := mustLoad(t, "--config", path, "--hostname-override="); c.Node.NodeName != "file" {
		t.Errorf("an empty flag goes before the file: %s", c.Node.NodeName)
	}
}

// TestHostnameOverride: 12.40, P77.
func TestHostnameOverride(t *testing.T) {
	if c := mustLoad(t, "--hostname-override", "  Bar "); c.Node.NodeName != "bar" {
		t.Errorf("12.40: %q", c.Node.NodeName)
	}
}

// TestRoundTrip: what is written is read back as it was (12.58), /configz shows
// the same (11.3), and the names are those of kube-proxy.
func TestRoundTrip(t *testing.T) {
	c := mustLoad(t, "--cluster-cidr=10.0.0.0/8", "--oom-score-adj=-5", "--conntrack-tcp-timeout-established=2h", "--healthz-bind-address=",
		"--nodeport-addresses=10.0.0.0/8,fd00::/8", "--feature-gates=ComponentStatusz=false", "-v=3", "--vmodule=a=1")
	path := filepath.Join(t.TempDir(), "written.conf")
	if err := c.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	again := mustLoad(t, "--config", path)
	if d := cmp.Diff(c.Kube, again.Kube); d != "" {
		t.Errorf("after writing and reading:\n%s", d)
	}
	if again.Feature("ComponentStatusz", true) || !again.Feature("ComponentFlagz", true) {
		t.Errorf("feature gates: %v", again.Kube.FeatureGates)
	}
	text, err := c.Configz()
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]map[string]any
	if err := json.Unmarshal(text, &body); err != nil || len(body) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	k := body["kubeproxy.config.k8s.io"]
	section, _ := k["nftables"].(map[string]any)
	if k["apiVersion"] != "kubeproxy.config.k8s.io/v1alpha1" || k["kind"] != "KubeProxyConfiguration" || section["syncPeriod"] != "30s" || k["clusterCIDR"] != "10.0.0.0/8" {
		t.Errorf("/configz (11.3): %s", text)
	}
}

// TestFileErrors lists files that cannot be used: each error names the file, and
// where it can the line and the field (12.1, 12.3).
func TestFileErrors(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"empty", "", "the file is empty"},
		{"comments only", "# nothing\n", "the file is empty"},
		{"document without content", "---\n", "the file is empty"},
		{"null", "null", "the file is empty"},
		{"12.3 syntax", header + "bindAddress: [\n", "line 3: broken YAML: did not find"},
		{"12.3 no kind", "apiVersion: kubeproxy.config.k8s.io/v1alpha1", `kind: "" is not known: write KubeProxyConfiguration`},
		{"12.3 other kind", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: Service", `kind: "Service" is not known`},
		{"12.3 other version", "apiVersion: v1\nkind: KubeProxyConfiguration", `apiVersion: "v1" is not known`},
		{"12.3 number as text", header + "conntrack:\n  min: many", `line 4: conntrack.min: "many" is not a whole number`},
		{"number in quotes", header + `oomScoreAdj: "5"`, `line 3: oomScoreAdj: "5" is text, not a number`},
		{"negative level", header + "logging: {verbosity: -1}", `line 3: logging.verbosity: -1 is out of range: use 0 to 4294967295`},
		{"fraction", header + "clientConnection: {burst: 1.5}", "clientConnection.burst: 1.5 is not a whole number"},
		{"time", header + "nftables: {syncPeriod: 30}", `line 3: nftables.syncPeriod: 30 is not a duration: write it like 30s or 5m`},
		{"truth", header + "bindAddressHardFail: maybe", `line 3: bindAddressHardFail: "maybe" is not a truth value: use true or false`},
		{"text", header + "portRange: 5", `line 3: portRange: 5 is not text: put it in quotes`},
		{"text as list", header + "mode: [nftables]", `mode: is a list or an object: a single value belongs here`},
		{"quantity", header + "logging: {options: {json: {infoBufferSize: big}}}", `logging.options.json.infoBufferSize: "big" is not a quantity`},
		{"list", header + "nodePortAddresses: primary", `line 3: nodePortAddresses: "primary" is not a list`},
		{"list entry", header + "nodePortAddresses: [a, 5]", `line 3: nodePortAddresses[1]: 5 is not text`},
		{"object", header + "ipvs: rr", `line 3: ipvs: "rr" is not an object`},
		{"gates", header + "featureGates: {A: 1}", `line 3: featureGates[A]: 1 is not a truth value`},
		{"merge of a text", header + "ipvs: {<<: strictARP}", "line 1: cannot be read: map merge requires map"},
		{"merge of itself", header + "ipvs: &a {<<: *a, strictARP: 5}", "line 1: cannot be read: anchor 'a' value contains itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeRaw(t, c.content)
			_, err := load(t, "--config", path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path+": ") {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	t.Run("all together", func(t *testing.T) {
		_, err := load(t, "--config", write(t, "ipvs: rr\nmode: 5\n"))
		if err == nil || strings.Count(err.Error(), "\n") != 1 {
			t.Errorf("%v, want two problems", err)
		}
	})
	t.Run("missing", func(t *testing.T) {
		if _, err := load(t, "--config", "/nowhere/config.conf"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/nowhere/config.conf") {
			t.Error(err)
		}
	})
}

// TestFileTolerance lists unusual files that are accepted (12.3, P79).
func TestFileTolerance(t *testing.T) {
	t.Run("unknown and repeated fields", func(t *testing.T) {
		path := write(t, "bindAddress: 10.0.0.1\nbindAdress: 10.0.0.3\nconntrack: {min: 5, least: 6}\nbindAddress: 10.0.0.2\n")
		c := mustLoad(t, "--config", path)
		if got := c.Node.BindAddress.String(); got != "10.0.0.2" || *c.Kube.Conntrack.Min != 5 {
			t.Errorf("bind address %s", got)
		}
		for _, want := range []string{path + " line 4 field bindAdress", path + " line 5 field conntrack.least", path + " line 6 field bindAddress"} {
			if r := remarks(c); strings.Count(r, want) != 1 || len(c.Remarks) != 3 {
				t.Errorf("want one line with %q:\n%s", want, r)
			}
		}
	})
	t.Run("JSON", func(t *testing.T) {
		c := mustLoad(t, "--config", writeRaw(t, "{\n\t\"kind\": \"KubeProxyConfiguration\",\n\t\"apiVersion\":\t\"kubeproxy.config.k8s.io/v1alpha1\",\n\t\"oomScoreAdj\": 3\n}"))
		if *c.Kube.OOMScoreAdj != 3 {
			t.Errorf("(12.1) score %d", *c.Kube.OOMScoreAdj)
		}
	})
	t.Run("alias and words for true", func(t *testing.T) {
		c := mustLoad(t, "--config", write(t, "hostnameOverride: &name node-1\nclusterCIDR: ''\nipvs: {scheduler: *name}\nenableProfiling: yes\n"))
		if c.Kube.IPVS.Scheduler != "node-1" || !c.Kube.EnableProfiling {
			t.Errorf("%+v", c.Kube)
		}
	})
	t.Run("second document", func(t *testing.T) {
		c := mustLoad(t, "--config", write(t, "---\nkind: Service\n"))
		if !strings.Contains(remarks(c), "only the first document") {
			t.Error(remarks(c))
		}
	})
}

// TestChanged compares content, not times.
func TestChanged(t *testing.T) {
	path := write(t, "")
	c := mustLoad(t, "--config", path)
	if c.File.Changed() {
		t.Error("changed immediately")
	}
	if err := os.Remove(path); err != nil || c.File.Changed() {
		t.Errorf("%v, a removed file counts as changed", err)
	}
	if err := os.WriteFile(path, []byte(header+"# more"), 0o600); err != nil || !c.File.Changed() {
		t.Errorf("%v, or a new content does not count", err)
	}
}

// TestFields compares the table of flags with the flags and with the type.
func TestFields(t *testing.T) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := NewFlags(set)
	f.AddRules()
	f.AddCluster()
	f.AddLogging()
	f.AddDaemon()
	none := []string{"config", "master", "context", "scheduler", "affinity-size", "answer-ping", "load-balancer-cidrs", "masquerade-from", "observe", "observe-group", "log-connections", "fast-path", "service-proxy-name", "service-metrics", "endpoint-metrics", "health-checks", "web", "node-condition", "allowed-hosts", "conntrack-tcp-cleanup", "take-over", "announce-nftables", "no-table-owner", "start-jitter", "manage-sysctl", "drain-file", "changes-file", "control-socket", "health-directory", "on-change", "announce-interval", "dns-servers", "dns-timeout", "dns-min-ttl", "dns-max-ttl", "boot-id-file", "machine-id-file"}
	set.VisitAll(func(g *pflag.Flag) {
		if _, has := fields()[g.Name]; has == slices.Contains(none, g.Name) {
			t.Errorf("--%s: in the table of fields: %v", g.Name, has)
		}
		if !g.Hidden && g.Usage == "" {
			t.Errorf("--%s does not say what it is for", g.Name)
		}
	})
	known := slices.Collect(maps.Keys(leafFields(&v1alpha1.KubeProxyConfiguration{})))
	for name, field := range fields() {
		if set.Lookup(name) == nil {
			t.Errorf("%s: no such flag", name)
		}
		if !slices.Contains(known, field) {
			t.Errorf("--%s: no such field: %s", name, field)
		}
	}
	for _, i := range ignored {
		if !slices.ContainsFunc(known, func(p string) bool { return strings.HasPrefix(p, i.prefix) }) {
			t.Errorf("no field begins with %s", i.prefix)
		}
	}
}

// TestValues lists flags as they are in effect (12.7).
func TestValues(t *testing.T) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := NewFlags(set)
	f.AddLogging()
	if err := set.Parse([]string{"-v3", "--vmodule=a=1,b=2"}); err != nil {
		t.Fatal(err)
	}
	got := Values(set)
	for name, want := range map[string]string{"v": "3", "vmodule": "a=1,b=2", "logging-format": "text"} {
		if got[name] != want {
			t.Errorf("--%s=%s, want %s", name, got[name], want)
		}
	}
}
