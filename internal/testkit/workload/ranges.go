package workload

import "github.com/nftproxy/nftproxy/internal/model"

// PortRange returns a range of ports as the annotation makes it.
func PortRange(p model.Protocol, first, last, target uint16) model.PortRange {
	r := model.PortRange{ServicePort: model.ServicePort{Protocol: p, Port: first}, Last: last, Target: target}
	r.Name = r.String()
	return r
}

// portRanges returns some of several lists of ranges, none in half of the cases. Ranges
// of different lists contain each other, or overlap.
func portRanges(choice int) []model.PortRange {
	const all = model.AllPorts
	udp, tcp := model.UDP, model.TCP
	lists := [][]model.PortRange{
		{PortRange(udp, 1000, 1999, 0)}, {PortRange(udp, 1000, 2999, 0)}, {PortRange(udp, 500, 1500, 8080)},
		{PortRange(udp, 1000, 1499, 0), PortRange(udp, 1500, 1999, 7), PortRange(tcp, 79, 81, 8080)},
		{PortRange(tcp, 1, all, 0)}, {PortRange(udp, 1, all, 5), PortRange(tcp, 29999, 30001, 0)},
		{PortRange(tcp, 1, all, 0), PortRange(udp, 1, all, 0), PortRange(model.SCTP, 1, all, 0)}, {PortRange(udp, 1000, 1999, 8080)},
	}
	if choice %= 2 * len(lists); choice < len(lists) {
		return nil
	}
	return lists[choice-len(lists)]
}
