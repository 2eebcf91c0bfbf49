package faults

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// pause is that of a client between two requests.
const pause = 10 * time.Millisecond

// load is clients outside of the cluster that dial services over a new
// connection or socket for each request, all of which must be answered.
type load struct {
	stop    chan struct{}
	running sync.WaitGroup

	mu       sync.Mutex
	requests int
	lost     []string
}

// startLoad starts a client for each service, family and protocol.
func (n *node) startLoad(services ...service) *load {
	n.t.Helper()
	l := &load{stop: make(chan struct{})}
	for _, s := range services {
		for _, f := range model.Families {
			for _, network := range []string{"tcp", "udp"} {
				if network == "udp" && s.changes {
					continue
				}
				client := n.newClient()
				n.eventually(func() error { // a new client is first asked for its link address
					_, err := client.Ask(network, s.clusterIP(f), time.Second)
					return err
				})
				l.running.Go(func() { l.run(client, network, s.clusterIP(f)) })
			}
		}
	}
	n.t.Cleanup(l.end)
	return l
}

// newClient returns the client with addresses, and so with ports, of its own.
func (n *node) newClient() *netlab.Host {
	n.t.Helper()
	n.clients++
	host, err := n.Client.Alias(netip.AddrFrom4([4]byte{198, 18, byte(n.clients >> 8), byte(n.clients)}),
		netip.MustParseAddr(fmt.Sprintf("2001:db8:18::%x", n.clients)))
	if err != nil {
		n.t.Fatal(err)
	}
	return host
}

func (l *load) run(client *netlab.Host, network string, to netip.AddrPort) {
	for {
		if !await.Pace(l.stop, pause) {
			return
		}
		_, err := client.Ask(network, to, 0)
		l.mu.Lock()
		l.requests++
		if err != nil {
			l.lost = append(l.lost, fmt.Sprintf("%s %s %s: %v", time.Now().Format("15:04:05.000"), network, to, err))
		}
		l.mu.Unlock()
	}
}

// end stops the clients. The load can be ended again.
func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.running.Wait()
}

// take returns the record since the last call, and fails the test if a request
// was lost.
func (l *load) take(t *testing.T) string {
	t.Helper()
	l.mu.Lock()
	requests, lost := l.requests, slices.Clone(l.lost)
	l.requests, l.lost = 0, nil
	l.mu.Unlock()
	if len(lost) > 0 {
		t.Errorf("%d of %d requests are lost, as %s", len(lost), requests, lost[0])
	}
	return fmt.Sprintf("%d requests, %d lost", requests, len(lost))
}
