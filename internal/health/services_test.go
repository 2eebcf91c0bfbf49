package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

var web = model.ServiceName{Namespace: "default", Name: "web"}

// fixture answers for Services in the namespace of a node.
type fixture struct {
	*Services
	lab     *netlab.Lab
	node    *model.Node // the Node object
	healthy atomic.Bool
	failed  []string
	log     netlab.LogBuffer
}

// newFixture serves NodePorts in these ranges, among which may be "primary"; none:
// that.
func newFixture(t *testing.T, ranges ...string) *fixture {
	t.Helper()
	lab := netlab.TestLab(t, 0)
	f := &fixture{lab: lab}
	f.healthy.Store(true)
	f.node = &model.Node{Name: "node-1", Addresses: []netip.Addr{lab.Node.IPv4, lab.Node.IPv6}}
	c := ServicesConfig{
		Node:       model.Config{NodeName: "node-1"},
		Interfaces: f,
		Proxy:      f,
		Events:     f,
		Log:        slog.New(slog.NewTextHandler(&f.log, nil)),
	}
	for _, r := range ranges {
		if r == "primary" {
			c.Node.NodePortPrimary = true
			continue
		}
		c.Node.NodePortAddresses = append(c.Node.NodePortAddresses, netip.MustParsePrefix(r))
	}
	f.Services = NewServices(c)
	t.Cleanup(f.Close)
	return f
}

func (f *fixture) HealthCheckFailed(s model.ServiceName, err error) {
	f.failed = append(f.failed, s.String()+" "+err.Error())
}

func (f *fixture) Healthy() bool { return f.healthy.Load() }

// Addresses returns the loopback addresses and the addresses of the link to the client.
func (f *fixture) Addresses() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), f.lab.Node.IPv4, f.lab.Node.IPv6}
}

// update is what follows a successful sync.
func (f *fixture) update(checks ...model.HealthCheck) {
	f.lab.Node.Do(func() error {
		f.Update(checks, f.node)
		return nil
	})
}

// at returns a health check for the Service web; negative: not of that family.
func at(port uint16, v4, v6 int) model.HealthCheck {
	h := model.HealthCheck{Service: web, Port: port, Endpoints: make(map[model.Family]int)}
	for f, n := range map[model.Family]int{model.IPv4: v4, model.IPv6: v6} {
		if n >= 0 {
			h.Endpoints[f] = n
		}
	}
	return h
}

// dial connects to the node from a host.
func dial(from *netlab.Host, address netip.Addr, port uint16) (net.Conn, error) {
	return from.DialContext(context.Background(), "tcp", netip.AddrPortFrom(address, port).String())
}

var date = regexp.MustCompile(`(?m)^Date: .*\r\n`)

// ask sends a request and returns all bytes of the answer but the date.
func ask(t *testing.T, from *netlab.Host, address netip.Addr, port uint16, request string) string {
	t.Helper()
	c, err := dial(from, address, port)
	if err != nil {
		t.Fatalf("ask %s port %d: %v", address, port, err)
	}
	defer c.Close()
	io.WriteString(c, request+" HTTP/1.1\r\nHost: node-1\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return date.ReplaceAllString(string(answer), "")
}

// brief is the status and the weight of an answer, or "refused".
func brief(t *testing.T, from *netlab.Host, address netip.Addr, port uint16) string {
	t.Helper()
	c, err := dial(from, address, port)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refused"
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(ask(t, from, address, port, "GET /"))), nil)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d weight %s", r.StatusCode, r.Header.Get("X-Load-Balancing-Endpoint-Weight"))
}

// expect compares the brief answers that the client gets in both families.
func (f *fixture) expect(t *testing.T, when string, port uint16, v4, v6 string) {
	t.Helper()
	for _, c := range []struct {
		address netip.Addr
		want    string
	}{{f.lab.Node.IPv4, v4}, {f.lab.Node.IPv6, v6}} {
		if got := brief(t, f.lab.Client, c.address, port); got != c.want {
			t.Errorf("%s: %s port %d: %s, want %s", when, c.address, port, got, c.want)
		}
	}
}

// TestServiceAnswers compares all bytes: 10.17, 10.18, 10.19 and P74. The body ends
// without a new line.
func TestServiceAnswers(t *testing.T) {
	f := newFixture(t)
	const format = "HTTP/1.1 %s\r\n" +
		"Content-Type: application/json\r\n" +
		"X-Content-Type-Options: nosniff\r\n" +
		"X-Load-Balancing-Endpoint-Weight: %d\r\n" +
		"Content-Length: %d\r\n" +
		"Connection: close\r\n\r\n%s"
	for _, c := range []struct {
		name, request string
		endpoints     int
		healthy       bool
		status, body  string
	}{
		{"endpoints", "GET /", 2, true, "200 OK",
			"{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}"},
		{"other path and method", "DELETE /some/where?else=1", 2, true, "200 OK",
			"{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}"},
		{"no endpoints", "GET /", 0, true, "503 Service Unavailable",
			"{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 0,\n\t\"serviceProxyHealthy\": true\n}"},
		{"proxy not healthy", "GET /", 7, false, "503 Service Unavailable",
			"{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 7,\n\t\"serviceProxyHealthy\": false\n}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.healthy.Store(c.healthy)
			f.update(at(31000, c.endpoints, -1))
			got := ask(t, f.lab.Client, f.lab.Node.IPv4, 31000, c.request)
			if want := fmt.Sprintf(format, c.status, c.endpoints, len(c.body), c.body); got != want {
				t.Errorf("answer:\n%q\nwant:\n%q", got, want)
			}
		})
	}
}

// TestNodeDoesNotMatter: 10.17 and P72, a node that is about to go answers for
// its Services as before, while the proxy is healthy.
func TestNodeDoesNotMatter(t *testing.T) {
	f := newFixture(t)
	s := newState()
	s.node.Leaving = true
	f.Proxy = s.proxy()
	f.update(at(31000, 1, 1))
	f.expect(t, "leaving", 31000, "200 weight 1", "200 weight 1")
	f.update()
	s = newState()
	s.Pending = time.Now().Add(-time.Hour)
	f.Proxy = s.proxy()
	f.update(at(31000, 1, 1))
	f.expect(t, "not synced for an hour", 31000, "503 weight 1", "503 weight 1")
}

// TestProxyHealthDisabled: 10.25.
func TestProxyHealthDisabled(t *testing.T) {
	f := newFixture(t)
	f.Services = NewServices(ServicesConfig{Interfaces: f, Events: f, Log: f.Log})
	f.update(at(31000, 1, 0))
	f.expect(t, "proxy health disabled", 31000, "200 weight 1", "503 weight 0")
}

// TestFamilies: 10.15, each family has a listener and a count of its own, also
// where all addresses are served.
func TestFamilies(t *testing.T) {
	f := newFixture(t, "0.0.0.0/0", "::/0")
	for _, c := range []struct {
		v4, v6       int
		want4, want6 string
	}{
		{1, 2, "200 weight 1", "200 weight 2"},
		{3, -1, "200 weight 3", "refused"},
		{-1, 4, "refused", "200 weight 4"},
		{0, 5, "503 weight 0", "200 weight 5"},
	} {
		f.update(at(31000, c.v4, c.v6))
		f.expect(t, fmt.Sprintf("%d and %d endpoints", c.v4, c.v6), 31000, c.want4, c.want6)
	}
}

// TestAddresses: 10.16, by asking each address from the node itself.
func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		name    string
		ranges  []string
		arrange func(*fixture)
		want    string // addresses that answer
	}{
		{"primary", nil, nil, "node4 node6"},
		{"primary, no IPv6 address known", nil, func(f *fixture) { f.node.Addresses = f.node.Addresses[:1] }, "node4"},
		{"primary, nothing known", nil, func(f *fixture) { f.node.Addresses = nil }, ""},
		{"primary, bind address", nil, func(f *fixture) { f.Node.BindAddress = netip.MustParseAddr("127.0.0.1") }, "lo4 node6"},
		{"primary, an address of another host", nil, func(f *fixture) { f.node.Addresses = []netip.Addr{netip.MustParseAddr("203.0.113.1")} }, ""},
		{"all", []string{"0.0.0.0/0", "::/0"}, nil, "lo4 node4 unlisted4 lo6 node6"},
		{"all of IPv4 beside a range", []string{"198.51.100.0/24", "0.0.0.0/0", "::1/128"}, nil, "lo4 node4 unlisted4 lo6"},
		{"primary and loopback", []string{"primary", "127.0.0.0/8", "::1/128"}, nil, "lo4 node4 lo6 node6"},
		{"primary and a range of IPv4", []string{"primary", "127.0.0.0/8"}, nil, "lo4 node4 node6"},
		{"no range of IPv6", []string{"127.0.0.0/8"}, nil, "lo4 lo6 node6"},
		{"nothing in the ranges", []string{"198.51.100.0/24", "2001:db8:1::/48"}, nil, ""},
		{"several, overlapping", []string{"127.0.0.0/8", "127.0.0.1/32", "0.0.0.0/1", "128.0.0.0/1", "::1/128"}, nil, "lo4 node4 lo6"},
		{"6.10 interfaces unknown, primary", nil, unlisted, "node4 node6"},
		{"6.10 interfaces unknown", []string{"127.0.0.0/8", "2001:db8::/32"}, unlisted, "node6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, c.ranges...)
			if c.arrange != nil {
				c.arrange(f)
			}
			f.update(at(31000, 1, 1))
			var got []string
			for name, a := range map[string]netip.Addr{
				"lo4": netip.MustParseAddr("127.0.0.1"), "lo6": netip.IPv6Loopback(), "node4": f.lab.Node.IPv4, "node6": f.lab.Node.IPv6,
				"unlisted4": netip.MustParseAddr("127.0.0.2"), // not among the interface addresses
			} {
				if answer := brief(t, f.lab.Node, a, 31000); answer != "refused" {
					got = append(got, name)
				}
			}
			want := strings.Fields(c.want)
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("answers at %v, want %v", got, want)
			}
			if len(f.failed) > 0 {
				t.Errorf("failed: %v", f.failed)
			}
		})
	}
}

// listed are the addresses of interfaces.
type listed []netip.Addr

func (l listed) Addresses() []netip.Addr { return l }

// proxy is healthy as a test has it.
type proxy func() bool

func (p proxy) Healthy() bool { return p() }

// unlisted is a node whose interfaces cannot be asked for their addresses.
func unlisted(f *fixture) { f.Interfaces = listed(nil) }

// TestAddressesChange: the addresses are those at the last update.
func TestAddressesChange(t *testing.T) {
	f := newFixture(t)
	f.node.Addresses = nil
	f.update(at(31000, 1, 1))
	f.expect(t, "no address known", 31000, "refused", "refused")
	f.node.Addresses = []netip.Addr{f.lab.Node.IPv6, f.lab.Node.IPv4}
	f.update(at(31000, 1, 1))
	f.expect(t, "addresses known", 31000, "200 weight 1", "200 weight 1")
	f.node.Addresses = f.node.Addresses[:1]
	f.update(at(31000, 1, 1))
	f.expect(t, "an address gone", 31000, "refused", "200 weight 1")
}

// TestAddressTaken: a check that moves to an address which it cannot have goes on
// where it was, until it can (10.23).
func TestAddressTaken(t *testing.T) {
	f := newFixture(t, "127.0.0.0/8", "::1/128")
	first, second := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	f.update(at(31000, 1, -1))
	other, err := f.lab.Node.Listen("tcp4", net.JoinHostPort(second.String(), "31000"))
	if err != nil {
		t.Fatal(err)
	}
	f.Interfaces = listed{second}
	f.update(at(31000, 2, -1))
	if got := brief(t, f.lab.Node, first, 31000); got != "200 weight 2" {
		t.Errorf("the address before: %s", got)
	}
	other.Close()
	f.update(at(31000, 3, -1))
	if got := brief(t, f.lab.Node, second, 31000); got != "200 weight 3" {
		t.Errorf("the address wanted: %s", got)
	}
	if got := brief(t, f.lab.Node, first, 31000); got != "refused" {
		t.Errorf("the address before, after the other is free: %s", got)
	}
}

// TestLinkLocal: an address that only has a meaning with its link is left out.
func TestLinkLocal(t *testing.T) {
	f := newFixture(t, "::1/128", "fe80::/10")
	f.Interfaces = listed(append(f.Addresses(), netip.MustParseAddr("fe80::1")))
	f.update(at(31000, -1, 1))
	if got := brief(t, f.lab.Node, netip.IPv6Loopback(), 31000); got != "200 weight 1" || len(f.failed) > 0 {
		t.Errorf("answer %s, failed %v", got, f.failed)
	}
}

// connection is one that stays open between requests.
type connection struct {
	net.Conn
	r *bufio.Reader
}

// get asks once more and returns the weight.
func (c connection) get() (string, error) {
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: node-1\r\n\r\n")
	answer, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.Header.Get("X-Load-Balancing-Endpoint-Weight"), err
}

// TestUpdates: 10.21, 10.22 and P73. Between updates nothing changes; an update
// keeps the port, changes it or closes it.
func TestUpdates(t *testing.T) {
	f := newFixture(t)
	f.update(at(31000, 1, -1))
	conn, err := dial(f.lab.Client, f.lab.Node.IPv4, 31000)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := connection{conn, bufio.NewReader(conn)}
	for _, n := range []int{1, 2, 0, 5} {
		f.update(at(31000, n, -1))
		for range 2 {
			if got, err := c.get(); err != nil || got != fmt.Sprint(n) {
				t.Fatalf("%d endpoints: weight %s, %v on the same connection", n, got, err)
			}
		}
	}

	f.update(at(31001, 6, -1))
	f.expect(t, "old port", 31000, "refused", "refused")
	f.expect(t, "new port", 31001, "200 weight 6", "refused")
	if got, err := c.get(); err == nil {
		t.Errorf("a connection to the old port answers %s", got)
	}

	f.update()
	f.expect(t, "no health check any more", 31001, "refused", "refused")
	f.update(at(31000, 7, 8))
	f.expect(t, "again", 31000, "200 weight 7", "200 weight 8")
	f.Close()
	f.expect(t, "closed", 31000, "refused", "refused")
}

// TestPortChangesHands: a port that one Service gives up is free for another at
// once, in either order.
func TestPortChangesHands(t *testing.T) {
	f := newFixture(t)
	a, b := at(31000, 1, -1), at(31001, 2, -1)
	a.Service.Name, b.Service.Name = "a", "b"
	for range 301 { // immediately, before the servers have started
		a.Port, b.Port = b.Port, a.Port
		f.update(a, b)
	}
	f.expect(t, "a", a.Port, "200 weight 1", "refused")
	f.expect(t, "b", b.Port, "200 weight 2", "refused")
	if n := len(f.failed); n > 0 {
		t.Errorf("failed %d times, first %s", n, f.failed[0])
	}
}

// TestListenFailure: 10.23.
func TestListenFailure(t *testing.T) {
	f := newFixture(t, "127.0.0.0/8", "192.0.2.0/24")
	other, err := f.lab.Node.Listen("tcp4", net.JoinHostPort(f.lab.Node.IPv4.String(), "31000"))
	if err != nil {
		t.Fatal(err)
	}
	neighbour := at(31001, 3, -1)
	neighbour.Service.Name = "zebra"
	loopback := func() string { return brief(t, f.lab.Node, netip.MustParseAddr("127.0.0.1"), 31000) }
	for range 3 {
		f.update(at(31000, 1, 2), neighbour)
		if got := loopback(); got != "refused" {
			t.Errorf("the address that is free: %s", got)
		}
		if got := brief(t, f.lab.Client, f.lab.Node.IPv6, 31000); got != "200 weight 2" {
			t.Errorf("the other family: %s", got)
		}
		f.expect(t, "other Service", 31001, "200 weight 3", "refused")
	}
	if len(f.failed) != 1 || !strings.HasPrefix(f.failed[0], "default/web ") || !strings.Contains(f.failed[0], "address already in use") {
		t.Errorf("failures %q", f.failed)
	}
	if n := strings.Count(f.log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors in the log:\n%s", n, f.log.String())
	}

	other.Close()
	if got := loopback(); got != "refused" {
		t.Errorf("before the next update: %s", got)
	}
	f.update(at(31000, 1, 2), neighbour)
	f.expect(t, "free again", 31000, "200 weight 1", "200 weight 2")
	if got := loopback(); got != "200 weight 1" {
		t.Errorf("free again: %s", got)
	}
	if !strings.Contains(f.log.String(), "answers again") {
		t.Errorf("log:\n%s", f.log.String())
	}
}

// TestSameHealthPort: the first of two Services gets the port and keeps it.
func TestSameHealthPort(t *testing.T) {
	f := newFixture(t)
	first, second := at(31000, 1, -1), at(31000, 2, -1)
	second.Service.Name = "xylo"
	f.update(first, second)
	f.update(first, second)
	f.expect(t, "both", 31000, "200 weight 1", "refused")
	if len(f.failed) != 1 || !strings.HasPrefix(f.failed[0], "default/xylo ") {
		t.Errorf("failures %q", f.failed)
	}
	f.update(second)
	f.expect(t, "one", 31000, "200 weight 2", "refused")
}

// TestSlowClients: an update waits neither for requests that do not arrive nor
// for answers that do not end.
func TestSlowClients(t *testing.T) {
	f := newFixture(t)
	asked, proceed := make(chan struct{}), make(chan struct{})
	f.Proxy = proxy(func() bool {
		close(asked)
		<-proceed
		return true
	})
	f.update(at(31000, 1, -1))
	defer close(proceed)
	for _, request := range []string{"", "GET / HTTP/1.1\r\nHo", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
		c, err := dial(f.lab.Client, f.lab.Node.IPv4, 31000)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, request)
	}
	<-asked
	f.update(at(31000, 2, -1))
	f.update(at(31001, 2, -1))
	f.update()
	f.expect(t, "closed", 31000, "refused", "refused")
}

// kube makes a Service as the API server has it.
func kube(change func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:               []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			HealthCheckNodePort: 31000,
		},
	}
	change(&s.Spec)
	return s
}

// hosts are endpoints on node-1, ready or only serving, and one elsewhere.
func hosts(t *testing.T, ready, serving int) []*model.EndpointSlice {
	t.Helper()
	s := &model.EndpointSlice{Namespace: "default", Name: "web-1", Service: "web", Family: model.IPv4,
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "http", Protocol: model.TCP, Port: 8081}}}
	address := netip.MustParseAddr("10.128.0.1")
	add := func(h model.Host) {
		address = address.Next()
		h.Address = address
		s.Hosts = append(s.Hosts, h)
	}
	for range ready {
		add(model.Host{Place: model.OnNode("node-1"), Ready: true, Serving: true})
	}
	for range serving {
		add(model.Host{Place: model.OnNode("node-1"), Serving: true})
	}
	add(model.Host{Place: model.OnNode("node-2"), Ready: true, Serving: true})
	return []*model.EndpointSlice{s}
}

// TestFromObjects: from Services and slices to answers, 10.15, 10.20, 10.24,
// P10, P11, P25 to P27.
func TestFromObjects(t *testing.T) {
	f := newFixture(t)
	plain := func(*corev1.ServiceSpec) {}
	clusterIP := func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy, s.HealthCheckNodePort = corev1.ServiceTypeClusterIP, "", 0
	}
	stranger := hosts(t, 3, 0)
	stranger[0].Service = "stranger"
	for _, c := range []struct {
		name    string
		service func(*corev1.ServiceSpec)
		slices  []*model.EndpointSlice
		want    string
	}{
		{"P11 type ClusterIP", clusterIP, hosts(t, 1, 0), "refused"},
		{"P11 type LoadBalancer, policy Local", plain, hosts(t, 1, 0), "200 weight 1"},
		{"P11 the same again", plain, hosts(t, 1, 0), "200 weight 1"},
		{"P11 type ClusterIP again", clusterIP, hosts(t, 1, 0), "refused"},
		{"P10 policy Cluster", func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster }, hosts(t, 1, 0), "refused"},
		{"P26 two addresses of two ports", plain, hosts(t, 2, 1), "200 weight 2"},
		{"P25 not ready", plain, hosts(t, 0, 1), "503 weight 0"},
		{"10.24 no slices", plain, nil, "503 weight 0"},
		{"10.24 slices of a Service that does not exist", plain, stranger, "503 weight 0"},
	} {
		svc, found := convert.Service(kube(c.service), "")
		if svc == nil {
			t.Fatalf("%s: %v", c.name, found)
		}
		r := model.Resolve(&model.Snapshot{Nodes: []*model.Node{f.node}, Services: []*model.Service{svc}, Slices: c.slices}, f.Node)
		f.update(r.HealthChecks...)
		f.expect(t, c.name, 31000, c.want, "refused")
	}
}

// TestTerminating: P27, local endpoints that only terminate still get traffic,
// but load balancers should stop using the node.
func TestTerminating(t *testing.T) {
	f := newFixture(t)
	svc, _ := convert.Service(kube(func(*corev1.ServiceSpec) {}), "")
	svc.External = &model.External{LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	all := hosts(t, 0, 2)
	for i := range all[0].Hosts[:2] {
		all[0].Hosts[i].Terminating = true
	}
	r := model.Resolve(&model.Snapshot{Nodes: []*model.Node{f.node}, Services: []*model.Service{svc}, Slices: all}, f.Node)
	f.update(r.HealthChecks...)
	f.expect(t, "terminating", 31000, "503 weight 0", "refused")
	for _, route := range r.Routes {
		if d := route.Choice.Decide(model.PolicyLocal); d.Verdict != model.Forward || len(d.Endpoints) != 4 {
			t.Errorf("%v: %v", route.Frontend, d)
		}
	}
}
