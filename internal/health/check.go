package health

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/internal/serve"
)

// check answers for one Service in one family, on any path and method (10.17).
type check struct {
	services  *Services
	name      checkName
	endpoints atomic.Int64            // on this node
	ports     map[netip.AddrPort]port // that are open
	failure   string                  // reported last
}

type port struct {
	listener net.Listener
	server   *http.Server
}

// close closes the listener and all connections. A server that has just been started
// may not have its listener yet.
func (p port) close() {
	p.listener.Close()
	p.server.Close()
}

// checkAnswer is the body of an answer (10.19).
type checkAnswer struct {
	Service        serviceAnswer `json:"service"`
	LocalEndpoints int64         `json:"localEndpoints"`
	ProxyHealthy   bool          `json:"serviceProxyHealthy"`
}

type serviceAnswer struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (c *check) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n, healthy := c.endpoints.Load(), c.services.Healthy()
	body, _ := json.MarshalIndent(checkAnswer{serviceAnswer(c.name.service), n, healthy}, "", "\t") // these types cannot fail
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(n, 10))
	writeJSON(w, statusCode(n > 0 && healthy), body)
}

// closePorts closes all ports except those to keep.
func (c *check) closePorts(keep func(netip.AddrPort) bool) {
	for at, p := range c.ports {
		if !keep(at) {
			p.close()
			delete(c.ports, at)
		}
	}
}

// movePorts opens these ports, then closes all others.
func (c *check) movePorts(to []netip.AddrPort) error {
	if err := c.listen(to); err != nil {
		return err
	}
	c.closePorts(func(at netip.AddrPort) bool { return slices.Contains(to, at) })
	return nil
}

// listen opens the ports that are not open yet: all or none (10.23).
func (c *check) listen(at []netip.AddrPort) error {
	opened := make(map[netip.AddrPort]net.Listener)
	for _, a := range at {
		if _, ok := c.ports[a]; ok {
			continue
		}
		l, err := serve.Listen(func() (net.Listener, error) {
			return c.services.listen(fmt.Sprintf("tcp%d", c.name.family), a.String()) // an unspecified address is one family's (10.15)
		}, c.services.Log.With("service", c.name.service, "address", a))
		if err != nil {
			for _, l := range opened {
				l.Close()
			}
			return fmt.Errorf("%w: free that address, or give the Service another healthCheckNodePort", err)
		}
		opened[a] = c.services.limit.Listener(l)
	}
	for a, l := range opened {
		p := port{l, serve.NewHTTP(c, 0, c.services.Log)}
		c.ports[a] = p
		go p.server.Serve(l) // until it is closed
	}
	return nil
}
