package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// soak is a cluster with random changes, while clients dial services that must
// be served all the time.
type soak struct {
	*testbed.Cluster
	random
	length   time.Duration
	services int // that change at random
	rate     int // of changes in a second
	seed     uint64

	proxy   *testbed.Process
	proxies []*testbed.Process // with those that have ended
	shared  bool               // other programs may change nftproxy's tables
	served  []*servedService
	probe   testbed.Service // whose endpoint changes to see changes come through
	probed  int
	load    *soakLoad
	changes *changes
	incidents
	series  []sample
	began   time.Time
	longest int // process that runs to the end of the load

	stop    chan struct{} // ends the background activity
	running sync.WaitGroup
}

// TestSoak lets Services change at random, other programs write rules, and
// nftproxy and the API server be restarted, killed and stopped, all under load.
// No request fails that must be answered or refused; memory stays what it was;
// and at the end, the rules are those that a new nftproxy makes.
//
// SOAK is how long that goes on, SOAK_SERVICES how many Services change, and
// SOAK_RATE how often in a second. SOAK_SEED repeats the choices of a run. RESULTS
// names a file that the run is added to.
func TestSoak(t *testing.T) {
	s := newSoak(t)
	fmt.Fprintf(t.Output(), "%v with %d services and %d changes a second; SOAK_SEED=%d repeats the choices\n", s.length, s.services, s.rate, s.seed)
	// It compares all Services with their addresses, and again when one changes
	// meanwhile, which may take more than a minute here.
	s.Unready = []string{"poststarthook/start-service-ip-repair-controllers"}
	s.populate()
	s.launch(false)
	s.hasSynced(s.Node, s.proxy)
	s.becomesServed()
	s.began = time.Now()
	s.startLoad()
	s.startChanges()
	s.startNeighbours()

	s.runIncidents(s.length/2, s.ending())
	s.restartProxy(false)
	s.longest = s.proxy.Cmd.Process.Pid
	s.runIncidents(s.length/2, s.harmless())
	length := time.Since(s.began)
	s.end()
	s.report()
	s.write(length)
	s.load.check()
	s.checkMemory()
	s.checkLogs()
	s.checkRules()
}

// soakCIDRs have room for 100,000 Services and more.
const soakCIDRs = "10.96.0.0/14,fd00:10:96::/108"

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{length: 20 * time.Second, seed: rand.Uint64(), stop: make(chan struct{})}
	var err error
	if text := os.Getenv("SOAK"); text != "" {
		if s.length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SOAK: %v: use a time such as 10m", err)
		}
	}
	if text := os.Getenv("SOAK_SEED"); text != "" {
		if s.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SOAK_SEED: %v: use a number", err)
		}
	}
	s.services, s.rate = numberOf(t, "SOAK_SERVICES", 300), numberOf(t, "SOAK_RATE", 50)
	s.random = random{rand.New(rand.NewPCG(s.seed, 0))}
	// All Services of a namespace wait in one queue for its quotas.
	s.Cluster = testbed.NewCluster(t, servedPods+clientPods, testbed.WithoutOwnEndpoint, "--disable-admission-plugins", "ResourceQuota",
		"--service-cluster-ip-range", soakCIDRs)
	config := rest.CopyConfig(s.Config)
	config.WarningHandler = rest.NoWarnings{} // about deprecated fields
	config.Timeout = writeWait
	s.API = s.ClientFor(config)
	return s
}

// numberOf returns what a variable of the environment says.
func numberOf(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q: set a number from 1 up", name, text)
	}
	return n
}

// populate creates all Services.
func (s *soak) populate() {
	s.T.Helper()
	s.createServed()
	begin := time.Now()
	made := newChanges(s)
	numbers := make(chan int)
	for w := range soakWriters {
		made.running.Go(func() {
			writer := made.writer(w)
			for i := range numbers {
				writer.create(soakName(i))
			}
		})
	}
	some := min(s.services, anyKinds)
	for i := range some {
		s.keepServer()
		numbers <- i
	}
	close(numbers)
	made.running.Wait()
	s.storeUsual()
	s.T.Logf("%d services created in %v", s.services, time.Since(begin).Round(time.Millisecond))
	if made.count["create a Service"].made < some*9/10 {
		s.T.Fatalf("the API server refuses too many Services:\n%s", made)
	}
}

// launch starts nftproxy on the node.
func (s *soak) launch(shared bool) {
	s.T.Helper()
	var flags []string
	if shared {
		flags = append(flags, "--no-table-owner")
	}
	s.proxy, s.shared = s.StartProxyOn(s.Node, flags...), shared
	s.proxies = append(s.proxies, s.proxy)
}

// end ends the background activity, and waits until everything is idle.
func (s *soak) end() {
	s.T.Helper()
	close(s.stop)
	s.running.Wait()
	s.changes.end()
	s.changeServed()
	for _, j := range s.served {
		if len(j.now) > 0 && !j.sticky {
			s.Reached(j.Service, j.now...)
		}
	}
	s.load.end()
	for range leastSamples {
		s.sample()
	}
}

// logged are the level and the message of a line of the log.
var logged = regexp.MustCompile(`level=([A-Z]+) msg=("[^"]*"|\S+)(.*)`)

// checkLogs counts what the nftproxies have said. Nothing may be set aside, and
// nothing may surprise them.
func (s *soak) checkLogs() {
	s.T.Helper()
	said := map[string]int{}
	for _, p := range s.proxies {
		text := p.Log.String()
		for _, m := range logged.FindAllStringSubmatch(text, -1) {
			if said[m[1]+" "+m[2]]++; m[1] == "ERROR" && said[m[1]+" "+m[2]] == 1 {
				s.T.Logf("%.500s", m[0])
			}
		}
		for _, bad := range []string{"internal error", "panic", "goroutine ", "the kernel refuses"} {
			if at := strings.Index(text, bad); at >= 0 {
				s.T.Errorf("the log of nftproxy has %q: %.2000s", bad, text[at:])
			}
		}
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(said)) {
		fmt.Fprintf(&b, "%6d %s\n", said[line], line)
	}
	s.T.Logf("%d nftproxies have said:\n%s", len(s.proxies), &b)
}

// report puts in the log what has happened.
func (s *soak) report() {
	s.T.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what happened\ttimes\tuntil a change was served: median\tmost\tuntil repaired: median\tmost\t")
	for _, what := range s.happened {
		took, repairs := s.took[what], s.repairs[what]
		fmt.Fprintf(w, "%s\t%d\t%v\t%v\t", what, len(took), middle(took), slices.Max(took).Round(time.Millisecond))
		if len(repairs) > 0 {
			fmt.Fprintf(w, "%v\t%v\t", middle(repairs), slices.Max(repairs).Round(time.Millisecond))
		} else {
			fmt.Fprint(w, "\t\t")
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	s.T.Logf("SOAK_SEED=%d\n%s\n%s\n%s", s.seed, s.changes, &b, s.seriesTable())
}

func middle(all []time.Duration) time.Duration {
	return median(all, func(d time.Duration) time.Duration { return d.Round(time.Millisecond) })
}
