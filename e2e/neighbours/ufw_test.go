package neighbours

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// ufw drops what the node forwards unless a route is allowed, so it drops
// connections to pods after nftproxy has translated them.
func TestUfwForwarding(t *testing.T) {
	finds(t, finding{Group: "Firewalls", Neighbour: "ufw", Version: packaged(t, "ufw"), Verdict: worksIf,
		Case: "default policy (drop what is forwarded); enable, reload and disable under load",
		Note: "traffic to the pods is allowed: `ufw route allow to POD-RANGE` for each family. NodePorts and ClusterIPs need no rule of their own, " +
			"because packets are translated before they are filtered. Without it only the node itself reaches Services. " +
			"A reload loses datagrams that arrive during it."})
	inEitherOrder(t, func(h *host, start func(func())) {
		r := newRoom(h.t, h.Node, "/etc")
		start(func() { r.run("ufw", "--force", "enable") })
		forwarded := without(h.paths(), path.fromNode)
		h.unserved("default forward policy", forwarded...)
		h.check("default forward policy", machine.Problem)
		h.served("default forward policy", without(h.paths(), func(p path) bool { return !p.fromNode() })...)

		h.undisturbed("allow", func() {
			r.run("ufw", "route", "allow", "to", netlab.ClusterCIDRv4.String())
			r.run("ufw", "route", "allow", "to", netlab.ClusterCIDRv6.String())
		}, without(h.paths(), func(p path) bool { return !p.fromNode() })...)
		h.served("pods allowed", h.paths()...)
		h.check("pods allowed", machine.OK)
		for _, change := range [][]string{{"reload"}, {"disable"}, {"--force", "enable"}} {
			what := "ufw " + strings.Join(change, " ")
			h.undisturbed(what, func() { r.run("ufw", change...) }, h.paths()...)
		}
		// Now ufw also flushes the tables filter, mangle and nat of iptables.
		r.run("sed", "-i", "s/MANAGE_BUILTINS=no/MANAGE_BUILTINS=yes/", "/etc/default/ufw")
		h.undisturbed("ufw reload, managing built-in chains", func() { r.run("ufw", "reload") }, h.paths()...)
		h.uninterrupted("ufw reload", func() { r.run("ufw", "reload") }, h.paths()...)
	})
}

// What is translated to the node itself is filtered like other traffic to it.
func TestUfwOwnPorts(t *testing.T) {
	finds(t, finding{Group: "Firewalls", Neighbour: "ufw", Version: packaged(t, "ufw"), Verdict: worksIf,
		Case: "Services with endpoints in the host network, and the health check for load balancers",
		Note: "their ports are allowed: `ufw allow PORT` for the port that the endpoint listens on (not the Service's), `ufw allow 10256/tcp`."})
	inEitherOrder(t, func(h *host, start func(func())) {
		h.echo(h.Node)
		h.serve(h.Node)
		r := newRoom(h.t, h.Node, "/etc")
		start(func() { r.run("ufw", "--force", "enable") })
		h.unserved("default policy", without(h.paths(), path.fromNode)...)
		if h.healthPath().connects(testbed.Silence) {
			h.t.Error("the health check is reached without a rule")
		}
		r.run("ufw", "allow", fmt.Sprint(testbed.EchoPort))
		r.run("ufw", "allow", "10256/tcp")
		h.answers("allowed", h.Node.Name, h.paths()...)
		if !h.healthPath().connects(testbed.Strict) {
			h.t.Error("the health check is not reached")
		}
	})
}
