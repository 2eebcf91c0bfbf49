// Command conformance runs the sig-network tests of Kubernetes against service
// proxies in clusters with real kubelets on this machine, and writes
// docs/conformance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// settings are the command line.
type settings struct {
	proxies, families, focus, document, logs string
	nodes, processes, clusters               int
	keep, buildOnly, ifCached                bool
	limit                                    time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.proxies, "proxy", "nftproxy", "proxies to test: nftproxy, kube-proxy or both, separated by a comma")
	flag.StringVar(&s.families, "families", "ipv4,ipv6,dual", "clusters to make: ipv4, ipv6, dual, dual-ipv6 (IPv6 first)")
	flag.StringVar(&s.focus, "focus", "", "run only tests whose name matches this `regexp`")
	flag.StringVar(&s.document, "document", "", "update this page, and results.json in the directory beside it, if tests were not selected by -focus")
	flag.StringVar(&s.logs, "logs", filepath.Join(os.TempDir(), "nftproxy-conformance"), "directory of the logs of all processes, which stay")
	flag.IntVar(&s.nodes, "nodes", 3, "nodes of each cluster")
	flag.IntVar(&s.processes, "processes", 6, "tests that run at the same time in a cluster")
	flag.IntVar(&s.clusters, "clusters", 2, "clusters at the same time")
	flag.DurationVar(&s.limit, "limit", time.Hour, "time limit of the tests of one cluster")
	flag.BoolVar(&s.keep, "keep", false, "keep each cluster until a signal (Ctrl-C), and print how to use it")
	flag.BoolVar(&s.buildOnly, "build", false, "compile what is needed, and end")
	flag.BoolVar(&s.ifCached, "if-cached", false, "do nothing if programs of Kubernetes would have to be compiled")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "conformance: %v\n", err)
		os.Exit(1)
	}
}

func (s settings) run(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("nodes need namespaces, mounts and cgroups: run this as root")
	}
	if s.ifCached && !kubelets.Cached() {
		fmt.Println("the programs of Kubernetes are not in the cache: nothing was tested")
		return nil
	}
	programs, err := kubelets.Build(ctx, os.Stdout)
	if err != nil || s.buildOnly {
		return err
	}
	jobs, err := s.jobs()
	if err != nil {
		return err
	}
	return s.runJobs(ctx, programs, jobs)
}

// job is a cluster to make, and the proxy that is tested in it.
type job struct {
	families kubelets.Families
	proxy    kubelets.Proxy
}

func (s settings) jobs() (jobs []job, err error) {
	for _, f := range strings.Split(s.families, ",") {
		families, err := kubelets.ParseFamilies(f)
		if err != nil {
			return nil, err
		}
		for _, p := range strings.Split(s.proxies, ",") {
			proxy := kubelets.Proxy(p)
			if proxy != kubelets.NFTProxy && proxy != kubelets.KubeProxy {
				return nil, fmt.Errorf("proxy %q: want nftproxy or kube-proxy", p)
			}
			jobs = append(jobs, job{families, proxy})
		}
	}
	return jobs, nil
}

// runJobs runs some clusters at the same time: much of a test is waiting.
func (s settings) runJobs(ctx context.Context, programs *kubelets.Programs, jobs []job) error {
	before, err := network()
	if err != nil {
		return err
	}
	var (
		group  errgroup.Group
		mu     sync.Mutex
		failed []string
	)
	group.SetLimit(s.clusters)
	for _, j := range jobs {
		group.Go(func() error {
			r, err := s.cluster(ctx, programs, j)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", j.proxy, j.families, err)
			}
			mu.Lock()
			defer mu.Unlock()
			r.print(os.Stdout)
			failed = append(failed, r.failed()...)
			if s.document == "" || s.focus != "" {
				return nil
			}
			return r.save(s.document)
		})
	}
	err = group.Wait()
	if after, e := network(); e != nil {
		err = errors.Join(err, e)
	} else if after != before {
		err = errors.Join(err, fmt.Errorf("the network of the machine changed from\n%s\nto\n%s", before, after))
	}
	if len(failed) > 0 {
		err = errors.Join(err, fmt.Errorf("%d tests failed:\n  %s", len(failed), strings.Join(failed, "\n  ")))
	}
	return err
}

// cluster runs the tests with one proxy in a cluster that is made for them.
func (s settings) cluster(ctx context.Context, programs *kubelets.Programs, j job) (_ *result, err error) {
	c, err := kubelets.Start(ctx, kubelets.Options{Programs: programs, Families: j.families, Nodes: s.nodes, Log: os.Stdout,
		Logs: filepath.Join(s.logs, fmt.Sprintf("%s-%s", j.proxy, j.families))})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close(), remainsAfter(c.Dir, removal)) }()
	if j.proxy == kubelets.NFTProxy {
		err = c.Deploy(ctx)
	} else {
		err = c.StartProxies(ctx, j.proxy)
	}
	if err != nil {
		return nil, err
	}
	if err := c.StartBalancer(os.Stdout, kubelets.LoadBalancerTests); err != nil {
		return nil, err
	}
	r, err := s.test(ctx, c, j.proxy)
	if err != nil {
		return nil, err
	}
	if s.keep {
		fmt.Printf("Enter a node: nsenter -t PID -a, with the process id of its init below.\n"+
			"Use the cluster: nsenter -t %d -n env KUBECONFIG=%s %s\n", c.ControlPID(), c.Kubeconfig, programs.Path("kubectl"))
		for _, n := range c.NodeList {
			fmt.Printf("  %s: %d\n", n.Name, n.PID())
		}
		<-ctx.Done()
	}
	return r, nil
}

// test runs the tests, the slow ones beside the others: they take a quarter of an
// hour and wait most of it.
func (s settings) test(ctx context.Context, c *kubelets.Cluster, proxy kubelets.Proxy) (*result, error) {
	begin := time.Now()
	fmt.Printf("run the tests against %s, %s; output in %s\n", proxy, c.Families, c.Logs)
	skip := omitted(c.Families).pattern() + "|" + elsewhere(c.Families)
	batches := []batch{{"tests", `\[sig-network\]`, skip + "|" + slow, s.processes}}
	if c.Families == kubelets.IPv4 {
		batches = append(batches, batch{"slow", slow, skip, 2})
	}
	if s.focus != "" {
		batches = []batch{{"tests", s.focus, skip, s.processes}}
	}
	var group errgroup.Group
	parts := make([]*result, len(batches))
	for i, b := range batches {
		group.Go(func() (err error) {
			parts[i], err = s.ginkgo(ctx, c, b)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	r := parts[0]
	for _, p := range parts[1:] {
		maps.Copy(r.Tests, p.Tests)
	}
	r.describe(c, proxy, time.Since(begin))
	return r, nil
}

// batch is tests that one ginkgo runs.
type batch struct {
	name, focus, skip string
	processes         int
}

// ginkgo runs tests by the program that Kubernetes runs them with.
func (s settings) ginkgo(ctx context.Context, c *kubelets.Cluster, b batch) (*result, error) {
	report := b.name + ".json"
	// If ginkgo is killed it writes none, and the one of an earlier run is not this run's.
	if err := os.Remove(filepath.Join(c.Logs, report)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	cmd := c.ControlCommand(ctx, c.Programs.Path("ginkgo"),
		fmt.Sprintf("--procs=%d", b.processes), "--no-color", "--keep-going", "--silence-skips", "--succinct", "--flake-attempts=2",
		"--timeout="+s.limit.String(), "--poll-progress-after=20m", "--output-dir="+c.Logs, "--json-report="+report,
		"--focus="+b.focus, "--skip="+b.skip, c.Programs.Path("e2e.test"), "--",
		"--provider=skeleton", "--kubeconfig="+c.Kubeconfig, "--kubectl-path="+c.Programs.Path("kubectl"),
		fmt.Sprintf("--num-nodes=%d", s.nodes), "--disable-log-dump")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	// The first process of its own process ids: what it started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	log, err := os.Create(filepath.Join(c.Logs, b.name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	// Its error only says that tests failed, if there is a report.
	runError := c.Control.Run(cmd)
	r, err := readReport(filepath.Join(c.Logs, report), omitted(c.Families))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("see %s", log.Name()), runError, err)
	}
	return r, nil
}
