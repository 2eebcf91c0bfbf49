package convert

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Node converts a Node: its InternalIPs in order, then its ExternalIPs
// (12.42). The result is nil where the Node has no usable name.
func Node(n *corev1.Node) (*model.Node, []*manifest.FieldError) {
	var c Findings
	if !c.ObjectName(&n.ObjectMeta) {
		return nil, c.All()
	}
	c.unknownAnnotations(&n.ObjectMeta)
	return &model.Node{
		Name:      n.Name,
		Zone:      n.Labels[corev1.LabelTopologyZone],
		Addresses: append(nodeAddresses(&c, n, corev1.NodeInternalIP), nodeAddresses(&c, n, corev1.NodeExternalIP)...),
		PodCIDRs:  podCIDRs(&c, &n.Spec),
		Leaving: n.DeletionTimestamp != nil ||
			slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintToBeDeleted }),
	}, c.All()
}

// taintToBeDeleted is set by the cluster autoscaler before it removes a Node (10.10).
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

func nodeAddresses(c *Findings, n *corev1.Node, t corev1.NodeAddressType) (out []netip.Addr) {
	for i, in := range n.Status.Addresses {
		if in.Type == t {
			out = appendParsed(c, out, manifest.EntryOf("status.addresses", i).Of("address"), in.Address, ParseAddress)
		}
	}
	return out
}

// podCIDRs returns podCIDRs, or podCIDR where there is only that.
func podCIDRs(c *Findings, spec *corev1.NodeSpec) (out []netip.Prefix) {
	if len(spec.PodCIDRs) == 0 && spec.PodCIDR != "" {
		return appendParsed(c, out, manifest.FieldPath{Path: "spec.podCIDR"}, spec.PodCIDR, ParsePrefix)
	}
	for i, text := range spec.PodCIDRs {
		out = appendParsed(c, out, manifest.EntryOf("spec.podCIDRs", i), text, ParsePrefix)
	}
	return out
}

// ServiceCIDR converts a ServiceCIDR to its ranges. A range of length 0 is refused: free addresses in a ServiceCIDR
// are dropped (4.24), which would cut the node off.
func ServiceCIDR(s *networkingv1.ServiceCIDR) (out []netip.Prefix, _ []*manifest.FieldError) {
	var c Findings
	if !c.ObjectName(&s.ObjectMeta) {
		return nil, c.All()
	}
	c.unknownAnnotations(&s.ObjectMeta)
	for i, text := range s.Spec.CIDRs {
		out = appendParsed(&c, out, manifest.EntryOf("spec.cidrs", i), text, func(text string) (netip.Prefix, string) {
			p, problem := ParsePrefix(text)
			if problem == "" && p.Bits() == 0 {
				problem = "holds every address: use the range of the ClusterIPs"
			}
			return p, problem
		})
	}
	return out, c.All()
}
