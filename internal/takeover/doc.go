// Package takeover removes what kube-proxy left on a node, in whichever mode
// it ran: nftables tables, iptables chains, and the interface and ipsets of
// IPVS. What belongs to the kubelet or to anybody else stays.
//
// It is made for a node whose own rules are active. A connection is translated
// by the first NAT rule that wants it, and later rules do not see it any more,
// so that the rules of both may be there for a while; where both are at the
// same priority, the kernel asks those that came last.
package takeover
