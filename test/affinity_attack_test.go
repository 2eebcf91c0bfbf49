package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	attackPort  = 11000 // of the first forger
	attackedPod = 4     // the first ones have session affinity
	// attackProbes is how many of the bound clients are looked at in a round.
	attackProbes = 1000
	// fillRate is how many clients a second fill the map. More would fill connection
	// tracking too.
	fillRate = 40_000
	// probeRate is how many of them send in a second, all to one pod.
	probeRate = 2000
	// attackPatience is how long an answer may take that is not lost.
	attackPatience = 3 * time.Second
)

// attackSize is how large an attack is.
type attackSize struct {
	bindings int // the size of the affinity map
	rate     int // new clients a second
	rounds   int // changes of each kind
	measured bool
}

// attackFromEnvironment returns what AFFINITY_CLIENTS and AFFINITY_RATE say; without
// them an attack takes a few seconds.
func attackFromEnvironment(t *testing.T) attackSize {
	t.Helper()
	// A sweep does not release all clients of an endpoint that leaves a map of this
	// size: others come with their binding.
	s := attackSize{bindings: 40_000, rate: 4000, rounds: 2}
	text := os.Getenv("AFFINITY_CLIENTS")
	if text == "" {
		return s
	}
	s.rate, s.rounds, s.measured = 20_000, 10, true
	for name, into := range map[string]*int{"AFFINITY_CLIENTS": &s.bindings, "AFFINITY_RATE": &s.rate} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1000 || n > 1_300_000 { // of which there are forged addresses
				t.Fatalf("%s is %q: set a number from 1000 to 1300000", name, text)
			}
			*into = n
		}
	}
	return s
}

// 5.6, 5.8, 5.12: an attacker binds clients with forged addresses until the map
// is full, and goes on. Clients that were bound before keep their endpoint, new
// ones are served, an endpoint that leaves gets no new connection, and all of
// that survives a restart. AFFINITY_CLIENTS=1000000 measures changes and
// restarts ("make bench-affinity").
func TestAffinityUnderAttack(t *testing.T) {
	netlab.SkipInUserNamespace(t, "a socket buffer of 32 MB")
	size := attackFromEnvironment(t)
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			a := newAttacked(t, family, size)
			a.changeOther("before the attack")
			a.fill()
			a.flood.flood(clientsFrom(a.fillers(), 2*a.bindings), size.rate)
			begin, sent := time.Now(), a.flood.sent.Load()
			a.changeOther("during the attack")
			a.removeEndpoints()
			a.changeTimeout()
			a.visible()
			a.restart()
			fmt.Fprintf(t.Output(), "%.0f new clients/s during the changes\n", float64(a.flood.sent.Load()-sent)/time.Since(begin).Seconds())
			a.flood.stop()
			a.keeps()
			a.d.stop(t)
		})
	}
}

// attacked is a cluster with two Services, of which one has session affinity and is
// attacked.
type attacked struct {
	*cluster
	attackSize
	family     model.Family
	web, other service
	d          *daemon
	honest     bindings // bound before the attack, to endpoints that never left
	bound      []int    // forged clients that were bound first: half of the map
	// filler has bound them. flood sends while the map is full.
	filler, flood *forger
	ports         int // used by forgers
}

func newAttacked(t *testing.T, family model.Family, size attackSize) *attacked {
	t.Helper()
	c := newCluster(t, attackedPod+3)
	c.flags = append([]string{"--affinity-size", strconv.Itoa(size.bindings)}, forgedCIDR...)
	a := &attacked{cluster: c, attackSize: size, family: family,
		web:   service{Name: "web", N: 1, Pods: c.Pods[:attackedPod], Affinity: 86400},
		other: service{Name: "other", N: 2, Pods: c.Pods[attackedPod : attackedPod+1]}}
	if err := c.routeFlood(a.attacker(), forgedNetworks[family]); err != nil {
		t.Fatal(err)
	}
	if err := c.forgetFlows(); err != nil {
		t.Fatal(err)
	}
	c.write(a.web, a.other)
	a.run()
	c.inSync()
	a.honest = bind(t, c.crowd(32), "tcp", a.web.clusterIP(family))
	a.honest.spread(t, a.web.Pods...)
	return a
}

// run starts the daemon, without a pause between syncs: changes follow one another.
func (a *attacked) run() {
	a.t.Helper()
	a.d = a.start(func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--min-sync-period", "0s") })
}

func (a *attacked) attacker() *netlab.Host { return a.Pods[attackedPod+2] }

// forger returns one that sends from another port than the others, so that each of
// its datagrams is the first one of a connection.
func (a *attacked) forger(clients int) *forger {
	a.t.Helper()
	a.ports++
	return a.newForger(a.attacker(), a.web.clusterIP(a.family), attackPort+a.ports, clients)
}

// fillers is the number of clients that fill the map.
func (a *attacked) fillers() int { return a.bindings + a.bindings/5 }

// fill binds forged clients until the map is full, and more.
func (a *attacked) fill() {
	a.t.Helper()
	clients := a.fillers()
	a.filler, a.flood = a.forger(clients), a.forger(clients+2*a.bindings)
	a.bound = clientsFrom(0, a.bindings/2)
	begin := time.Now()
	var filling sync.WaitGroup
	filling.Go(func() { a.filler.send(clientsFrom(0, clients), fillRate) })
	for a.filler.sent.Load() < int64(clients) && !a.t.Failed() {
		a.honest.hold(a.t, "the map fills", "tcp", a.web.clusterIP(a.family))
	}
	filling.Wait()
	fmt.Fprintf(a.t.Output(), "the map is full after %v: %d forged clients, %.0f/s\n", time.Since(begin).Round(time.Millisecond), clients, float64(clients)/time.Since(begin).Seconds())
	if n := a.use(); n < a.bindings/10*9 {
		a.t.Errorf("%d clients are bound, want %d", n, a.bindings)
	}
	fresh := a.forger(clients + attackProbes)
	probes := clientsFrom(clients, attackProbes)
	fresh.visit(probes, probeRate, attackPatience)
	wantServed(a.t, "the map is full", fresh, probes)
}

// use returns how many clients are bound.
func (a *attacked) use() int {
	a.t.Helper()
	var r struct {
		Rules struct {
			Affinity []struct {
				Family, Map string
				Clients     int
			}
		}
	}
	if err := json.Unmarshal([]byte(a.mustRun(0, exec.Command(binary, "status", "-o", "json"))), &r); err != nil {
		a.t.Fatal(err)
	}
	for _, m := range r.Rules.Affinity {
		if m.Family == a.family.String() && m.Map == "affinity" {
			return m.Clients
		}
	}
	a.t.Fatalf("status reports no use of an affinity map of %s", a.family)
	return 0
}

// wantServed checks that clients had answers. A busy machine loses some datagrams.
func wantServed(t *testing.T, when string, f *forger, clients []int) {
	t.Helper()
	if n := f.count(clients); n < len(clients)/100*95 {
		t.Errorf("%s: %d of %d clients had an answer", when, n, len(clients))
	}
}

// changeOther replaces the endpoint of the Service that is not attacked, and measures
// how long it takes until a client gets the new one.
func (a *attacked) changeOther(when string) {
	a.t.Helper()
	var effect, syncs []time.Duration
	for range a.rounds {
		seen, begin := len(a.d.log.String()), time.Now()
		a.moveOther()
		a.replace(a.web, a.other)
		a.awaitOther()
		effect = append(effect, time.Since(begin))
		syncs = append(syncs, a.syncAfter(seen))
	}
	fmt.Fprintf(a.t.Output(), "%s, another Service changes: in effect %s, sync %s\n", when, spread(effect), spread(syncs))
}

// moveOther gives the Service that is not attacked another endpoint.
func (a *attacked) moveOther() {
	for _, p := range a.Pods[attackedPod : attackedPod+2] {
		if p != a.other.Pods[0] {
			a.other.Pods = []*netlab.Host{p}
			return
		}
	}
}

// awaitOther waits until the endpoint of that Service answers.
func (a *attacked) awaitOther() {
	a.t.Helper()
	want, deadline := a.other.Pods[0].Name, time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if got, err := a.Client.Ask("tcp", a.other.clusterIP(a.family), silence); err == nil && got.Name == want {
			return
		}
	}
	a.t.Fatalf("%s does not answer after %v", want, patience)
}

var appliedIn = regexp.MustCompile(`msg="rules applied".* duration=(\S+)`)

// syncAfter waits until the log has a sync behind a position, and returns how
// long the sync took.
func (a *attacked) syncAfter(position int) (took time.Duration) {
	a.t.Helper()
	eventually(a.t, func() error {
		m := appliedIn.FindStringSubmatch(a.d.log.String()[position:])
		if m == nil {
			return fmt.Errorf("the log has no sync")
		}
		var err error
		took, err = time.ParseDuration(m[1])
		return err
	})
	return took
}

// removeEndpoints removes an endpoint of the attacked Service and brings it back, one
// after the other.
func (a *attacked) removeEndpoints() {
	a.t.Helper()
	var effect, syncs, diffs []time.Duration
	var late, lost, asked int
	all := a.web.Pods
	for round := range a.rounds {
		gone := all[round%2]
		a.web.Pods = slices.DeleteFunc(slices.Clone(all), func(p *netlab.Host) bool { return p == gone })
		seen, begin := len(a.d.log.String()), time.Now()
		a.replace(a.web, a.other)
		syncs = append(syncs, a.syncAfter(seen))
		a.arrive(gone)
		effect = append(effect, time.Unix(0, a.flood.endpoint(gone).last.Load()).Sub(begin))
		got, of, without := a.leaves(gone, round)
		late, asked, lost = late+got, asked+of, lost+without
		began := time.Now()
		a.inSync()
		diffs = append(diffs, time.Since(began))
		a.web.Pods = all
		seen = len(a.d.log.String())
		a.replace(a.web, a.other)
		a.syncAfter(seen)
		a.inSync()
	}
	fmt.Fprintf(a.t.Output(), "an endpoint leaves: last new connection to it %s, sync %s, diff %s\n", spread(effect), spread(syncs), spread(diffs))
	fmt.Fprintf(a.t.Output(), "%d new connections to endpoints that had left; %d of %d clients bound to them lost their first datagram\n", late, lost, asked)
}

// arrive waits until the answers to all datagrams are there that were on their way to an endpoint when it left.
func (a *attacked) arrive(gone *netlab.Host) {
	a.t.Helper()
	ask(a.t, a.Node, "udp", endpointOf(gone, a.family)) // its server answers one after the other
	a.flood.hear(forgedAtOnce)                          // and the attacker reads the answers in order
}

// leaves checks that an endpoint that has left gets no new connection, neither of new
// clients nor of those that are bound to it. It returns the number of those it got,
// how many bound clients were asked, and how many of them had no answer at first.
func (a *attacked) leaves(gone *netlab.Host, round int) (late, asked, lost int) {
	a.t.Helper()
	before := a.flood.endpoint(gone).answers.Load()
	clients := a.filler.of(a.bound, gone)
	clients = clients[min(len(clients), round/2*attackProbes):]
	clients = clients[:min(len(clients), attackProbes)]
	first, second := a.forger(len(a.bound)), a.forger(len(a.bound))
	first.visit(clients, probeRate, silence) // many lose it
	second.visit(clients, probeRate, attackPatience)
	wantServed(a.t, gone.Name+" has left, and its clients come again", second, clients)
	a.moved(gone)
	a.flood.more(int64(a.rate))
	late = int(a.flood.endpoint(gone).answers.Load() - before + first.endpoint(gone).answers.Load() + second.endpoint(gone).answers.Load())
	if late > 0 {
		a.t.Errorf("%s got %d new connections after it left", gone.Name, late)
	}
	return late, len(clients), len(clients) - first.count(clients)
}

// moved checks that the honest clients of an endpoint that has left have another one.
func (a *attacked) moved(gone *netlab.Host) {
	a.t.Helper()
	var all sync.WaitGroup
	for _, client := range a.honest.of(gone.Name) {
		all.Go(func() {
			if got, err := client.Ask("tcp", a.web.clusterIP(a.family), 0); err != nil || got.Name == gone.Name {
				a.t.Errorf("%s has left, and its client gets %q, %v", gone.Name, got.Name, err)
			}
		})
	}
	all.Wait()
	maps.DeleteFunc(a.honest, func(_ *netlab.Host, name string) bool { return name == gone.Name })
	a.honest.hold(a.t, gone.Name+" has left", "tcp", a.web.clusterIP(a.family))
}

// changeTimeout gives the other Service affinity too, with a timeout that is new to the
// rules, and takes it back: the most that a change has to do with the map.
func (a *attacked) changeTimeout() {
	a.t.Helper()
	var syncs []time.Duration
	for _, a.other.Affinity = range []int{long, 0} {
		seen := len(a.d.log.String())
		a.replace(a.web, a.other)
		syncs = append(syncs, a.syncAfter(seen))
	}
	a.inSync()
	fmt.Fprintf(a.t.Output(), "another Service gets affinity with a timeout of its own: sync %v, and loses it: %v\n", syncs[0], syncs[1])
}

// visible checks that an operator can see that the map is full.
func (a *attacked) visible() {
	a.t.Helper()
	fmt.Fprintf(a.t.Output(), "status reports %d of %d clients\n", a.use(), a.bindings)
	if !a.measured {
		return // the daemon looks once a minute
	}
	eventually(a.t, func() error { // others take the room of those that were released
		if use := a.use(); use < a.bindings/10*9 {
			return fmt.Errorf("status reports %d of %d clients", use, a.bindings)
		}
		return nil
	})
	metric := regexp.MustCompile(fmt.Sprintf(`(?m)^nftproxy_affinity_clients\{ip_family="%s",map="affinity"\} (\S+)$`, a.family))
	netlab.Eventually(a.t, 70*time.Second, func() error {
		got, err := get(a.Node, "GET", metricsAddress, "/metrics", "")
		if err != nil {
			return err
		}
		m := metric.FindStringSubmatch(got.body)
		if m == nil {
			return fmt.Errorf("no metric of bound clients:\n%s", got.body)
		}
		if n, err := strconv.ParseFloat(m[1], 64); err != nil || n < float64(a.bindings/10*9) {
			return fmt.Errorf("the metric is %s, %v", m[1], err)
		}
		if !strings.Contains(a.d.log.String(), "affinity map is nearly full") {
			return fmt.Errorf("the log has no warning")
		}
		return nil
	})
}

// restart starts the daemon again, with a change that it must serve.
func (a *attacked) restart() {
	a.t.Helper()
	var effect []time.Duration
	var peak uint64
	for range a.rounds {
		a.d.stop(a.t)
		a.moveOther()
		a.replace(a.web, a.other)
		begin := time.Now()
		a.run()
		a.awaitOther()
		effect = append(effect, time.Since(begin))
		a.inSync()
		memory, err := results.MemoryOf(a.d.cmd.Process.Pid)
		if err != nil {
			a.t.Fatal(err)
		}
		peak = max(peak, memory.Peak)
	}
	fmt.Fprintf(a.t.Output(), "restart: a change is in effect %s after the start of the process, which needs %s\n", spread(effect), report.Bytes(float64(peak)))
}

// keeps checks that clients are bound as before the changes, to the endpoints that
// never left.
func (a *attacked) keeps() {
	a.t.Helper()
	a.honest.hold(a.t, "the attack is over", "tcp", a.web.clusterIP(a.family))
	again := a.forger(len(a.bound))
	moved, asked := 0, 0
	for _, pod := range a.web.Pods[2:] {
		clients := a.filler.of(a.bound, pod)
		clients = clients[:min(len(clients), attackProbes)]
		again.visit(clients, probeRate, attackPatience)
		wantServed(a.t, "the attack is over", again, clients)
		asked += len(clients)
		moved += again.count(clients) - len(again.of(clients, pod))
	}
	fmt.Fprintf(a.t.Output(), "%d of %d forged clients, and 0 of %d others, have another endpoint than before\n", moved, asked, len(a.honest))
	if moved > 0 || asked == 0 {
		a.t.Errorf("%d of %d clients that were bound have another endpoint", moved, asked)
	}
}

// spread returns the median and the maximum of some durations.
func spread(all []time.Duration) string {
	d := results.Durations(all)
	return fmt.Sprintf("%s (at most %s of %d)", report.Seconds(d.P50), report.Seconds(d.Max), d.N)
}
