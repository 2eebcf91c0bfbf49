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

	fast   bool // connections take the fast path
	daemon *daemon

	mu          sync.Mutex
	gone        map[string]bool // pods that have left, and all flows have left them
	asked       int
	lost, stale []string
	slowest     time.Duration // answer
	// From the change of the endpoints until the rules have changed, until the entries of the last
	// datagrams are deleted, and to the last question to a pod that had left.
	ruled, deleted, last time.Duration
	moved, missed        int // flows of datagrams, and their questions without an answer
}

// 9.30, 9.32, 9.34: while pods come and go under load, no new request is lost, and no pod answers after the
// entries of its datagrams are deleted. Devices follow one by one, and those of other connections stay.
func TestFastPathChurn(t *testing.T) { runChurn(t, "all") }

func runChurn(t *testing.T, level string) *churn {
	c := newCluster(t, 2)
	c.flags = append([]string{"--fast-path=" + level}, c.flags...)
	c.nftLoad(forwardedOf(c.Client))
	u := &churn{cluster: c, web: service{Name: "web", N: 1, Pods: c.Pods}, lasting: c.Pods, fast: level != "off", gone: make(map[string]bool)}
	c.write(u.web)
	u.daemon = c.start()
	c.awaitServing(u.web)
	// A slow machine takes longer for a round than the kernel remembers datagrams.
	for _, name := range []string{"udp_timeout", "udp_timeout_stream"} {
		c.set("net.netfilter.nf_conntrack_"+name, "600")
	}
	kept := openFlowsFor(t, c.Client, u.web.clusterIP, answerTime)
	u.arePast(t, kept)
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
	u.arePast(t, kept)
	eventually(t, func() error {
		if list := c.nft("list", "flowtables"); u.fast && (strings.Contains(list, "came-") || !strings.Contains(list, "pod-0")) {
			return fmt.Errorf("the flow table has other devices than those that are there: %s", list)
		}
		return nil
	})
	fmt.Fprintf(t.Output(), "--fast-path=%s: %d requests while %d pods came and went, slowest answer %s; after a change, rules in %s, entries deleted in %s, "+
		"last question to a pod that had left after %s; %d of %d flows of datagrams lost an answer\n",
		level, u.asked, cameAndGone, u.slowest, u.ruled, u.deleted, u.last, u.missed, u.moved)
	if len(u.lost)+len(u.stale) > 0 || u.asked < cameAndGone {
		t.Errorf("of %d requests, %d were lost, and pods that had left answered %d:\n%s", u.asked, len(u.lost), len(u.stale),
			strings.Join(slices.Concat(u.lost, u.stale), "\n"))
	}
	return u
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
	u.arePast(t, flows)
	u.web.Pods = u.lasting
	log, began := len(u.daemon.log.String()), time.Now()
	u.replace(u.web)
	u.leave(t, flows, func() string { return u.daemon.log.String()[log:] }, began)
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

// arePast waits until most packets of flows do not pass the rules, if there is a fast path.
func (u *churn) arePast(t *testing.T, flows []flow) {
	t.Helper()
	if !u.fast {
		return
	}
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

// leave waits until datagrams go to pods that stay; TCP goes on. A pod that has left answers no question
// that comes after the entries are deleted: the flow table does not keep a flow without its entry until it
// looks for those, every second. An answer that is on its way when its entry is deleted has no way
// back, but the next question of this flow has one.
func (u *churn) leave(t *testing.T, flows []flow, log func() string, began time.Time) {
	t.Helper()
	var last time.Duration
	for i := range flows {
		f := &flows[i]
		if f.network == "tcp" {
			f.goesOn(t, "its pod leaves")
			continue
		}
		u.moved++
		missed := 0
		netlab.Eventually(t, startTime, func() error {
			asked, deleted := time.Since(began), !at(log(), deletedOf(f.family)).IsZero()
			got, err := f.Ask()
			switch {
			case err != nil:
				if missed++; missed > 1 {
					t.Errorf("udp %s: %d questions were lost when %s left: %v", f.family, missed, f.peer, err)
				}
			case got.Name == f.peer && deleted:
				t.Errorf("udp %s: %s answers after its entries are deleted", f.family, f.peer)
			case got.Name == f.peer:
				last = max(last, asked)
				err = fmt.Errorf("udp %s: %s still answers", f.family, f.peer)
			}
			return err
		})
		u.missed += missed
	}
	u.last = max(u.last, last)
	u.ruled = max(u.ruled, at(log(), "rules applied").Sub(began))
	for _, family := range model.Families {
		u.deleted = max(u.deleted, at(log(), deletedOf(family)).Sub(began))
	}
}

// deletedOf returns a part of the line of the log that says that entries of datagrams are deleted.
func deletedOf(f model.Family) string {
	return fmt.Sprintf(`"deleted stale conntrack entries" family=%s protocol=udp`, f)
}

// at returns the time of the first line of a log that has a text; zero: none has.
func at(log, text string) (when time.Time) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, text) {
			stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
			when, _ = time.Parse(time.RFC3339Nano, stamp)
			return when
		}
	}
	return when
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
	u.unplug(t, pod.Name)
	if err := pod.Close(); err != nil {
		t.Error(err)
	}
}

// unplug removes a device of a pod.
func (c *cluster) unplug(t *testing.T, name string) {
	t.Helper()
	err := c.Node.Do(func() error { return netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}}) })
	if err != nil {
		t.Fatal(err)
	}
}
