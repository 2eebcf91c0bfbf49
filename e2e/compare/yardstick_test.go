package compare

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// yardstickRounds is how often everything is measured, one after the other.
const yardstickRounds = 5

// yardstick measures starts of nftproxy beside the least that they consist of: the
// list of the objects by client-go, and the transaction. Nothing observes the
// kernel meanwhile.
type yardstick struct {
	*testbed.Population
	config string
	report *testbed.ComparisonReport
}

// BenchmarkStart measures starts of the process. Its variables are those of
// BenchmarkCompare.
func BenchmarkStart(b *testing.B) {
	r := testbed.NewReport(b)
	for _, services := range loadSizes(b, 10_000) {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			c := testbed.NewCluster(b, testbed.LoadEndpoints+1, testbed.WithoutOwnEndpoint)
			y := &yardstick{c.Populate(services), filepath.Join(b.TempDir(), "config"), r}
			y.measure()
		})
	}
	r.Write(b)
}

func (y *yardstick) measure() {
	config := fmt.Sprintf(`{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, mode: nftables,
clientConnection: {kubeconfig: %q}, hostnameOverride: %s, clusterCIDR: %q, conntrack: {maxPerCore: 0}}
`, y.C.Kubeconfig(testbed.ProxyUser), testbed.NodeName, testbed.ClusterCIDRs)
	if err := os.WriteFile(y.config, []byte(config), 0o600); err != nil {
		y.C.T.Fatal(err)
	}
	var list, load, cold, restart []time.Duration
	var ofCold, ofRestart []float64
	for range yardstickRounds {
		y.C.Run(exec.Command("nft", "flush", "ruleset"))
		l := y.list()
		c, transactions := y.start()
		r, _ := y.start()
		list, load, cold, restart = append(list, l), append(load, transactions), append(cold, c), append(restart, r)
		ofCold = append(ofCold, c.Seconds()/(l+transactions).Seconds())
		ofRestart = append(ofRestart, r.Seconds()/(l+transactions).Seconds())
	}
	y.record(results.Reflectors, results.ListObjects, list, nil)
	y.record(results.Nftproxy, results.LoadRules, load, nil)
	y.record(results.Nftproxy, results.ColdStart, cold, ofCold)
	y.record(results.Nftproxy, results.Restart, restart, ofRestart)
	fmt.Printf("list %v, load %v, cold start %v, %.2f; restart %v, %.2f\n", list, load, cold, ofCold, restart, ofRestart)
}

func (y *yardstick) record(p results.Program, o results.Operation, took []time.Duration, ratios []float64) {
	r := results.Record{Program: p, Scenario: results.Unobserved, Services: y.Services, Endpoints: testbed.LoadEndpoints,
		Operation: o, From: results.FromProcess, Seconds: results.Durations(took)}
	if ratios != nil {
		r.Ratios = map[results.Operation]*results.Distribution{results.ListAndLoad: results.Values(ratios)}
	}
	y.report.File.Records = append(y.report.File.Records, r)
}

// list returns how long the reflectors of client-go need, from process start.
func (y *yardstick) list() time.Duration {
	t := y.C.T
	t.Helper()
	begin := time.Now()
	p := testbed.Start(t, y.C.Node, testbed.Reflectors, y.C.Kubeconfig(testbed.ProxyUser))
	defer p.Kill()
	var took time.Duration
	err := await.Poll(testbed.Patience, time.Millisecond, func() error {
		if took = time.Since(begin); !strings.HasSuffix(p.Log.String(), "\n") {
			return fmt.Errorf("the objects are not listed: %s", p.Log.String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return took
}

// start returns how long nftproxy needs until it has synced, by its own metrics, and
// how much of that transactions are.
func (y *yardstick) start() (took, transactions time.Duration) {
	t := y.C.T
	t.Helper()
	begin := time.Now()
	p := testbed.Start(t, y.C.Node, testbed.NFTProxy, "run", "--config", y.config)
	defer p.End(t)
	err := y.C.Node.Do(func() error {
		return await.Poll(testbed.Patience, 10*time.Millisecond, func() error {
			synced, err := testbed.ReadMetric(testbed.MetricsServer, `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} `)
			if err != nil || synced == 0 {
				return fmt.Errorf("no sync: %w\n%s", err, p.Log.String())
			}
			took = time.UnixMicro(int64(synced * 1e6)).Sub(begin)
			sum, err := testbed.ReadMetric(testbed.MetricsServer, "nftproxy_transaction_duration_seconds_sum ")
			transactions = time.Duration(sum * float64(time.Second))
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return took, transactions
}
