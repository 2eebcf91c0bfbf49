package ipvs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/e2e/ipvs/report"
	"github.com/nftproxy/nftproxy/test/debian"
)

// packages are the programs in the virtual machine: those that kube-proxy runs, and those
// that docs/ipvs.md names.
var packages = debian.Set{Name: "-ipvs", Packages: []string{"nftables", "iptables", "ipset", "ipvsadm", "iproute2", "procps", "conntrack"}}

// Files of the virtual machine.
const (
	kubeProxyFile = "/programs/kube-proxy"
	nftproxyFile  = "/programs/nftproxy"
	orderFile     = "/order.json"
)

// order is what the virtual machine gets to do.
type order struct {
	Kubeconfig string
	Schedulers []string
	Web        testbed.Service // with a ClusterIP, NodePorts and load balancer addresses
	Sticky     testbed.Service // with session affinity
}

// loadBalancers are addresses as MetalLB announces them: no interface has them.
var loadBalancers = []string{"203.0.113.10", "2001:db8:203::10"}

// A node leaves kube-proxy's mode ipvs for nftproxy and returns, while clients make
// requests (12.59, 12.61, 12.89). SCHEDULERS names those of IPVS to start from.
func TestLeaveIPVS(t *testing.T) {
	schedulers := os.Getenv("SCHEDULERS")
	if schedulers == "" {
		schedulers = "rr"
	}
	c := testbed.NewCluster(t, 3)
	o := order{Kubeconfig: kubeconfig(c), Schedulers: strings.Split(schedulers, ","), Web: createWeb(c)}
	sticky := testbed.DualStack("sticky")
	sticky.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	o.Sticky = c.CreateService(sticky)
	for _, s := range []testbed.Service{o.Web, o.Sticky} {
		c.SetEndpoints(s, c.Pods...)
	}
	found := boot(c, o)
	if results := os.Getenv("RESULTS"); results != "" {
		if err := report.Write(results, os.Getenv("PAGE"), found); err != nil {
			t.Fatal(err)
		}
	}
	check(t, found)
}

// check checks that clients noticed nothing, except for what docs/ipvs.md says: datagrams
// in flight while the node is taken over, and connections of the node itself, which lose
// their address or are opened at the moment of the cleanup.
func check(t *testing.T, found []byte) {
	t.Helper()
	var r report.Results
	if err := json.Unmarshal(found, &r); err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Moves {
		for _, p := range m.Phases {
			for _, c := range p.Counts {
				if c.Requests == 0 && c.Kind != ownOpen { // whose connections may all be broken
					t.Errorf("%s, %s, %s: no request", m.Scheduler, p.Name, c.Kind)
				}
				if c.Failed > 0 && !expected(p.Name, c) {
					t.Errorf("%s, %s, %s: %d of %d failed: %s", m.Scheduler, p.Name, c.Kind, c.Failed, c.Requests, c.Error)
				}
			}
		}
	}
}

func expected(phase string, c report.Count) bool {
	switch c.Kind {
	case ownOpen:
		return phase == takeOver
	case ownNew:
		return phase == takeOver || phase == cleanUp
	case openUDP:
		return phase == takeOver && c.Broken == 0
	}
	return false
}

func createWeb(c *testbed.Cluster) testbed.Service {
	c.T.Helper()
	s := testbed.DualStack("web")
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	web := c.CreateService(s)
	services := c.API.CoreV1().Services(testbed.Namespace)
	made, err := services.Get(c.T.Context(), web.Name, metav1.GetOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	for _, a := range loadBalancers {
		made.Status.LoadBalancer.Ingress = append(made.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	if _, err := services.UpdateStatus(c.T.Context(), made, metav1.UpdateOptions{}); err != nil {
		c.T.Fatal(err)
	}
	return web
}

// kubeconfig returns the kubeconfig of the proxies. qemu forwards an address of its user network to
// the loopback interface.
func kubeconfig(c *testbed.Cluster) string {
	c.T.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig(testbed.ProxyUser))
	if err != nil {
		c.T.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.TLSServerName = "https://10.0.2.2:6443", "127.0.0.1"
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		c.T.Fatal(err)
	}
	return string(text)
}

// boot runs the virtual machine in the network namespace of the API server, and returns
// what it counted.
func boot(c *testbed.Cluster, o order) []byte {
	t := c.T
	t.Helper()
	system, err := debian.Unpack(t.Context(), debian.Newest(), packages)
	if err != nil {
		t.Fatal(err)
	}
	initrd, answers := filepath.Join(c.Dir, "initrd"), filepath.Join(c.Dir, "answers")
	if err := writeImage(initrd, system, o); err != nil {
		t.Fatal("make the initial file system: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(o.Schedulers))*time.Hour)
	defer cancel()
	machine := system.Command(ctx, initrd, guestCommand, answers, "-smp", "2",
		"-netdev", "user,id=api", "-device", "virtio-net-pci,netdev=api,romfile=")
	machine.Stdout, machine.Stderr = t.Output(), t.Output()
	if err := c.Node.Run(machine); err != nil {
		t.Fatal(err)
	}
	found, err := os.ReadFile(answers)
	if err != nil || !json.Valid(found) {
		t.Fatalf("the test failed in the virtual machine, see its output: %v", err)
	}
	return found
}

func writeImage(path string, system debian.System, o order) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return debian.WriteImage(path, func(i *debian.Image) error {
		return errors.Join(i.AddTree(system.Root(), "/"), i.Add(self, "/init"), i.Add(testbed.KubeProxy.Path, kubeProxyFile),
			i.Add(testbed.NFTProxy.Path, nftproxyFile), i.AddContent(orderFile, 0o600, string(text)))
	})
}

// answer writes what was counted to the second serial port.
func answer(r report.Results) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	port, err := os.OpenFile(debian.AnswersPort(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.WriteString(port, string(text)+"\n")
	return errors.Join(err, port.Close())
}
