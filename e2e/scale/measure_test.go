package scale

import (
	"fmt"
	"os"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// restarts are the restarts of all proxies, spread over some time.
var restarts = []struct {
	spread    time.Duration
	operation results.Operation
}{{5 * time.Second, results.WatchRestart5}, {30 * time.Second, results.WatchRestart30}}

func newMeasurement(t testing.TB, services int, e effort) *measurement {
	t.Helper()
	c := testbed.NewCluster(t, 1, testbed.WithoutOwnEndpoint)
	m := &measurement{effort: e, t: t, services: services}
	m.requests = watchesOf(c, results.KubeProxy)
	m.content = fill(c, services)
	_, err := c.API.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "proxy"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: account}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig(account, "system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const (
	// maxEvents is the most events of a rolling update: of a larger one a part is
	// measured.
	maxEvents = 400_000
	// maxRestarts is the most watchers that are restarted in all ways.
	maxRestarts = 1000
)

// measure measures all operations with the watchers of a program.
func (m *measurement) measure(t testing.TB) {
	m.t = t
	m.newFleet()
	m.start(min(m.n, 10), 0, "") // fills the caches of the server
	m.end()
	m.operation(results.WatchRestart, 1, func() []time.Duration { return m.start(m.n, 0, "") })
	m.settle()
	if m.idle > 0 {
		m.operation(results.WatchIdle, m.idle.Seconds(), func() []time.Duration { await.Span(m.idle); return nil })
	}
	m.operation(results.WatchReplace, float64(m.replacements), func() []time.Duration {
		return m.changes(m.replacements, func(int) error { return m.replace() })
	})
	rolled := min(m.rolled, max(1, maxEvents/rolloutWrites/m.n))
	m.operation(results.WatchRollout, float64(rolled)/large, func() []time.Duration { return m.changes(rolloutWrites*rolled, m.roll) })
	version := m.version()
	m.end()
	m.operation(results.WatchResume, 1, func() []time.Duration { return m.start(m.n, 0, version) })
	m.end()
	if m.n > maxRestarts {
		return
	}
	m.fleet.lists = true
	m.operation(results.WatchList, 1, func() []time.Duration { return m.start(m.n, 0, version) })
	m.end()
	m.fleet.plain = true
	m.operation(results.WatchPlainList, 1, func() []time.Duration { return m.start(m.n, 0, version) })
	m.end()
	m.fleet.lists, m.fleet.plain = false, false
	for _, r := range restarts {
		if m.idle > 0 {
			m.operation(r.operation, 1, func() []time.Duration { return m.start(m.n, r.spread, "") })
			m.end()
		}
	}
}

func (m *measurement) newFleet() {
	m.t.Helper()
	config, err := rest.TLSConfigFor(m.config)
	if err != nil {
		m.t.Fatal(err)
	}
	config.NextProtos = []string{"h2"}
	m.fleet = &fleet{dial: m.c.Node.DialContext, tls: config, requests: m.requests}
}

func (m *measurement) start(n int, spread time.Duration, version string) []time.Duration {
	m.t.Helper()
	took, err := m.fleet.start(n, spread, version)
	if err != nil {
		m.t.Fatal(err)
	}
	return took
}

// end ends all watchers.
func (m *measurement) end() {
	m.t.Helper()
	m.fleet.close()
	m.settle()
}

// changes makes changes, each after all watchers have the one before, and returns
// how long after a change each watcher had it.
func (m *measurement) changes(count int, change func(i int) error) (took []time.Duration) {
	m.t.Helper()
	for i := range count {
		begin := time.Now()
		if err := change(i); err != nil {
			m.t.Fatal(err)
		}
		for range m.n {
			select {
			case at := <-m.fleet.slices:
				took = append(took, at.Sub(begin))
			case err := <-m.fleet.failed:
				m.t.Fatal(err)
			}
		}
	}
	return took
}

// calm is the processor time that the server uses in a second without work.
const calm = 50 * time.Millisecond

// settle waits until the API server has finished its work.
func (m *measurement) settle() {
	m.t.Helper()
	testbed.Eventually(m.t, func() error {
		before := m.c.Server.CPU(m.t)
		await.Span(time.Second)
		if used := m.c.Server.CPU(m.t) - before; used >= calm+time.Duration(m.n)*calm/1000 {
			return fmt.Errorf("the API server uses %s of processor time in a second", used)
		}
		return nil
	})
}

// operation records what f costs the API server. The costs are divided by count.
func (m *measurement) operation(name results.Operation, count float64, f func() []time.Duration) {
	m.t.Helper()
	if err := os.WriteFile(m.c.Server.ProcFile("clear_refs"), []byte("5"), 0); err != nil { // resets VmHWM
		m.t.Fatal(err)
	}
	cpu, received, rejected := m.c.Server.CPU(m.t), m.fleet.bytes.Load(), m.fleet.rejected.Load()
	begin := time.Now()
	took := results.Durations(f())
	r := results.Record{
		Program: m.program, Services: m.services, Endpoints: testbed.LoadEndpoints, Watchers: m.n, Operation: name, Seconds: took,
		Memory: m.c.Server.Memory(m.t),
		Server: &results.Server{
			Seconds:  time.Since(begin).Seconds() / count,
			CPU:      (m.c.Server.CPU(m.t) - cpu).Seconds() / count,
			Bytes:    float64(m.fleet.bytes.Load()-received) / count,
			Rejected: m.fleet.rejected.Load() - rejected,
		},
	}
	m.records = append(m.records, r)
	fmt.Printf("%s, %d watchers, %s: %.4f s, CPU %.4f s, %.0f bytes, %d rejected, %d broken, RSS %d MiB, peak %d MiB; %+v\n", m.program, m.n, name,
		r.Server.Seconds, r.Server.CPU, r.Server.Bytes, r.Server.Rejected, m.fleet.broken.Swap(0), r.Memory.Resident>>20, r.Memory.Peak>>20, took)
}
