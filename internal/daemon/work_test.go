package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/health"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
)

// witness is a connection tracking table that notes what a load balancer hears
// at the time of the cleanup.
type witness struct {
	port  uint16
	heard []string
}

func (w *witness) List(model.Family, model.Protocol, func(conntrack.Flow)) error {
	w.heard = append(w.heard, ask(w.port))
	return nil
}

func (w *witness) ListUnanswered(model.Family, func(conntrack.Flow)) error { return nil }

func (w *witness) Delete([]conntrack.Flow) (int, error) { return 0, nil }

// ask returns what a health check node port answers: the number of endpoints.
func ask(port uint16) string {
	// Each on a connection of its own: the port may close.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return "nothing"
	}
	r.Body.Close()
	return r.Header.Get("X-Load-Balancing-Endpoint-Weight")
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// unwanted fails a test with the error of a port.
type unwanted struct{ t *testing.T }

func (u unwanted) HealthCheckFailed(s model.ServiceName, err error) { u.t.Errorf("%s: %v", s, err) }

// TestAfterSync: after a success the health check ports come first and the
// conntrack cleanup last (13.21, 13.23), after a failure neither (10.21).
func TestAfterSync(t *testing.T) {
	port := freePort(t)
	table := &witness{port: port}
	node := model.Config{NodeName: "node-1", NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	discard := slog.New(slog.DiscardHandler)
	interfaces := host.NewInterfaces(host.System(""), discard)
	w := &work{
		node:    node,
		cleaner: conntrack.New(table, conntrack.Config{Log: discard}),
		services: health.NewServices(health.ServicesConfig{
			Node: node, Log: discard, Interfaces: interfaces, Events: unwanted{t},
		}),
	}
	defer w.services.Close()
	router := model.NewRouter()
	router.Configure(node, nil, nil)
	sync := func(endpoints int, err error) {
		name := model.ServiceName{Namespace: "default", Name: "dns"}
		s := &model.Snapshot{
			Services: []*model.Service{{
				Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
				Ports:          []model.ServicePort{{Protocol: model.UDP, Port: 53}},
				ExternalPolicy: model.PolicyLocal, HealthCheckNodePort: port,
			}},
			Slices: []*model.EndpointSlice{{Namespace: "default", Service: "dns", Family: model.IPv4, Ports: []model.EndpointPort{{Protocol: model.UDP, Port: 53}}}},
		}
		for i := range endpoints {
			s.Slices[0].Hosts = append(s.Slices[0].Hosts, model.Host{
				Address: netip.AddrFrom4([4]byte{10, 128, 0, byte(i)}), Ready: true, Serving: true, Place: model.OnNode("node-1")})
		}
		changes := router.SetServices(s.Update().Services)
		w.synced(&agent.Sync{Router: router, Routes: changes, Compared: true, Err: err})
		w.cleaner.Clean()
	}
	sync(2, nil)
	sync(1, nil)
	if want := []string{"2", "1"}; !slices.Equal(table.heard, want) {
		t.Errorf("(13.23) while connections are cleaned up, load balancers hear %q, want %q", table.heard, want)
	}
	sync(5, errors.New("refused by the kernel"))
	if got := ask(port); got != "1" || len(table.heard) != 2 {
		t.Errorf("(10.21) after a failed sync: load balancers hear %s, %d cleanups, want 1 and 2", got, len(table.heard))
	}
}

// loopback has one address, and an error.
type loopback struct{ err *error }

func (l loopback) ServingAddresses() ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, *l.err
}

// TestHealthChecksWithoutAddresses: 6.10, 10.16. While the addresses of interfaces
// cannot be listed, health checks of Services are answered where they were, and
// nowhere else.
func TestHealthChecksWithoutAddresses(t *testing.T) {
	port := freePort(t)
	var broken error
	discard := slog.New(slog.DiscardHandler)
	interfaces := host.NewInterfaces(loopback{&broken}, discard)
	node := model.Config{NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	services := health.NewServices(health.ServicesConfig{Node: node, Log: discard, Interfaces: interfaces, Events: unwanted{t}})
	defer services.Close()
	checks := []model.HealthCheck{{Port: port, Endpoints: map[model.Family]int{model.IPv4: 1}}}
	services.Update(checks, &model.Node{})
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	broken = errors.New("too many open files")
	interfaces.Expire()
	services.Update(checks, &model.Node{})
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: node-1\r\n\r\n")
	if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("the connection from before: %v, %v", answer, err)
	}
	if got := ask(port); got != "1" {
		t.Errorf("a new connection: %s", got)
	}
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.2:%d", port)); err == nil {
		c.Close()
		t.Error("another address answers")
	}
}

// TestHealthChecksOfQuarantined: 13.29. The health check of a quarantined Service stays as it
// was: its port is neither opened, nor moved, nor closed.
func TestHealthChecksOfQuarantined(t *testing.T) {
	checks := func(ports map[string]uint16) (out []model.HealthCheck) {
		for _, name := range slices.Sorted(maps.Keys(ports)) {
			out = append(out, model.HealthCheck{Service: model.ServiceName{Namespace: "default", Name: name}, Port: ports[name]})
		}
		return out
	}
	quarantined := []model.ServiceName{{Namespace: "default", Name: "b"}, {Namespace: "default", Name: "d"}, {Namespace: "default", Name: "f"}}
	before := checks(map[string]uint16{"a": 1, "b": 2, "d": 4, "e": 5})
	now := checks(map[string]uint16{"a": 10, "b": 20, "c": 30, "f": 60})
	if got := healthChecks(now, before, nil); !reflect.DeepEqual(got, now) {
		t.Errorf("without a quarantine: %v", got)
	}
	if got := healthChecks(now, before, quarantined); !reflect.DeepEqual(got, checks(map[string]uint16{"a": 10, "b": 2, "c": 30, "d": 4})) {
		t.Errorf("%v", got)
	}
}
