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
	"github.com/nftproxy/nftproxy/internal/netlab"
)

// vipFile names two of the three API servers; the third one is known from the cluster.
const vipFile = `
apiVersion: v1
kind: Service
metadata:
  namespace: kube-system
  name: apiserver
  annotations:
    nftproxy.dev/endpoints-from: default/kubernetes
    nftproxy.dev/health-check: "{https: /readyz, interval: 500ms, timeout: 300ms, fall: 2, rise: 1}"
spec: {clusterIP: %s, ports: [{port: 6443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: kube-system, name: apiserver-1, labels: {kubernetes.io/service-name: apiserver}}
addressType: IPv4
ports: [{port: 6443}]
endpoints: [{addresses: [%s]}, {addresses: [%s]}]
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
// killed, hangs, or is cut off: once the check has found that, no request fails; the
// daemon can be restarted in each state, and all of them may be away for a while.
func TestServersWithoutBalancer(t *testing.T) {
	t.Parallel()
	c := &control{Servers: testbed.NewServers(t, 3), t: t}
	c.start()
	c.inform()
	l := c.load()
	for _, fault := range []serverFault{
		{"killed", func(s *testbed.Server) { s.Process.Kill() }, func(s *testbed.Server) { s.Start() }},
		{"hung", func(s *testbed.Server) { s.Process.Signal(t, syscall.SIGSTOP) }, func(s *testbed.Server) { s.Process.Signal(t, syscall.SIGCONT) }},
		{"cut off", func(s *testbed.Server) { c.link(s, "down") }, func(s *testbed.Server) { c.link(s, "up") }},
	} {
		c.suffer(l, fault)
	}
	c.allAway(l)
}

// start starts the proxy, then the API servers, and waits until all three are served.
func (c *control) start() {
	c.file = filepath.Join(c.Dir, "apiserver.yaml")
	text := fmt.Sprintf(vipFile, c.Address.Addr(), c.Members[0].IPv4, c.Members[1].IPv4)
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
	for _, s := range c.Members {
		s.Ready()
	}
	for _, s := range c.Members {
		c.serves(s, true)
	}
	c.t.Logf("API servers started after the proxy: all served after %v", time.Since(began).Round(time.Millisecond))
}

func (c *control) startProxy() {
	c.proxy = testbed.Start(c.t, c.Node, testbed.NFTProxy, "run", "-f", c.file,
		"--kubeconfig", c.Kubeconfig("proxy.conf", testbed.ProxyUser), "--hostname-override", testbed.NodeName,
		"--cluster-cidr", testbed.ClusterCIDRs, "--conntrack-max-per-core", "0")
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
		if strings.Contains(rules.String(), s.IPv4.String()+" ") != want {
			return fmt.Errorf("%s in the rules: %t: %s", s.IPv4, !want, &rules)
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

// follows creates an object at one API server and returns how long it took until the
// informer has seen it.
func (c *control) follows(at *testbed.Server, name string) time.Duration {
	c.t.Helper()
	config := c.Config()
	config.Host = fmt.Sprintf("https://%s:%d", at.IPv4, testbed.APIPort)
	began := time.Now()
	netlab.Eventually(c.t, patience, func() error {
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(testbed.Namespace).Create(c.t.Context(),
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

// serverFault is what happens to an API server.
type serverFault struct {
	name         string
	happen, mend func(*testbed.Server)
}

// suffer lets a fault happen to the first API server, restarts the proxy while it lasts,
// and mends it.
func (c *control) suffer(l *requests, f serverFault) {
	c.t.Helper()
	victim := c.Members[0]
	began := time.Now()
	f.happen(victim)
	c.serves(victim, false)
	found := time.Now()
	l.succeed(found)
	c.t.Logf("%s: left out after %v; %s", f.name, found.Sub(began).Round(time.Millisecond), l.between(began, time.Now()))

	c.proxy.Stop(c.t)
	restarted := time.Now()
	c.startProxy()
	netlab.Eventually(c.t, patience, func() error {
		if !strings.Contains(c.proxy.Log.String(), "rules applied") && !strings.Contains(c.proxy.Log.String(), "objects can be read") {
			return fmt.Errorf("the proxy has not started")
		}
		return nil
	})
	c.serves(victim, false)
	c.t.Logf("%s: restart of the proxy: %s", f.name, l.between(restarted, time.Now()))
	l.succeed(time.Now())

	f.mend(victim)
	victim.Ready()
	c.serves(victim, true)
	l.succeed(time.Now())
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
	for _, s := range c.Members {
		s.Ready()
	}
	for _, s := range c.Members {
		c.serves(s, true)
	}
	l.succeed(time.Now())
	c.t.Logf("all away and back: served after %v, seen by the informer after %v", time.Since(began).Round(time.Millisecond),
		c.follows(c.Members[0], "all-back").Round(time.Millisecond))
}

// requests are those of clients that open a connection for each.
type requests struct {
	t    *testing.T
	mu   sync.Mutex
	done []request
}

type request struct {
	began time.Time
	took  time.Duration
	err   error
}

const (
	requestTimeout = time.Second
	requestClients = 4
	requestPause   = 10 * time.Millisecond
)

// load starts clients of the address.
func (c *control) load() *requests {
	c.t.Helper()
	config := rest.CopyConfig(c.Config())
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		c.t.Fatal(err)
	}
	client := http.Client{Timeout: requestTimeout, Transport: &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true, DialContext: c.Node.DialContext}}
	l := &requests{t: c.t}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range requestClients {
		running.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				err := fetch(&client, "https://"+c.Address.String()+"/readyz")
				l.mu.Lock()
				l.done = append(l.done, request{began, time.Since(began), err})
				l.mu.Unlock()
				time.Sleep(requestPause)
			}
		})
	}
	c.t.Cleanup(func() { cancel(); running.Wait() })
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
