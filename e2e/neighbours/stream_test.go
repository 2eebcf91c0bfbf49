package neighbours

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// stream is the record of requests of one protocol during a change.
type stream struct {
	asked    int
	failures []error
}

// during makes requests on all paths, one after the other on each, until a change
// is done, and returns their record by protocol. Each request is a new flow,
// followed by one over a flow that was open before. A TCP client sends what was
// lost again, a UDP client does not.
func (h *host) during(change func(), paths ...path) map[string]*stream {
	h.t.Helper()
	record := map[string]*stream{"tcp": {}, "udp": {}}
	flows := h.open(paths...)
	done, mu, running := make(chan struct{}), sync.Mutex{}, sync.WaitGroup{}
	add := func(network, what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		record[network].asked++
		if err != nil {
			record[network].failures = append(record[network].failures, fmt.Errorf("%s: %w", what, err))
		}
	}
	i := 0
	eachFlow(paths, func(p path, network string, to netip.AddrPort) {
		old := flows[i]
		i++
		running.Go(func() {
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true // after a request that begins now
				default:
				}
				_, err := p.from.Ask(network, to, testbed.Strict)
				add(network, "new flow, "+p.name, err)
				_, err = old.Ask()
				add(network, "flow under way, "+p.name, err)
			}
		})
	})
	change()
	close(done)
	running.Wait()
	return record
}

// uninterrupted checks that no TCP request fails during a change. Lost datagrams
// are logged: a firewall that is between two rulesets may drop them.
func (h *host) uninterrupted(what string, change func(), paths ...path) {
	h.t.Helper()
	record := h.during(change, paths...)
	for network, s := range record {
		fmt.Fprintf(h.t.Output(), "%s: %s: %d requests, %d failed %v\n", what, network, s.asked, len(s.failures), s.failures[:min(3, len(s.failures))])
	}
	if s := record["tcp"]; len(s.failures) > 0 {
		h.t.Errorf("%s: %d of %d TCP requests failed, first %v", what, len(s.failures), s.asked, s.failures[0])
	}
	h.served("after: "+what, paths...)
}
