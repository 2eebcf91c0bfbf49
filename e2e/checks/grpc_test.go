// Package checks tests health checks with servers whose libraries the main module does
// not require.
package checks

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
)

// start starts a server of grpc-go, with its health service or without.
func start(t *testing.T, healthy bool, options ...grpc.ServerOption) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	if healthy {
		h := health.NewServer()
		h.SetServingStatus("shop.Cart", healthpb.HealthCheckResponse_SERVING)
		h.SetServingStatus("shop.Web", healthpb.HealthCheckResponse_NOT_SERVING)
		h.SetServingStatus("shop.New", healthpb.HealthCheckResponse_UNKNOWN)
		healthpb.RegisterHealthServer(s, h)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return netip.MustParseAddrPort(l.Addr().String())
}

// certificate returns the certificate of a server of net/http/httptest.
func certificate(t *testing.T) tls.Certificate {
	web := httptest.NewTLSServer(nil)
	t.Cleanup(web.Close)
	return web.TLS.Certificates[0]
}

// TestGRPC: 3.32, the health service of grpc-go.
func TestGRPC(t *testing.T) {
	certificate := certificate(t)
	plain := start(t, true)
	secured := start(t, true, grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	without := start(t, false)
	for name, c := range map[string]struct {
		check model.Check
		to    netip.AddrPort
		want  string
	}{
		"server":                {model.Check{}, plain, ""},
		"service":               {model.Check{Name: "shop.Cart"}, plain, ""},
		"not serving":           {model.Check{Name: "shop.Web"}, plain, "grpc shop.Web: NOT_SERVING"},
		"unknown status":        {model.Check{Name: "shop.New"}, plain, "grpc shop.New: UNKNOWN"},
		"unknown service":       {model.Check{Name: "shop.Crat"}, plain, "grpc shop.Crat: unknown service (NOT_FOUND)"},
		"no health service":     {model.Check{}, without, "grpc: the server has no health service (UNIMPLEMENTED)"},
		"TLS":                   {model.Check{Name: "shop.Cart", TLS: true}, secured, ""},
		"TLS to a plain server": {model.Check{TLS: true}, plain, "TLS: first record does not look like a TLS handshake"},
		"plain to a TLS server": {model.Check{}, secured, "grpc: connection closed: the server may not speak gRPC on this port"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.check.Type, c.check.Timeout = model.CheckGRPC, 20*time.Second
			made, err := checker.New(&c.check, checker.Target{Address: c.to})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := made.Check(context.Background()); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
