package ipvs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// patience is how long a wait may take. Each attempt starts programs, as kube-proxy does for each of its
// chains, ipsets and rules.
const patience = 10 * time.Minute

// node is where one proxy runs after the other.
type node struct {
	*netlab.Lab
	order
	proxy *exec.Cmd
	log   *netlab.LogBuffer // of the proxy
}

// newNode makes the networks, with a virtual server of another program.
func newNode() (*node, error) {
	n := &node{}
	text, err := os.ReadFile(orderFile)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(json.Unmarshal(text, &n.order), linkPrograms(),
		os.WriteFile("/kubeconfig", []byte(n.Kubeconfig), 0o600)); err != nil {
		return nil, err
	}
	if out, err := exec.Command("modprobe", "-a", "virtio_net", "dummy", "ip_vs").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("load modules: %w\n%s", err, out)
	}
	if n.Lab, err = netlab.New(3); err != nil {
		return nil, err
	}
	if err := n.EchoOnPods(testbed.EchoPort); err != nil {
		return nil, err
	}
	if err := n.moveUplink(); err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	return n, n.script(`
		ip address add ` + foreignAddress + `/32 dev lo
		ipvsadm -A -t ` + foreign.String() + ` -s wrr
		ipvsadm -a -t ` + foreign.String() + ` -r 10.128.0.2:8080 -m`)
}

// linkPrograms does what the packages of Debian leave to their scripts.
func linkPrograms() error {
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, action := range []string{"", "-save", "-restore"} {
			if err := os.Symlink("xtables-nft-multi", "/usr/sbin/"+name+action); err != nil {
				return err
			}
		}
	}
	return os.Symlink("busybox", "/bin/grep")
}

// moveUplink gives the node the interface to the API server.
func (n *node) moveUplink() error {
	var uplink netlink.Link
	err := eventually(func() (err error) {
		links, err := netlinkio.List(netlink.LinkList)
		for _, l := range links {
			if l.Type() == "device" && l.Attrs().Name != "lo" {
				uplink = l
			}
		}
		if uplink == nil {
			return errors.Join(err, errors.New("no interface"))
		}
		return err
	})
	if err != nil {
		return err
	}
	ns, err := os.Open(n.Node.Path())
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := netlink.LinkSetNsFd(uplink, int(ns.Fd())); err != nil {
		return err
	}
	name := uplink.Attrs().Name
	return n.script("ip link set " + name + " up && ip address add 10.0.2.15/24 dev " + name)
}

// script runs commands on the node.
func (n *node) script(text string) error {
	out, err := n.output(text)
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", text, err, out)
	}
	return nil
}

func (n *node) output(text string) (string, error) {
	var out strings.Builder
	cmd := exec.Command("sh", "-ec", text)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := n.Node.Run(cmd)
	return out.String(), err
}

// configuration is what both proxies are started with.
const configuration = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ipvs
hostnameOverride: node
clusterCIDR: ` + testbed.ClusterCIDRs + `
clientConnection: {kubeconfig: /kubeconfig}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
ipvs:
  scheduler: %s
  strictARP: true
  tcpTimeout: 20m0s
  tcpFinTimeout: 1m0s
  udpTimeout: 2m0s
  excludeCIDRs: [198.51.100.0/24]
`

func (n *node) configure(scheduler string) error {
	return os.WriteFile("/config.conf", fmt.Appendf(nil, configuration, scheduler), 0o644)
}

// start starts a proxy.
func (n *node) start(file string, args ...string) error {
	n.log = &netlab.LogBuffer{}
	n.proxy = exec.Command(file, append(args, "--config", "/config.conf")...)
	n.proxy.Stdout, n.proxy.Stderr = n.log, n.log
	return n.Node.Start(n.proxy)
}

// startKubeProxy starts it, and waits as docs/ipvs.md says.
func (n *node) startKubeProxy() error {
	if err := n.start(kubeProxyFile); err != nil {
		return err
	}
	return n.wait("start kube-proxy", func() error {
		return n.script("iptables -t nat -S KUBE-SERVICES | grep match-set && ip6tables -t nat -S KUBE-SERVICES | grep match-set")
	})
}

// startNFTProxy starts it, and waits until it has taken over.
func (n *node) startNFTProxy() error {
	if err := n.start(nftproxyFile, "run"); err != nil {
		return err
	}
	return n.wait("start nftproxy", func() error {
		if err := n.script("! ip -o link show kube-ipvs0"); err != nil {
			return err
		}
		if !strings.Contains(n.log.String(), "took over from kube-proxy") {
			return errors.New("it has not taken over")
		}
		return nil
	})
}

// stop ends the proxy as the kubelet does. Its rules stay.
func (n *node) stop() error {
	if err := n.proxy.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_ = n.proxy.Wait()
	return nil
}

// wait waits until f finds no error. If it does so in vain, it ends the proxy, which then says
// what it was doing.
func (n *node) wait(what string, f func() error) error {
	err := eventually(f)
	if err == nil {
		return nil
	}
	state, _ := n.output("busybox ps; iptables-save; ip6tables-save; ipset list -t; ip -o address")
	if killErr := n.proxy.Process.Signal(syscall.SIGQUIT); killErr == nil {
		_ = n.proxy.Wait()
	}
	return fmt.Errorf("%s: %w\n%s\n%s", what, err, n.log, state)
}

// eventually calls f until it finds no error.
func eventually(f func() error) error { return await.Poll(patience, 100*time.Millisecond, f) }
