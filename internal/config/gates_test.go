package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestExternalIPGate: the gate of kube-proxy against external IPs holds, by flag
// and in a file, and without a remark (1.17).
func TestExternalIPGate(t *testing.T) {
	for _, c := range []struct {
		value string
		off   bool
	}{{"", false}, {"true", false}, {"false", true}} {
		flag, body := "--feature-gates=", ""
		if c.value != "" {
			flag += "AllowServiceExternalIPs=" + c.value
			body = "featureGates: {AllowServiceExternalIPs: " + c.value + "}"
		}
		for _, args := range [][]string{{flag}, {"--config", write(t, body)}} {
			got := mustLoad(t, args...)
			if got.Node.NoExternalIPs != c.off || len(got.Remarks) > 0 {
				t.Errorf("%q: off %v, want %v; remarks: %s", c.value, got.Node.NoExternalIPs, c.off, remarks(got))
			}
		}
	}
}

// TestGates: a feature gate of kube-proxy without effect says why (12.8).
func TestGates(t *testing.T) {
	for _, c := range []struct{ gates, body, want string }{
		{"NFTablesNetlink: true", "", "never by the command nft"},
		{"NFTablesProxyMode: false", "", "nftables is the only mode"},
		{"PreferSameTrafficDistribution: false", "", "always count"},
		{"RelaxedServiceNameValidation: false", "", "any name that the API server accepts"},
		{"KubeProxyIPVS: false", "", "it is for the mode ipvs"},
		{"KubeProxyIPVS: true", "mode: ipvs", "it is for the mode ipvs"},
		{"KubeProxyIPVS: false", "mode: ipvs", "in which kube-proxy would not start"},
		{"KubeletSomething: true", "", "nothing depends on it"},
	} {
		got := remarks(mustLoad(t, "--config", write(t, c.body+"\nfeatureGates: {"+c.gates+"}")))
		if n := strings.Count(got, "feature gate has no effect"); n != 1 || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: want one line with %q, got:\n%s", c.gates, c.body, c.want, got)
		}
	}
	for name, why := range gates {
		if got := remarks(mustLoad(t, "--feature-gates="+name+"=true")); (got == "") != (why == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestLocalhostNodePortsOff: a configuration for the mode iptables that turns NodePorts on
// localhost off is satisfied (12.8, 6.14).
func TestLocalhostNodePortsOff(t *testing.T) {
	c := mustLoad(t, "--config", write(t, "mode: iptables\niptables: {localhostNodePorts: false}"))
	if got := c.Node.Localhost(); len(got) != 0 {
		t.Errorf("served on %v", got)
	}
	if got := remarks(c); !strings.Contains(got, "and nothing else does") {
		t.Errorf("remarks:\n%s", got)
	}
}

// TestLocalhostGate: kube-proxy's feature gate turns NodePorts on localhost off (6.14).
func TestLocalhostGate(t *testing.T) {
	const gate = "--feature-gates=KubeProxyNFTablesLocalhostNodePorts="
	for _, c := range []struct {
		args  []string
		where string
		why   string
	}{
		{nil, "[]", ""},
		{[]string{"--nodeport-addresses=all"}, "[]", ""},
		{[]string{"--nodeport-addresses=all,localhost"}, "[127.0.0.1 ::1]", ""},
		{[]string{"--nodeport-addresses=primary,::1/128"}, "[::1]", ""},
		{[]string{"--nodeport-addresses=127.0.0.2/31"}, "[]", "only 127.0.0.1"},
		{[]string{"--nodeport-addresses=localhost", gate + "true"}, "[127.0.0.1 ::1]", ""},
		{[]string{"--nodeport-addresses=localhost", gate + "false"}, "[]", "gate KubeProxyNFTablesLocalhostNodePorts is off"},
		{[]string{gate + "false"}, "[]", ""},
	} {
		got := mustLoad(t, c.args...)
		if where := fmt.Sprint(got.Node.Localhost()); where != c.where {
			t.Errorf("%v: on %s, want %s", c.args, where, c.where)
		}
		if r := remarks(got); (c.why == "") != (r == "") || !strings.Contains(r, c.why) {
			t.Errorf("%v: remarks %q", c.args, r)
		}
	}
}
