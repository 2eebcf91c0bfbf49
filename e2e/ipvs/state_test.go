package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// The virtual server of another program, which kube-proxy leaves because of excludeCIDRs.
const foreignAddress = "198.51.100.7"

var foreign = netip.MustParseAddrPort(foreignAddress + ":80")

// sysctls are what kube-proxy sets in mode ipvs with strictARP; they stay.
const sysctls = "net.ipv4.vs.conntrack=1 net.ipv4.vs.expire_nodest_conn=1 net.ipv4.vs.expire_quiescent_template=1 " +
	"net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"

// settled checks that kube-proxy has done what its configuration says.
func (n *node) settled(scheduler string) error {
	return n.wait("kube-proxy in mode ipvs", func() error {
		return errors.Join(
			n.contains("ipvsadm -Ln", fmt.Sprintf("TCP  %s:80 %s", n.Web.ClusterIPs[0], scheduler), "203.0.113.10:80", "[2001:db8:203::10]:80", foreign.String()),
			n.contains("ipvsadm -Ln --timeout", "1200 60 120"),
			n.contains("ip address show kube-ipvs0", n.Web.ClusterIPs[0]+"/32", "203.0.113.10/32", "2001:db8:203::10/128"),
			n.kept(), n.spread(scheduler))
	})
}

// counterparts are what nftproxy says about schedulers.
var counterparts = map[string]string{"sh": "scheduler=source-hash", "mh": "scheduler=maglev-port", "lc": "has no counterpart"}

// spread checks where the connections of one client go: with sh all to one endpoint, with
// the others to more.
func (n *node) spread(scheduler string) error {
	seen := map[string]bool{}
	for range 12 {
		a, err := n.Client.Ask("tcp", n.Web.Frontend(model.IPv4), limits["tcp"])
		if err != nil {
			return err
		}
		seen[a.Name] = true
	}
	if (len(seen) == 1) != (scheduler == "sh") {
		return fmt.Errorf("with scheduler %s, connections of one client reach %v", scheduler, seen)
	}
	return nil
}

// replaced checks that nothing of kube-proxy is left, and everything of others.
func (n *node) replaced(scheduler string) error {
	servers, err := n.output("ipvsadm -Ln")
	if strings.Count(servers, "TCP")+strings.Count(servers, "UDP") != 1 { // the one of another program
		err = errors.Join(err, fmt.Errorf("virtual servers:\n%s", servers))
	}
	left, listErr := n.output("ip -o link; iptables-save; ip6tables-save; ipset list -n")
	if strings.Contains(left, "kube-ipvs0") || strings.Contains(left, "KUBE-") {
		listErr = errors.Join(listErr, fmt.Errorf("left of kube-proxy:\n%s", left))
	}
	if !strings.Contains(n.log.String(), counterparts[scheduler]) {
		err = errors.Join(err, fmt.Errorf("the log says nothing about scheduler %s:\n%s", scheduler, n.log))
	}
	return errors.Join(err, listErr, n.kept(), n.spread(scheduler))
}

// kept checks that what kube-proxy set and what belongs to others is there.
func (n *node) kept() error {
	return errors.Join(
		n.contains("ipvsadm -Ln -t "+foreign.String(), "10.128.0.2:8080"),
		n.script("for s in "+sysctls+"; do test $(sysctl -n ${s%=*}) = ${s#*=} || { echo $s; exit 1; }; done"))
}

// contains checks that a command prints texts.
func (n *node) contains(command string, texts ...string) error {
	out, err := n.output(command)
	for _, t := range texts {
		if !strings.Contains(out, t) {
			err = errors.Join(err, fmt.Errorf("%s: no %q in\n%s", command, t, out))
		}
	}
	return err
}
