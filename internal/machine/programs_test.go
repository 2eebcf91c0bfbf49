package machine_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/machine"
)

// TestProgram finds the program that a chain or a rule belongs to.
func TestProgram(t *testing.T) {
	for _, c := range []struct{ table, chain, want string }{
		{"nftproxy", "prerouting", "nftproxy"},
		{"firewalld", "filter_FORWARD", "firewalld"},
		{"filter", "DOCKER-USER", "Docker"},
		{"filter", "ufw-before-forward", "ufw"},
		{"filter", "cali-FORWARD", "Calico"},
		{"filter", "KUBE-POD-FW-ABC", "kube-router"},
		{"filter", "KUBE-FIREWALL", "the kubelet"},
		{"nat", "KUBE-SERVICES", "kube-proxy"},
		{"kube-proxy", "services", "kube-proxy"},
		{"nat", "ISTIO_OUTPUT", "Istio"},
		{"nat", "LIBVIRT_PRT", "libvirt"},
		{"filter", "FORWARD", ""},
		{"mine", "forward", ""},
	} {
		if got := machine.Program(c.table, c.chain); got != c.want {
			t.Errorf("chain %s of table %s belongs to %q, want %q", c.chain, c.table, got, c.want)
		}
	}
	for _, c := range []struct{ to, text, want string }{
		{"DOCKER-ISOLATION-STAGE-1", "", "Docker"},
		{"", `-A FORWARD -m comment --comment "cali:Lv4Jzv" -j DROP`, "Calico"},
		{"", `-A FORWARD -m comment --comment "flanneld forward" -j ACCEPT`, "flannel"},
		{"", "-A FORWARD -s 10.0.0.0/8 -j DROP", ""},
	} {
		if got := machine.ProgramOfRule(c.to, c.text); got != c.want {
			t.Errorf("rule %q to chain %q belongs to %q, want %q", c.text, c.to, got, c.want)
		}
	}
}
