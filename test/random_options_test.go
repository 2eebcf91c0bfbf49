package test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// randomRange is an entry of the annotation for ports, and a port of it that leads to one
// on which endpoints answer.
type randomRange struct {
	entry   string
	dialled int
}

// ranges returns entries that do not overlap, each for TCP and UDP, none for most services.
func (w *randomWorld) ranges() []randomRange {
	if !w.chance(40) {
		return nil
	}
	first := 20000 + w.IntN(20)
	return drawOne(w.dice,
		[]randomRange{{"all", drawOne(w.dice, echoPort, otherEchoPort)}},
		[]randomRange{{"all:8081", 1 + w.IntN(1<<16-1)}},
		[]randomRange{{"8000-8999", echoPort}, {"1000-1999:8081", 1000 + w.IntN(1000)}},
		[]randomRange{{"8081-9000", otherEchoPort}, {"7080-7081:8080-8081", 7080 + w.IntN(2)}},
		[]randomRange{{fmt.Sprintf("%d-%d:8080", first, first+w.IntN(20)), first}, {"8080", echoPort}},
	)
}

// annotations draws what a Service can ask for beyond Kubernetes. Its limits are out of
// reach.
func (w *randomWorld) annotations(ranges []randomRange) map[string]string {
	all := make(map[string]string)
	add := func(name, value string) {
		if value != "" {
			all["nftproxy.dev/"+name] = value
		}
	}
	var ports []string
	for _, r := range ranges {
		entry, target, has := strings.Cut(r.entry, ":")
		if has {
			target = ":" + target
		}
		ports = append(ports, entry+"/tcp"+target, entry+"/udp"+target)
	}
	add("ports", strings.Join(ports, ","))
	scheduler := drawOne(w.dice, "", "", "round-robin", "random", "source-hash", "maglev", "maglev-port")
	if add("scheduler", scheduler); strings.HasPrefix(scheduler, "maglev") {
		add("maglev-table-size", "251")
	}
	add("source-ranges", w.someClients())
	add("denied-sources", w.someClients())
	add("client-addresses", drawOne(w.dice, "", "", "", "keep", "masquerade"))
	add("max-connections", drawOne(w.dice, "", "", "", "20000", "30000"))
	add("max-connections-per-client", drawOne(w.dice, "", "", "", "20000", "30000"))
	add("connection-rate", drawOne(w.dice, "", "", "", "20000/second", "30000/second burst 60000"))
	add("connection-rate-per-client", drawOne(w.dice, "", "", "", "20000/second", "30000/second burst 60000"))
	return all
}

// someClients returns a list of clients, mostly empty.
func (w *randomWorld) someClients() string {
	var list []string
	if w.chance(15) {
		for range 1 + w.IntN(12) {
			list = append(list, w.sourceRange().String())
		}
	}
	return strings.Join(list, ",")
}

// randomFlags are flags of the program and the configuration that they stand
// for.
type randomFlags struct {
	args   []string
	config model.Config
}

// programFlags draws the detection of pods, and more.
func (d dice) programFlags() randomFlags {
	all := []netip.Prefix{netlab.ClusterCIDRv4, netlab.ClusterCIDRv6}
	f := drawOne(d,
		randomFlags{clusterCIDR, model.Config{ClusterCIDRs: all}},
		randomFlags{clusterCIDR, model.Config{ClusterCIDRs: all}},
		randomFlags{[]string{"--cluster-cidr", all[0].String()}, model.Config{ClusterCIDRs: all[:1]}},
		randomFlags{[]string{"--detect-local-mode", "NodeCIDR"}, model.Config{DetectLocal: model.DetectNodeCIDR}},
		randomFlags{[]string{"--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "pod-"},
			model.Config{DetectLocal: model.DetectInterfaceNamePrefix, PodInterface: "pod-"}})
	f.config.NodeName = nodeName
	f.config.Scheduler = drawOne(d, model.RoundRobin, model.Random, model.SourceHash)
	f.config.MasqueradeAll = d.chance(20)
	f.args = append(slices.Clip(f.args), "--scheduler", f.config.Scheduler.String(), fmt.Sprintf("--masquerade-all=%t", f.config.MasqueradeAll))
	if d.chance(40) { // the node's own addresses, as frontends of another kind
		f.args = append(f.args, "--nodeport-addresses", "192.0.2.0/24,2001:db8::/64")
		f.config.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	}
	d.optionFlags(&f)
	return f
}

// optionFlags adds flags that are off by default.
func (d dice) optionFlags(f *randomFlags) {
	if d.chance(50) {
		f.args = append(f.args, "--answer-ping")
		f.config.AnswerPing = true
	}
	if d.chance(50) {
		f.args = append(f.args, "--load-balancer-cidrs", "203.0.113.0/27,2001:db8:2::/123")
		f.config.LoadBalancerCIDRs = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/27"), netip.MustParsePrefix("2001:db8:2::/123")}
	}
}

// ranged draws a range of a service, and an address that has it.
func (c *comparison) ranged(s *randomService) (network string, to netip.AddrPort) {
	addresses := slices.DeleteFunc(slices.Concat(s.ClusterIPs, s.ExternalIPs, s.LoadBalancerIPs), func(a netip.Addr) bool { return !slices.Contains(s.Families, model.FamilyOf(a)) })
	return drawOne(c.dice, "tcp", "udp"), netip.AddrPortFrom(drawOne(c.dice, addresses...), uint16(drawOne(c.dice, s.Ranges...).dialled))
}

// echoNetwork returns the protocol of an echo request.
func echoNetwork(a netip.Addr) string {
	if a.Is4() {
		return "icmp"
	}
	return "icmpv6"
}

// isPing reports whether a question is an echo request.
func (q question) isPing() bool { return strings.HasPrefix(q.network, "icmp") }

// target is what the question dials, as explain wants it.
func (q question) target() string {
	if q.isPing() {
		return q.to.Addr().String()
	}
	return q.to.String()
}

// checkPing sends an echo request. Those to a host itself, "not ours", get a reply, too.
func (c *comparison) checkPing(q question, p prediction) error {
	is, wait := isReply, patience
	switch p.Verdict {
	case "reject":
		is = isUnreachable
	case "drop":
		is, wait = isSilence, silence
	}
	if err := q.from.Ping(q.to.Addr(), wait); !is(err) {
		return fmt.Errorf("ping: %v", err)
	}
	return nil
}
