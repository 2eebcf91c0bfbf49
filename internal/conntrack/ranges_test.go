package conntrack

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// 4.50: a client of a range moves off an endpoint that is gone, and when its port gets a
// frontend of its own or loses that; nothing is listed when nothing has changed, and the
// flow to another port stays.
func TestClientOfRangeMoves(t *testing.T) {
	x := newFixture(t, Config{})
	for _, pod := range x.Pods[:2] {
		x.echo(pod, 8100)
		x.echo(pod, 8200)
	}
	inRange := model.PortRange{ServicePort: model.ServicePort{Name: "8100-8200/udp", Protocol: model.UDP, Port: 8100}, Last: 8200}
	media := &service{number: 1, pods: x.Pods[:1], balancers: balancers(1), ranges: []model.PortRange{inRange}}
	x.sync(media)
	for _, f := range model.Families {
		media.pods = x.Pods[:1]
		x.sync(media)
		clusterIP := netip.AddrPortFrom(media.clusterIP(f).Addr(), 8100)
		balanced := netip.AddrPortFrom(balancer(f, 1).Addr(), 8200)
		first, last := x.open("udp", clusterIP), x.open("udp", balanced)
		x.sync(media)
		if x.lists != 0 {
			t.Errorf("%d listings though nothing has changed", x.lists)
		}

		media.pods = x.Pods[1:2]
		x.sync(media)
		x.answersFrom(first, x.Pods[1], "first port of the range, other endpoint")
		x.answersFrom(last, x.Pods[1], "last port of the range, other endpoint")

		own := &service{number: 2, pods: x.Pods[:1], balancers: balancers(2), ranges: []model.PortRange{{
			ServicePort: model.ServicePort{Name: "8200/udp", Protocol: model.UDP, Port: 8200}}}}
		own.balancers = media.balancers
		own.only = []model.Protocol{}
		x.sync(media, own)
		x.answersFrom(last, x.Pods[0], "the port has a frontend of its own")
		x.answersFrom(first, x.Pods[1], "another port")
		x.sync(media)
		x.answersFrom(last, x.Pods[1], "the port is in the range again")

		media.ranges[0].Last = 8150
		x.sync(media)
		if got, ok := x.flowTo(model.UDP, balanced); ok || x.deleted == 0 {
			t.Errorf("%d flows deleted after the range has shrunk, there is still %+v", x.deleted, got)
		}
		x.answersFrom(first, x.Pods[1], "a port that is still in the range")
		media.ranges[0].Last = 8200
	}
}
