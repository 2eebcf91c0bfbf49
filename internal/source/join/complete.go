package join

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// completeState returns a Service of the files with the endpoints that it takes from one of the cluster.
func completeState(s model.ServiceState, ofCluster func(model.ServiceName) model.ServiceState) model.ServiceState {
	if from := s.Service.Extra().EndpointsFrom; from != nil {
		s.Slices = completeSlices(s, *from, ofCluster(*from).Slices)
	}
	return s
}

// completeSlices returns the slices of a Service of the files, and the slices of the Service from
// of the cluster, without addresses that the files have (14.23).
func completeSlices(s model.ServiceState, from model.ServiceName, more []*model.EndpointSlice) []*model.EndpointSlice {
	given := make(map[netip.Addr]struct{})
	for _, own := range s.Slices {
		for i := range own.Hosts {
			given[own.Hosts[i].Address] = struct{}{}
		}
	}
	out := slices.Clone(s.Slices)
	for _, m := range more {
		added := &model.EndpointSlice{
			Namespace: s.Service.Name.Namespace, Service: s.Service.Name.Name, Family: m.Family,
			Name:  from.String() + "/" + m.Name, // no EndpointSlice can have this name
			Ports: portsOf(s, m),
			Hosts: slices.DeleteFunc(slices.Clone(m.Hosts), func(h model.Host) bool {
				_, known := given[h.Address]
				return known
			}),
		}
		if len(added.Hosts) > 0 {
			out = append(out, added)
		}
	}
	return out
}

// portsOf returns the ports at which endpoints of the cluster are reached: the ones that
// the files give for their own, or without any, the ports of the cluster's slice. A Service
// with one port need not have the name of the slice's only one.
func portsOf(s model.ServiceState, m *model.EndpointSlice) []model.EndpointPort {
	for _, sameFamily := range []bool{true, false} {
		for _, own := range s.Slices {
			if len(own.Ports) > 0 && (!sameFamily || own.Family == m.Family) {
				return own.Ports
			}
		}
	}
	if len(s.Service.Ports) == 1 && len(m.Ports) == 1 && s.Service.Ports[0].Protocol == m.Ports[0].Protocol {
		only := m.Ports[0]
		only.Name = s.Service.Ports[0].Name
		return []model.EndpointPort{only}
	}
	return m.Ports
}
