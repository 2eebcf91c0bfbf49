package conntrack

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"golang.org/x/sys/unix"
)

// owner returns the frontend that r has for an address and port.
func owner(r *model.Routing) func(model.Frontend) (model.Frontend, bool) {
	return func(f model.Frontend) (model.Frontend, bool) {
		return f, slices.ContainsFunc(r.Routes, func(o model.Route) bool { return o.Frontend == f })
	}
}

// ofKind sets the kind of all frontends.
func ofKind(k model.Kind, r *model.Routing) *model.Routing {
	for i := range r.Routes {
		r.Routes[i].Kind = k
	}
	return r
}

// owners are [Rules] of a test.
type owners func(model.Frontend) (model.Frontend, bool)

func (o owners) Owner(f model.Frontend) (model.Frontend, bool) { return o(f) }

// 9.41: of a frontend that comes, the flows that are older than it are deleted, if they had no
// answer and would not continue as they are: all to a ClusterIP, whatever their port, and those to
// the ports of other addresses. Its cost: one listing of a family where a frontend comes, and none
// for any other change (9.43).
func TestEarlyFlows(t *testing.T) {
	const cluster, balancer, balancer2 = "10.96.0.1:80", "203.0.113.1:80", "203.0.113.2:80"
	var now *model.Routing
	k, log := &broken{}, &bytes.Buffer{}
	cleaner := &follower{Cleaner: newCleaner(k, log, Config{Rules: owners(func(f model.Frontend) (model.Frontend, bool) { return owner(now)(f) })})}
	early := func(p model.Protocol, to string) Flow {
		f := flow(p, to, to)
		f.Opening = p == model.TCP
		return f
	}
	answered, translated, open := early(model.UDP, "10.96.0.1:53"), early(model.TCP, cluster), early(model.TCP, cluster)
	answered.Answered, open.Opening = true, false
	translated.Answers = addrPort("10.0.0.9:80")
	k.flows = []Flow{
		early(model.TCP, cluster), early(model.UDP, cluster), early(model.SCTP, cluster), early(model.TCP, "10.96.0.1:81"), early(model.UDP, "10.96.0.1:53"),
		answered, translated, open,
		early(model.TCP, balancer), early(model.UDP, balancer), early(model.TCP, "203.0.113.1:81"), early(model.TCP, balancer2), early(model.TCP, "192.0.2.9:80"),
	}
	nodePorts := addr("192.0.2.1")
	step := func(what string, r *model.Routing, lists int, deleted ...Flow) {
		t.Helper()
		before := k.unanswered
		k.deleted, now = nil, r
		cleaner.follow(r)
		if k.unanswered-before != lists || !slices.Equal(k.deleted, deleted) {
			t.Errorf("%s: %d listings of unanswered flows, deleted %+v; want %d and %+v", what, k.unanswered-before, k.deleted, lists, deleted)
		}
	}
	step("nothing is served", &model.Routing{}, 0)
	none := func(frontends ...string) *model.Routing {
		return ofKind(model.LoadBalancerIP, routing("", frontends...))
	}
	step("a load balancer address comes", none(balancer), 1, k.flows[8], k.flows[9])
	step("nothing changes", none(balancer), 0)
	both := none(balancer)
	both.Routes = append(both.Routes, routing("", cluster).Routes...)
	step("a ClusterIP comes", both, 1, slices.Concat(k.flows[:5], k.flows[8:10])...)
	if got := log.String(); strings.Count(got, "older than their frontend") != 2 {
		t.Errorf("log:\n%s", got)
	}
	k.flows = nil
	both = routing("10.0.0.1:80", cluster)
	both.Routes = append(both.Routes, ofKind(model.LoadBalancerIP, routing("10.0.0.1:80", balancer)).Routes...)
	step("endpoints come", both, 0)
	step("a frontend goes", ofKind(model.LoadBalancerIP, routing("10.0.0.1:80", balancer)), 0)
	on := func(addresses ...netip.Addr) *model.Routing {
		r := ofKind(model.LoadBalancerIP, routing("10.0.0.1:80", balancer))
		r.NodePortAddresses = addresses
		return r
	}
	step("an address of NodePorts comes", on(nodePorts), 1)
	step("it goes", on(), 0)
}

// 9.10: a failed listing is repeated with the next change.
func TestEarlyFlowsAgain(t *testing.T) {
	r, log := routing("10.0.0.1:80", "10.96.0.1:80"), &bytes.Buffer{}
	k := &broken{listErr: unix.EPERM}
	cleaner := &follower{Cleaner: newCleaner(k, log, Config{Rules: owners(owner(r))})}
	cleaner.follow(r)
	before := k.unanswered
	if !strings.Contains(log.String(), "clients that began before a frontend came") {
		t.Errorf("log:\n%s", log)
	}
	k.listErr = nil
	cleaner.follow(r)
	cleaner.follow(r)
	if k.unanswered != before+1 {
		t.Errorf("%d listings, want one more than %d", k.unanswered, before)
	}
}

// The kernel leaves out entries that are answered or translated if it can, and no others, of
// both families.
func TestKernelFiltersUnanswered(t *testing.T) {
	x := newFixture(t, Config{})
	web := &service{number: 1, pods: x.Pods[:1], balancers: balancers(1)}
	x.sync(web)
	for _, f := range model.Families {
		x.open("udp", web.clusterIP(f))                                   // translated and answered
		x.open("udp", netip.AddrPortFrom(x.Pods[0].Address(f), echoPort)) // answered
		x.unanswered(balancer(f, 2))
		err := x.Node.Do(func() error {
			var got []Flow
			if err := (Netlink{}).ListUnanswered(f, func(f Flow) {
				if f.Protocol == model.UDP {
					got = append(got, f)
				}
			}); err != nil {
				return err
			}
			if len(got) != 1 || got[0].Dialled != balancer(f, 2) || got[0].Answered {
				t.Errorf("%s: %+v, want the one flow to %s", f, got, balancer(f, 2))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
