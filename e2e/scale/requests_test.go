package scale

import (
	"cmp"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// request is one that a proxy sends to read objects.
type request struct {
	path   string
	query  url.Values
	header http.Header
}

// kind returns the resource that a request reads.
func (r request) kind() string { return r.path[strings.LastIndexByte(r.path, '/')+1:] }

// recorderAddress is the address on the node that the recorder listens on.
const recorderAddress = "127.0.0.1:7443"

// recorder forwards between a proxy and the API server, and notes what is read.
type recorder struct {
	pass http.Handler

	mu       sync.Mutex
	requests []request
}

func (m *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		m.mu.Lock()
		m.requests = append(m.requests, request{r.URL.Path, r.URL.Query(), r.Header.Clone()})
		m.mu.Unlock()
	}
	m.pass.ServeHTTP(w, r)
}

// watchesOf returns the watches that a proxy opens at its start, by path.
func watchesOf(c *testbed.Cluster, p results.Program) []request {
	c.T.Helper()
	return slices.DeleteFunc(requestsOf(c, p), func(r request) bool { return !r.query.Has("watch") })
}

// requestsOf runs a proxy until it has written its rules, and returns the requests
// by which it has read objects, by path.
func requestsOf(c *testbed.Cluster, p results.Program) []request {
	c.T.Helper()
	m := &recorder{pass: forwarder(c)}
	stop := serve(c, m)
	defer stop()
	file := filepath.Join(c.Dir, string(p)+".recorded.kubeconfig")
	if err := c.Authority.Kubeconfig(file, "https://"+recorderAddress, testbed.ProxyUser); err != nil {
		c.T.Fatal(err)
	}
	args := []string{"--kubeconfig", file, "--hostname-override", testbed.NodeName,
		"--cluster-cidr", testbed.ClusterCIDRs, "--conntrack-max-per-core", "0"}
	program := testbed.KubeProxy
	if p == results.Nftproxy {
		program, args = testbed.NFTProxy, append([]string{"run"}, args...)
	} else {
		args = append(args, "--proxy-mode", "nftables")
	}
	process := testbed.StartCommand(c.T, c.Node, program.Name, exec.Command(program.Path, args...))
	c.HasSynced(c.Node, process)
	process.End(c.T)
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.SortFunc(m.requests, func(a, b request) int { return cmp.Compare(a.path, b.path) })
	return m.requests
}

// forwarder hands requests to the API server, with the rights of a proxy.
func forwarder(c *testbed.Cluster) http.Handler {
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
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: testbed.APIAddress}) },
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
}

// serve answers requests to the recorder until stop is called.
func serve(c *testbed.Cluster, h http.Handler) (stop func()) {
	c.T.Helper()
	l, err := c.Node.Listen("tcp", recorderAddress)
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
	server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	go func() { _ = server.ServeTLS(l, "", "") }()
	return func() { server.Close() }
}
