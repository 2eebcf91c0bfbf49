package checker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// pages is what the web servers of the tests answer.
func pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "all is ok") })
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.Header().Set("Location", "/ok")
		w.WriteHeader(code)
	})
	mux.HandleFunc("/request", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s close=%t", r.Method, r.Host, r.UserAgent(), r.URL.RawQuery, r.Close)
	})
	mux.HandleFunc("/early", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("/chunks", func(w http.ResponseWriter, _ *http.Request) {
		for _, part := range []string{"al", "l is o", "k"} {
			fmt.Fprint(w, part)
			w.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/giant", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			fmt.Fprintln(w, strings.Repeat("x", 1024))
		}
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begin")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/hung", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	return mux
}

func webServer(t testing.TB, ns *netlab.Namespace, at string) netip.AddrPort {
	return secureServer(t, ns, at, nil)
}

func secureServer(t testing.TB, ns *netlab.Namespace, at string, config *tls.Config) netip.AddrPort {
	t.Helper()
	l, err := ns.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddrPort(l.Addr().String())
	if config != nil {
		l = tls.NewListener(l, config)
	}
	s := &http.Server{Handler: pages(), ErrorLog: discard}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return address
}

// certificate returns a certificate without a trusted issuer.
func certificate(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"www.example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// TestHTTP: 3.32, status, header and body of responses.
func TestHTTP(t *testing.T) {
	ns := machine(t)
	for _, at := range both {
		web := webServer(t, ns, at)
		for text, want := range map[string]string{
			`{http: /ok}`:                                          "",
			`{http: /ok, body: all is ok}`:                         "",
			`{http: /ok, bodyMatches: "^all.*ok\n$"}`:              "",
			`{http: /ok, method: HEAD}`:                            "",
			`{http: /chunks, body: all is ok}`:                     "",
			`{http: /early, body: ok}`:                             "",
			`{http: /slow}`:                                        "",
			`{http: /giant, body: xxx}`:                            "",
			`{http: /status/302}`:                                  "",
			`{http: /status/503}`:                                  "GET /status/503: status 503, expected 200-399",
			`{http: /status/302, status: [200, 400-404]}`:          "GET /status/302: status 302, expected 200 or 400-404",
			`{http: "/none?a=b"}`:                                  "GET /none?a=b: status 404, expected 200-399",
			`{http: /ok, status: 503}`:                             "GET /ok: status 200, expected 503",
			`{http: /ok, body: fine}`:                              `GET /ok: body without "fine": "all is ok\n"`,
			`{http: /ok, bodyMatches: ^ok$}`:                       `GET /ok: body does not match "^ok$": "all is ok\n"`,
			`{http: /ok, method: HEAD, body: ok}`:                  `HEAD /ok: body without "ok": ""`,
			`{http: /giant, body: ok}`:                             `GET /giant: body without "ok": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"...`,
			`{http: /slow, body: ok, timeout: 1s}`:                 "GET /slow: body not complete after 5 bytes: no answer within 1s",
			`{http: /hung, timeout: 1s}`:                           "GET /hung: no answer within 1s",
			`{https}`:                                              "TLS: first record does not look like a TLS handshake",
			`{http: /request, host: a.example.com, body: nothing}`: `GET /request: body without "nothing": "GET a.example.com nftproxy-health-check "...`,
			`{http: "/request?b=c", bodyMatches: "^GET [^ ]+:[0-9]+ nftproxy-health-check b=c close=true$"}`: "",
		} {
			compare(t, text, check(t, ns, text, target(web)), want)
		}
	}
}

// TestMalformedHTTP: 3.32, servers that do not speak HTTP, or do so wrongly.
func TestMalformedHTTP(t *testing.T) {
	ns := machine(t)
	for _, c := range []struct{ response, check, want string }{
		{"SSH-2.0-OpenSSH_9.2\r\n", "http", `GET /: malformed HTTP response "SSH-2.0-OpenSSH_9.2"`},
		{"HTTP/1.1 abc\r\n\r\n", "http", `GET /: malformed HTTP status code "abc"`},
		{"", "http", "GET /: connection closed without a response"},
		{"HTTP/1.1 200 OK\r\nA: b", "http", "GET /: connection closed without a response"},
		{"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 70<<10), "http", "GET /: the header of the response is longer than 64 KiB"},
		{strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 5000), "http", "GET /: the header of the response is longer than 64 KiB"},
		{"HTTP/1.0 200 OK\r\n\r\nok", "{http, body: ok}", ""},
		{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok", "{http, body: ok}", ""},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "{http, body: ok}", "GET /: body not complete after 0 bytes: invalid byte in chunk length"},
		{"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "http", `GET /: bad Content-Length "-1"`},
		{"HTTP/1.1 200 \x1b[31m\r\n\r\n\x1b[31m", "{http, body: ok}", `GET /: body without "ok": "\x1b[31m"`},
		{"\x1b[31m\r\n", "http", `GET /: malformed HTTP response "\x1b[31m"`},
	} {
		to := target(listen(t, ns, both[0], func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, c.response)
		}))
		compare(t, fmt.Sprintf("%.40q", c.response), check(t, ns, c.check, to), c.want)
	}
}

// TestHTTPS: 3.32, certificates are verified only where that is asked for.
func TestHTTPS(t *testing.T) {
	ns := machine(t)
	config := certificate(t)
	var sent atomic.Value
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		sent.Store(hello.ServerName)
		return nil, nil
	}
	old := config.Clone()
	old.MaxVersion = tls.VersionTLS11
	hung := target(listen(t, ns, both[0], func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }))
	for _, at := range both {
		web, old := target(secureServer(t, ns, at, config)), target(secureServer(t, ns, at, old))
		compare(t, "any certificate", check(t, ns, "{https: /ok, body: ok}", web), "")
		compare(t, "sent name", sent.Load().(string), "")
		compare(t, "with a name", check(t, ns, "{https: /ok, host: www.example.com}", web), "")
		compare(t, "sent name", sent.Load().(string), "www.example.com")
		compare(t, "verified", check(t, ns, "{https: /ok, verify: true, host: www.example.com}", web),
			"TLS: failed to verify certificate: x509: certificate signed by unknown authority...")
		compare(t, "status", check(t, ns, "{https: /status/500}", web), "GET /status/500: status 500, expected 200-399")
		compare(t, "HTTP to a server of HTTPS", check(t, ns, "http", web), "GET /: status 400, expected 200-399")
		compare(t, "old version", check(t, ns, "https", old), "TLS: remote error: tls: protocol version not supported")
	}
	compare(t, "hung", check(t, ns, "{https, timeout: 1s}", hung), "TLS: no answer within 1s")
}
