package explain

import "fmt"

// Sets whose names tell why a packet is refused or dropped; render fills them.
const (
	setServices      = "services"
	setLocalServices = "local-services"
	setClusterIPs    = "cluster-ips"
	setServiceCIDRs  = "service-cidrs"
	setFirewalled    = "firewalled"
)

// reasons are the verdicts that follow from an element of a set.
var reasons = []struct {
	set     string
	verdict Verdict
	reason  string
}{
	{setServices, Reject, "no endpoint of the Service can take connections"},
	{setServices, Drop, "the Service wants endpoints of this node, which has none"},
	{setLocalServices, Drop, "the Service wants endpoints of this node for clients outside of the cluster, and there is none"},
	{setServices, NotOurs, "the slot has no endpoint"},
	{setLocalServices, NotOurs, "the slot has no endpoint"},
	{setClusterIPs, Reject, "the ClusterIP has no such port"},
	{setServiceCIDRs, Drop, "no Service has this address of a service CIDR"},
	{setFirewalled, Drop, "the source is in none of the ranges that the Service admits"},
}

// reason tells why an outcome is not Forward: by the last set in which the
// packet was found, if that one is ours.
func reason(o *Outcome) string {
	if o.Reason != "" || o.Verdict == Forward {
		return o.Reason
	}
	last := ""
	for _, s := range o.Path {
		if len(s.sets) > 0 {
			last = s.sets[len(s.sets)-1]
		}
	}
	for _, known := range reasons {
		if known.set == last && known.verdict == o.Verdict {
			return known.reason
		}
	}
	if o.Verdict == NotOurs {
		return "no rule concerns it"
	}
	return fmt.Sprintf("by the rule %q", o.Path[len(o.Path)-1].Rule)
}

// treatedAsOutside tells whether the packet counts as one of a client outside
// of the cluster, where that makes a difference.
func (r *Result) treatedAsOutside() bool { return r.met(setLocalServices) }
