package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	utilnet "k8s.io/utils/net"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// readNode fills c.Node, and returns all problems (12.5, 12.11).
func (c *Config) readNode() []error {
	n := &c.Node
	n.MasqueradeAll = c.Kube.NFTables.MasqueradeAll
	n.AffinityCapacity = c.Own.AffinitySize
	n.NoExternalIPs = !c.Feature(gateExternalIPs, true)
	n.BesideAnother = c.Own.ServiceProxyName != ""
	n.AnswerPing = c.Own.AnswerPing
	n.Counters, n.EndpointCounters = c.Own.ServiceMetrics || c.Own.EndpointMetrics, c.Own.EndpointMetrics
	n.FastPath.Closes = c.Own.ConntrackTCPCleanup // (9.29)
	var scheduler, fastPath error
	n.Scheduler, scheduler = model.ParseScheduler(c.Own.Scheduler)
	n.FastPath.Level, fastPath = model.ParseFastPathLevel(c.Own.FastPath)
	return []error{c.readName(), c.readBindAddress(), c.readClusterCIDRs(), c.readNodePorts(), c.detectLocal(), ownProblem("scheduler", scheduler),
		c.readLoadBalancerCIDRs(), c.readObserve(), ownProblem(FastPath, fastPath), c.masqueradeFrom()}
}

// masqueradeFrom reads the addresses to masquerade from (8.8).
func (c *Config) masqueradeFrom() error {
	n := &c.Node
	wrong := func(format string, args ...any) error { return ownProblem(MasqueradeFrom, fmt.Errorf(format, args...)) }
	for _, text := range c.Own.MasqueradeFrom {
		text = strings.TrimSpace(text)
		a, err := netip.ParseAddr(text)
		switch a = a.Unmap(); {
		case text == primary:
			n.MasqueradePrimary = true
		case err != nil:
			return wrong("%q is neither an address nor %s", text, primary)
		case a.Zone() != "", !a.IsGlobalUnicast():
			return wrong("%s is not an address that servers can answer: use one of an interface", text)
		case slices.Contains(n.MasqueradeFrom, a):
			return wrong("%s is given twice: remove one", text)
		default:
			n.MasqueradeFrom = append(n.MasqueradeFrom, a)
		}
	}
	if len(n.MasqueradeFrom) > budget.MasqueradeAddresses {
		return wrong("more than %d addresses: shorten the list", budget.MasqueradeAddresses)
	}
	return nil
}

// readObserve reads which connections the rules count and log (16.1).
func (c *Config) readObserve() error {
	level, err := model.ParseObserveLevel(c.Own.Observe)
	switch group := c.Own.ObserveGroup; {
	case err != nil:
		return ownProblem(Observe, err)
	case group == 0 || group > math.MaxUint16:
		return ownProblem("observe-group", fmt.Errorf("%d is not from 1 to %d", group, math.MaxUint16))
	case level != model.ObserveOff:
		c.Node.Observe = model.Observe{Level: level, Group: uint16(group)}
	}
	return nil
}

// readLoadBalancerCIDRs reads ranges that have no address of a pod in common, which would become unreachable.
func (c *Config) readLoadBalancerCIDRs() error {
	for _, text := range c.Own.LoadBalancerCIDRs {
		p, ok := parsePrefix(strings.TrimSpace(text))
		switch {
		case !ok:
			return ownProblem("load-balancer-cidrs", fmt.Errorf("%q is not a range such as 203.0.113.0/24", text))
		case p.Bits() == 0:
			return ownProblem("load-balancer-cidrs", fmt.Errorf("%s covers all addresses: packets to other machines would be dropped", p))
		}
		for _, pods := range c.Node.ClusterCIDRs {
			if p.Overlaps(pods) {
				return ownProblem("load-balancer-cidrs", fmt.Errorf("%s has addresses of pods (%s), to which packets would be dropped", p, pods))
			}
		}
		c.Node.LoadBalancerCIDRs = append(c.Node.LoadBalancerCIDRs, p)
	}
	return nil
}

// readName reads the name of this node as Kubernetes spells it (12.40).
func (c *Config) readName() error {
	name := c.Kube.HostnameOverride
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return c.fieldProblem("hostnameOverride", "the host name is unknown (%v): name the node", err)
		}
		name = host
	}
	if c.Node.NodeName = strings.ToLower(strings.TrimSpace(name)); c.Node.NodeName == "" {
		return c.fieldProblem("hostnameOverride", "the name is blank: omit it, or write the name of the Node")
	}
	return nil
}

func (c *Config) readBindAddress() error {
	// IPv4 numbers with leading zeros are decimal (1.33).
	a, ok := netip.AddrFromSlice(utilnet.ParseIPSloppy(c.Kube.BindAddress))
	if !ok {
		return c.fieldProblem("bindAddress", "%q is not an IP address (no port, no brackets)", c.Kube.BindAddress)
	}
	c.Node.BindAddress = a.Unmap()
	return nil
}

// readClusterCIDRs reads one range, or one of each family in any order (7.1). It matters in mode ClusterCIDR only (12.11).
func (c *Config) readClusterCIDRs() error {
	if c.Kube.ClusterCIDR == "" || c.Kube.DetectLocalMode != "ClusterCIDR" {
		return nil
	}
	for text := range strings.SplitSeq(c.Kube.ClusterCIDR, ",") {
		p, ok := parsePrefix(text)
		if !ok {
			return c.fieldProblem("clusterCIDR", "%q is not a range such as 10.128.0.0/9", text)
		}
		for _, other := range c.Node.ClusterCIDRs {
			if model.FamilyOf(other.Addr()) == model.FamilyOf(p.Addr()) {
				return c.fieldProblem("clusterCIDR", "%s and %s are of one family: give at most one range of each", other, p)
			}
		}
		c.Node.ClusterCIDRs = append(c.Node.ClusterCIDRs, p)
	}
	return nil
}

// Words for node addresses (6.1).
const (
	primary   = "primary"   // the node's first address of each family
	localhost = "localhost" // its loopback addresses
	all       = "all"       // all of its addresses
)

var wordRanges = map[string][]netip.Prefix{
	localhost: {netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	all:       {netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
}

// readNodePorts reads which addresses serve NodePorts: ranges and words in any combination, each word once (6.1).
func (c *Config) readNodePorts() error {
	const field = "nodePortAddresses"
	seen := make(map[string]bool)
	for _, text := range c.Kube.NodePortAddresses {
		text = strings.TrimSpace(text)
		ranges, isWord := wordRanges[text]
		isWord = isWord || text == primary
		switch p, isRange := parsePrefix(text); {
		case isWord && seen[text]:
			return c.fieldProblem(field, "%q is given twice: remove one", text)
		case text == primary:
			c.Node.NodePortPrimary = true
		case isRange:
			ranges = []netip.Prefix{p}
		case !isWord:
			return c.fieldProblem(field, "%q is not a range such as 192.168.0.0/16, nor primary, localhost or all", text)
		}
		seen[text] = true
		c.Node.NodePortAddresses = append(c.Node.NodePortAddresses, ranges...)
	}
	c.Node.NoLocalhost = !c.Feature(gateLocalhost, true)
	c.remarkLocalhost(field)
	return nil
}

// remarkLocalhost warns of loopback addresses on which NodePorts are not served (6.14).
func (c *Config) remarkLocalhost(field string) {
	for _, p := range c.Node.NodePortAddresses {
		switch {
		case !p.Addr().IsLoopback():
		case c.Node.NoLocalhost:
			c.addRemark("NodePorts are not served on localhost", c.fieldAttributes(field, "because", "the feature gate "+gateLocalhost+" is off")...)
			return
		case !model.HasLocalhost(p):
			c.addRemark("of loopback addresses, only 127.0.0.1 and ::1 serve NodePorts", c.fieldAttributes(field, "range", p)...)
		}
	}
}

// parsePrefix reads a range. Bits behind its length are cleared (1.34).
func parsePrefix(text string) (netip.Prefix, bool) {
	_, n, err := utilnet.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := net.IPMask(n.Mask).Size()
	return netip.PrefixFrom(a, ones), ok
}

// detectLocal sets the mode and the interface that some modes need (7.7).
func (c *Config) detectLocal() error {
	mode, err := model.ParseDetectMode(string(c.Kube.DetectLocalMode))
	if err != nil {
		return c.fieldProblem("detectLocalMode", "%v", err)
	}
	c.Node.DetectLocal = mode
	name, field := "", ""
	switch mode {
	case model.DetectBridgeInterface:
		name, field = c.Kube.DetectLocal.BridgeInterface, "detectLocal.bridgeInterface"
	case model.DetectInterfaceNamePrefix:
		name, field = c.Kube.DetectLocal.InterfaceNamePrefix, "detectLocal.interfaceNamePrefix"
	default:
		return nil
	}
	if name == "" {
		return c.fieldProblem(field, "mode %s needs it", c.Kube.DetectLocalMode)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"*/\`, r) }) {
		return c.fieldProblem(field, "%q is not the name of an interface", name)
	}
	c.Node.PodInterface = name
	return nil
}
