package e2e

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// faultProxyAddress is the address on the node that it listens on.
const faultProxyAddress = "127.0.0.1:7443"

// faultProxy forwards between a service proxy and the API server, and injects
// the faults that a test asks for.
type faultProxy struct {
	c    *cluster
	pass http.Handler // hands a request on

	fault   atomic.Pointer[fault]
	strikes atomic.Int32

	mu    sync.Mutex
	conns map[*faultConn]struct{}
	dead  bool // new connections are not forwarded either
}

// fault answers a request in place of the API server, which pass asks.
type fault func(w http.ResponseWriter, r *http.Request, pass http.Handler)

// none forwards a request unchanged.
func none(w http.ResponseWriter, r *http.Request, pass http.Handler) { pass.ServeHTTP(w, r) }

func (c *cluster) startFaultProxy() *faultProxy {
	c.T.Helper()
	upstream, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig(testbed.ProxyUser))
	if err != nil {
		c.T.Fatal(err)
	}
	upstream.Dial = c.Node.DialContext
	transport, err := rest.TransportFor(upstream)
	if err != nil {
		c.T.Fatal(err)
	}
	quiet := log.New(io.Discard, "", 0) // it logs the faults
	m := &faultProxy{c: c, conns: make(map[*faultConn]struct{}), pass: &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: testbed.APIAddress}) },
		Transport: transport, FlushInterval: -1, ErrorLog: quiet,
	}}
	m.set(none)
	l, err := c.Node.Listen("tcp", faultProxyAddress)
	if err != nil {
		c.T.Fatal(err)
	}
	cert, key, err := c.Authority.Server(net.ParseIP("127.0.0.1"))
	if err != nil {
		c.T.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		c.T.Fatal(err)
	}
	server := &http.Server{ErrorLog: quiet, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*m.fault.Load())(w, r, m.pass) })}
	go func() { _ = server.ServeTLS(faultListener{l, m}, "", "") }()
	c.T.Cleanup(func() { server.Close() })
	return m
}

// set injects a fault into new requests.
func (m *faultProxy) set(f fault) { m.fault.Store(&f) }

// cut resets all connections.
func (m *faultProxy) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
		c.Conn.Close()
	}
}

// bury stops forwarding without closing any connection; open ones never
// recover, as if a middlebox had forgotten them.
func (m *faultProxy) bury() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for c := range m.conns {
		c.dead.Store(true)
	}
}

// heal ends all faults for new connections and requests.
func (m *faultProxy) heal() {
	m.set(none)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = false
}

// startProxyVia starts a service proxy that reaches the API server through the
// fault proxy. It gives up a connection that is silent after some seconds.
func (c *cluster) startProxyVia(env ...string) *testbed.Process {
	c.T.Helper()
	file := filepath.Join(c.Dir, "faultproxy.kubeconfig")
	if err := c.Authority.Kubeconfig(file, "https://"+faultProxyAddress, testbed.ProxyUser); err != nil {
		c.T.Fatal(err)
	}
	cmd := exec.Command(testbed.NFTProxy.Path, "run", "--kubeconfig", file, "--hostname-override", testbed.NodeName,
		"--cluster-cidr", testbed.ClusterCIDRs, "--conntrack-max-per-core", "0")
	cmd.Env = append(cmd.Environ(), env...)
	return testbed.StartCommand(c.T, c.Node, testbed.NFTProxy.Name, cmd)
}

// faultListener lets the fault proxy keep track of its connections.
type faultListener struct {
	net.Listener
	m *faultProxy
}

func (l faultListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &faultConn{Conn: conn, m: l.m}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.conns[c] = struct{}{}
	c.dead.Store(l.m.dead)
	return c, nil
}

// faultConn is a connection from the proxy.
type faultConn struct {
	net.Conn
	m    *faultProxy
	dead atomic.Bool
}

func (c *faultConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.dead.Load() {
			return n, err
		}
		c.m.strikes.Add(1)
	}
}

func (c *faultConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *faultConn) Close() error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	delete(c.m.conns, c)
	return c.Conn.Close()
}

// isWatch reports whether a request asks for events.
func isWatch(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Query().Get("watch") != ""
}

// isList reports whether a request asks for a list of objects.
func isList(r *http.Request) bool { return r.Method == http.MethodGet && !isWatch(r) }

// asJSON makes the API server answer in JSON, which can be edited.
func asJSON(r *http.Request) {
	r.Header.Del("Accept-Encoding")
	r.Header.Set("Accept", "application/json")
}

// answerOf returns the whole answer of the API server.
func answerOf(r *http.Request, pass http.Handler) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	pass.ServeHTTP(answer, r)
	return answer
}

// send writes an answer with another body.
func send(w http.ResponseWriter, answer *httptest.ResponseRecorder, body []byte) {
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(body)
}

// chunks is an answer whose pieces go through write, as they come.
type chunks struct {
	http.ResponseWriter
	write func(p []byte) error
}

func (c chunks) Write(p []byte) (int, error) { return len(p), c.write(p) }

// Unwrap lets a piece be sent at once.
func (c chunks) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// edited returns an answer in which edit replaces each event, a line.
func edited(w http.ResponseWriter, edit func(event []byte) []byte) http.ResponseWriter {
	var rest []byte
	return chunks{w, func(p []byte) error {
		rest = append(rest, p...)
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				return nil
			}
			if _, err := w.Write(edit(rest[:i+1])); err != nil {
				return err
			}
			rest = rest[i+1:]
		}
	}}
}
