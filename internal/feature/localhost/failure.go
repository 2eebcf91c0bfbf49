package localhost

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// failure is why a port cannot be opened; the zero value: it can. It does not name the port, so that ports with
// the same cause can be reported together.
type failure struct {
	text string
	wide bool // of all ports of the family
}

var (
	inUse    = failure{"another process listens on it, at this address or at all addresses: stop that process, or give the Service another nodePort", false}
	denied   = failure{"permission denied: a port below 1024 needs CAP_NET_BIND_SERVICE, which nftproxy does not have: give the Service another nodePort", false}
	noFamily = failure{"this machine does not have the address", true}
	noFiles  = failure{"no file descriptors are left: raise the limit of open files (LimitNOFILE)", true}
	tooMany  = failure{"more NodePorts than half the limit of open files: raise it (LimitNOFILE)", true}
)

var causes = map[syscall.Errno]failure{
	syscall.EADDRINUSE: inUse, syscall.EACCES: denied, syscall.EADDRNOTAVAIL: noFamily, syscall.EAFNOSUPPORT: noFamily,
	syscall.EMFILE: noFiles, syscall.ENFILE: noFiles,
}

func causeOf(err error) failure {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return cmp.Or(causes[errno], failure{text: errno.Error()})
	}
	return failure{text: err.Error()}
}

// cause is what one line of the log or the status reports.
type cause struct {
	address netip.Addr
	failure failure
}

// byCause returns the ports that are not open, sorted, by their causes.
func byCause(ports []*port) map[cause][]*port {
	out := make(map[cause][]*port)
	for _, p := range slices.SortedFunc(slices.Values(ports), comparePorts) {
		c := cause{p.frontend.Address, p.failure}
		out[c] = append(out[c], p)
	}
	return out
}

func comparePorts(a, b *port) int { return a.frontend.Compare(b.frontend) }

// logPass logs the result of a pass over the closed ports: those that failed for another reason than before by one line
// for each cause and address, and those that are open again. The caller holds the lock.
func (s *Server) logPass(failed, opened []*port, blocked map[model.Family]failure) {
	events := 0
	all := byCause(failed)
	for _, c := range slices.SortedFunc(maps.Keys(all), func(a, b cause) int {
		return cmp.Or(a.address.Compare(b.address), cmp.Compare(a.failure.text, b.failure.text))
	}) {
		family := model.FamilyOf(c.address)
		if c.failure.wide && s.reported[family] == c.failure {
			continue // each new Service would repeat it
		}
		if c.failure.wide {
			s.reported[family] = c.failure
		}
		s.node.ObjectLog.Warn("NodePorts are not served on localhost; retrying", "address", c.address, "ports", list(all[c]), "error", c.failure.text)
		for _, p := range all[c] {
			if events++; events <= maxFailed && blocked[family] == (failure{}) {
				s.events.LocalhostFailed(p.name.Service, fmt.Errorf("listen on %s: %s", tcpproxy.AddressOf(p.frontend), c.failure.text))
			}
		}
	}
	if len(opened) > 0 {
		s.node.ObjectLog.Info("NodePorts are served on localhost again", "ports", list(opened))
	}
}

// list returns for example "30080 (shop/web:http) and 3 more".
func list(ports []*port) string {
	var parts []string
	for _, p := range ports {
		parts = append(parts, fmt.Sprintf("%d (%s)", p.frontend.Port, p.name))
	}
	return terminal.List(parts, 5)
}

func (s *Server) problems() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, ports := range byCause(slices.Collect(maps.Values(s.closed))) {
		text := fmt.Sprintf("NodePort %d of %s", ports[0].frontend.Port, ports[0].name)
		if n := len(ports) - 1; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		if c.failure.text != "" { // else it has not been tried yet
			out = append(out, fmt.Sprintf("%s: not served on %s: %s", text, c.address, c.failure.text))
		}
	}
	slices.Sort(out)
	return out
}
