package testbed

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// APIPort is where API servers listen.
const APIPort = 6443

// Servers is a control plane without a load balancer: API servers on machines of their
// own, whose address nothing but a proxy on the dialing machine serves.
type Servers struct {
	T         testing.TB
	Dir       string
	Address   netip.AddrPort // of all API servers
	Node      *netlab.Host   // dials it
	Members   []*Server
	store     *netlab.Host
	authority *Authority
}

// Server is one API server.
type Server struct {
	*netlab.Host
	Process *Process // nil: not started
	all     *Servers
}

// NewServers makes the machines of n API servers, of their store and of a node. Nothing
// runs on them.
func NewServers(t testing.TB, n int) *Servers {
	t.Helper()
	sw, err := netlab.NewSwitch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sw.Close() })
	add := func(host *netlab.Host, err error) *netlab.Host {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return host
	}
	s := &Servers{T: t, Dir: t.TempDir(), Address: netip.MustParseAddrPort("192.0.2.100:6443"),
		store: add(sw.AddHost("store", 1)), Node: add(sw.AddRouter("node", 2))}
	addresses := []net.IP{s.Address.Addr().AsSlice(), net.ParseIP(FirstServiceIP)}
	for i := range n {
		host := add(sw.AddHost(fmt.Sprintf("server-%d", i), 11+i))
		s.Members = append(s.Members, &Server{Host: host, all: s})
		addresses = append(addresses, host.IPv4.AsSlice())
	}
	if s.authority, err = NewAuthority(); err != nil {
		t.Fatal(err)
	}
	cert, key, err := s.authority.Server(addresses...)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"ca.crt": s.authority.Pem(), "server.crt": cert, "server.key": key} {
		if err := os.WriteFile(s.file(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *Servers) file(name string) string { return filepath.Join(s.Dir, name) }

// StartStore starts etcd.
func (s *Servers) StartStore() { StartEtcd(s.T, s.store, s.file("etcd"), s.storeURL()) }

func (s *Servers) storeURL() string { return "http://" + s.store.IPv4.String() + ":2379" }

// Kubeconfig writes a file for a user, with the address of all API servers.
func (s *Servers) Kubeconfig(name, user string, groups ...string) string {
	s.T.Helper()
	if err := s.authority.Kubeconfig(s.file(name), "https://"+s.Address.String(), user, groups...); err != nil {
		s.T.Fatal(err)
	}
	return s.file(name)
}

// Config returns the configuration of an administrator's client on the node.
func (s *Servers) Config() *rest.Config {
	s.T.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig("admin.conf", "admin", "system:masters"))
	if err != nil {
		s.T.Fatal(err)
	}
	c.Dial, c.QPS = s.Node.DialContext, -1
	return c
}

// Start starts the API server and does not wait for it.
func (s *Server) Start() {
	s.all.T.Helper()
	file := s.all.file
	s.Process = Start(s.all.T, s.Host, apiserver, "--etcd-servers", s.all.storeURL(),
		"--bind-address", s.IPv4.String(), "--advertise-address", s.IPv4.String(), "--secure-port", fmt.Sprint(APIPort),
		"--tls-cert-file", file("server.crt"), "--tls-private-key-file", file("server.key"), "--client-ca-file", file("ca.crt"),
		"--authorization-mode", "RBAC", "--service-cluster-ip-range", ServiceCIDRs,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", file("server.key"),
		"--service-account-signing-key-file", file("server.key"))
}

// Ready waits until the API server answers that it is ready, at its own address.
func (s *Server) Ready() {
	s.all.T.Helper()
	c := s.all.Config()
	c.Host = "https://" + netip.AddrPortFrom(s.IPv4, APIPort).String()
	api, err := kubernetes.NewForConfig(c)
	if err != nil {
		s.all.T.Fatal(err)
	}
	Eventually(s.all.T, func() error { return Ready(s.all.T, api) })
}
