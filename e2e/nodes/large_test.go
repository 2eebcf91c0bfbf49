package nodes

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Size of the large node. Its pods are those that stay, those that are deleted and
// created without pause, and the servers, which are rolled over without pause.
const (
	largeServices = 5000
	stayingPods   = 180
	changingPods  = 50 // in as many Services as changers
	changers      = 5
	serverPods    = 20
)

// A node has 250 pods, and the cluster 5,000 Services of four endpoints, while
// pods are deleted and created without pause. kube-proxy and nftproxy serve it one
// after the other. NODE_TIME is how long each (default 10m).
func BenchmarkNode(b *testing.B) {
	limit, err := time.ParseDuration(cmp.Or(os.Getenv("NODE_TIME"), "10m"))
	if err != nil {
		b.Fatal(err)
	}
	c := startLarge(b)
	var records []results.Record
	for _, proxy := range []kubelets.Proxy{kubelets.KubeProxy, kubelets.NFTProxy} {
		c.use(b, proxy)
		records = append(records, c.measure(b, proxy, limit))
	}
	saveNode(b, c, records)
}

// startLarge starts a cluster of a large node and a small one, on which clients run.
func startLarge(b *testing.B) *cluster {
	b.Helper()
	p, err := build()
	if err != nil {
		b.Fatal(err)
	}
	k, err := kubelets.Start(b.Context(), kubelets.Options{Programs: p, Families: kubelets.DualStack, Nodes: 2, MaxPods: 300,
		Log: os.Stdout, Logs: os.Getenv("LOGS")})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &cluster{Cluster: k, stopGates: cancel}
	b.Cleanup(func() {
		cancel()
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	go c.openGates(ctx)
	if err := c.StartBalancer(os.Stdout, func(namespace string) bool { return namespace == "default" }); err != nil {
		b.Fatal(err)
	}
	c.kubectl(b, "cordon", "n2") // all pods go to n1, except those that name their node
	manifest := strings.Replace(webManifest, "replicas: 3", "replicas: "+strconv.Itoa(serverPods), 1)
	manifest += fill("stay", stayingPods)
	for i := range changers {
		manifest += fill(fmt.Sprint("change", i), changingPods/changers)
	}
	if err := c.Apply(b.Context(), manifest); err != nil {
		b.Fatal(err)
	}
	for _, d := range strings.Fields(c.kubectl(b, "get", "deployments", "-o", "name")) {
		c.kubectl(b, "rollout", "status", d, "--timeout=900s") // of all pods, whose addresses the Services need
	}
	c.addServices(b, "many", largeServices-changers-1, c.podAddresses(b, "stay")...)
	return c
}

// fill returns pods that do nothing, and their Service.
func fill(name string, pods int) string {
	return fmt.Sprintf(`
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: pause, image: "registry.k8s.io/pause:3.10.2"}]
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{port: 80}]}`, name, pods)
}

func (c *cluster) podAddresses(t testing.TB, app string) (all []string) {
	t.Helper()
	pods, err := c.API.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		all = append(all, p.Status.PodIP)
	}
	return all
}

// measure has clients make requests while pods change.
func (c *cluster) measure(b *testing.B, proxy kubelets.Proxy, limit time.Duration) results.Record {
	b.Helper()
	l := c.startLoad(b, place{node: "n2", frontends: []frontends{clusterIPs, nodePorts("n1"), balanced}},
		place{node: "n1", host: true, frontends: []frontends{clusterIPs}},
		place{frontends: []frontends{nodePorts("n1"), balanced}})
	defer l.end()
	before, begin := c.proxyProcess(b, proxy), time.Now()
	changed := c.changePods(b, limit)
	took := time.Since(begin)
	after, counts := c.proxyProcess(b, proxy), l.result()
	fmt.Printf("%s, %.0f s, %d pods replaced, %.1f %% of a processor, %d MiB resident, %d MiB at most:\n%s\n", proxy, took.Seconds(), changed,
		100*(after.cpu-before.cpu).Seconds()/took.Seconds(), after.memory.Resident>>20, after.memory.Peak>>20, table(column{string(proxy), counts}))
	if proxy == kubelets.NFTProxy {
		mustAnswer(b, counts)
	}
	soak := &results.Soak{Seconds: took.Seconds(), Changes: changed}
	for _, n := range counts {
		soak.Requests, soak.Lost = soak.Requests+n.Sent, soak.Lost+n.Failed
	}
	return results.Record{Program: results.Program(proxy), Scenario: "250 pods", Services: largeServices, Endpoints: 4, Operation: results.NodePods,
		Processor: results.Values([]float64{(after.cpu - before.cpu).Seconds() / took.Seconds()}), Memory: &after.memory, Soak: soak}
}

// changePods replaces pods until the time is over, and returns how many.
func (c *cluster) changePods(b *testing.B, limit time.Duration) int {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	var changed atomic.Int64
	var all sync.WaitGroup
	for i := range changers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := c.replacePod(ctx, fmt.Sprint("change", i)); err == nil {
					changed.Add(1)
				} else if ctx.Err() == nil {
					b.Errorf("replace a pod: %v", err)
					return
				}
			}
		})
	}
	for ctx.Err() == nil {
		c.kubectl(b, "rollout", "restart", "deployment/web")
		c.kubectl(b, "rollout", "status", "deployment/web", "--timeout=600s")
		changed.Add(serverPods)
	}
	all.Wait()
	return int(changed.Load())
}

// replacePod deletes a pod of a Deployment, and waits until another one runs.
func (c *cluster) replacePod(ctx context.Context, app string) error {
	pods := c.API.CoreV1().Pods("default")
	running := metav1.ListOptions{LabelSelector: "app=" + app, FieldSelector: "status.phase=Running"}
	list, err := pods.List(ctx, running)
	if err != nil {
		return err
	}
	old := map[string]bool{}
	for _, p := range list.Items {
		old[p.Name] = true
	}
	if err := pods.Delete(ctx, list.Items[rand.IntN(len(list.Items))].Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for {
		if list, err = pods.List(ctx, running); err != nil {
			return err
		}
		for _, p := range list.Items {
			if !old[p.Name] {
				return nil
			}
		}
		if !await.Pace(ctx.Done(), 200*time.Millisecond) { // between two attempts
			return ctx.Err()
		}
	}
}

// process is what the proxy of the large node has used.
type process struct {
	cpu    time.Duration
	memory results.Memory
}

func (c *cluster) proxyProcess(t testing.TB, proxy kubelets.Proxy) (p process) {
	t.Helper()
	out, err := c.Node("n1").Output("sh", "-ec", "pid=$(pgrep -o -f '^/usr/local/bin/"+string(proxy)+"'); cat /proc/$pid/stat /proc/$pid/status")
	if err != nil {
		t.Fatal(err)
	}
	stat, status, _ := strings.Cut(out, "\n")
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	for _, f := range fields[11:13] { // utime, stime
		ticks, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		p.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	for _, line := range strings.Split(status, "\n") {
		var kib uint64
		if _, err := fmt.Sscanf(line, "VmRSS: %d", &kib); err == nil {
			p.memory.Resident = kib << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d", &kib); err == nil {
			p.memory.Peak = kib << 10
		}
	}
	return p
}

// saveNode writes the records to the file that RESULTS names.
func saveNode(b *testing.B, c *cluster, records []results.Record) {
	b.Helper()
	machine, err := results.ThisMachine()
	if err != nil {
		b.Fatal(err)
	}
	path := os.Getenv("RESULTS")
	if path == "" {
		return
	}
	file := &results.File{Machine: machine, Date: time.Now().UTC(), Records: records,
		Versions: map[string]string{"nftproxy": c.Programs.NFTProxyVersion(), "kube-proxy": kubelets.KubernetesVersion}}
	if err := file.Write(filepath.Clean(path)); err != nil {
		b.Fatal(err)
	}
}
