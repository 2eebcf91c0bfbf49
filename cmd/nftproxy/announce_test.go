package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/apilab"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// calicoNode is a node as Calico's Felix sees it.
type calicoNode struct {
	*netlab.Namespace
	t   *testing.T
	api *apilab.Server
}

func newCalicoNode(t *testing.T, rules string) calicoNode {
	t.Helper()
	ns := netlab.TestNamespace(t)
	n := calicoNode{ns, t, apilab.Start(t, ns, nodeAndService)}
	n.nft(rules)
	return n
}

// nft loads rules.
func (n calicoNode) nft(rules string) {
	n.t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if err := n.Run(cmd); err != nil {
		n.t.Fatal(err)
	}
}

// felixSees reports whether Felix takes kube-proxy for being in nftables mode:
// the table kube-proxy of either family has any chain.
func (n calicoNode) felixSees() bool {
	n.t.Helper()
	for _, family := range []string{"ip", "ip6"} {
		cmd := exec.Command("nft", "-j", "list", "chains", family)
		var out strings.Builder
		cmd.Stdout = &out
		if err := n.Run(cmd); err != nil {
			n.t.Fatal(err)
		}
		var list struct {
			Nftables []struct{ Chain *struct{ Table string } }
		}
		if err := json.Unmarshal([]byte(out.String()), &list); err != nil {
			n.t.Fatal(err)
		}
		for _, x := range list.Nftables {
			if x.Chain != nil && x.Chain.Table == "kube-proxy" {
				return true
			}
		}
	}
	return false
}

// table prints a table of kube-proxy; empty: there is none.
func (n calicoNode) table(family string) string {
	n.t.Helper()
	cmd := exec.Command("nft", "list", "table", family, "kube-proxy")
	var out strings.Builder
	cmd.Stdout = &out
	_ = n.Run(cmd) // there may be none
	return strings.Join(strings.Fields(out.String()), " ")
}

// proxy starts nftproxy and returns when it has looked for kube-proxy's rules.
func (n calicoNode) proxy(args ...string) *process {
	n.t.Helper()
	n.nft("add table ip6 nat; add chain ip6 nat KUBE-SVC-LAST;") // goes when all is done
	p := start(n.t, n.Namespace, append([]string{"nftproxy", "run", "--master", n.api.URL, noLimit, "--hostname-override", "node-1"}, args...)...)
	eventually(n.t, "it takes over", func() bool {
		return n.Run(exec.Command("nft", "list", "chain", "ip6", "nat", "KUBE-SVC-LAST")) != nil
	})
	return p
}

func (n calicoNode) end(p *process) {
	n.t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		n.t.Fatal(err)
	}
	p.ends(n.t, 0)
}

const tableOfKubeProxy = `
add table ip kube-proxy
add chain ip kube-proxy services
add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority -100; }
add rule ip kube-proxy nat-prerouting jump services
`

const marker = "table ip kube-proxy { chain served-by-nftproxy { } }"

// TestCalicoSeesNFTables: on a node that kube-proxy served with nftables, Felix
// gets the same answer at every moment from the take-over to the way back (12.62).
func TestCalicoSeesNFTables(t *testing.T) {
	n := newCalicoNode(t, tableOfKubeProxy)
	want := func(when string, sees bool, table string) {
		t.Helper()
		if got := n.felixSees(); got != sees {
			t.Errorf("%s: Felix sees nftables mode: %v, want %v", when, got, sees)
		}
		if got := n.table("ip"); got != table {
			t.Errorf("%s: %q, want %q", when, got, table)
		}
		if got := n.table("ip6"); got != "" {
			t.Errorf("%s: %q, where nothing was", when, got)
		}
	}
	p := n.proxy()
	want("after the take-over", true, marker)
	for _, args := range [][]string{{"cleanup"}, {"cleanup", "--kube-proxy"}, {"run", "--cleanup"}} {
		if r := in(t, n.Namespace, args...); r.code == 0 || !strings.Contains(r.stderr, "belongs to process") {
			t.Errorf("%s while the tables are owned: %+v", args, r)
		}
		want("after "+strings.Join(args, " ")+", refused", true, marker)
	}
	n.end(p)
	want("after the end", true, marker)
	p = n.proxy()
	want("after a restart", true, marker)
	n.end(p)

	n.nft(tableOfKubeProxy)
	back := n.table("ip")
	if r := in(t, n.Namespace, "cleanup"); r.code != 0 || !strings.Contains(r.stdout, "removed chain served-by-nftproxy from table ip kube-proxy") {
		t.Errorf("cleanup after kube-proxy is back: %+v", r)
	}
	want("after the way back", true, strings.Replace(back, "chain served-by-nftproxy { } ", "", 1))

	n.end(n.proxy())
	want("after another take-over", true, marker)
	if r := in(t, n.Namespace, "cleanup"); r.code != 0 || !strings.Contains(r.stdout, "removed table ip kube-proxy") {
		t.Errorf("cleanup: %+v", r)
	}
	want("after cleanup", false, "")
}

// TestCalicoAfterOtherModes: where kube-proxy had no tables, Felix sees
// nftables mode on demand (12.62).
func TestCalicoAfterOtherModes(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		sees bool
	}{
		{"by default", nil, false},
		{"on demand", []string{"--announce-nftables"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newCalicoNode(t, "add table ip nat; add chain ip nat KUBE-SERVICES")
			n.end(n.proxy(c.args...))
			if got := n.felixSees(); got != c.sees {
				t.Errorf("Felix sees nftables mode: %v, want %v", got, c.sees)
			}
			if r := in(t, n.Namespace, "run", "--cleanup"); r.code != 0 {
				t.Errorf("cleanup: %+v", r)
			}
			if n.felixSees() || n.table("ip6") != "" {
				t.Error("something is left after cleanup")
			}
		})
	}
}

// TestCalicoAndCanary: beside kube-proxy, its tables stay as they are, and none is
// made in their place (12.62).
func TestCalicoAndCanary(t *testing.T) {
	n := newCalicoNode(t, tableOfKubeProxy)
	n.api.Set(t, `
apiVersion: v1
kind: Service
metadata: {name: canary, namespace: default, labels: {service.kubernetes.io/service-proxy-name: canary}}
spec: {clusterIP: 10.96.0.11, clusterIPs: [10.96.0.11], ipFamilies: [IPv4], ports: [{port: 80, protocol: TCP}]}`)
	before := n.table("ip")
	p := start(t, n.Namespace, "nftproxy", "run", "--master", n.api.URL, noLimit, "--hostname-override", "node-1",
		"--service-proxy-name", "canary", "--announce-nftables")
	eventually(t, "it serves", func() bool { return strings.Contains(p.log.String(), "rules applied") })
	n.end(p)
	if after := n.table("ip"); after != before || n.table("ip6") != "" {
		t.Errorf("%q and %q, want %q and nothing", after, n.table("ip6"), before)
	}
	if !strings.Contains(p.log.String(), "--announce-nftables") {
		t.Errorf("the log does not say that the flag has no effect: %s", &p.log)
	}
}
