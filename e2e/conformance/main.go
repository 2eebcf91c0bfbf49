// Command conformance runs the sig-network tests of Kubernetes against service
// proxies in clusters with real kubelets on this machine, and writes
// docs/conformance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// settings are the command line.
type settings struct {
	proxies, families, focus, document, logs string
	nodes, processes                         int
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
	flag.IntVar(&s.processes, "processes", 8, "tests that run at the same time")
	flag.DurationVar(&s.limit, "limit", time.Hour, "time limit of the tests of one cluster")
	flag.BoolVar(&s.keep, "keep", false, "keep the last cluster until a signal (Ctrl-C), and print how to use it")
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
	var failed []string
	for _, f := range strings.Split(s.families, ",") {
		families, err := kubelets.ParseFamilies(f)
		if err != nil {
			return err
		}
		for _, proxy := range strings.Split(s.proxies, ",") {
			r, err := s.cluster(ctx, programs, families, kubelets.Proxy(proxy))
			if err != nil {
				return fmt.Errorf("%s, %s: %w", proxy, families, err)
			}
			failed = append(failed, r.failed()...)
			if s.document == "" || s.focus != "" {
				continue
			}
			if err := r.save(s.document); err != nil {
				return err
			}
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d tests failed:\n  %s", len(failed), strings.Join(failed, "\n  "))
	}
	return nil
}

// cluster runs the tests with one proxy in a cluster that is made for them.
func (s settings) cluster(ctx context.Context, programs *kubelets.Programs, families kubelets.Families, proxy kubelets.Proxy) (_ *result, err error) {
	c, err := kubelets.Start(ctx, kubelets.Options{Programs: programs, Families: families, Nodes: s.nodes, Log: os.Stdout,
		Logs: filepath.Join(s.logs, fmt.Sprintf("%s-%s", proxy, families))})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if proxy == kubelets.NFTProxy {
		err = c.Deploy(ctx)
	} else {
		err = c.StartProxies(ctx, proxy)
	}
	if err != nil {
		return nil, err
	}
	if err := c.StartBalancer(os.Stdout, kubelets.LoadBalancerTests); err != nil {
		return nil, err
	}
	r, err := s.test(ctx, c, proxy)
	if err != nil {
		return nil, err
	}
	r.print(os.Stdout)
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

// test runs the tests, by the program that Kubernetes runs them with.
func (s settings) test(ctx context.Context, c *kubelets.Cluster, proxy kubelets.Proxy) (*result, error) {
	report := filepath.Join(c.Dir, "report.json")
	args := []string{
		fmt.Sprintf("--procs=%d", s.processes), "--no-color", "--keep-going", "--silence-skips", "--succinct",
		"--timeout=" + s.limit.String(), "--poll-progress-after=10m", "--output-dir=" + c.Dir, "--json-report=report.json",
		`--focus=\[sig-network\]`, "--skip=" + leftOut.pattern(),
	}
	if s.focus != "" {
		args[len(args)-2] = "--focus=" + s.focus
	}
	cmd := c.ControlCommand(ctx, c.Programs.Path("ginkgo"), append(args, c.Programs.Path("e2e.test"), "--",
		"--provider=skeleton", "--kubeconfig="+c.Kubeconfig, "--kubectl-path="+c.Programs.Path("kubectl"),
		fmt.Sprintf("--num-nodes=%d", s.nodes), "--disable-log-dump")...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	log, err := os.Create(filepath.Join(c.Logs, "e2e.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	begin := time.Now()
	fmt.Printf("run the tests against %s, %s; output in %s\n", proxy, c.Families, log.Name())
	runError := c.Control.Run(cmd)
	r, err := readReport(report)
	if err != nil {
		return nil, errors.Join(runError, err)
	}
	r.describe(c, proxy, time.Since(begin))
	return r, nil
}
