package checker_test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

var discard = log.New(io.Discard, "", 0)

// grpcAnswers are responses of a health service by the name of the service in the
// request: field 1 of the request, after the prefix of the message.
var grpcAnswers = map[string]struct{ status, message string }{
	"":                      {"0", "\x00\x00\x00\x00\x02\x08\x01"},
	"\x0a\x09shop.Cart":     {"0", "\x00\x00\x00\x00\x02\x08\x01"},
	"\x0a\x08shop.Web":      {"0", "\x00\x00\x00\x00\x02\x08\x02"},
	"\x0a\x08shop.New":      {"0", "\x00\x00\x00\x00\x00"},
	"\x0a\x09shop.Crat":     {"5", ""},
	"\x0a\x0dshop.Internal": {"13", ""},
}

// grpcServer answers health checks as the protocol of gRPC has it. In module e2e, the
// server of grpc-go gives the same answers.
func grpcServer(t testing.TB, ns *netlab.Namespace, at string, config *tls.Config) netip.AddrPort {
	t.Helper()
	l, err := ns.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ErrorLog: discard, Protocols: new(http.Protocols), TLSConfig: config, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, _ := io.ReadAll(r.Body)
		answer, known := grpcAnswers[string(request[5:])]
		if !known || r.URL.Path != "/grpc.health.v1.Health/Check" || r.Header.Get("Content-Type") != "application/grpc" {
			answer.status = "12"
		}
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = io.WriteString(w, answer.message)
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", answer.status)
	})}
	s.Protocols.SetHTTP1(true) // a client of TLS gets an answer in plain text
	s.Protocols.SetHTTP2(config != nil)
	s.Protocols.SetUnencryptedHTTP2(config == nil)
	go func() {
		if config == nil {
			_ = s.Serve(l)
		} else {
			_ = s.ServeTLS(l, "", "")
		}
	}()
	t.Cleanup(func() { _ = s.Close() })
	return netip.MustParseAddrPort(l.Addr().String())
}

// TestGRPC: 3.32, answers of health services, and servers without one.
func TestGRPC(t *testing.T) {
	ns := machine(t)
	for _, at := range both {
		s := target(grpcServer(t, ns, at, nil))
		secured := target(grpcServer(t, ns, at, certificate(t)))
		compare(t, "server", check(t, ns, "grpc", s), "")
		compare(t, "service", check(t, ns, "{grpc: shop.Cart}", s), "")
		compare(t, "not serving", check(t, ns, "{grpc: shop.Web}", s), "grpc shop.Web: NOT_SERVING")
		compare(t, "unknown status", check(t, ns, "{grpc: shop.New}", s), "grpc shop.New: UNKNOWN")
		compare(t, "unknown service", check(t, ns, "{grpc: shop.Crat}", s), "grpc shop.Crat: unknown service (NOT_FOUND)")
		compare(t, "error", check(t, ns, "{grpc: shop.Internal}", s), "grpc shop.Internal: grpc-status 13")
		compare(t, "unimplemented", check(t, ns, "{grpc: shop.Other}", s), "grpc shop.Other: the server has no health service (UNIMPLEMENTED)")
		compare(t, "TLS", check(t, ns, "{grpc: shop.Cart, tls: true}", secured), "")
		compare(t, "verified", check(t, ns, "{grpc, tls: true, verify: true, host: www.example.com}", secured),
			"TLS: failed to verify certificate: x509: certificate signed by unknown authority...")
		compare(t, "TLS to a plain server", check(t, ns, "{grpc, tls: true}", s), "TLS: first record does not look like a TLS handshake")
		compare(t, "plain to a server of TLS", check(t, ns, "{grpc, timeout: 1s}", secured), "grpc: connection closed: the server may not speak gRPC on this port")
	}
	web := target(webServer(t, ns, both[0]))
	compare(t, "a web server", check(t, ns, "grpc", web), "grpc: connection closed: the server may not speak gRPC on this port")
	hung := target(listen(t, ns, both[0], func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }))
	compare(t, "hung", check(t, ns, "{grpc, timeout: 1s}", hung), "grpc: no answer within 1s")
	secured := target(secureServer(t, ns, both[0], certificate(t)))
	compare(t, "a web server with TLS", check(t, ns, "{grpc, tls: true}", secured), "TLS: the server does not offer HTTP/2, which gRPC needs")
}
