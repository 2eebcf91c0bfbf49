package localhost

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// failure is why a port cannot be opened. It does not name the port, so that ports with
// the same cause can be reported together.
type failure struct {
	text string
	wide bool // of all ports of the family
}

func (f *failure) Error() string { return f.text }

var (
	errInUse    = &failure{"another process listens on it, at this address or at all addresses: stop that process, or give the Service another nodePort", false}
	errDenied   = &failure{"permission denied: a port below 1024 needs CAP_NET_BIND_SERVICE, which nftproxy does not have: give the Service another nodePort", false}
	errNoFamily = &failure{"this machine does not have the address", true}
	errFiles    = &failure{"no file descriptors are left: raise the limit of open files (LimitNOFILE)", true}
	errTooMany  = &failure{"more NodePorts than half the limit of open files: raise it (LimitNOFILE)", true}
)

var causes = map[syscall.Errno]*failure{
	syscall.EADDRINUSE: errInUse, syscall.EACCES: errDenied, syscall.EADDRNOTAVAIL: errNoFamily, syscall.EAFNOSUPPORT: errNoFamily,
	syscall.EMFILE: errFiles, syscall.ENFILE: errFiles,
}

// cause returns why a port could not be opened.
func cause(err error) *failure {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return &failure{err.Error(), false}
	}
	if known := causes[errno]; known != nil {
		return known
	}
	return &failure{errno.Error(), false}
}

// report is the result of one pass over the closed ports.
type report struct {
	blocked map[model.Family]error // the other ports of a family are not tried
	failed  map[key][]*port        // that failed for another reason than before
	opened  []*port                // that had failed before
	served  map[model.Family]bool
}

// key identifies the ports that one line of the log reports.
type key struct {
	address netip.Addr
	failure string
}

func newReport() *report {
	return &report{blocked: make(map[model.Family]error), failed: make(map[key][]*port), served: make(map[model.Family]bool)}
}

// add adds the result of a port. The caller holds the lock of the server.
func (r *report) add(p *port, err error) {
	family := model.FamilyOf(p.frontend.Address)
	if err == nil {
		if r.served[family] = true; p.failure != nil {
			p.failure = nil
			r.opened = append(r.opened, p)
		}
		return
	}
	if f := err.(*failure); f.wide {
		r.blocked[family] = err
	}
	if p.failure == nil || p.failure.Error() != err.Error() {
		p.failure = err
		k := key{p.frontend.Address, err.Error()}
		r.failed[k] = append(r.failed[k], p)
	}
}

// report logs the result of a pass: one line for each cause and address.
func (s *Server) report(r *report) {
	events := 0
	for _, k := range slices.SortedFunc(maps.Keys(r.failed), func(a, b key) int {
		return strings.Compare(a.address.String()+a.failure, b.address.String()+b.failure)
	}) {
		ports, family := r.failed[k], model.FamilyOf(k.address)
		wide := r.blocked[family]
		if wide != nil && wide.Error() == k.failure {
			if s.reported[family] == k.failure {
				continue // each new Service would repeat it
			}
			s.reported[family] = k.failure
		}
		s.Log.Warn("NodePorts are not served on localhost; retrying", "address", k.address, "ports", s.list(ports), "error", k.failure)
		for _, p := range ports {
			if events++; events <= maxFailed && wide == nil {
				s.Failed(s.portName(p.frontend).Service, fmt.Errorf("listen on %s: %s", tcpproxy.AddressOf(p.frontend), k.failure))
			}
		}
	}
	if len(r.opened) > 0 {
		s.Log.Info("NodePorts are served on localhost again", "ports", s.list(r.opened))
	}
	for f := range r.served {
		delete(s.reported, f)
	}
}

// list returns for example "30080 (shop/web:http) and 3 more".
func (s *Server) list(ports []*port) string {
	const most = 5
	var parts []string
	for _, p := range ports[:min(len(ports), most)] {
		parts = append(parts, fmt.Sprintf("%d (%s)", p.frontend.Port, s.portName(p.frontend)))
	}
	text := strings.Join(parts, ", ")
	if more := len(ports) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
