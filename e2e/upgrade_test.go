package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

const (
	restarts      = 10 // of each kind
	stickyClients = 6
)

// succession is a cluster whose proxies are replaced under load. One service
// does not change, one has session affinity, one changes.
type succession struct {
	*cluster
	sticky, canary testbed.Service
	load           *testbed.Load
	remembered     []remembered
	takeover       uint32
}

// remembered is a client that a service binds to one endpoint.
type remembered struct {
	*netlab.Host
	to   testbed.Target
	peer string
}

// newSuccession also starts the first proxy.
func newSuccession(t *testing.T, first testbed.Program) (*succession, *testbed.Process) {
	t.Helper()
	c := newCluster(t, 3, testbed.WithoutOwnEndpoint)
	web, sticky := c.CreateService(testbed.WithNodePorts(testbed.DualStack("web"))), testbed.DualStack("sticky")
	sticky.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	s := &succession{cluster: c, sticky: c.CreateService(sticky), canary: c.CreateService(testbed.DualStack("canary"))}
	c.SetEndpoints(web, c.Pods...)
	c.SetEndpoints(s.sticky, c.Pods...)
	c.SetEndpoints(s.canary, c.Pods[0])
	p := s.start(first)
	c.Reached(web, c.Pods...)
	c.Reached(s.canary, c.Pods[0])
	s.takeover = c.Takeover()
	s.load = c.StartLoad(web)
	for i := range stickyClients {
		host := c.NewClient(100 + i)
		for _, to := range c.Targets(s.sticky) {
			answer, err := host.Ask(to.Network, to.To, testbed.Strict)
			if err != nil {
				t.Fatal(err)
			}
			s.remembered = append(s.remembered, remembered{host, to, answer.Name})
		}
	}
	return s, p
}

// start starts a proxy and waits until it is healthy, as a kubelet does.
func (s *succession) start(what testbed.Program) *testbed.Process {
	s.T.Helper()
	p := s.launch(what)
	s.healthy()
	return p
}

func (s *succession) launch(what testbed.Program) *testbed.Process {
	s.T.Helper()
	return testbed.Start(s.T, s.Node, what, "run", "--kubeconfig", s.Kubeconfig(testbed.ProxyUser), "--hostname-override", testbed.NodeName,
		"--cluster-cidr", testbed.ClusterCIDRs, "--conntrack-max-per-core", "0")
}

func (s *succession) healthy() {
	s.T.Helper()
	for _, url := range []string{"http://127.0.0.1:10256/healthz", "http://127.0.0.1:10249/metrics"} {
		testbed.Eventually(s.T, func() error {
			code, _, err := get(s.Node, url)
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%s: %d", url, code)
			}
			return err
		})
	}
}

// keeps checks that every client is still with its endpoint.
func (s *succession) keeps(when string) {
	s.T.Helper()
	for _, r := range s.remembered {
		if answer, err := r.Ask(r.to.Network, r.to.To, testbed.Strict); err != nil || answer.Name != r.peer {
			s.T.Errorf("%s: client %v of %s got %v, %v, want an answer of %s", when, r.Address(r.to.Family), r.to, answer, err, r.peer)
		}
	}
}

// measure runs what replaces a proxy, and writes a line about it.
func (s *succession) measure(name string, replace func()) {
	s.T.Helper()
	requests, lost := s.load.Totals()
	before, start := s.Generation(), time.Now()
	replace()
	took, commits := time.Since(start), s.Generation()-before
	requestsNow, lostNow := s.load.Totals()
	s.T.Logf("%s | %d transactions in all | healthy after %v in all | %d requests | %d lost",
		name, commits, took.Round(time.Millisecond), requestsNow-requests, lostNow-lost)
}

// unnoticed replaces a proxy while nothing changes: one transaction, which takes
// over the tables, is all that happens.
func (s *succession) unnoticed(name string, replace func()) {
	s.T.Helper()
	rules, before := s.Rules(), s.Generation()
	replace()
	s.Commits(before, s.takeover, name)
	s.unchanged(rules, name)
	s.keeps(name)
}

// Restarts, planned or not, lose no request and no client's binding, and leave
// the rules unchanged, whether the next proxy starts before or after the
// previous one has ended.
func TestRestartsUnderLoad(t *testing.T) {
	s, p := newSuccession(t, testbed.NFTProxy)
	ends := map[string]func(){"SIGTERM": func() { p.Stop(t) }, "SIGKILL": func() { p.Kill() }}
	for name, end := range ends {
		s.measure(fmt.Sprint(restarts, " times ", name), func() {
			for range restarts {
				s.unnoticed(name, func() { end(); p = s.start(testbed.NFTProxy) })
			}
		})
	}
	for name, end := range ends {
		s.measure("the next one starts before "+name, func() {
			s.unnoticed(name, func() {
				next := s.launch(testbed.NFTProxy)
				s.waits(next)
				end()
				p = next
				s.healthy()
			})
		})
	}
	rules := s.Rules()
	for name, end := range ends {
		s.measure(fmt.Sprint(restarts, " times ", name, ", while endpoints change"), func() {
			stop := s.keepChanging()
			for i := range restarts {
				await.Span(time.Duration(i) * testbed.Pause) // to end at various moments of a sync
				end()
				p = s.start(testbed.NFTProxy)
			}
			stop()
		})
		s.Reached(s.canary, s.Pods[0])
		s.unchanged(rules, name+" and changes")
		s.keeps(name + " and changes")
	}
	s.load.Check()
}

// waits waits until a proxy says that it cannot have the tables yet.
func (s *succession) waits(p *testbed.Process) {
	s.T.Helper()
	if s.takeover == 0 {
		return // tables of this kernel have no owner
	}
	testbed.Eventually(s.T, func() error {
		if log := p.Log.String(); !strings.Contains(log, "rules cannot be applied and stay unchanged") {
			return fmt.Errorf("the second proxy does not wait for the first one")
		}
		return nil
	})
}

// keepChanging changes endpoints without pause until stop, which leaves them as
// they were.
func (s *succession) keepChanging() (stop func()) {
	asked, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 1; ; i++ {
			for _, f := range model.Families {
				s.SetSlice(s.canary, f, s.Pods[i%len(s.Pods)])
			}
			if !await.Pace(asked, testbed.Pause) {
				return
			}
		}
	}()
	return func() {
		close(asked)
		<-ended
		s.SetEndpoints(s.canary, s.Pods[0])
	}
}

// An upgrade, and the way back, is a restart. NFTPROXY_PREVIOUS names the
// program of another version; otherwise it is this one by another name, so that
// the rules are the same.
func TestUpgradeUnderLoad(t *testing.T) {
	previous := testbed.Program{Name: "nftproxy (previous)", Path: os.Getenv("NFTPROXY_PREVIOUS")}
	same := previous.Path == ""
	if same {
		previous.Path = filepath.Join(t.TempDir(), filepath.Base(testbed.NFTProxy.Path)) // the rules contain it
		if _, err := testbed.GoCommand("-C", "..", "build", "-ldflags", "-X main.version=v0.0.0-previous", "-o", previous.Path, "./cmd/nftproxy"); err != nil {
			t.Fatal(err)
		}
	}
	s, p := newSuccession(t, previous)
	for _, next := range []testbed.Program{testbed.NFTProxy, previous, testbed.NFTProxy} {
		replace := func() {
			p.Stop(t)
			p = s.start(next)
		}
		before := s.version()
		s.measure("another version", func() {
			if same {
				s.unnoticed(next.Name, replace)
				return
			}
			replace()
			s.keeps(next.Name)
		})
		after := s.version()
		fmt.Fprintf(t.Output(), "    from %s to %s\n", before, after)
		if before == after {
			t.Errorf("%s is still there", before)
		}
	}
	s.SetEndpoints(s.canary, s.Pods[1])
	s.Reached(s.canary, s.Pods[1])
	s.load.Check()
}

var versionLabel = regexp.MustCompile(`nftproxy_build_info{.*version="([^"]*)"}`)

// version returns what the proxy says that it is.
func (s *succession) version() string {
	s.T.Helper()
	_, metrics, err := get(s.Node, "http://127.0.0.1:10249/metrics")
	if err != nil {
		s.T.Fatal(err)
	}
	found := versionLabel.FindStringSubmatch(metrics)
	if found == nil {
		s.T.Fatal("the metrics do not have the version")
	}
	return found[1]
}
