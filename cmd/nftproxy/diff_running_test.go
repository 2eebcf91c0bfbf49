package main

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/testkit/apilab"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// ruleOption is an option of run on which the rules depend.
type ruleOption struct {
	run  []string // how the daemon gets it
	back string   // the flag that makes diff plan for another value
}

// ruleOptions are the options of run on which the rules for files depend.
var ruleOptions = map[string]ruleOption{
	"hostname-override":         {[]string{"--hostname-override=node-1"}, "--hostname-override=elsewhere"},
	"bind-address":              {[]string{"--bind-address=192.0.2.11"}, "--bind-address=192.0.2.12"},
	"cluster-cidr":              {[]string{"--cluster-cidr=10.128.0.0/9"}, "--cluster-cidr=10.64.0.0/10"},
	"nodeport-addresses":        {[]string{"--nodeport-addresses=192.0.2.0/28"}, "--nodeport-addresses=primary"},
	"detect-local-mode":         {[]string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=br0"}, "--detect-local-mode=ClusterCIDR"},
	"pod-bridge-interface":      {[]string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=br0"}, "--pod-bridge-interface=br1"},
	"pod-interface-name-prefix": {[]string{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth"}, "--pod-interface-name-prefix=tap"},
	"feature-gates":             {[]string{"--feature-gates=AllowServiceExternalIPs=false"}, "--feature-gates=AllowServiceExternalIPs=true"},
	"masquerade-from":           {[]string{"--masquerade-from=192.0.2.11"}, "--masquerade-from=primary"},
	"masquerade-all":            {[]string{"--masquerade-all"}, "--masquerade-all=false"},
	"scheduler":                 {[]string{"--scheduler=random"}, "--scheduler=round-robin"},
	"affinity-size":             {[]string{"--affinity-size=1000"}, "--affinity-size=2000"},
	"answer-ping":               {[]string{"--answer-ping"}, "--answer-ping=false"},
	"load-balancer-cidrs":       {[]string{"--load-balancer-cidrs=198.51.100.0/24"}, "--load-balancer-cidrs="},
	"observe":                   {[]string{"--observe=refusals"}, "--observe=off"},
	"observe-group":             {[]string{"--observe=refusals", "--observe-group=7"}, "--observe-group=8"},
	"service-proxy-name":        {[]string{"--service-proxy-name=other"}, "--service-proxy-name="},
	"service-metrics":           {[]string{"--service-metrics"}, "--service-metrics=false"},
	"endpoint-metrics":          {[]string{"--endpoint-metrics"}, "--endpoint-metrics=false"},
	"config":                    {[]string{"--config=CONFIG"}, "--config=OTHER"},
	"drain-file":                {nil, "--drain-file="},         // each daemon has one
	"isolate-files":             {nil, "--isolate-files=false"}, // each daemon isolates files
}

// otherOptions are the options of run that do not change the rules for files: those of the
// input, of servers, of the process, and those that are accepted without effect.
// "health-checks" is about an API server (TestDiffBesideCluster), and what "changes-file" has
// is asked of the daemon (TestRuntimeChanges).
var otherOptions = strings.Fields(`
	filename kubeconfig context master kube-api-qps kube-api-burst kube-api-content-type start-jitter health-checks log-connections fast-path
	healthz-bind-address healthz-port metrics-bind-address metrics-port allowed-hosts bind-address-hard-fail node-condition web profiling
	min-sync-period sync-period iptables-sync-period iptables-min-sync-period no-table-owner take-over announce-nftables
	manage-sysctl oom-score-adj conntrack-tcp-cleanup conntrack-max-per-core conntrack-min conntrack-tcp-timeout-established
	conntrack-tcp-timeout-close-wait conntrack-tcp-be-liberal conntrack-udp-timeout conntrack-udp-timeout-stream
	changes-file control-socket health-directory on-change announce-interval dns-servers dns-timeout dns-min-ttl dns-max-ttl
	version write-config-to cleanup init-only v logging-format vmodule log-flush-frequency log-text-split-stream
	log-text-info-buffer-size log-json-split-stream log-json-info-buffer-size
	proxy-mode config-sync-period iptables-masquerade-bit iptables-localhost-nodeports ipvs-scheduler ipvs-exclude-cidrs
	ipvs-strict-arp ipvs-sync-period ipvs-min-sync-period ipvs-tcp-timeout ipvs-tcpfin-timeout ipvs-udp-timeout
	show-hidden-metrics-for-version boot-id-file machine-id-file`)

// TestRuleOptions: every option of run has a case in TestDiffBesideEveryOption, or does not
// change the rules; diff and apply have each of the former (12.86).
func TestRuleOptions(t *testing.T) {
	commands := make(map[string]*cobra.Command)
	for _, c := range rootCommand().Commands() {
		commands[c.Name()] = c
	}
	commands["run"].Flags().VisitAll(func(f *pflag.Flag) {
		_, isRule := ruleOptions[f.Name]
		if isOther := slices.Contains(otherOptions, f.Name); isRule == isOther && f.Name != "help" {
			t.Errorf("--%s: has a case: %t, does not change the rules: %t", f.Name, isRule, isOther)
		}
	})
	for name := range ruleOptions {
		for _, c := range []string{"run", "diff", "apply"} {
			if commands[c].Flags().Lookup(name) == nil {
				t.Errorf("%s has no flag --%s", c, name)
			}
		}
	}
}

// planLab is a machine with servers of which one is refused, one is drained, and files of
// which one has a mistake.
type planLab struct {
	ns             *netlab.Namespace
	dir            string // with the files
	drains         string
	config, others string // configuration files
}

// planned are Services on which every option has an effect, in two variants: with and without
// the label of --service-proxy-name.
const planned = `
apiVersion: v1
kind: Service
metadata: {name: NAMEweb, annotations: {nftproxy.dev/health-check: "tcp"} LABEL}
spec:
  type: LoadBalancer
  clusterIP: 10.96.NET.10
  externalIPs: [198.51.100.NET0]
  sessionAffinity: ClientIP
  ports: [{name: http, port: 80, nodePort: 308NET0}]
status: {loadBalancer: {ingress: [{ip: 198.51.100.NET1}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: NAMEweb-1, labels: {kubernetes.io/service-name: NAMEweb}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [192.0.2.11], nodeName: node-1}
- {addresses: [192.0.2.12], nodeName: node-1}
- {addresses: [192.0.2.13], nodeName: node-2}
---
apiVersion: v1
kind: Service
metadata: {name: NAMEapi LABEL}
spec:
  type: NodePort
  clusterIP: 10.96.NET.11
  externalTrafficPolicy: Local
  ports: [{name: http, port: 80, nodePort: 308NET1}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: NAMEapi-1, labels: {kubernetes.io/service-name: NAMEapi}}
addressType: IPv4
ports: [{name: http, port: 8081}]
endpoints:
- {addresses: [10.128.1.1], nodeName: node-1}
- {addresses: [10.128.1.2], nodeName: node-2}
`

func bothVariants(objects string) string {
	one := strings.NewReplacer("NAME", "", "LABEL", "", "NET", "1")
	two := strings.NewReplacer("NAME", "other-", "LABEL", ", labels: {service.kubernetes.io/service-proxy-name: other}", "NET", "2")
	return strings.NewReplacer(`"} , labels`, `"}, labels`).Replace(one.Replace(objects) + "---" + two.Replace(objects))
}

// plannedApart is a Service in a file of its own.
const plannedApart = `
kind: Balance
name: apart
listen: 203.0.113.9:80
backends: [10.128.1.9:80]
`

func newPlanLab(t *testing.T) *planLab {
	t.Helper()
	l := &planLab{ns: netlab.TestNamespace(t), dir: t.TempDir(), drains: filepath.Join(t.TempDir(), "drain.yaml")}
	l.ns.TestScript(t, "ip link set lo up && for i in 11 12 13; do ip address add 192.0.2.$i/24 dev lo; done && ip route add default dev lo")
	for _, address := range []string{"192.0.2.11:8080", "192.0.2.13:8080"} {
		listenIn(t, l.ns, address)
	}
	l.write(t, "main.yaml", node+"---"+bothVariants(planned))
	l.write(t, "bad.yaml", plannedApart)
	if _, err := (drain.File{Path: l.drains}).Update(func(list drain.List) (drain.List, error) {
		return list.With(time.Now(), drain.Target{Address: netip.MustParseAddr("192.0.2.13")}), nil
	}); err != nil {
		t.Fatal(err)
	}
	const conf = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nconntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}\n" +
		"metricsBindAddress: 127.0.0.1:7005\nhealthzBindAddress: 0.0.0.0:0\noomScoreAdj: 0\n"
	l.config, l.others = writeFile(t, conf+"nftables: {masqueradeAll: true}\nclusterCIDR: 10.128.0.0/9\n"), writeFile(t, conf)
	return l
}

func (l *planLab) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// listenIn accepts connections in a namespace until the test ends.
func listenIn(t *testing.T, ns *netlab.Namespace, address string) {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) { l, err = net.Listen("tcp", address); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
}

// start starts the daemon, breaks a file, and waits until it says so.
func (l *planLab) start(t *testing.T, args ...string) *process {
	t.Helper()
	metrics := "127.0.0.1:10249"
	argv := []string{"nftproxy", "run", "--isolate-files", "--drain-file", l.drains, "-f", l.dir}
	for _, a := range args {
		if strings.HasPrefix(a, "--config=") {
			metrics = "127.0.0.1:7005"
		}
		argv = append(argv, strings.NewReplacer("CONFIG", l.config).Replace(a))
	}
	p := startCommand(t, l.ns, asNftproxy(t, argv[1:]...))
	said := func(what string) bool {
		_, text := get(t, l.ns, "http://"+metrics+"/status")
		return strings.Contains(text, what)
	}
	eventually(t, "rules", func() bool { return said(`"healthy": true`) })
	l.write(t, "bad.yaml", plannedApart+"listens: x\n")
	eventually(t, "the mistake", func() bool { return said("bad.yaml") })
	return p
}

// diff runs diff on files, with flags.
func (l *planLab) diff(t *testing.T, path string, flags ...string) result {
	t.Helper()
	return ask(t, l.ns, append([]string{"diff", "-f", path}, flags...)...)
}

// TestDiffBesideEveryOption: 11.25, 12.86. Beside a daemon with any option, a server that fails its
// check, a drained one and a file with a mistake, diff of the same files is empty, without a
// flag. A flag has precedence, and an edit of a file is the whole plan.
func TestDiffBesideEveryOption(t *testing.T) {
	cases := map[string]ruleOption{"none": {}, "all": {run: allOptions()}}
	maps.Copy(cases, ruleOptions)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newPlanLab(t)
			l.start(t, c.run...)
			r := l.diff(t, l.dir)
			if r.code != 0 || r.stdout != "No changes.\n" {
				t.Errorf("code %d: %s%s", r.code, r.stdout, r.stderr)
			}
			for _, want := range append(slices.Clone(c.run), "as the running nftproxy at ", "192.0.2.12:8080 of default/", "1 endpoint drained (192.0.2.13)", "bad.yaml: document 1 (line 6): Balance apart: ") {
				if want = strings.TrimPrefix(want, "--config=CONFIG"); slices.Contains(unnamed, want) {
					continue
				}
				if !strings.Contains(r.stderr, want) {
					t.Errorf("it does not say %s: %s", want, r.stderr)
				}
			}
			if c.back != "" {
				back := strings.NewReplacer("OTHER", l.others).Replace(c.back)
				if r := l.diff(t, l.dir, back); r.code == 0 || r.code == cli.CodeError && name != "isolate-files" {
					t.Errorf("%s: code %d, %s%s", back, r.code, r.stdout, r.stderr)
				}
			}
			l.editIsThePlan(t, slices.Contains(c.run, "--service-proxy-name=other"))
		})
	}
}

// allOptions returns the options of all cases that go together.
func allOptions() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(ruleOptions)) {
		if !slices.Contains([]string{"config", "detect-local-mode", "pod-bridge-interface"}, name) {
			all = append(all, ruleOptions[name].run...)
		}
	}
	return append(all, unnamed...)
}

// unnamed are options of a daemon that plans do not take over.
var unnamed = []string{"--no-table-owner", "--web", "--conntrack-tcp-cleanup"}

// editIsThePlan plans for a copy of the files in which a Service has another endpoint.
func (l *planLab) editIsThePlan(t *testing.T, labelled bool) {
	t.Helper()
	edited := t.TempDir()
	for _, name := range []string{"main.yaml", "bad.yaml"} {
		text, err := os.ReadFile(filepath.Join(l.dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(edited, name), []byte(strings.ReplaceAll(string(text), "10.128.1.2", "10.128.1.3")), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	service := "default/api"
	if labelled {
		service = "default/other-api"
	}
	want := fmt.Sprintf("Services: 1 changed.\n  ~ %s: 1 endpoint replaced (10.128.1.2:8081 → 10.128.1.3:8081)\n", service)
	if r := l.diff(t, edited, "--elements=never"); r.code != cli.CodeNo || !strings.HasPrefix(r.stdout, want) || strings.Count(r.stdout, "  ~ ") != 1 {
		t.Errorf("after an edit: code %d, %s%s, want %s", r.code, r.stdout, r.stderr, want)
	}
}

// TestDiffBesideCluster: 12.86. The same for health checks of an API server, and for files
// beside one: what is not compared is named.
func TestDiffBesideCluster(t *testing.T) {
	ns := netlab.TestNamespace(t)
	checked := strings.NewReplacer("metadata: {name: web}", "metadata: {namespace: default, name: web, annotations: {nftproxy.dev/health-check: tcp}}",
		"metadata: {name: web-1", "metadata: {namespace: default, name: web-1", "10.128.1.1", "192.0.2.11", "10.128.1.2", "192.0.2.12").Replace(nodeAndService)
	api := apilab.Start(t, ns, checked)
	ns.TestScript(t, "ip address add 192.0.2.11/24 dev lo && ip address add 192.0.2.12/24 dev lo")
	listenIn(t, ns, "192.0.2.11:8080")
	file := writeFile(t, plannedApart)
	startCommand(t, ns, asNftproxy(t, "run", "--master", api.URL, "-f", file, "--hostname-override", "node-1", "--health-checks", "--drain-file", "", "--conntrack-max-per-core", "0",
		"--conntrack-tcp-timeout-established", "0", "--conntrack-tcp-timeout-close-wait", "0", "--healthz-bind-address", ""))
	eventually(t, "rules", func() bool {
		text, _ := ns.Output("nft", "list", "map", "ip", "nftproxy", "endpoints")
		return strings.Contains(text, "192.0.2.11 . 8080") && strings.Contains(text, "10.128.1.9 . 80") && !strings.Contains(text, "192.0.2.12")
	})
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--master", api.URL, "-f", file}, 0, "No changes.\n"},
		{[]string{"--master", api.URL, "-f", file, "--health-checks=false"}, cli.CodeNo, "1 endpoint added (192.0.2.12:8080)"},
		{[]string{"-f", file}, cli.CodeNo, "serves an API server as well, which is not compared"},
		{[]string{"--master", api.URL}, cli.CodeNo, "serves files as well, which are not compared"},
	} {
		r := ask(t, ns, append([]string{"diff"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.want) {
			t.Errorf("%v: code %d, no %q in %s%s", c.args, r.code, c.want, r.stdout, r.stderr)
		}
	}
}

// TestDiffWithoutAnswer: 12.86. Where no nftproxy says what its rules follow from, diff says
// what it does not know: with one that has no socket, and with none.
func TestDiffWithoutAnswer(t *testing.T) {
	l := newPlanLab(t)
	p := startCommand(t, l.ns, asNftproxy(t, "run", "-f", l.dir, "--drain-file", "", "--scheduler=random", "--control-socket", "none"))
	eventually(t, "rules", func() bool { return rendered(t, l.ns, "10.96.2.11:80") || rendered(t, l.ns, "10.96.1.11:80") })
	const unknown, healthy = "its flags, health checks and isolated files are not known here", "all of them count as healthy"
	r := l.diff(t, l.dir, "--drain-file=", "--elements=never")
	if r.code != cli.CodeNo || !strings.Contains(r.stderr, unknown) || !strings.Contains(r.stderr, healthy) {
		t.Errorf("beside a silent one: code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	p.kill()
	r = l.diff(t, l.dir, "--drain-file=", "--scheduler=random", "--elements=never")
	if r.code != cli.CodeNo || strings.Contains(r.stderr, unknown) || !strings.Contains(r.stderr, healthy) || !strings.Contains(r.stdout, "1 endpoint added (192.0.2.12:8080)") {
		t.Errorf("after its end: code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if r := in(t, l.ns, "cleanup"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if r := l.diff(t, l.dir, "--drain-file="); strings.Contains(r.stderr, healthy) {
		t.Errorf("without rules: %s", r.stderr)
	}
}

// TestApplyBesideDaemon: 12.86. Where the kernel lets it, apply changes what the files ask
// for, and does not undo a health check.
func TestApplyBesideDaemon(t *testing.T) {
	l := newPlanLab(t)
	l.start(t, "--no-table-owner", "--scheduler=random")
	r := ask(t, l.ns, "apply", "-f", l.dir)
	if r.code != 0 || r.stdout != "No changes.\n" || !strings.Contains(r.stderr, "192.0.2.12:8080 of default/") {
		t.Errorf("code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if r := ask(t, l.ns, "apply", "-f", l.dir, "--quiet"); r.code != 0 || r.stdout+r.stderr != "" {
		t.Errorf("quiet: code %d, %s%s", r.code, r.stdout, r.stderr)
	}
}
