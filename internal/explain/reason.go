package explain

import (
	"fmt"

	"github.com/nftproxy/nftproxy/internal/nft"
)

// reasons explain a disposition by the set that led to it.
var reasons = []struct {
	set     string
	verdict Disposition
	reason  string
}{
	{nft.ServicesMap, Reject, "no endpoint of the Service can take connections"},
	{nft.ServicesMap, Drop, "the Service wants endpoints of this node, which has none"},
	{nft.LocalServicesMap, Drop, "the Service wants endpoints of this node for clients outside of the cluster, and there is none"},
	{nft.ServicesMap, NotOurs, "the slot has no endpoint"},
	{nft.LocalServicesMap, NotOurs, "the slot has no endpoint"},
	{nft.ClusterIPsSet, Reject, "the ClusterIP has no such port"},
	{nft.ServiceCIDRsSet, Drop, "no Service has this address of a service CIDR"},
	{nft.FirewalledSet, Drop, "the source is in none of the ranges that the Service admits"},
}

// reason returns why an outcome is not Forward. It depends on the last set in which
// the packet was found.
func reason(o *Outcome) string {
	if o.Reason != "" || o.Verdict == Forward {
		return o.Reason
	}
	if o.Stale {
		return "the endpoint to which the client was bound has left the Service; its next packet gets another one"
	}
	last, served := "", false
	for _, s := range o.Path {
		if len(s.sets) > 0 {
			last = s.sets[len(s.sets)-1]
			served = served || last == nft.ServicesMap
		}
	}
	if last == nft.ClusterIPsSet && served { // fell out of its lane
		return "the slot has no endpoint"
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

// treatedAsOutside reports whether rules for clients outside of the cluster applied.
func (r *Result) treatedAsOutside() bool { return r.met(nft.LocalServicesMap) }
