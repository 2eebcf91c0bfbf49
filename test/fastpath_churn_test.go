//go:build guest

package test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// Pods that come and go in a test, and how many of them at once.
const cameAndGone, atOnce = 100, 10

// forwardedOf counts as forwarded does, packets of one client only: others make load.
func forwardedOf(client *netlab.Host) string {
	var rules strings.Builder
	for _, family := range []string{"ip", "ip6"} {
		for _, end := range []string{"saddr", "daddr"} {
			a := client.IPv4
			if family == "ip6" {
				a = client.IPv6
			}
			fmt.Fprintf(&rules, "%s %s %s counter name forwarded\n", family, end, a)
		}
	}
	return "table inet seen { counter forwarded { }\nchain forward { type filter hook forward priority mangle\n" + rules.String() + "}\n}"
}

// churn is a Service with load, whose pods come and go.
type churn struct {
	*cluster
	web     service
	lasting []*netlab.Host

	mu          sync.Mutex
	gone        map[string]bool // pods that have left, and all flows have left them
	asked       int
	lost, stale []string
	slowest     time.Duration // answer
	last        time.Duration // from the change of the endpoints to the last answer of one that had left
}

// 9.30, 9.32, 9.34: while pods come and go under load, no new request is lost, and no pod that has left answers a second
// later. Devices follow one by one, and those of other connections stay.
func TestFastPathChurn(t *testing.T) {
	c := newCluster(t, 2)
	c.flags = append([]string{"--fast-path=all"}, c.flags...)
	c.nftLoad(forwardedOf(c.Client))
	u := &churn{cluster: c, web: service{Name: "web", N: 1, Pods: c.Pods}, lasting: c.Pods, gone: make(map[string]bool)}
	c.write(u.web)
	c.startServing(u.web)
	// A slow machine takes longer for a round than the kernel remembers datagrams.
	for _, name := range []string{"udp_timeout", "udp_timeout_stream"} {
		c.set("net.netfilter.nf_conntrack_"+name, "600")
	}
	kept := openFlowsFor(t, c.Client, u.web.clusterIP, answerTime)
	for _, f := range kept {
		c.isFast(t, f)
	}
	crowd, err := c.Client.Alias(netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8:9::9"))
	if err != nil {
		t.Fatal(err)
	}
	stop := u.load(crowd)
	defer stop()
	for first := 0; first < cameAndGone; first += atOnce {
		u.round(t, first)
		for _, f := range kept {
			f.goesOn(t, "pods come and go")
		}
	}
	stop()
	for _, f := range kept {
		c.isFast(t, f)
	}
	eventually(t, func() error {
		if list := c.nft("list", "flowtables"); strings.Contains(list, "came-") || !strings.Contains(list, "pod-0") {
			return fmt.Errorf("the flow table has other devices than those that are there: %s", list)
		}
		return nil
	})
	fmt.Fprintf(t.Output(), "%d requests while %d pods came and went; slowest answer %s, last answer of a pod that had left after %s\n",
		u.asked, cameAndGone, u.slowest, u.last)
	if len(u.lost)+len(u.stale) > 0 || u.asked < cameAndGone {
		t.Errorf("of %d requests, %d were lost, and pods that had left answered %d:\n%s", u.asked, len(u.lost), len(u.stale),
			strings.Join(slices.Concat(u.lost, u.stale), "\n"))
	}
}

// load opens new connections over both families and protocols, one after the other.
func (u *churn) load(from *netlab.Host) (stop func()) {
	ended, all := make(chan struct{}), sync.WaitGroup{}
	all.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			default:
			}
			network, family := []string{"tcp", "udp"}[i%2], model.Families[i/2%2]
			u.ask(network, family, func() (netlab.Answer, error) { return from.Ask(network, u.web.clusterIP(family), answerTime) })
		}
	})
	return sync.OnceFunc(func() { close(ended); all.Wait() })
}

// ask counts a request, and whether it was lost or answered by a pod that had left before.
func (u *churn) ask(network string, family model.Family, ask func() (netlab.Answer, error)) (netlab.Answer, error) {
	u.mu.Lock()
	gone := maps.Clone(u.gone)
	u.mu.Unlock()
	began := time.Now()
	got, err := ask()
	took := time.Since(began)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked++
	if err == nil {
		u.slowest = max(u.slowest, took)
	}
	switch {
	case err != nil:
		u.lost = append(u.lost, fmt.Sprintf("%s %s: %v", network, family, err))
	case gone[got.Name]:
		u.stale = append(u.stale, fmt.Sprintf("%s %s: answered by %s", network, family, got.Name))
	}
	return got, err
}

// round adds pods, moves connections to them to the fast path, and removes them.
func (u *churn) round(t *testing.T, first int) {
	t.Helper()
	var pods []*netlab.Host
	var echoes []*netlab.Echo
	for i := range atOnce {
		pod, echo := u.add(t, first+i)
		pods, echoes = append(pods, pod), append(echoes, echo)
	}
	u.web.Pods = slices.Concat(u.lasting, pods)
	u.replace(u.web)
	flows := u.reach(t, pods)
	u.areFast(t, flows)
	u.web.Pods = u.lasting
	began := time.Now()
	u.replace(u.web)
	u.leave(t, flows, began)
	u.settle(t, pods)
	for _, f := range flows {
		f.Close()
	}
	for i, pod := range pods {
		u.end(t, pod, echoes[i])
	}
}

// add adds a pod of the node, with a server.
func (u *churn) add(t *testing.T, n int) (*netlab.Host, *netlab.Echo) {
	t.Helper()
	v4 := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128, byte(100 + n), 0}), 24)
	v6 := netip.MustParsePrefix(fmt.Sprintf("fd00:10:128:%x::/64", 100+n))
	pod, err := u.Node.AddPod(fmt.Sprintf("came-%d", n), v4, v6)
	if err != nil {
		t.Fatal(err)
	}
	echo, err := pod.Echo(echoPort)
	if err != nil {
		t.Fatal(err)
	}
	return pod, echo
}

// reach opens flows until each of the pods has one of each protocol.
func (u *churn) reach(t *testing.T, pods []*netlab.Host) (flows []flow) {
	t.Helper()
	missing := make(map[string]bool)
	for _, p := range pods {
		missing[p.Name+" tcp"], missing[p.Name+" udp"] = true, true
	}
	n := 0
	netlab.Eventually(t, startTime, func() error {
		network, family := []string{"tcp", "udp"}[n%2], model.Families[n/2%2]
		n++
		f, err := u.Client.Open(network, u.web.clusterIP(family), answerTime)
		if err != nil {
			return err
		}
		got, err := u.ask(network, family, f.Ask)
		if key := got.Name + " " + network; err != nil || !missing[key] {
			f.Close()
		} else {
			delete(missing, key)
			flows = append(flows, flow{f, network, family, got.Name})
		}
		if len(missing) > 0 {
			return fmt.Errorf("no flow to %d of them: %v", len(missing), missing)
		}
		return nil
	})
	return flows
}

// areFast waits until most packets of flows do not pass the rules.
func (u *churn) areFast(t *testing.T, flows []flow) {
	t.Helper()
	netlab.Eventually(t, startTime, func() error {
		before := u.packets(t)
		for range 2 {
			for _, f := range flows {
				if got, err := u.ask(f.network, f.family, f.Ask); err != nil || got.Name != f.peer {
					return fmt.Errorf("%s %s: got %v, %v, want an answer of %s", f.network, f.family, got, err, f.peer)
				}
			}
		}
		if n := u.packets(t) - before; n > len(flows)/2 { // of four times as many
			return fmt.Errorf("%d packets of %d flows passed the hook forward", n, len(flows))
		}
		return nil
	})
}

// leave waits until datagrams go to pods that stay; TCP goes on. A question that is on its way when the
// kernel forgets its flow may get no answer, but no second one of this flow.
func (u *churn) leave(t *testing.T, flows []flow, began time.Time) {
	t.Helper()
	var last time.Duration
	for i := range flows {
		f := &flows[i]
		if f.network == "tcp" {
			f.goesOn(t, "its pod leaves")
			continue
		}
		missed := 0
		netlab.Eventually(t, startTime, func() error {
			asked := time.Since(began)
			got, err := f.Ask()
			if err != nil {
				if missed++; missed > 1 {
					t.Errorf("udp %s: %d questions were lost when %s left: %v", f.family, missed, f.peer, err)
				}
			} else if got.Name == f.peer {
				last = max(last, asked)
				err = fmt.Errorf("udp %s: %s still answers", f.family, f.peer)
			}
			return err
		})
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = max(u.last, last)
	// On a machine that is busy with other things, everything takes longer.
	if most := max(time.Second, 20*u.slowest); last > most {
		t.Errorf("a pod answers %s after it has left, want %s at most", last, most)
	}
}

// settle counts answers of pods as stale from now on, and waits for the requests that began before.
func (u *churn) settle(t *testing.T, pods []*netlab.Host) {
	t.Helper()
	u.mu.Lock()
	for _, p := range pods {
		u.gone[p.Name] = true
	}
	before := u.asked
	u.mu.Unlock()
	eventually(t, func() error {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.asked < before+2 {
			return fmt.Errorf("%d requests more", u.asked-before)
		}
		return nil
	})
}

// end ends a pod, with its device.
func (u *churn) end(t *testing.T, pod *netlab.Host, echo *netlab.Echo) {
	t.Helper()
	if err := echo.Close(); err != nil {
		t.Error(err)
	}
	err := u.Node.Do(func() error { return netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: pod.Name}}) })
	if err != nil {
		t.Error(err)
	}
	if err := pod.Close(); err != nil {
		t.Error(err)
	}
}
