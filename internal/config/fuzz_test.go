package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzFile: any configuration file gives a configuration or an error that names
// the file, and the same result the next time. The configuration can be rendered
// and does not break out of the text of the rules.
func FuzzFile(f *testing.F) {
	paths, err := filepath.Glob("../../deploy/kustomize/*/config.conf")
	if err != nil || len(paths) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, p := range paths {
		content, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	for _, body := range []string{
		"", "mode: ipvs\nconfigSyncPeriod: 1m\nnodePortAddresses: [primary]\n",
		"detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: cali}\nclusterCIDR: 10.128.0.0/9,fd00::/48\n",
		"bindAddress: 010.0.0.1\nnodePortAddresses: [192.168.0.0/16, '::/0']\nconntrack: {maxPerCore: null, min: 1e3, tcpEstablishedTimeout: 5}\n",
		"featureGates: {A: true, B: &x off}\nlogging: {vmodule: [{filePattern: a, verbosity: 3}], options: {json: {infoBufferSize: 16Ki}}}\n<<: {mode: x}\n",
		"featureGates: &a [*a]\nhostnameOverride: \"\\e[31m\"\n---\n{}\n",
		"iptables: {masqueradeAll: yes}\nnftables: {syncPeriod: 30s, minSyncPeriod: 0}\nhealthzBindAddress: '[::]:10256'\noomScoreAdj: -999\n",
	} {
		f.Add([]byte(header + body))
	}
	f.Add([]byte(`{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1",` + "\t" + `"kind": "KubeProxyConfiguration", "hostnameOverride": "n"}`))
	path := filepath.Join(f.TempDir(), "config.conf") // each fuzzing process has its own
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := load(t, "--config", path)
		again, sameErr := load(t, "--config", path)
		if err != nil {
			if sameErr == nil || c != nil || err.Error() == "" || !hostile.IsPlain(err.Error()) {
				t.Fatalf("error %q, then %v", err, sameErr)
			}
			return
		}
		if sameErr != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("%+v, then %+v, %v", c, again, sameErr)
		}
		checkRules(t, c.Node)
	})
}

// checkRules renders a Service on such a node.
func checkRules(t *testing.T, node model.Config) {
	t.Helper()
	node.InterfaceAddresses = []netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("fd00::7")}
	s := &model.Snapshot{Services: []*model.Service{{
		Name:       model.ServiceName{Namespace: "default", Name: "web"},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")},
		Ports:      []model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: 30080}},
	}}}
	var b strings.Builder
	rs := render.Render(model.Resolve(s, node))
	if err := rs.Text(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if strings.ContainsFunc(text, func(r rune) bool { return (r < ' ' || r > '~') && r != '\n' && r != '\t' }) {
		t.Errorf("the rules are no plain text: %q", text)
	}
	lines := 0
	for _, table := range rs.Tables {
		lines += 2 + strings.Count(table.Text(), "\n")
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				if rule := r.Text(table.Family); strings.Contains(rule, "\n") || strings.Count(rule, `"`)%2 != 0 {
					t.Errorf("a rule is not one line: %q", rule)
				}
			}
		}
	}
	if strings.Count(text, "\n") != lines {
		t.Errorf("%d lines, want %d", strings.Count(text, "\n"), lines)
	}
}
