package localhost

import (
	"syscall"
	"time"
)

const (
	// maxConnections is the number of concurrent connections through all ports, and
	// maxOfPort through one, so that one Service cannot use up all of them.
	maxConnections = 4096
	maxOfPort      = 1024
	// files of a connection: two sockets, and a pipe for each direction, through which
	// the kernel moves the data.
	files = 6
	// warnPause is the minimum time between two warnings about limits.
	warnPause = time.Minute
)

// limits bound what clients can use.
type limits struct{ listeners, connections, ofPort int }

// newLimits returns the limits of this process.
func newLimits() limits {
	var n syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &n); err != nil {
		n.Cur = 1024
	}
	return limitsFor(n.Cur)
}

// limitsFor returns limits that leave a quarter of the file descriptors that a process may
// have to the rest of it: listeners get half, connections a quarter.
func limitsFor(descriptors uint64) limits {
	n := int(min(descriptors, 1<<30))
	l := limits{n / 2, max(1, min(maxConnections, n/4/files)), maxOfPort}
	l.ofPort = min(l.ofPort, max(1, l.connections/4))
	return l
}

// admit counts a connection, unless that would exceed a limit.
func (p *port) admit() bool {
	s := p.server
	if s.counts.open.Add(1) > int64(s.limits.connections) {
		s.counts.open.Add(-1)
		s.warn(p, "the limit of all localhost NodePorts", s.limits.connections)
		return false
	}
	if p.open.Add(1) > int64(s.limits.ofPort) {
		p.leave()
		s.warn(p, "the limit of one port", s.limits.ofPort)
		return false
	}
	return true
}

// leave reverses admit.
func (p *port) leave() {
	p.open.Add(-1)
	p.server.counts.open.Add(-1)
}

// warn logs a refused connection, at most once in a while.
func (s *Server) warn(p *port, limit string, n int) {
	now := time.Now().UnixNano()
	last := s.warned.Load()
	if last != 0 && now-last < int64(warnPause) || !s.warned.CompareAndSwap(last, now) {
		return
	}
	s.Log.Warn("connections to a NodePort on localhost are refused", "address", p.address(), "service", p.portName(),
		"because", limit, "connections", n)
}
