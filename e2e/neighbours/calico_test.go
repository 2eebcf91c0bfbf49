package neighbours

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// felix asks what Felix's KubeProxyNftablesEnabledFn asks, and as it does, with
// knftables: whether the table kube-proxy of one of the families has a chain.
type felix []knftables.Interface

// newFelix must be called and used in the namespace of the node.
func newFelix() (felix, error) {
	ip4, err := knftables.New(knftables.IPv4Family, "kube-proxy")
	if err != nil {
		return nil, err
	}
	ip6, err := knftables.New(knftables.IPv6Family, "kube-proxy")
	return felix{ip4, ip6}, err
}

func (f felix) seesNFTables(ctx context.Context) (bool, error) {
	for _, family := range f {
		chains, err := family.List(ctx, "chains")
		if err != nil && !knftables.IsNotFound(err) {
			return false, err
		}
		if len(chains) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// watch asks on the node without pause and records every change of the answer.
type watch struct {
	t       *testing.T
	c       *testbed.Cluster
	felix   felix
	mu      sync.Mutex
	answers []bool // without repetitions
	asked   int
}

func watchMode(t *testing.T, c *testbed.Cluster) *watch {
	t.Helper()
	w := &watch{t: t, c: c}
	err := c.Node.Do(func() (err error) {
		w.felix, err = newFelix()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			w.ask(ctx)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *watch) ask(ctx context.Context) {
	var got bool
	err := w.c.Node.Do(func() (err error) {
		got, err = w.felix.seesNFTables(ctx)
		return err
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.t.Errorf("look for chains of kube-proxy: %v", err)
	}
	w.asked++
	if n := len(w.answers); n == 0 || w.answers[n-1] != got {
		w.answers = append(w.answers, got)
	}
}

// want waits until the answers since the start are these, and some more questions
// have the last one.
func (w *watch) want(when string, answers ...bool) {
	w.t.Helper()
	var enough int
	testbed.Eventually(w.t, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if got, want := fmt.Sprint(w.answers), fmt.Sprint(answers); got != want {
			return fmt.Errorf("%s: answers %s, want %s", when, got, want)
		}
		if enough == 0 {
			enough = w.asked + 3
		}
		if w.asked < enough {
			return fmt.Errorf("%s: asked only %d times", when, w.asked)
		}
		return nil
	})
}

const calicoGroup = "Calico"

// Calico programs nftables where it finds chains of kube-proxy's nftables mode, and
// restarts when the answer changes: it must not while nftproxy takes over.
func TestCalicoDetectsNFTables(t *testing.T) {
	c := testbed.NewCluster(t, 1)
	web := c.CreateService(testbed.DualStack("web"))
	c.SetEndpoints(web, c.Pods...)
	kubeProxy := startKubeProxy(c, "nftables")
	c.Served(web, c.Pods...)
	w := watchMode(t, c)
	w.want("with kube-proxy", true)

	kubeProxy.End(t)
	proxy := c.StartProxy(testbed.ProxyUser)
	testbed.Eventually(t, func() error {
		if rules := c.Rules(); strings.Contains(rules, "table ip6 kube-proxy {\n\tchain served-by-nftproxy {\n\t}\n}") {
			return nil
		}
		return fmt.Errorf("no takeover yet")
	})
	c.Served(web, c.Pods...)
	w.want("after the takeover", true)
	proxy.End(t)
	proxy = c.StartProxy(testbed.ProxyUser)
	c.Served(web, c.Pods...)
	w.want("after a restart", true)

	// The way back, and another takeover.
	proxy.End(t)
	kubeProxy = startKubeProxy(c, "nftables")
	testbed.Eventually(t, func() error {
		if !strings.Contains(c.Rules(), "chain nat-prerouting") {
			return fmt.Errorf("no rules of kube-proxy yet")
		}
		return nil
	})
	c.Run(exec.Command(testbed.NFTProxy.Path, "cleanup"))
	c.Served(web, c.Pods...)
	w.want("after the way back", true)
	kubeProxy.End(t)

	proxy = c.StartProxy(testbed.ProxyUser)
	testbed.Eventually(t, func() error {
		if strings.Contains(c.Rules(), "chain nat-prerouting") {
			return fmt.Errorf("no takeover yet")
		}
		return nil
	})
	proxy.End(t)
	w.want("after another takeover", true)
	c.Run(exec.Command(testbed.NFTProxy.Path, "cleanup"))
	w.want("after cleanup", true, false)
	finds(t, finding{Group: calicoGroup, Neighbour: "Calico", Case: "detection of nftables mode: takeover from kube-proxy in mode nftables, restart, way back, cleanup",
		Verdict: works})
}

// After the other modes, Calico stays with iptables, unless the operator wants it to
// change.
func TestCalicoAfterIPTables(t *testing.T) {
	for name, c := range map[string]struct {
		flags   []string
		answers []bool
	}{
		"by default":           {nil, []bool{false}},
		"--announce-nftables":  {[]string{"--announce-nftables"}, []bool{false, true}},
		"beside kube-proxy":    {[]string{"--service-proxy-name", "canary"}, []bool{false}},
		"beside it, announced": {[]string{"--service-proxy-name", "canary", "--announce-nftables"}, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			b := testbed.NewCluster(t, 1)
			web := b.CreateService(testbed.DualStack("web"))
			b.SetEndpoints(web, b.Pods...)
			w := watchMode(t, b)
			kubeProxy := startKubeProxy(b, "iptables")
			b.Served(web, b.Pods...)
			w.want("with kube-proxy", false)
			if !slices.Contains(c.flags, "canary") {
				kubeProxy.End(t)
			}
			proxy := b.StartProxyOn(b.Node, append([]string{"--healthz-bind-address", "127.0.0.1:10356", "--metrics-bind-address", "127.0.0.1:10349"}, c.flags...)...)
			// A second proxy serves only what has its label.
			s := testbed.DualStack("served")
			if slices.Contains(c.flags, "canary") {
				s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "canary"}
			}
			served := b.CreateService(s)
			b.SetEndpoints(served, b.Pods...)
			b.Served(served, b.Pods...)
			w.want("with nftproxy", c.answers...)
			proxy.End(t)
			b.Run(exec.Command(testbed.NFTProxy.Path, "cleanup"))
			if last := len(c.answers) - 1; c.answers[last] {
				c.answers = append(c.answers, false)
			}
			w.want("after cleanup", c.answers...)
			finds(t, finding{Group: calicoGroup, Neighbour: "Calico", Case: "detection of nftables mode, kube-proxy in mode iptables: " + name,
				Verdict: works})
		})
	}
}

func startKubeProxy(c *testbed.Cluster, mode string) *testbed.Process {
	c.T.Helper()
	return testbed.Start(c.T, c.Node, testbed.KubeProxy, "--kubeconfig", c.Kubeconfig(testbed.ProxyUser), "--hostname-override", testbed.NodeName,
		"--proxy-mode", mode, "--cluster-cidr", testbed.ClusterCIDRs, "--conntrack-max-per-core", "0")
}
