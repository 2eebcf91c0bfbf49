package checker_test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/netip"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

var discard = log.New(io.Discard, "", 0)

// grpcServer is the server of grpc-go, with its health service or without.
func grpcServer(t testing.TB, ns *netlab.Namespace, at string, config *tls.Config, healthy bool) netip.AddrPort {
	t.Helper()
	l, err := ns.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	var options []grpc.ServerOption
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
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

// TestGRPC: 3.32, the health service of grpc-go.
func TestGRPC(t *testing.T) {
	ns := machine(t)
	for _, at := range both {
		s := target(grpcServer(t, ns, at, nil, true))
		secured := target(grpcServer(t, ns, at, certificate(t), true))
		without := target(grpcServer(t, ns, at, nil, false))
		compare(t, "server", check(t, ns, "grpc", s), "")
		compare(t, "service", check(t, ns, "{grpc: shop.Cart}", s), "")
		compare(t, "not serving", check(t, ns, "{grpc: shop.Web}", s), "grpc shop.Web: NOT_SERVING")
		compare(t, "unknown status", check(t, ns, "{grpc: shop.New}", s), "grpc shop.New: UNKNOWN")
		compare(t, "unknown service", check(t, ns, "{grpc: shop.Crat}", s), "grpc shop.Crat: unknown service (NOT_FOUND)")
		compare(t, "unimplemented", check(t, ns, "grpc", without), "grpc: the server has no health service (UNIMPLEMENTED)")
		compare(t, "TLS", check(t, ns, "{grpc: shop.Cart, tls: true}", secured), "")
		compare(t, "verified", check(t, ns, "{grpc, tls: true, verify: true, host: www.example.com}", secured),
			"TLS: failed to verify certificate: x509: certificate signed by unknown authority...")
		compare(t, "TLS to a plain server", check(t, ns, "{grpc, tls: true}", s), "TLS: first record does not look like a TLS handshake")
		compare(t, "plain to a server of TLS", check(t, ns, "{grpc, timeout: 1s}", secured), "grpc: connection closed: the server may not speak gRPC on this port")
	}
	web := target(webServer(t, ns, both[0]))
	compare(t, "a web server", check(t, ns, "grpc", web), "grpc: connection closed: the server may not speak gRPC on this port")
	hung := target(listen(t, ns, both[0], func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }))
	compare(t, "hung", check(t, ns, "{grpc, timeout: 100ms}", hung), "grpc: no answer within 100ms")
	secured := target(secureServer(t, ns, both[0], certificate(t)))
	compare(t, "a web server with TLS", check(t, ns, "{grpc, tls: true}", secured), "TLS: the server does not offer HTTP/2, which gRPC needs")
}
