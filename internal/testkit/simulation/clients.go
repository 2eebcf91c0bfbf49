package simulation

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// meet lets packets of clients arrive.
func (r *run) meet(k Kind, dice *rand.Rand) {
	if k == Bind {
		r.bind(dice)
		return
	}
	w := r.newest()
	var frontends []model.Frontend
	for route := range w.router.Each {
		if f := route.Frontend; f.Protocol == model.UDP && f.Address.IsValid() && !f.IsRange() && !f.Address.IsUnspecified() {
			frontends = append(frontends, f)
		}
	}
	slices.SortFunc(frontends, func(a, b model.Frontend) int { return strings.Compare(a.String(), b.String()) })
	for range min(3, len(frontends)) {
		f := frontends[dice.IntN(len(frontends))]
		client := netip.AddrFrom4([4]byte{203, 0, 113, byte(100 + dice.IntN(100))})
		if f.Address.Is6() {
			client = netip.MustParseAddr(fmt.Sprintf("2001:db8:9::%x", 1+dice.IntN(100)))
		}
		r.send(f, client, dice)
	}
}

// send follows a packet of UDP through the rules, and notes the flow that it leaves.
func (r *run) send(f model.Frontend, client netip.Addr, dice *rand.Rand) {
	r.Tables.mu.Lock()
	m := bytecode.Machine{Rules: &r.Tables.rules, Local: r.addresses, Out: "eth0"}
	results := m.Follow(bytecode.Packet{Protocol: uint8(model.UDP), Source: client, SourcePort: 40000, Destination: f.Address, Port: f.Port, In: "eth0"})
	r.Tables.mu.Unlock()
	bytecode.Sort(results)
	if got := results[dice.IntN(len(results))]; got.Verdict == bytecode.Pass && !got.Redirected {
		r.Flows.Open(client, netip.AddrPortFrom(f.Address, f.Port), got.To)
	}
}

// bind binds a client to an endpoint that a frontend with affinity has, as packets do.
func (r *run) bind(dice *rand.Rand) {
	r.Tables.mu.Lock()
	defer r.Tables.mu.Unlock()
	for _, t := range r.Tables.current.Tables {
		for s := range bindingsOf(t) {
			endpoints := t.Set(nft.EndpointsOf(s.Name))
			if s.Name == nft.SharedAffinityMap || endpoints == nil || len(endpoints.Elements) == 0 {
				continue
			}
			e := endpoints.Elements[dice.IntN(len(endpoints.Elements))]
			value := nft.Value{Endpoint: netip.AddrPortFrom(e.Key.Source, uint16(e.Key.Slot))}
			e.Key.Source, e.Key.Slot = netip.AddrFrom4([4]byte{203, 0, 113, byte(dice.IntN(100))}), 0
			if e.Key.Address.Is6() {
				e.Key.Source = netip.MustParseAddr(fmt.Sprintf("2001:db8:9::%x", 1+dice.IntN(100)))
			}
			if !slices.ContainsFunc(s.Elements, func(o nft.Element) bool { return o.Key == e.Key }) {
				s.Elements = append(s.Elements, nft.Element{Key: e.Key, Value: value})
				s.Sort()
			}
		}
	}
}

// interrupt interrupts the next listing of connection tracking, while the endpoint of a client leaves. The listing is
// repeated: the client need not wait for the next change.
func (r *run) interrupt(dice *rand.Rand) error {
	client, service := r.drawFlow(dice)
	if service < 0 {
		return nil
	}
	calm := r.isCalm()
	r.Flows.interrupt()
	r.world.roll(dice.Uint64(), service, client.Answers.Addr())
	r.note(service)
	if r.publish(); !calm {
		return nil
	}
	pass(time.Second)
	return checkFlows(r.Flows, r.newest())
}

// drawFlow returns a flow that an interrupted listing leaves out, with the number of its Service; -1: there is none.
func (r *run) drawFlow(dice *rand.Rand) (conntrack.Flow, int) {
	all := r.Flows.list()
	if all = all[len(all)/2:]; len(all) == 0 {
		return conntrack.Flow{}, -1
	}
	f := all[dice.IntN(len(all))]
	route := r.newest().router.Serves(model.Frontend{Address: f.Dialled.Addr(), Protocol: f.Protocol, Port: f.Dialled.Port()})
	if route == nil {
		return f, -1
	}
	return f, slices.IndexFunc(serviceNames, func(n model.ServiceName) bool { return n == route.Service.Name })
}
