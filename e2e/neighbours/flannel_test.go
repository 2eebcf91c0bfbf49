package neighbours

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
)

// flannel is flanneld on all nodes, whose settings are in an etcd.
type flannel struct {
	*nodes
	program string
	etcd    string
	daemons []*testbed.Process
}

// newFlannel starts flanneld. It gets the ranges of the nodes from etcd, and adds the
// routes or tunnels between them.
func newFlannel(n *nodes, backend string, nft bool) *flannel {
	n.t.Helper()
	tools, err := testbed.Tools("flannel")
	if err != nil {
		n.t.Fatal(err)
	}
	f := &flannel{nodes: n, etcd: "http://" + addrPort(n.client.IPv4, 2379).String()}
	for _, f.program = range tools {
	}
	testbed.StartEtcd(n.t, n.client, n.t.TempDir(), f.etcd)
	cidr4, cidr6, _ := strings.Cut(testbed.ClusterCIDRs, ",")
	config, err := json.Marshal(map[string]any{"EnableIPv4": true, "EnableIPv6": true, "EnableNFTables": nft,
		"Network": cidr4, "SubnetLen": 24, "IPv6Network": cidr6, "IPv6SubnetLen": 64, "Backend": map[string]string{"Type": backend}})
	if err != nil {
		n.t.Fatal(err)
	}
	testbed.Eventually(n.t, func() error { return f.put("/coreos.com/network/config", config) })
	for range n.all {
		f.daemons = append(f.daemons, nil)
	}
	f.start()
	return f
}

// put writes a key to etcd.
func (f *flannel) put(key string, value []byte) error {
	body, err := json.Marshal(map[string][]byte{"key": []byte(key), "value": value})
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: f.client.DialContext, DisableKeepAlives: true}}
	r, err := client.Post(f.etcd+"/v3/kv/put", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	if err := r.Body.Close(); err != nil || r.StatusCode != http.StatusOK {
		return fmt.Errorf("put %s: %s, %w", key, r.Status, err)
	}
	return nil
}

// start starts flanneld on all nodes and waits until each has its rules.
func (f *flannel) start() {
	f.t.Helper()
	for i, on := range f.all {
		_ = os.Remove(on.subnetFile()) // there is none at the first start
		f.daemons[i] = testbed.StartCommand(f.t, on.Host, "flannel", f.command(on))
	}
	for _, on := range f.all {
		testbed.Eventually(f.t, func() error {
			_, err := os.Stat(on.subnetFile())
			return err
		})
	}
}

func (f *flannel) command(on *node) *exec.Cmd {
	return exec.Command(f.program, "-etcd-endpoints", f.etcd, "-iface", "uplink", "-subnet-file", on.subnetFile(),
		"-subnet", on.cidrs[model.IPv4].String(), "-subnet6", on.cidrs[model.IPv6].String())
}

func (n *node) subnetFile() string { return filepath.Join(n.dir, "subnet.env") }

// network is what the CNI plugin flannel delegates to.
func (f *flannel) network(on *node) []plugin {
	f.t.Helper()
	content, err := os.ReadFile(on.subnetFile())
	if err != nil {
		f.t.Fatal(err)
	}
	var mtu int
	_, after, _ := strings.Cut(string(content), "FLANNEL_MTU=")
	if _, err := fmt.Sscan(after, &mtu); err != nil || !strings.Contains(string(content), "FLANNEL_IPMASQ=true") {
		f.t.Fatalf("%v in\n%s", err, content)
	}
	return []plugin{on.with("bridge", plugin{"hairpinMode": true, "mtu": mtu})}
}

// Flannel masquerades what leaves the pods, and what the nodes send to pods, except
// what goes to pods of its own node.
func TestFlannel(t *testing.T) {
	all, err := pluginsOf()
	if err != nil {
		t.Fatal(err)
	}
	version, err := testbed.ToolVersion("flannel", "github.com/flannel-io/flannel")
	if err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{"host-gw", "vxlan"} {
		for mode, nft := range map[string]bool{"iptables": false, "nftables": true} {
			for order, proxyFirst := range map[string]bool{"flannel first": false, "nftproxy first": true} {
				t.Run(backend+" "+mode+" "+order, func(t *testing.T) {
					n := newNodes(t, 2)
					if proxyFirst {
						n.startProxies()
					}
					f := newFlannel(n, backend, nft)
					n.addPodsTo(all[1], f.network)
					m := n.addMix()
					if proxyFirst {
						n.write()
					} else {
						n.startProxies()
					}
					m.works(n)
					n.masqueraded()
					for _, d := range f.daemons {
						d.End(t)
					}
					m.works(n)
					f.start()
					m.works(n)
					n.masqueraded()
					f.hasRules(mode)
					finds(t, finding{Group: cniGroup, Neighbour: "flannel", Version: version, Case: backend + ", rules of " + mode + ", " + order + ", restart",
						Verdict: works})
				})
			}
		}
	}
}

// hasRules checks that flannel's rules are those of a mode.
func (f *flannel) hasRules(mode string) {
	f.t.Helper()
	rules := f.all[0].run("nft", "list", "ruleset")
	for _, family := range model.Families {
		table := map[model.Family]string{model.IPv4: "flannel-ipv4", model.IPv6: "flannel-ipv6"}[family]
		if got := strings.Contains(rules, table); got != (mode == "nftables") {
			f.t.Errorf("table %s exists: %t, in mode %s", table, got, mode)
		}
	}
	if got := strings.Contains(rules, "FLANNEL-POSTRTG"); got != (mode == "iptables") {
		f.t.Errorf("chain FLANNEL-POSTRTG exists: %t, in mode %s", got, mode)
	}
}
