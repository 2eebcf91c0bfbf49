package source

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/nftproxy/nftproxy/internal/model"
)

// ConvertNode converts a Node: its InternalIPs in order, then its ExternalIPs
// (12.42). The result is nil where the Node has no usable name.
func ConvertNode(n *corev1.Node) (*model.Node, []*FieldError) {
	var c findings
	if !c.objectName(&n.ObjectMeta) {
		return nil, c
	}
	c.unknownAnnotations(&n.ObjectMeta, "")
	return &model.Node{
		Name:      n.Name,
		Zone:      n.Labels[corev1.LabelTopologyZone],
		Addresses: append(nodeAddresses(&c, n, corev1.NodeInternalIP), nodeAddresses(&c, n, corev1.NodeExternalIP)...),
		PodCIDRs:  podCIDRs(&c, &n.Spec),
		Leaving:   leaving(n),
	}, c
}

// taintToBeDeleted is what the cluster autoscaler puts on a Node before it
// takes it away (10.10).
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

func leaving(n *corev1.Node) bool {
	return n.DeletionTimestamp != nil ||
		slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintToBeDeleted })
}

func nodeAddresses(c *findings, n *corev1.Node, t corev1.NodeAddressType) []netip.Addr {
	var out []netip.Addr
	for i, in := range n.Status.Addresses {
		if in.Type != t {
			continue
		}
		a, problem := parseAddress(in.Address)
		if problem != "" {
			c.add(fmt.Sprintf("status.addresses[%d].address", i), in.Address, problem)
			continue
		}
		out = append(out, a)
	}
	return out
}

// podCIDRs returns podCIDRs, or podCIDR where there is only that.
func podCIDRs(c *findings, spec *corev1.NodeSpec) []netip.Prefix {
	if len(spec.PodCIDRs) == 0 && spec.PodCIDR != "" {
		return prefixes(c, func(int) string { return "spec.podCIDR" }, []string{spec.PodCIDR})
	}
	return prefixes(c, func(i int) string { return fmt.Sprintf("spec.podCIDRs[%d]", i) }, spec.PodCIDRs)
}

// ConvertServiceCIDR converts a ServiceCIDR to its ranges. A range of length 0
// is refused: free addresses in a ServiceCIDR are dropped (4.24), which would
// cut the node off.
func ConvertServiceCIDR(s *networkingv1.ServiceCIDR) ([]netip.Prefix, []*FieldError) {
	var c findings
	if !c.objectName(&s.ObjectMeta) {
		return nil, c
	}
	c.unknownAnnotations(&s.ObjectMeta, "")
	field := func(i int) string { return fmt.Sprintf("spec.cidrs[%d]", i) }
	var out []netip.Prefix
	for i, text := range s.Spec.CIDRs {
		for _, p := range prefixes(&c, func(int) string { return field(i) }, []string{text}) {
			if p.Bits() == 0 {
				c.add(field(i), text, "holds every address: use the range of the ClusterIPs")
				continue
			}
			out = append(out, p)
		}
	}
	return out, c
}

func prefixes(c *findings, field func(int) string, texts []string) []netip.Prefix {
	var out []netip.Prefix
	for i, text := range texts {
		p, problem := parsePrefix(text)
		if problem != "" {
			c.add(field(i), text, problem)
			continue
		}
		out = append(out, p)
	}
	return out
}
