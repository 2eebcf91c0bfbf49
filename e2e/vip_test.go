package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// vipFile names two of the three API servers; the third one is known from the cluster.
const vipFile = `
kind: Balance
name: apiserver
namespace: kube-system
listen: %s
backends: [%s, %s]
backendsFrom: default/kubernetes
check: {https: /readyz, interval: 1s, timeout: 1s, fall: 2, rise: 1}
`

// patience is how long the test waits for what must come.
const patience = time.Minute

// control is a control plane whose address nftproxy serves on the node.
type control struct {
	*testbed.Servers
	t     *testing.T
	proxy *testbed.Process
	file  string
	api   kubernetes.Interface // a client that keeps its connection
	seen  sync.Map             // ConfigMaps that the informer has seen, with the time
}

// TestServersWithoutBalancer: 14.20, 14.23, 14.24. nftproxy serves the address of three
// API servers on the node that dials it. It starts before any of them. An API server is
// killed, hangs, or is cut off: once the check has found that, no request fails, and
// connections that clients keep are replaced. The daemon is restarted in each state, and
// also while its rules lead only to API servers that hang. All of them may be away.
func TestServersWithoutBalancer(t *testing.T) {
	t.Parallel()
	c := &control{Servers: testbed.NewServers(t, 3), t: t}
	c.start()
	c.inform()
	l := c.load(requestClients, true)
	first := c.Members[0]
	c.suffer(l, first, "killed", first.Process.Kill)
	first.Start()
	c.back(l, first)
	c.suffer(l, first, "cut off", func() { c.link(first, "down") })
	c.link(first, "up")
	c.back(l, first)
	c.suffer(l, first, "hung", func() { first.Process.Signal(t, syscall.SIGSTOP) })
	c.exchange(l, first)
	c.back(l, c.Members...)
	c.allAway(l)
}

// start starts the proxy, then the API servers, and waits until all three are served.
func (c *control) start() {
	c.file = filepath.Join(c.Dir, "apiserver.yaml")
	text := fmt.Sprintf(vipFile, c.Address, c.Members[0].IPv4, c.Members[1].IPv4)
	if err := os.WriteFile(c.file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.startProxy()
	netlab.Eventually(c.t, patience, func() error {
		conn, err := c.Node.DialContext(c.t.Context(), "tcp", c.Address.String())
		if err == nil {
			conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("the address without an API server: %w", err)
		}
		return nil
	})
	began := time.Now()
	c.StartStore()
	for _, s := range c.Members {
		s.Start()
	}
	c.Members[0].Ready()
	c.createNode()
	c.back(nil, c.Members...)
	fmt.Fprintf(c.t.Output(), "API servers started after the proxy: all served after %v\n", time.Since(began).Round(time.Millisecond))
}

func (c *control) startProxy() {
	c.proxy = testbed.Start(c.t, c.Node, testbed.NFTProxy, "run", "-f", c.file,
		"--kubeconfig", c.Kubeconfig("proxy.conf", testbed.ProxyUser), "--hostname-override", testbed.NodeName,
		"--cluster-cidr", testbed.ClusterCIDRs, "--conntrack-max-per-core", "0", "--conntrack-tcp-cleanup")
}

// restartProxy restarts the proxy and waits until it has read the cluster.
func (c *control) restartProxy() time.Duration {
	c.t.Helper()
	c.proxy.Stop(c.t)
	return c.startAgain()
}

func (c *control) startAgain() time.Duration {
	c.t.Helper()
	began := time.Now()
	c.startProxy()
	const metric = `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} `
	netlab.Eventually(c.t, patience, func() error {
		return c.Node.Do(func() error {
			v, err := testbed.ReadMetric(testbed.MetricsServer, metric)
			if err == nil && v == 0 {
				err = errors.New("the proxy has not synced")
			}
			return err
		})
	})
	return time.Since(began).Round(time.Millisecond)
}

// back waits until API servers are served again.
func (c *control) back(l *requests, all ...*testbed.Server) {
	c.t.Helper()
	for _, s := range all {
		s.Ready()
	}
	for _, s := range all {
		c.serves(s, true)
	}
	if l != nil {
		l.succeed(time.Now())
	}
}

// serves waits until the rules have an API server, or no longer have it.
func (c *control) serves(s *testbed.Server, want bool) {
	c.t.Helper()
	netlab.Eventually(c.t, patience, func() error {
		var rules strings.Builder
		cmd := exec.Command("nft", "list", "map", "ip", "nftproxy", "endpoints")
		cmd.Stdout = &rules
		if err := c.Node.Run(cmd); err != nil {
			return err
		}
		to := regexp.MustCompile(regexp.QuoteMeta(fmt.Sprintf("%s . tcp . %d . ", c.Address.Addr(), c.Address.Port())) + `\S+ : ` + regexp.QuoteMeta(s.IPv4.String()+" "))
		if to.MatchString(rules.String()) != want {
			return fmt.Errorf("%s is in the rules: %t: %s", s.IPv4, !want, &rules)
		}
		return nil
	})
}

// link cuts or connects an API server.
func (c *control) link(s *testbed.Server, state string) {
	c.t.Helper()
	if err := s.Run(exec.Command("ip", "link", "set", "uplink", state)); err != nil {
		c.t.Fatal(err)
	}
}

// inform starts an informer through the address, as every kubelet has.
func (c *control) inform() {
	c.api = kubernetes.NewForConfigOrDie(c.Config())
	factory := informers.NewSharedInformerFactoryWithOptions(c.api, 0, informers.WithNamespace(testbed.Namespace))
	configs := factory.Core().V1().ConfigMaps().Informer()
	if _, err := configs.AddEventHandler(handler{&c.seen}); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	c.t.Cleanup(func() { cancel(); factory.Shutdown() })
	factory.WaitForCacheSync(c.t.Context().Done())
}

type handler struct{ seen *sync.Map }

func (h handler) OnAdd(o any, _ bool) { h.seen.Store(o.(*corev1.ConfigMap).Name, time.Now()) }
func (h handler) OnUpdate(_, o any)   {}
func (h handler) OnDelete(o any)      {}

// direct returns a client of one API server.
func (c *control) direct(s *testbed.Server) kubernetes.Interface {
	config := c.Config()
	config.Host = fmt.Sprintf("https://%s:%d", s.IPv4, testbed.APIPort)
	return kubernetes.NewForConfigOrDie(config)
}

// createNode does what the kubelet does that nftproxy waits for.
func (c *control) createNode() {
	c.t.Helper()
	nodes := c.direct(c.Members[0]).CoreV1().Nodes()
	node, err := nodes.Create(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: testbed.NodeName}}, metav1.CreateOptions{})
	if err == nil {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: c.Node.IPv4.String()}}
		_, err = nodes.UpdateStatus(c.t.Context(), node, metav1.UpdateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// follows creates an object at one API server and returns how long it took until the
// informer has seen it.
func (c *control) follows(at *testbed.Server, name string) time.Duration {
	c.t.Helper()
	began := time.Now()
	netlab.Eventually(c.t, patience, func() error {
		_, err := c.direct(at).CoreV1().ConfigMaps(testbed.Namespace).Create(c.t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	})
	netlab.Eventually(c.t, patience, func() error {
		if _, ok := c.seen.Load(name); !ok {
			return fmt.Errorf("the informer has not seen %s", name)
		}
		return nil
	})
	return time.Since(began)
}

// suffer lets something happen to an API server, and restarts the proxy while it lasts.
func (c *control) suffer(l *requests, victim *testbed.Server, name string, happen func()) {
	c.t.Helper()
	kept := c.load(keptClients, false)
	defer kept.end()
	kept.recover()
	began := time.Now()
	happen()
	c.serves(victim, false)
	found := time.Now()
	l.succeed(found)
	fmt.Fprintf(c.t.Output(), "%s: left out after %v; %s\n", name, found.Sub(began).Round(time.Millisecond), l.between(began, time.Now()))
	kept.recover()
	fmt.Fprintf(c.t.Output(), "%s: kept connections: %s\n", name, kept.between(began, time.Now()))
	restarted := time.Now()
	took := c.restartProxy()
	c.serves(victim, false)
	l.succeed(restarted)
	fmt.Fprintf(c.t.Output(), "%s: restart of the proxy: synced after %v, %s\n", name, took, l.between(restarted, time.Now()))
}

// exchange stops the proxy while the rules leave an API server out, lets that one answer
// again and all others hang: the rules now lead only to those that hang. The proxy has to
// reach the only one that answers without them.
func (c *control) exchange(l *requests, only *testbed.Server) {
	c.t.Helper()
	c.proxy.Stop(c.t)
	only.Process.Signal(c.t, syscall.SIGCONT)
	for _, s := range c.Members[1:] {
		s.Process.Signal(c.t, syscall.SIGSTOP)
	}
	only.Ready()
	l.fail(time.Now())
	took := c.startAgain()
	c.serves(only, true)
	l.succeed(time.Now())
	fmt.Fprintf(c.t.Output(), "the rules lead to hung API servers only: started, synced after %v\n", took)
	for _, s := range c.Members[1:] {
		s.Process.Signal(c.t, syscall.SIGCONT)
	}
}

// allAway ends all API servers, and starts them again.
func (c *control) allAway(l *requests) {
	c.t.Helper()
	for _, s := range c.Members {
		s.Process.Kill()
	}
	l.fail(time.Now())
	began := time.Now()
	for _, s := range c.Members {
		s.Start()
	}
	c.back(l, c.Members...)
	fmt.Fprintf(c.t.Output(), "all away and back: served after %v, seen by the informer after %v\n", time.Since(began).Round(time.Millisecond),
		c.follows(c.Members[0], "all-back").Round(time.Millisecond))
}

// requests are those of clients.
type requests struct {
	t       *testing.T
	clients int
	end     func()
	mu      sync.Mutex
	done    []request
}

type request struct {
	client int
	began  time.Time
	took   time.Duration
	err    error
}

const (
	requestTimeout = 3 * time.Second
	requestClients = 4
	keptClients    = 6 // two for each API server
	requestPause   = 20 * time.Millisecond
)

// client returns a client of the address: client-go's, or one that opens a connection
// for each request.
func (c *control) client(opens bool) *http.Client {
	c.t.Helper()
	config := c.Config()
	config.Timeout = requestTimeout
	if !opens {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			c.t.Fatal(err)
		}
		return client
	}
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return &http.Client{Timeout: requestTimeout, Transport: &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true, DialContext: c.Node.DialContext}}
}

// load starts clients of the address.
func (c *control) load(clients int, opens bool) *requests {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	l := &requests{t: c.t, clients: clients, end: func() { cancel(); running.Wait() }}
	for i := range clients {
		client := c.client(opens)
		running.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				err := fetch(client, "https://"+c.Address.String()+"/livez/ping")
				l.mu.Lock()
				l.done = append(l.done, request{i, began, time.Since(began), err})
				l.mu.Unlock()
				await.Pace(ctx.Done(), requestPause)
			}
		})
	}
	c.t.Cleanup(l.end)
	return l
}

func fetch(client *http.Client, url string) error {
	r, err := client.Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", r.Status)
	}
	return err
}

// since returns the requests that began after a time and have ended.
func (l *requests) since(t time.Time) (out []request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.done {
		if r.began.After(t) {
			out = append(out, r)
		}
	}
	return out
}

// succeed checks the next requests.
func (l *requests) succeed(from time.Time) {
	l.t.Helper()
	const enough = 100
	netlab.Eventually(l.t, patience, func() error {
		if n := len(l.since(from)); n < enough {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	for _, r := range l.since(from) {
		if r.err != nil {
			l.t.Errorf("a request %v later failed after %v: %v", r.began.Sub(from), r.took, r.err)
		}
	}
}

// fail waits until requests fail.
func (l *requests) fail(from time.Time) {
	l.t.Helper()
	netlab.Eventually(l.t, patience, func() error {
		for _, r := range l.since(from) {
			if r.err != nil {
				return nil
			}
		}
		return errors.New("no request fails")
	})
}

// recover waits until the last requests of each client succeed.
func (l *requests) recover() {
	l.t.Helper()
	const enough = 10
	netlab.Eventually(l.t, patience, func() error {
		good := make([]int, l.clients)
		for _, r := range l.since(time.Time{}) {
			if good[r.client]++; r.err != nil {
				good[r.client] = 0
			}
		}
		if slices.Min(good) < enough {
			return fmt.Errorf("requests that succeeded since the last failure, by client: %v", good)
		}
		return nil
	})
}

// between sums up the requests of a period.
func (l *requests) between(from, to time.Time) string {
	n, failed := 0, 0
	var last time.Duration
	for _, r := range l.since(from) {
		if r.began.After(to) {
			continue
		}
		n++
		if r.err != nil {
			failed++
			last = max(last, r.began.Sub(from))
		}
	}
	return fmt.Sprintf("%d of %d requests failed, the last one began after %v", failed, n, last.Round(time.Millisecond))
}
