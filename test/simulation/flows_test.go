package simulation

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/simulation"
)

// rules translate four addresses of each family, to endpoints on this machine, and track the rest.
const rules = `
table inet test {
	chain output {
		type nat hook output priority -100;
		udp dport 53 dnat ip to ip daddr map { 10.96.0.0 : 127.128.0.0, 10.96.0.1 : 127.128.0.1, 10.96.0.2 : 127.128.0.2, 10.96.0.3 : 127.128.0.3 }
		udp dport 53 dnat ip6 to ip6 daddr map { fd00:10:96:: : fd00:10:128::, fd00:10:96::1 : fd00:10:128::1, fd00:10:96::2 : fd00:10:128::2, fd00:10:96::3 : fd00:10:128::3 }
	}
}`

// clientPort is the port from which the flows of the model come.
const clientPort = 40000

// pairOfFlows is connection tracking of a network namespace and its model.
type pairOfFlows struct {
	t     *testing.T
	ns    *netlab.Namespace
	flows *simulation.Flows
	model conntrack.Kernel
}

// TestFlows: the model of connection tracking lists what the kernel lists, and deletes what it deletes.
func TestFlows(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPairOfFlows(t)
			dice := rand.New(rand.NewPCG(seed, 2))
			for range 30 {
				f := model.Families[dice.IntN(2)]
				if dice.IntN(3) > 0 {
					p.send(f, dice.IntN(5), 1+dice.IntN(5))
				} else {
					p.delete(f, dice)
				}
				p.compare()
			}
		})
	}
}

func newPairOfFlows(t *testing.T) *pairOfFlows {
	t.Helper()
	p := &pairOfFlows{t: t, ns: netlab.TestNamespace(t), flows: &simulation.Flows{}}
	p.model = p.flows.Of(func() bool { return false })
	p.ns.TestScript(t, `ip link set lo up
		ip route add local 10.96.0.0/24 dev lo
		for a in 0 1 2 3; do ip addr add fd00:10:128::$a/128 dev lo nodad; done
		for a in 1 2 3 4 5; do ip addr add fd00:9::$a/128 dev lo nodad; done
		for a in 0 1 2 3 4; do ip addr add fd00:10:96::$a/128 dev lo nodad; done
		echo "$1" | nft -f -`, rules)
	for _, f := range model.Families {
		for n := range 4 {
			p.answer(endpoint(f, n))
		}
	}
	return p
}

// answer answers datagrams to an endpoint.
func (p *pairOfFlows) answer(at netip.AddrPort) {
	p.t.Helper()
	c, err := p.ns.ListenPacket("udp", at.String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	go func() {
		buffer := make([]byte, 16)
		for {
			_, from, err := c.ReadFrom(buffer)
			if err != nil {
				return // closed
			}
			_, _ = c.WriteTo([]byte("answer"), from) // the test waits for it
		}
	}()
}

// frontend is what clients dial; the last one is not translated.
func frontend(f model.Family, n int) netip.AddrPort {
	if f == model.IPv6 {
		return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%d", n)), 53)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(n)}), 53)
}

func endpoint(f model.Family, n int) netip.AddrPort {
	if f == model.IPv6 {
		return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("fd00:10:128::%d", n)), 53)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 128, 0, byte(n)}), 53)
}

// send sends a datagram of a client, and waits for the answer if there is an endpoint.
func (p *pairOfFlows) send(f model.Family, n, client int) {
	p.t.Helper()
	from := netip.AddrFrom4([4]byte{127, 0, 1, byte(client)})
	if f == model.IPv6 {
		from = netip.MustParseAddr(fmt.Sprintf("fd00:9::%d", client))
	}
	to, answers := frontend(f, n), endpoint(f, n)
	if n == 4 {
		answers = to
	}
	p.flows.Open(from, to, answers)
	if err := p.ns.Do(func() error { return exchange(from, to, answers != to) }); err != nil {
		p.t.Fatalf("%s to %s: %v", from, to, err)
	}
}

func exchange(from netip.Addr, to netip.AddrPort, answered bool) error {
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, clientPort))}
	c, err := d.DialContext(context.Background(), "udp", to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("question")); err != nil || !answered {
		return err
	}
	_, err = c.Read(make([]byte, 16))
	return err
}

// delete deletes some of the flows of a family from both.
func (p *pairOfFlows) delete(f model.Family, dice *rand.Rand) {
	p.t.Helper()
	held, modelled := p.list(f)
	if len(held) == 0 || len(held) != len(modelled) {
		return
	}
	at := dice.IntN(len(held))
	for range 2 { // the second time, they are gone
		var n int
		err := p.ns.Do(func() (err error) { n, err = conntrack.Netlink{}.Delete(held[at:]); return err })
		modelN, modelErr := p.model.Delete(modelled[at:])
		if err != nil || modelErr != nil || n != modelN {
			p.t.Fatalf("the kernel deletes %d (%v), its model %d (%v)", n, err, modelN, modelErr)
		}
	}
}

// list lists flows to our frontends in both, in the same order.
func (p *pairOfFlows) list(f model.Family) (held, modelled []conntrack.Flow) {
	p.t.Helper()
	err := p.ns.Do(func() error {
		return conntrack.Netlink{}.List(f, model.UDP, func(o conntrack.Flow) { held = append(held, o) })
	})
	modelErr := p.model.List(f, model.UDP, func(o conntrack.Flow) { modelled = append(modelled, o) })
	if err != nil || modelErr != nil {
		p.t.Fatal(err, modelErr)
	}
	for _, all := range []*[]conntrack.Flow{&held, &modelled} {
		slices.SortFunc(*all, func(a, b conntrack.Flow) int { return cmp.Or(a.Client.Compare(b.Client), a.Dialled.Compare(b.Dialled)) })
	}
	return held, modelled
}

// compare waits until both list the same, except for numbers of flows: an answer arrives a moment later.
func (p *pairOfFlows) compare() {
	p.t.Helper()
	await.Until(p.t, func() error {
		for _, f := range model.Families {
			held, modelled := p.list(f)
			same := slices.EqualFunc(held, modelled, func(a, b conntrack.Flow) bool { a.ID, b.ID = 0, 0; return a == b })
			if !same {
				return fmt.Errorf("%s: the kernel has %v, its model %v", f, held, modelled)
			}
			var unanswered, modelUnanswered int
			count := func(n *int) func(conntrack.Flow) {
				return func(o conntrack.Flow) {
					if !o.Answered && o.Protocol == model.UDP {
						*n++
					}
				}
			}
			err := p.ns.Do(func() error { return conntrack.Netlink{}.ListUnanswered(f, count(&unanswered)) })
			if modelErr := p.model.ListUnanswered(f, count(&modelUnanswered)); err != nil || modelErr != nil {
				return fmt.Errorf("list unanswered: the kernel: %v, its model: %v", err, modelErr)
			}
			if unanswered != modelUnanswered {
				return fmt.Errorf("%s: the kernel lists %d unanswered, its model %d", f, unanswered, modelUnanswered)
			}
		}
		return nil
	})
}
