package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestValidation gives each mistake by flag and by file: the error names the
// field and the flag (12.5, 12.8, 12.11).
func TestValidation(t *testing.T) {
	for _, c := range []struct{ name, flag, body, want string }{
		{"P81 brackets", "--bind-address=[::]", "bindAddress: '[::]'", `"[::]" is not an IP address`},
		{"port", "--bind-address=10.0.0.1:80", "bindAddress: 10.0.0.1:80", "is not an IP address"},
		{"12.11 health port", "--healthz-bind-address=0.0.0.0:70000", "healthzBindAddress: 0.0.0.0:70000", `"0.0.0.0:70000" is not an IP address`},
		{"12.11 health name", "--healthz-bind-address=localhost:80", "healthzBindAddress: localhost:80", "is not an IP address"},
		{"12.11 metrics", "--metrics-bind-address=10.0.0:10", "metricsBindAddress: 10.0.0:10", "is not an IP address"},
		{"P83 three ranges", "--cluster-cidr=10.0.0.0/8,fd00::/8,11.0.0.0/8", "clusterCIDR: 10.0.0.0/8,fd00::/8,11.0.0.0/8", "are of one family"},
		{"P83 one family", "--cluster-cidr=10.0.0.0/8,11.0.0.0/8", "clusterCIDR: 10.0.0.0/8,11.0.0.0/8", "are of one family"},
		{"6.1 word twice", "--nodeport-addresses=localhost,primary,localhost", "nodePortAddresses: [localhost, primary, localhost]", `"localhost" is given twice`},
		{"6.1 no word", "--nodeport-addresses=Localhost", "nodePortAddresses: [Localhost]", `"Localhost" is not a range such as 192.168.0.0/16, nor primary, localhost or all`},
		{"12.11 no length", "--nodeport-addresses=10.20.30.40", `nodePortAddresses: ["10.20.30.40"]`, `"10.20.30.40" is not a range`},
		{"mode", "--proxy-mode=magic", "mode: magic", `unknown mode "magic"`},
		{"local mode", "--detect-local-mode=magic", "detectLocalMode: magic", `unknown mode "magic"`},
		{"P77 blanks", "--hostname-override=   ", "hostnameOverride: '   '", "the name is blank"},
		{"score", "--oom-score-adj=1001", "oomScoreAdj: 1001", "use -1000 to 1000"},
		{"12.8 bit", "--iptables-masquerade-bit=32", "iptables: {masqueradeBit: 32}", "use 0 to 31"},
		{"burst", "--kube-api-burst=-1", "clientConnection: {burst: -1}", "-1 is negative"},
		{"max", "--conntrack-max-per-core=-1", "conntrack: {maxPerCore: -1}", "-1 is negative"},
		{"min", "--conntrack-min=-1", "conntrack: {min: -1}", "-1 is negative"},
		{"established", "--conntrack-tcp-timeout-established=-1s", "conntrack: {tcpEstablishedTimeout: -1s}", "-1s is negative"},
		{"close wait", "--conntrack-tcp-timeout-close-wait=-1s", "conntrack: {tcpCloseWaitTimeout: -1s}", "-1s is negative"},
		{"UDP", "--conntrack-udp-timeout=-1s", "conntrack: {udpTimeout: -1s}", "-1s is negative"},
		{"UDP stream", "--conntrack-udp-timeout-stream=-1s", "conntrack: {udpStreamTimeout: -1s}", "-1s is negative"},
		{"12.11 config sync", "--config-sync-period=-1s", "configSyncPeriod: -1s", "use more than 0"},
		{"12.11 sync", "--sync-period=-1s", "nftables: {syncPeriod: -1s}", "use more than 0"},
		{"12.11 min sync", "--min-sync-period=-1s", "nftables: {minSyncPeriod: -1s}", "-1s is negative"},
		{"12.11 min above sync", "--min-sync-period=31s", "nftables: {minSyncPeriod: 31s}", "31s is more than the 30s"},
		{"format", "--logging-format=xml", "logging: {format: xml}", `unknown format "xml"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			name, _, _ := strings.Cut(c.flag, "=")
			path := write(t, c.body)
			for _, args := range [][]string{{c.flag}, {"--config", path}} {
				_, err := load(t, args...)
				field := fields()[strings.TrimPrefix(name, "--")]
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), field) {
					t.Errorf("%s: %v, want %q with %s and %s", args, err, c.want, name, field)
				}
			}
		})
	}
	for _, c := range []struct{ name, body, want string }{
		{"8.2 bit of our mode", "nftables: {masqueradeBit: -1}", "nftables.masqueradeBit: -1 is out of range"},
		{"7.7 bridge", "detectLocalMode: BridgeInterface", "detectLocal.bridgeInterface: mode BridgeInterface needs it"},
		{"7.7 prefix", "detectLocalMode: InterfaceNamePrefix", "detectLocal.interfaceNamePrefix: mode InterfaceNamePrefix needs it"},
		{"7.6 bridge", "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: 'a*b'}", "is not the name of an interface"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := load(t, "--config", write(t, c.body)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestOwnSettings are checked, too.
func TestOwnSettings(t *testing.T) {
	for flag, want := range map[string]string{"--scheduler=fair": `--scheduler: unknown scheduler "fair"`, "--affinity-size=0": "--affinity-size: 0 clients", "--start-jitter=-1s": "--start-jitter: -1s is negative"} {
		if _, err := load(t, flag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestObserve: 16.1. Each level has its rules, and off has no group.
func TestObserve(t *testing.T) {
	for _, c := range []struct {
		args []string
		want model.Observe
	}{
		{nil, model.Observe{}},
		{[]string{"--observe=off", "--observe-group=5"}, model.Observe{}},
		{[]string{"--observe=refusals"}, model.Observe{Level: model.ObserveRefusals, Group: 28272}},
		{[]string{"--observe=failures", "--observe-group=65535"}, model.Observe{Level: model.ObserveFailures, Group: 65535}},
	} {
		if got, err := load(t, c.args...); err != nil || got.Node.Observe != c.want {
			t.Errorf("%v: %+v, %v, want %+v", c.args, got.Node.Observe, err, c.want)
		}
	}
	for flag, want := range map[string]string{
		"--observe=all":         `--observe: unknown level "all": use off, refusals, failures or connections`,
		"--observe=":            `--observe: unknown level "": use off, refusals, failures or connections`,
		"--observe-group=0":     "--observe-group: 0 is not from 1 to 65535",
		"--observe-group=65536": "--observe-group: 65536 is not from 1 to 65535",
	} {
		if _, err := load(t, flag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}

// TestFastPath: 9.29, which connections skip the rules, and whether those of TCP end.
func TestFastPath(t *testing.T) {
	for _, c := range []struct {
		args []string
		want model.FastPath
	}{
		{nil, model.FastPath{}},
		{[]string{"--fast-path=services"}, model.FastPath{Level: model.FastPathServices}},
		{[]string{"--fast-path=all", "--conntrack-tcp-cleanup"}, model.FastPath{Level: model.FastPathAll, Closes: true}},
	} {
		if got, err := load(t, c.args...); err != nil || got.Node.FastPath != c.want {
			t.Errorf("%v: %+v, %v, want %+v", c.args, got.Node.FastPath, err, c.want)
		}
	}
	const want = `--fast-path: unknown level "on": use off, services, all or hardware`
	if _, err := load(t, "--fast-path=on"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestLogConnections: 17.9, refused connections are logged only if they are observed.
func TestLogConnections(t *testing.T) {
	for args, want := range map[string]string{
		"":                      "",
		"--log-connections=off": "",
		"--log-connections=refused --observe=refusals": "",
		"--log-connections=refused":                    "--log-connections: refused connections are known with --observe only",
		"--log-connections=all":                        "--log-connections: all connections are known with --observe only",
		"--log-connections=failed --observe=refusals":  "",
		"--log-connections=served":                     `--log-connections: unknown value "served": use off, refused, failed or all`,
	} {
		if _, err := load(t, strings.Fields(args)...); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestDrainFile: commands run in other directories than the daemon.
func TestDrainFile(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"": "", "drain.yaml": filepath.Join(here, "drain.yaml"), "/a/../drain.yaml": "/drain.yaml"} {
		if got, err := load(t, "--drain-file="+given); err != nil || got.Own.DrainFile != want {
			t.Errorf("%q: %q, %v, want %q", given, got.Own.DrainFile, err, want)
		}
	}
}

// TestAllowedHosts: 11.14. What no request can have as its Host is refused.
func TestAllowedHosts(t *testing.T) {
	const good = "node-1,node-1.example.com,*.Example.com,a_b"
	if got, err := load(t, "--allowed-hosts="+good); err != nil || strings.Join(got.Own.AllowedHosts, ",") != good {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"node-1:10249", "http://node-1", "*", "*.", "a.*.b", "-a", "a..b", "a b", "node-1,,"} {
		if _, err := load(t, "--allowed-hosts="+bad); err == nil || !strings.Contains(err.Error(), "--allowed-hosts: ") || !strings.Contains(err.Error(), "is not a host name") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestProblemsTogether: P84, and 12.5.
func TestProblemsTogether(t *testing.T) {
	_, err := load(t, "--config", write(t, "nftables: {syncPeriod: -5s, minSyncPeriod: 2s}\nbindAddress: x\n"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"nftables.syncPeriod", "nftables.minSyncPeriod", "bindAddress"} {
		if !strings.Contains(err.Error(), ": "+want+": ") {
			t.Errorf("(12.5) %s is not named:\n%v", want, err)
		}
	}
}

// TestAccepted lists accepted settings, some of which other modes would refuse.
func TestAccepted(t *testing.T) {
	for _, c := range []struct{ name, body string }{
		{"12.14 ipvs", "ipvs: {syncPeriod: -1s, minSyncPeriod: 5s, scheduler: magic}"},
		{"12.14 iptables", "iptables: {syncPeriod: -1s}"},
		{"12.11 ranges in another mode", "clusterCIDR: nonsense\ndetectLocalMode: NodeCIDR"},
		{"12.12 a range of either family", "clusterCIDR: 'fd00::/8'"},
		{"P83 either order", "clusterCIDR: 'fd00::/8,10.0.0.0/8'"},
		{"7.7 the other mode's setting", "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0, interfaceNamePrefix: ' '}"},
	} {
		t.Run(c.name, func(t *testing.T) { mustLoad(t, "--config", write(t, c.body)) })
	}
}

// TestEmptyClusterCIDR: an empty flag is an error, an empty field is none (12b).
func TestEmptyClusterCIDR(t *testing.T) {
	if _, err := load(t, "--cluster-cidr="); err == nil || !strings.Contains(err.Error(), "--cluster-cidr: an empty text is not a range") {
		t.Error(err)
	}
	mustLoad(t, "--config", write(t, "clusterCIDR: ''"))
	mustLoad(t, "--cluster-cidr=", "--detect-local-mode=NodeCIDR")
}

// TestIgnored: what has no effect is accepted and mentioned once (12.8, 12.10).
func TestIgnored(t *testing.T) {
	for _, c := range []struct {
		name, flag, body string
		want             string
	}{
		{"bit", "", "nftables: {masqueradeBit: 15}", "field nftables.masqueradeBit"},
		{"config sync", "--config-sync-period=1m", "configSyncPeriod: 1m", "field configSyncPeriod"},
		{"12.8 iptables bit", "--iptables-masquerade-bit=15", "iptables: {masqueradeBit: 15}", "field iptables.masqueradeBit"},
		{"12.8 localhost", "--iptables-localhost-nodeports=false", "iptables: {localhostNodePorts: false}", "field iptables.localhostNodePorts"},
		{"12.10 masquerade all of another mode", "", "mode: nftables\niptables: {masqueradeAll: true}", "field iptables.masqueradeAll"},
		{"12.10 period of another mode", "", "iptables: {syncPeriod: 5s}", "field iptables.syncPeriod"},
		{"12.8 scheduler", "--ipvs-scheduler=rr", "ipvs: {scheduler: rr}", "field ipvs.scheduler"},
		{"12.8 exclude", "--ipvs-exclude-cidrs=10.0.0.0/8", "ipvs: {excludeCIDRs: [10.0.0.0/8]}", "because virtual servers of other programs always stay"},
		{"12.8 ARP", "--ipvs-strict-arp", "ipvs: {strictARP: true}", "because addresses of Services are no addresses of the node"},
		{"12.8 sync", "--ipvs-sync-period=5s", "ipvs: {syncPeriod: 5s}", "field ipvs.syncPeriod"},
		{"12.8 min sync", "--ipvs-min-sync-period=5s", "ipvs: {minSyncPeriod: 5s}", "field ipvs.minSyncPeriod"},
		{"12.8 TCP", "--ipvs-tcp-timeout=5s", "ipvs: {tcpTimeout: 5s}", "because conntrack.tcpEstablishedTimeout is"},
		{"12.8 FIN", "--ipvs-tcpfin-timeout=5s", "ipvs: {tcpFinTimeout: 5s}", "because conntrack.tcpCloseWaitTimeout is"},
		{"12.8 UDP", "--ipvs-udp-timeout=5s", "ipvs: {udpTimeout: 5s}", "because conntrack.udpStreamTimeout and conntrack.udpTimeout are"},
		{"12.8 Windows", "", "winkernel: {enableDSR: true}", "field winkernel.enableDSR"},
		{"12.8 Windows service", "", "windowsRunAsService: true", "field windowsRunAsService"},
		{"12.8 ports", "", "portRange: 1-2", "field portRange"},
		{"hidden metrics", "--show-hidden-metrics-for-version=1.35", "showHiddenMetricsForVersion: '1.35'", "field showHiddenMetricsForVersion"},
		{"vmodule", "--vmodule=a=1", "logging: {vmodule: [{filePattern: a, verbosity: 1}]}", "field logging.vmodule"},
		{"flush", "--log-flush-frequency=1s", "logging: {flushFrequency: 1s}", "field logging.flushFrequency"},
		{"split", "--log-text-split-stream", "logging: {options: {text: {splitStream: true}}}", "field logging.options.text.splitStream"},
		{"buffer", "--log-json-info-buffer-size=1Ki", "logging: {options: {json: {infoBufferSize: 1Ki}}}", "field logging.options.json.infoBufferSize"},
		{"gate", "--feature-gates=NobodyKnows=true", "featureGates: {NobodyKnows: true}", "field featureGates.NobodyKnows"},
		{"12.8 boot ID", "--boot-id-file=/a", "", "flag --boot-id-file"},
		{"12.8 machine ID", "--machine-id-file=/a", "", "flag --machine-id-file"},
		{"iptables", "--proxy-mode=iptables", "mode: iptables", "always uses nftables"},
		{"IPVS", "--proxy-mode=ipvs", "mode: ipvs", "always uses nftables"},
		{"Windows", "--proxy-mode=kernelspace", "mode: kernelspace", "always uses nftables"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var lines [][]string
			if c.flag != "" {
				lines = append(lines, []string{c.flag})
			}
			if c.body != "" {
				lines = append(lines, []string{"--config", write(t, c.body)})
			}
			for _, args := range lines {
				got := mustLoad(t, args...)
				if len(got.Remarks) != 1 || !strings.Contains(remarks(got), c.want) {
					t.Errorf("%s: want one line with %q, got:\n%s", args, c.want, remarks(got))
				}
			}
		})
	}
}

// TestNodePortAddresses: words and ranges in any combination (6.1, 6.14).
func TestNodePortAddresses(t *testing.T) {
	const others = "only 127.0.0.1 and ::1 serve NodePorts"
	for _, c := range []struct {
		list    string
		primary bool
		ranges  []string
		remark  string
	}{
		{"primary", true, nil, ""},
		{"10.0.0.0/8", false, []string{"10.0.0.0/8"}, ""},
		{"primary,10.0.0.0/8", true, []string{"10.0.0.0/8"}, ""},
		{"10.0.0.0/8, primary", true, []string{"10.0.0.0/8"}, ""},
		{"all", false, []string{"0.0.0.0/0", "::/0"}, ""},
		{"localhost", false, []string{"127.0.0.0/8", "::1/128"}, ""},
		{"primary,localhost", true, []string{"127.0.0.0/8", "::1/128"}, ""},
		{"0.0.0.0/0,127.0.0.1/32", false, []string{"0.0.0.0/0", "127.0.0.1/32"}, ""},
		{"all,localhost,primary,fd00::/8", true, []string{"0.0.0.0/0", "::/0", "127.0.0.0/8", "::1/128", "fd00::/8"}, ""},
		{"127.0.0.2/32", false, []string{"127.0.0.2/32"}, others},
	} {
		file := write(t, "nodePortAddresses: ['"+strings.ReplaceAll(c.list, ",", "','")+"']")
		for _, args := range [][]string{{"--nodeport-addresses=" + c.list}, {"--config", file}} {
			got := mustLoad(t, args...)
			if n := got.Node; n.NodePortPrimary != c.primary || !slices.Equal(n.NodePortAddresses, prefixes(c.ranges...)) {
				t.Errorf("%s: primary %v, ranges %v", c.list, n.NodePortPrimary, n.NodePortAddresses)
			}
			if r := remarks(got); (c.remark == "") != (r == "") || !strings.Contains(r, c.remark) {
				t.Errorf("%s: remarks %q", c.list, r)
			}
		}
	}
}

// TestOtherModes: settings that pods may depend on apply, and the change of
// NodePorts is mentioned (12.10, P76).
func TestOtherModes(t *testing.T) {
	for _, mode := range []string{"iptables", "ipvs"} {
		c := mustLoad(t, "--config", write(t, "mode: "+mode+"\niptables: {masqueradeAll: true}\n"))
		r := remarks(c)
		if !c.Node.MasqueradeAll || c.Kube.Mode != "nftables" || !strings.Contains(r, "only on the node's first address of each family") || len(c.Remarks) != 2 {
			t.Errorf("(12.10) %v %s:\n%s", c.Node.MasqueradeAll, c.Kube.Mode, r)
		}
	}
	c := mustLoad(t, "--config", write(t, "mode: iptables\nnodePortAddresses: [0.0.0.0/0]\n"))
	if strings.Contains(remarks(c), "first address") {
		t.Error(remarks(c))
	}
}

// TestIPVSScheduler: 3.51. The scheduler of the mode ipvs applies, unless the operator
// has chosen another one.
func TestIPVSScheduler(t *testing.T) {
	const noCounterpart = "the scheduler of the mode ipvs has no counterpart"
	for _, c := range []struct {
		mode, ipvs, own string
		want            model.Scheduler
		remark          string // part of the second one; empty: there is none
	}{
		{"ipvs", "", "", model.RoundRobin, ""},
		{"ipvs", "rr", "", model.RoundRobin, ""},
		{"ipvs", "wrr", "", model.RoundRobin, ""},
		{"ipvs", "sh", "", model.SourceHash, "the scheduler of the mode ipvs applies"},
		{"ipvs", "mh", "", model.MaglevPort, "the scheduler of the mode ipvs applies field ipvs.scheduler"},
		{"ipvs", "mh", "", model.MaglevPort, "ipvs mh scheduler maglev-port"},
		{"ipvs", "lc", "", model.RoundRobin, noCounterpart},
		{"ipvs", "wlc", "", model.RoundRobin, "because nftables does not count the open connections of endpoints"},
		{"ipvs", "sed", "", model.RoundRobin, noCounterpart},
		{"ipvs", "nq", "", model.RoundRobin, noCounterpart},
		{"ipvs", "lblc", "", model.RoundRobin, noCounterpart},
		{"ipvs", "lblcr", "", model.RoundRobin, noCounterpart},
		{"ipvs", "dh", "", model.RoundRobin, "have the same destination"},
		{"ipvs", "magic", "", model.RoundRobin, "unknown scheduler of the mode ipvs"},
		{"ipvs", "MH", "", model.RoundRobin, "unknown scheduler of the mode ipvs"},
		{"ipvs", "mh", "random", model.Random, "setting has no effect field ipvs.scheduler"},
		{"ipvs", "lc", "round-robin", model.RoundRobin, "because --scheduler is given"},
		{"ipvs", "", "maglev", model.Maglev, ""},
		{"iptables", "mh", "", model.RoundRobin, "because it is for the mode ipvs"},
	} {
		for _, args := range [][]string{
			{"--config", write(t, "mode: "+c.mode+"\nnodePortAddresses: [0.0.0.0/0]\nipvs: {scheduler: \""+c.ipvs+"\"}\n")},
			{"--proxy-mode=" + c.mode, "--nodeport-addresses=0.0.0.0/0", "--ipvs-scheduler=" + c.ipvs},
		} {
			if c.own != "" {
				args = append(args, "--scheduler="+c.own)
			}
			got := mustLoad(t, args...)
			if got.Node.Scheduler != c.want || (len(got.Remarks) > 1) != (c.remark != "") || len(got.Remarks) > 2 || !strings.Contains(remarks(got), c.remark) {
				t.Errorf("mode %s, ipvs.scheduler %q, --scheduler %q: %s, want %s with a remark %q:\n%s", c.mode, c.ipvs, c.own, got.Node.Scheduler, c.want, c.remark, remarks(got))
			}
		}
	}
	for _, args := range [][]string{{"--config", write(t, "ipvs: {scheduler: mh}")}, {"--config", write(t, "mode: nftables\nipvs: {scheduler: mh}")}} {
		if got := mustLoad(t, args...); got.Node.Scheduler != model.RoundRobin || !strings.Contains(remarks(got), "because it is for the mode ipvs") {
			t.Errorf("%s: %s\n%s", args, got.Node.Scheduler, remarks(got))
		}
	}
}

// TestNode reads what the rules depend on, from flags and file alike.
func TestNode(t *testing.T) {
	body := `
bindAddress: 010.0.0.1
clusterCIDR: fd00:10::1/48,10.128.3.4/9
nodePortAddresses: [192.168.1.2/16]
nftables: {masqueradeAll: true}
`
	for _, args := range [][]string{
		{"--config", write(t, body)},
		{"--bind-address=010.0.0.1", "--cluster-cidr=fd00:10::1/48,10.128.3.4/9", "--nodeport-addresses=192.168.1.2/16", "--masquerade-all"},
	} {
		n := mustLoad(t, append(args, "--service-proxy-name=x", "--scheduler=source-hash", "--affinity-size=5")...).Node
		if n.BindAddress != netip.MustParseAddr("10.0.0.1") || !n.MasqueradeAll || !n.BesideAnother || n.Scheduler != model.SourceHash || n.AffinityCapacity != 5 ||
			!slices.Equal(n.ClusterCIDRs, prefixes("fd00:10::/48", "10.128.0.0/9")) || !slices.Equal(n.NodePortAddresses, prefixes("192.168.0.0/16")) {
			t.Errorf("%s: %+v", args, n)
		}
	}
}

// TestNodeAddresses is the table of the reference: Node object and bind address
// make the node's own addresses, the primary one first (12.42, 12.43, 12.44).
func TestNodeAddresses(t *testing.T) {
	for _, c := range []struct{ node, bind, primary, v4, v6 string }{
		{"", "", "", "", ""},
		{"", "0.0.0.0", "", "", ""},
		{"", "10.0.0.1", "10.0.0.1", "10.0.0.1", ""},
		{"", "fd00::2", "fd00::2", "", "fd00::2"},
		{"192.168.1.1", "::", "192.168.1.1", "192.168.1.1", ""},
		{"fd00::1", "0.0.0.0", "fd00::1", "", "fd00::1"},
		{"2001:db8::2 90.90.90.90", "0.0.0.0", "2001:db8::2", "90.90.90.90", "2001:db8::2"},
		{"2001:db8::2 90.90.90.90", "80.80.80.80", "80.80.80.80", "80.80.80.80", "2001:db8::2"},
		{"90.90.90.90 2001:db8::2", "::1", "::1", "90.90.90.90", "::1"},
	} {
		node := &model.Node{Name: "node-1"}
		for _, a := range strings.Fields(c.node) {
			node.Addresses = append(node.Addresses, netip.MustParseAddr(a))
		}
		n := mustLoad(t, "--bind-address="+c.bind).Node
		own := model.NewLocality(node, n).Node.Addresses
		first := func(want func(netip.Addr) bool) string {
			if i := slices.IndexFunc(own, want); i >= 0 {
				return own[i].String()
			}
			return ""
		}
		got := [3]string{first(netip.Addr.IsValid), first(netip.Addr.Is4), first(netip.Addr.Is6)}
		if want := [3]string{c.primary, c.v4, c.v6}; got != want {
			t.Errorf("node %q, bind address %q: %q, want %q", c.node, c.bind, got, want)
		}
	}
}

// TestOtherName: under another name than the Node's nothing is local, and a file
// with Nodes gets a warning (12.41).
func TestOtherName(t *testing.T) {
	snapshot := &model.Snapshot{
		Nodes: []*model.Node{{Name: "node-1"}},
		Services: []*model.Service{{
			Name: model.ServiceName{Namespace: "default", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
			Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
		}},
		Slices: []*model.EndpointSlice{{
			Namespace: "default", Service: "web", Family: model.IPv4, Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}},
			Hosts: []model.Host{{Address: netip.MustParseAddr("10.128.1.1"), Place: model.OnNode("node-1"), Ready: true, Serving: true}},
		}},
	}
	for name, local := range map[string]bool{"Node-1": true, "node-1.example.com": false} {
		routing := model.Resolve(snapshot, mustLoad(t, "--hostname-override", name).Node)
		if got := len(routing.Routes[0].Choice.Local) == 1; got != local || (len(routing.Notices) == 0) != local {
			t.Errorf("(12.41) %s: local %v, %v", name, got, routing.Notices)
		}
	}
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}
