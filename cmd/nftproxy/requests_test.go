package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/apilab"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// metricsIn returns what the metrics server of a proxy in a namespace says.
func metricsIn(t *testing.T, ns *netlab.Namespace) string {
	t.Helper()
	_, text := get(t, ns, "http://127.0.0.1:10249/metrics")
	return text
}

// get returns the code and the body of an answer, or 0 if there is none.
func get(t *testing.T, ns *netlab.Namespace, url string) (int, string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = ns.Do(func() error { c, err = (&net.Dialer{}).DialContext(ctx, network, address); return err })
		return c, err
	}}
	answer, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestRequestsOfTheStart: requests to the API server count from the first one on,
// also those that fail while the Node is waited for (11.9, 12.45).
func TestRequestsOfTheStart(t *testing.T) {
	ns := netlab.TestNamespace(t)
	api := apilab.Start(t, ns, nodeAndService)
	api.Withhold("Node")
	p := start(t, ns, "nftproxy", "run", "--master", api.URL, noLimit, "--hostname-override", "node-1")
	eventually(t, "the Node is refused", func() bool { return strings.Contains(p.log.String(), "no such role") })
	api.Withhold("")
	count := func(code string) (n int) {
		m := regexp.MustCompile(`rest_client_requests_total\{code="` + code + `",[^}]*method="GET"\} (\d+)`).FindStringSubmatch(metricsIn(t, ns))
		if m != nil {
			n, _ = strconv.Atoi(m[1])
		}
		return n
	}
	eventually(t, "the metrics have a request that is forbidden and 4 that are answered, or more", func() bool { return count("403") > 0 && count("200") >= 4 })
}
