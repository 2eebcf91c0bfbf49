package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nftproxy/nftproxy/internal/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// outage is how long the API server is away: E2E_LONG=1 makes it longer than
// the longest wait of the client library between two attempts.
func outage() time.Duration {
	if os.Getenv("E2E_LONG") != "" {
		return time.Minute
	}
	return 10 * time.Second
}

// During a long outage of the API server everything keeps working; afterwards
// changes are applied again.
func TestLongOutage(t *testing.T) {
	c, web, _ := newServing(t)
	before, rules := c.Generation(), c.Rules()
	l := c.StartLoad(web)
	c.Server.Kill()
	await.Span(outage())
	c.Commits(before, 0, "the API server is away")

	c.StartServer()
	c.Commits(before, 0, "the API server is back")
	c.unchanged(rules, "the API server is back")
	back := time.Now()
	c.SetEndpoints(web, c.Pods...)
	c.Reached(web, c.Pods...)
	fmt.Fprintf(t.Output(), "outage of %v; a change is served %v after the API server was ready\n", outage(), time.Since(back).Round(time.Millisecond))
	l.Check()
}

// A proxy whose missed changes are no longer available (410 Gone) lists
// everything again, and commits only what has changed.
func TestWatchTooOld(t *testing.T) {
	for name, flags := range map[string][]string{
		"API server with a new cache":       nil,
		"etcd compacted, no cache in front": {"--watch-cache=false"},
	} {
		t.Run(name, func(t *testing.T) {
			c, web, proxy := newServing(t)
			before, rules := c.Generation(), c.Rules()
			proxy.Signal(t, syscall.SIGSTOP)
			c.restartServer()
			c.comeAndGo()
			c.compact()
			c.restartServer(slices.Concat(c.auditFlags(), flags)...)
			proxy.Signal(t, syscall.SIGCONT)

			for _, resource := range []string{"services", "endpointslices"} {
				testbed.Eventually(t, func() error { return c.readAgain(resource) })
			}
			c.unchanged(rules, "everything was read again")
			c.becomes(web, c.Pods[1:]...)
			c.Commits(before, 1, "one change")
		})
	}
}

// auditFlags make the API server log its requests.
func (c *cluster) auditFlags() []string {
	c.T.Helper()
	dir := c.writeFiles("audit", map[string]string{
		"policy.yaml": `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}`})
	return []string{"--audit-policy-file", filepath.Join(dir, "policy.yaml"), "--audit-log-path", filepath.Join(dir, "log")}
}

// readAgain checks that the proxy has listed all objects of a kind.
func (c *cluster) readAgain(resource string) error {
	log, err := os.ReadFile(filepath.Join(c.Dir, "audit", "log"))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(log) {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource string }
			ResponseStatus struct{ Code int }
		}
		if json.Unmarshal(line, &e) != nil {
			continue // it is being written
		}
		if e.Verb == "list" && e.User.Username == testbed.ProxyUser && e.ObjectRef.Resource == resource && e.ResponseStatus.Code == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("the proxy has not read all %s again", resource)
}

// restartServer kills the API server and starts it with some more flags.
func (c *cluster) restartServer(flags ...string) {
	c.T.Helper()
	c.Server.Kill()
	c.Flags = append(c.Flags, flags...)
	c.StartServer()
}

// comeAndGo makes changes that leave everything as it was.
func (c *cluster) comeAndGo() {
	c.T.Helper()
	for i := range 3 {
		s := c.CreateService(testbed.DualStack(fmt.Sprint("passing-", i)))
		c.SetEndpoints(s, c.Pods...)
		c.DeleteService(s)
		for _, f := range model.Families {
			if err := c.API.DiscoveryV1().EndpointSlices(testbed.Namespace).Delete(c.T.Context(), testbed.SliceName(s, f), metav1.DeleteOptions{}); err != nil {
				c.T.Fatal(err)
			}
		}
	}
}

// compact makes etcd forget everything but the current state.
func (c *cluster) compact() {
	c.T.Helper()
	list, err := c.API.CoreV1().Services(testbed.Namespace).List(c.T.Context(), metav1.ListOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	body, _ := json.Marshal(map[string]any{"revision": list.ResourceVersion, "physical": true})
	client := http.Client{Transport: &http.Transport{DialContext: c.Node.DialContext, DisableKeepAlives: true}}
	r, err := client.Post(testbed.EtcdURL+"/v3/kv/compaction", "application/json", bytes.NewReader(body))
	if err != nil {
		c.T.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		c.T.Fatalf("etcd: compaction: %s", r.Status)
	}
}

// unchanged checks that the rules of the node are the same as before.
func (c *cluster) unchanged(before, when string) {
	c.T.Helper()
	if diff := cmp.Diff(before, c.Rules()); diff != "" {
		c.T.Errorf("%s: the rules have changed (-before, +after):\n%s", when, diff)
	}
}
