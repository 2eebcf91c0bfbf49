package status

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
)

// counts adds up what the kernel has counted. A counter of the kernel starts at
// 0 again when the verdict of its frontend changes, for example with the number
// of endpoints. The sum over the frontends of a service port would then fall by
// a part, which looks as if all had been counted anew; so it is the growth that
// is added. What was counted between the last reading and such a change is
// lost.
type counts struct {
	seen      map[counter]uint64 // in the kernel, at the last reading
	frontends map[model.Frontend]uint64
	ports     map[portKind]uint64
}

// counter is one counter of the kernel.
type counter struct {
	frontend model.Frontend
	outside  bool
}

type portKind struct {
	port model.PortName
	kind model.Kind
}

func newCounts() counts {
	return counts{frontends: make(map[model.Frontend]uint64), ports: make(map[portKind]uint64)}
}

// add takes up a reading. What no route has any more is forgotten.
func (c *counts) add(reading []apply.FrontendCount, routes []model.Route) {
	owners := make(map[model.Frontend]portKind, len(routes))
	frontends := make(map[model.Frontend]uint64, len(routes))
	ports := make(map[portKind]uint64)
	for i := range routes {
		r := &routes[i]
		owner := portKind{r.Port, r.Kind}
		owners[r.Frontend] = owner
		frontends[r.Frontend] = c.frontends[r.Frontend]
		ports[owner] = c.ports[owner]
	}
	seen := make(map[counter]uint64, len(reading))
	for _, n := range reading {
		owner, ok := owners[n.Frontend]
		if !ok {
			continue // the rules change at this moment
		}
		key := counter{n.Frontend, n.Outside}
		growth := n.Connections
		if before := c.seen[key]; before <= growth {
			growth -= before
		}
		seen[key] = n.Connections
		frontends[n.Frontend] += growth
		ports[owner] += growth
	}
	c.seen, c.frontends, c.ports = seen, frontends, ports
}

// count brings the counts up to date. The caller holds the lock on them.
func (s *Server) count(routing *model.Routing) error {
	if !s.config.Counted || routing == nil {
		return nil
	}
	reading, err := s.config.Kernel.FrontendCounts()
	if err != nil {
		return err
	}
	s.counts.add(reading, routing.Routes)
	return nil
}

// ServiceCounts returns how many connections there were to the service ports
// that the node serves, sorted; none where nothing is counted. A number falls
// only when the daemon is started anew, or its service port is deleted and
// comes back.
func (s *Server) ServiceCounts() ([]ServiceCount, error) {
	_, routing := s.observed()
	s.reading.Lock()
	defer s.reading.Unlock()
	if err := s.count(routing); err != nil {
		return nil, err
	}
	out := make([]ServiceCount, 0, len(s.counts.ports))
	for k, n := range s.counts.ports {
		out = append(out, ServiceCount{k.port, k.kind, n})
	}
	slices.SortFunc(out, func(a, b ServiceCount) int {
		if c := a.Port.Compare(b.Port); c != 0 {
			return c
		}
		return int(a.Kind) - int(b.Kind)
	})
	return out, nil
}
