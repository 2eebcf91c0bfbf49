package neighbours

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// firewalld is the program with its message bus.
type firewalld struct {
	*room
	process *testbed.Process
}

// newFirewalld starts firewalld with a backend.
func newFirewalld(h *host, backend string) *firewalld {
	h.t.Helper()
	f := &firewalld{room: newRoom(h.t, h.Node, "/etc/firewalld")}
	f.run("sed", "-i", "s/^FirewallBackend=.*/FirewallBackend="+backend+"/", "/etc/firewalld/firewalld.conf")
	f.run("mkdir", "/run/dbus")
	f.start("dbus-daemon", "--system", "--nofork", "--nopidfile")
	netlab.Eventually(h.t, patience, func() error {
		_, err := f.try("test", "-S", "/run/dbus/system_bus_socket")
		return err
	})
	f.begin()
	return f
}

// begin starts firewalld and waits until its rules are there.
func (f *firewalld) begin() {
	f.t.Helper()
	f.process = f.start("firewalld", "--nofork", "--log-target=console")
	netlab.Eventually(f.t, patience, func() error {
		_, err := f.try("firewall-cmd", "--state")
		return err
	})
}

// cmd runs firewall-cmd.
func (f *firewalld) cmd(args ...string) { f.t.Helper(); f.run("firewall-cmd", args...) }

// toPod is the way to a pod, without a Service.
func (h *host) toPod() path {
	return path{"outside to a pod", h.Client, func(f model.Family) netip.AddrPort {
		return netip.AddrPortFrom(h.Pods[0].Address(f), testbed.EchoPort)
	}}
}

// The default zone denies what the node forwards, but firewalld accepts what
// another program has translated.
func TestFirewalldDefaultZone(t *testing.T) {
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			finds(t, finding{Group: "Firewalls", Neighbour: "firewalld", Version: packaged(t, "firewalld"), Verdict: works,
				Case: "Services with the default zone (forwards nothing else), backend " + backend + ", reload under load, restart",
				Note: "Packets are translated before they are filtered, and firewalld accepts translated ones. Other traffic of pods must be " +
					"allowed, as with any proxy. A reload loses datagrams that arrive during it."})
			inEitherOrder(t, func(h *host, start func(func())) {
				var f *firewalld
				start(func() { f = newFirewalld(h, backend) })
				h.unserved("default zone", h.toPod())
				h.served("default zone", h.paths()...)
				h.check("default zone", machine.OK)
				h.undisturbed("reload", func() { f.cmd("--reload") }, h.paths()...)
				h.undisturbed("complete reload", func() { f.cmd("--complete-reload") }, h.paths()...)
				h.uninterrupted("reload", func() { f.cmd("--reload") }, h.paths()...)
				h.undisturbed("restart", func() {
					f.stop(f.process, "/run/firewalld.pid")
					f.begin()
				}, h.paths()...)
				h.unserved("at the end", h.toPod())
			})
		})
	}
}

// Also what is translated to the node itself is accepted.
func TestFirewalldOwnPorts(t *testing.T) {
	finds(t, finding{Group: "Firewalls", Neighbour: "firewalld", Version: packaged(t, "firewalld"), Verdict: worksIf,
		Case: "Services with endpoints in the host network, and the health check for load balancers",
		Note: "the health check's port is allowed: `--add-port=10256/tcp`. Services need no rule."})
	inEitherOrder(t, func(h *host, start func(func())) {
		h.echo(h.Node)
		h.serve(h.Node)
		var f *firewalld
		start(func() { f = newFirewalld(h, "nftables") })
		h.answers("default zone", h.Node.Name, h.paths()...)
		if h.healthPath().connects(testbed.Silence) {
			h.t.Error("the health check is reached without a rule")
		}
		f.cmd("--add-port=10256/tcp")
		if !h.healthPath().connects(testbed.Strict) {
			h.t.Error("the health check is not reached")
		}
	})
}

// forgetTranslated removes the rules that StrictForwardPorts of newer versions of
// firewalld leaves out.
func (h *host) forgetTranslated() {
	h.t.Helper()
	rule := regexp.MustCompile(`ct status dnat accept # handle (\d+)`)
	for _, chain := range []string{"filter_FORWARD", "filter_INPUT"} {
		handle := rule.FindStringSubmatch(h.run("nft", "-a", "list", "chain", "inet", "firewalld", chain))
		if handle == nil {
			h.t.Fatalf("firewalld's chain %s does not accept translated packets", chain)
		}
		h.run("nft", "delete", "rule", "inet", "firewalld", chain, "handle", handle[1])
	}
}

// Without that, pods need a zone and a policy.
func TestFirewalldStrictForwardPorts(t *testing.T) {
	finds(t, finding{Group: "Firewalls", Neighbour: "firewalld", Version: packaged(t, "firewalld"), Verdict: worksIf,
		Case: "without the rule that accepts translated packets, as with `StrictForwardPorts=yes` of 2.3 and later",
		Note: "pods are in the zone `trusted` (`--zone=trusted --add-source=POD-RANGE`, for each family), and a policy with target ACCEPT, " +
			"ingress zone ANY and egress zone `trusted` lets others reach them. Without it only the node itself reaches Services."})
	inEitherOrder(t, func(h *host, start func(func())) {
		var f *firewalld
		start(func() { f = newFirewalld(h, "nftables") })
		h.forgetTranslated()
		h.unserved("strict", without(h.paths(), path.fromNode)...)
		h.check("strict", machine.Problem)
		for _, change := range []string{
			"--zone=trusted --add-source=" + netlab.ClusterCIDRv4.String(),
			"--zone=trusted --add-source=" + netlab.ClusterCIDRv6.String(),
			"--new-policy=to-pods", "--policy=to-pods --set-target=ACCEPT",
			"--policy=to-pods --add-ingress-zone=ANY", "--policy=to-pods --add-egress-zone=trusted",
		} {
			f.cmd(strings.Fields("--permanent " + change)...)
		}
		f.cmd("--reload")
		h.forgetTranslated()
		h.served("pods allowed", h.paths()...)
		h.check("pods allowed", machine.Warning)
	})
}
