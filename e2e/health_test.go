package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// What an operator sees of a proxy apart from its rules: health checks from
// outside, metrics on the node, an event (10.1, 10.10, 10.15, 11.2, 12.56,
// P72).
func TestSeenFromOutside(t *testing.T) {
	eachProxy(t, func(t *testing.T, c *cluster, proxy testbed.Program) {
		balanced := testbed.DualStack("balanced")
		balanced.Spec.Type = corev1.ServiceTypeLoadBalancer
		balanced.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s := c.CreateService(balanced)
		c.SetEndpoints(s, c.Pods...)
		c.startDaemonSet(kubeProxyName, proxy)
		c.Reached(s, c.Pods...)

		c.nodeHealth()
		c.serviceHealth(s)
		c.metrics()
		c.startingEvent()
	})
}

// nodeHealth taints the node as the cluster autoscaler does before it removes
// it, and removes the taint again.
func (c *cluster) nodeHealth() {
	c.T.Helper()
	const tainted = `{"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}`
	for _, step := range []struct {
		patch   string
		healthz int
	}{{`{}`, http.StatusOK}, {tainted, http.StatusServiceUnavailable}, {`{"spec": {"taints": null}}`, http.StatusOK}} {
		_, err := c.API.CoreV1().Nodes().Patch(c.T.Context(), testbed.NodeName, types.MergePatchType, []byte(step.patch), metav1.PatchOptions{})
		if err != nil {
			c.T.Fatal(err)
		}
		for _, host := range []string{c.Node.IPv4.String(), "[" + c.Node.IPv6.String() + "]"} {
			testbed.Eventually(c.T, func() error { return wantHealth(c.Client, "http://"+host+":10256", step.healthz) })
		}
	}
}

// wantHealth checks the two health checks of a proxy that is healthy, on a node
// that may not be eligible.
func wantHealth(from *netlab.Host, url string, healthz int) error {
	code, body, err := get(from, url+"/healthz")
	if err != nil {
		return err
	}
	var state struct{ NodeEligible, Healthy bool }
	if err := json.Unmarshal([]byte(body), &state); err != nil {
		return fmt.Errorf("%s/healthz: %w in %q", url, err, body)
	}
	eligible := healthz == http.StatusOK
	if code != healthz || state.NodeEligible != eligible || !state.Healthy {
		return fmt.Errorf("%s/healthz: got %d, %s, want %d, healthy, eligible: %v", url, code, body, healthz, eligible)
	}
	if code, _, err := get(from, url+"/livez"); err != nil || code != http.StatusOK {
		return fmt.Errorf("%s/livez: got %d, %v, want 200", url, code, err)
	}
	return nil
}

// serviceHealth checks what a load balancer asks a node (10.17, 10.19).
func (c *cluster) serviceHealth(s testbed.Service) {
	c.T.Helper()
	made, err := c.API.CoreV1().Services(testbed.Namespace).Get(c.T.Context(), s.Name, metav1.GetOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	url := fmt.Sprintf("http://%s:%d/", c.Node.IPv4, made.Spec.HealthCheckNodePort)
	for _, pods := range [][]*netlab.Host{c.Pods, nil, c.Pods[:1]} {
		c.SetEndpoints(s, pods...)
		testbed.Eventually(c.T, func() error {
			code, body, err := get(c.Client, url)
			var state struct{ LocalEndpoints int }
			if err == nil {
				err = json.Unmarshal([]byte(body), &state)
			}
			if err != nil || (code == http.StatusOK) != (len(pods) > 0) || state.LocalEndpoints != len(pods) {
				return fmt.Errorf("%s: got %d, %s, %v, want %d local endpoints", url, code, body, err, len(pods))
			}
			return nil
		})
	}
}

// metrics checks what a monitoring system reads.
func (c *cluster) metrics() {
	c.T.Helper()
	const url = "http://127.0.0.1:10249"
	for path, want := range map[string][]string{
		"/metrics": {
			`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"}`,
			`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"}`,
			`kubeproxy_sync_proxy_rules_service_changes_total`,
			`kubeproxy_proxy_healthz_total{code="503"}`,
			`rest_client_requests_total{`, `process_resident_memory_bytes`, `kubernetes_build_info{`,
		},
		"/proxyMode": {"nftables"},
		"/healthz":   {"ok"},
		"/configz":   {`"clusterCIDR":"` + testbed.ClusterCIDRs + `"`},
	} {
		code, body, err := get(c.Node, url+path)
		if err != nil || code != http.StatusOK {
			c.T.Errorf("%s%s: got %d, %v, want 200", url, path, code, err)
		}
		for _, w := range want {
			if !strings.Contains(body, w) {
				c.T.Errorf("%s%s does not contain %s", url, path, w)
			}
		}
	}
}

// startingEvent waits for the event that reports the start.
func (c *cluster) startingEvent() {
	c.T.Helper()
	testbed.Eventually(c.T, func() error {
		list, err := c.API.EventsV1().Events(metav1.NamespaceDefault).List(c.T.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == "Starting" && e.Action == "StartKubeProxy" && e.Regarding.Kind == "Node" && e.Regarding.Name == testbed.NodeName {
				return nil
			}
		}
		return fmt.Errorf("no event Starting about the node among %d events", len(list.Items))
	})
}

// get asks for a page over a new connection.
func get(from *netlab.Host, url string) (code int, body string, err error) {
	client := http.Client{Timeout: testbed.Strict, Transport: &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, string(b), err
}
