package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

const auditPolicy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"

// TestServerDies: of two API servers behind a load balancer the one that the proxy
// uses dies. The watches resume at the other one: nothing is listed again, no rule
// changes, and later changes arrive.
func TestServerDies(t *testing.T) {
	c := newCluster(t, 2, testbed.WithoutOwnEndpoint)
	policy, audit := filepath.Join(c.Dir, "policy.yaml"), filepath.Join(c.Dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	second := c.StartSecondServer("--audit-policy-file", policy, "--audit-log-path", audit)
	service := c.CreateService(testbed.DualStack("web"))
	c.SetEndpoints(service, c.Pods[0])
	c.balance(testbed.APIAddress, testbed.SecondAPIAddress)
	c.startProxyVia()
	c.serves(service, c.Pods[0].Name)
	// client-go reads everything again after a watch that lasted less than a second.
	await.Span(2 * time.Second)
	rules, generation := c.Rules(), c.Generation()

	c.Server.Kill()
	testbed.Eventually(t, func() error {
		if got := auditOf(t, audit)["watch"]; got < 4 {
			return fmt.Errorf("%d watches have resumed, want 4", got)
		}
		return nil
	})
	c.Commits(generation, 0, "after the end of an API server")
	if got := c.Rules(); got != rules {
		t.Errorf("the rules were\n%s\nand are\n%s", rules, got)
	}
	c.API = second
	c.SetEndpoints(service, c.Pods[1])
	c.serves(service, c.Pods[1].Name)
	got := auditOf(t, audit)
	fmt.Fprintf(t.Output(), "requests to the other API server: %v\n", got)
	if got["list"] > 0 || got["watch with all objects"] > 0 || got["watch"] > 8 {
		t.Errorf("requests to the other API server: %v, want at most two watches of each kind, and no list", got)
	}
}

// serves waits until a service is answered by a pod only.
func (c *cluster) serves(s testbed.Service, pod string) {
	c.T.Helper()
	testbed.Eventually(c.T, func() error {
		answer, err := c.Client.Ask("tcp", s.Frontend(model.IPv4), testbed.Silence)
		if err == nil && answer.Name != pod {
			err = fmt.Errorf("%s answers, want %s", answer.Name, pod)
		}
		return err
	})
}

// balance forwards connections to the first address that accepts them, in place of
// the fault proxy.
func (c *cluster) balance(addresses ...string) {
	c.T.Helper()
	l, err := c.Node.Listen("tcp", faultProxyAddress)
	if err != nil {
		c.T.Fatal(err)
	}
	c.T.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go c.forward(client, addresses)
		}
	}()
}

func (c *cluster) forward(client net.Conn, addresses []string) {
	defer client.Close()
	for _, a := range addresses {
		server, err := c.Node.DialContext(c.T.Context(), "tcp", a)
		if err != nil {
			continue
		}
		defer server.Close()
		go func() {
			_, _ = io.Copy(server, client) // until either end closes
			server.Close()
		}()
		_, _ = io.Copy(client, server)
		return
	}
}

// auditOf counts the requests of the proxy in an audit log, by what they read.
func auditOf(t *testing.T, path string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		var e struct {
			Stage, Verb, RequestURI string
			User                    struct{ Username string }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Stage != "RequestReceived" || e.User.Username != testbed.ProxyUser {
			continue // the last line may be incomplete
		}
		u, err := url.Parse(e.RequestURI)
		if err != nil {
			t.Fatal(err)
		}
		if e.Verb == "watch" && u.Query().Has("sendInitialEvents") {
			e.Verb = "watch with all objects"
		}
		count[e.Verb]++
	}
	return count
}
