package show

import (
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
)

// TestRefused: the largest number comes first, and of equal ones the first name (16.6).
func TestRefused(t *testing.T) {
	const want = "12 denied, 3 no-endpoints, 3 rate"
	if got := refused(map[string]uint64{"rate": 3, "denied": 12, "no-endpoints": 3}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDescribeRefused: 17.6, describe explains the reasons, and a running nftproxy knows the clients.
func TestDescribeRefused(t *testing.T) {
	d := &api.Description{Namespace: "shop", Name: "web", From: api.FromDaemon, Refused: map[string]uint64{"denied": 12, "rate": 3}}
	var out strings.Builder
	if err := Description(&out, d, time.Now(), false); err != nil {
		t.Fatal(err)
	}
	const want = `
refused           12 denied, 3 rate
                  denied: the client is among the denied clients of the Service; remove its address from nftproxy.dev/denied-sources
                  rate: the connection rate of the Service is reached; raise the limit, or find the client that opens so many
                  nftproxy observe shop/web names the clients
`
	if !strings.Contains(out.String(), want) {
		t.Errorf("%s\nwant%s", out.String(), want)
	}
	d.From, d.Refused = api.FromKernel, map[string]uint64{"denied": 1}
	out.Reset()
	if err := Description(&out, d, time.Now(), false); err != nil || strings.Contains(out.String(), "nftproxy observe") {
		t.Errorf("from the kernel: %v\n%s", err, out.String())
	}
}
