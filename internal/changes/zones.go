package changes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// describeZones says where connections go when the zone floor of a Service gets another effect: by its
// value, or by the endpoints that the zone has. A change of both families is described once.
func (s *subject) describeZones() (out []Detail) {
	if s.edits.nodeAfter == nil { // only rules are compared
		return nil
	}
	type place struct {
		port   model.PortName
		family model.Family
	}
	var seen []place
	for _, p := range s.stays {
		at := place{p.after.Port, model.FamilyOf(p.after.Address)}
		if p.after.InternalPolicy != model.PolicyCluster && p.after.ExternalPolicy != model.PolicyCluster || slices.Contains(seen, at) {
			continue
		}
		seen = append(seen, at)
		before := zoneRule(s.edits.before[s.name], p.before.Port, at.family, s.edits.nodeBefore)
		after := zoneRule(s.edits.after[s.name], at.port, at.family, s.edits.nodeAfter)
		if before.Effect() == after.Effect() {
			continue
		}
		text := "zones no longer decide"
		if after != nil {
			text = after.String()
		}
		out = addNew(out, Detail{Kind: Kind(setting.ZoneFloor.Kind), Old: before.Effect(), New: after.Effect(), Text: s.portPrefix(at.port) + text})
	}
	return out
}

// zoneRule returns how the zone floor of a Service applies to one of its ports on a node, or
// nil.
func zoneRule(of model.ServiceState, port model.PortName, f model.Family, node *model.Node) *model.ZoneRule {
	if of.Service == nil || of.Service.Extra().ZoneFloor == 0 {
		return nil
	}
	return model.NewSelection(of.Service, model.Endpoints(port, f, of.Slices), node, model.PolicyCluster).Zone()
}

// describeZones describes endpoints that are in another zone.
func (c standingChange) describeZones() []Detail {
	var list []string
	for _, a := range c.allAddresses() {
		was, had := c.before[a]
		if is, has := c.after[a]; had && has && was.zone != is.zone {
			list = append(list, fmt.Sprintf("%s: %s → %s", model.EndpointText(a), cmp.Or(was.zone, "none"), cmp.Or(is.zone, "none")))
		}
	}
	if len(list) == 0 {
		return nil
	}
	return []Detail{{Kind: Kind(setting.ZoneFloor.Kind), Text: "zone of " + joinFew(list), Added: list}}
}
