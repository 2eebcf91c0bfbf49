package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// answer is the answer of an HTTP server.
type answer struct {
	status int
	header http.Header
	body   string
}

// get asks a server of the node from a host, on a connection of its own.
func get(from *netlab.Host, method string, at netip.AddrPort, path, body string) (answer, error) {
	return getAs(from, "", method, at, path, body)
}

// getAs is get with a name of the server; empty: its address.
func getAs(from *netlab.Host, name, method string, at netip.AddrPort, path, body string) (answer, error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, a string) (net.Conn, error) {
			return from.DialContext(ctx, network, a)
		},
	}}
	request, err := http.NewRequest(method, "http://"+at.String()+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Host = name
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// Every path of the health and metrics servers, from outside of the node
// (10.1 to 10.4, 11.1 to 11.4, 11.14, 11.15). What is not there is not found.
func TestServers(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	c.flags = append(c.flags, "--healthz-bind-address", "0.0.0.0", "--metrics-bind-address", "0.0.0.0", "--profiling", "--service-metrics", "--allowed-hosts", "*.example.com,node.example")
	c.start()
	eventually(t, func() error {
		_, err := c.Client.Ask("tcp", web.clusterIP(model.IPv4), 0) // one that is given up counts as a connection, too
		return err
	})
	// The sync is in effect a moment before it is recorded.
	c.page("/metrics", `kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv6"} 1`)
	eventually(t, func() error {
		got, err := get(c.Client, "GET", netip.AddrPortFrom(c.Node.IPv4, 10256), "/healthz", "")
		if err == nil && got.status != http.StatusOK {
			err = fmt.Errorf("healthz says %d, %s", got.status, got.body)
		}
		return err
	})
	const plain, structured = "text/plain", "application/json"
	for _, q := range []struct {
		port         uint16
		method, path string
		body         string // sent
		status       int
		kind, want   string
	}{
		{10256, "GET", "/healthz", "", 200, structured, `"nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":`},
		{10256, "GET", "/livez", "", 200, structured, `"healthy":true,"status":{"IPv4":{"lastUpdated":`},
		{10256, "POST", "/livez", "", 200, structured, `"healthy":true`},
		{10256, "GET", "/metrics", "", 404, plain, ""},
		{10249, "GET", "/metrics", "", 200, plain, `kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv6"} 1`},
		{10249, "GET", "/metrics", "", 200, plain, `nftproxy_service_connections_total{frontend="ClusterIP",ip_family="IPv4",namespace="default",port="tcp",protocol="TCP",service="web"} 1`},
		{10249, "GET", "/metrics/slis", "", 200, plain, `kubernetes_healthcheck{name="proxy",type="healthz"} 1`},
		{10249, "GET", "/healthz", "", 200, plain, "ok"},
		{10249, "GET", "/proxyMode", "", 200, plain, "nftables"},
		{10249, "GET", "/configz", "", 200, structured, `"hostnameOverride":"node"`},
		{10249, "GET", "/statusz", "", 200, plain, "Up: "},
		{10249, "GET", "/flagz", "", 200, plain, "service-metrics=true\n"},
		{10249, "GET", "/status", "", 200, structured, `"frontends"`},
		{10249, "GET", "/live", "", 200, structured, `"name":"web","frontends":24,"endpoints":12,"connections":1`},
		{10249, "GET", "/", "", 200, "text/html", `<a href="/live">`},
		{10249, "GET", "/", "", 200, "text/html", `<a href="/describe">`},
		{10249, "GET", "/basis", "", 200, structured, `"failing":[]`},
		{10249, "POST", "/live", "", 405, plain, "use GET"},
		{10249, "GET", "/status?namespace=nowhere", "", 200, structured, `"services": 0`},
		{10249, "GET", "/status?rows=few", "", 400, plain, `rows: "few" is not a number`},
		{10249, "GET", "/describe?service=default/web", "", 200, structured, `"scheduler": "round-robin"`},
		{10249, "GET", "/describe?service=wbe", "", 404, structured, `did you mean default/web?`},
		{10249, "POST", "/describe?service=web", "", 405, plain, "use GET"},
		{10249, "GET", "/web/", "", 404, plain, ""},
		{10249, "GET", "/debug/pprof/goroutine?debug=1", "", 200, plain, "goroutine profile: total"},
		{10249, "PUT", "/debug/flags/v", "2", 200, plain, "successfully set klog.logging.verbosity to 2"},
		{10249, "GET", "/livez", "", 404, plain, ""},
	} {
		for _, a := range []netip.Addr{c.Node.IPv4, c.Node.IPv6} {
			got, err := get(c.Client, q.method, netip.AddrPortFrom(a, q.port), q.path, q.body)
			if err != nil || got.status != q.status || !strings.HasPrefix(got.header.Get("Content-Type"), q.kind) || !strings.Contains(got.body, q.want) {
				t.Errorf("%s %s of port %d at %s: %d %s, %v, want %d %s with %q:\n%s", q.method, q.path, q.port, a,
					got.status, got.header.Get("Content-Type"), err, q.status, q.kind, q.want, got.body)
			}
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 421, "/status": 421, "/debug/pprof/": 421, "/": 421} {
		if got, err := getAs(c.Client, "other.example", "GET", netip.AddrPortFrom(c.Node.IPv4, 10249), path, ""); err != nil || got.status != want {
			t.Errorf("%s by another name: %d, %v, want %d", path, got.status, err, want)
		}
		if got, err := getAs(c.Client, "node.example", "GET", netip.AddrPortFrom(c.Node.IPv4, 10249), path, ""); err != nil || got.status != 200 {
			t.Errorf("%s by a name of --allowed-hosts: %d, %v", path, got.status, err)
		}
	}
	if report := c.mustRun(0, exec.Command(binary, "status")); !strings.Contains(report, "default/web:tcp") {
		t.Errorf("nftproxy status lacks the Service:\n%s", report)
	}
}

// 10.15 to 10.22: a load balancer can ask how many endpoints the node has, on
// the addresses of the node, and the port comes and goes with the Service.
func TestHealthCheckNodePort(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods, External: "Local", HealthPort: 32000}
	c.write(web)
	c.start()
	hears := func(port uint16, status int, endpoints string) {
		t.Helper()
		for _, a := range []netip.Addr{c.Node.IPv4, c.Node.IPv6} {
			eventually(t, func() error {
				got, err := get(c.Client, "GET", netip.AddrPortFrom(a, port), "/", "")
				if err != nil {
					return err
				}
				var body struct{ LocalEndpoints int }
				if err := json.Unmarshal([]byte(got.body), &body); err != nil {
					return err
				}
				if n := fmt.Sprint(body.LocalEndpoints); got.status != status || n != endpoints || got.header.Get("X-Load-Balancing-Endpoint-Weight") != endpoints {
					return fmt.Errorf("port %d at %s says %d, %s", port, a, got.status, got.body)
				}
				return nil
			})
		}
	}
	hears(32000, 200, "2")
	web.Pods, web.Terminating = c.Pods[:1], c.Pods[1:]
	c.write(web)
	hears(32000, 200, "1")
	web.Pods, web.Terminating = nil, c.Pods
	c.write(web)
	hears(32000, 503, "0")
	web.Pods, web.Terminating, web.HealthPort = c.Pods, nil, 32001
	c.write(web)
	hears(32001, 200, "2")
	if got, err := get(c.Client, "GET", netip.AddrPortFrom(c.Node.IPv4, 32000), "/", ""); err == nil {
		t.Errorf("(10.22) the old port still answers: %+v", got)
	}
}
