package status

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// FailingServer is an address that fails its health checks. Many Services may have it, each
// with a problem of its own, although the cause is one.
type FailingServer struct {
	Address  string    `json:"address"`
	Services int       `json:"services"`
	Service  string    `json:"service"` // the first one
	Message  string    `json:"message"` // of a check that fails
	Since    time.Time `json:"since"`   // of the first check that failed
}

// failing collects the failing servers of all Services.
type failing map[netip.Addr]*FailingServer

func (f failing) add(name model.ServiceName, a netip.Addr, result model.CheckResult) {
	s := f[a]
	if s == nil {
		s = &FailingServer{Address: a.String(), Since: result.Since, Service: name.String(), Message: result.Why()}
		f[a] = s
	}
	s.Services++
	if result.Since.Before(s.Since) {
		s.Since = result.Since
	}
	if name.String() < s.Service {
		s.Service, s.Message = name.String(), result.Why()
	}
}

// maxServers is how many failing servers a report has.
const maxServers = 1000

// sorted returns those of the most Services first.
func (f failing) sorted() []FailingServer {
	order := slices.SortedFunc(maps.Values(f), func(a, b *FailingServer) int {
		return cmp.Or(cmp.Compare(b.Services, a.Services), cmp.Compare(a.Address, b.Address))
	})
	var out []FailingServer
	for _, s := range order[:min(len(order), maxServers)] {
		out = append(out, *s)
	}
	return out
}

// isGrouped reports whether the problems of health checks are printed by server, because
// fewer servers fail than Services have problems.
func (r *Report) isGrouped() bool {
	return len(r.FailingServers) > 0 && len(r.FailingServers) < r.ProblemCounts[CheckFailing]
}

// causes returns the number of problems that are printed.
func (r *Report) causes() int {
	n := len(r.Problems)
	if r.isGrouped() {
		n -= r.ProblemCounts[CheckFailing] - len(r.FailingServers)
	}
	return n
}

// servers writes the failing servers in place of the problems of their Services.
func (p *printer) servers(all []FailingServer, services, examples int) {
	p.Line("%d %s, in %s: servers fail their health check", len(all), CheckFailing, terminal.Count(services, "Service"))
	for _, s := range all[:p.shown(len(all), examples)] {
		where := "in " + terminal.Count(s.Services, "Service")
		if s.Services == 1 {
			where = "in Service " + s.Service
		}
		p.Line("    %s: %s, for %s, %s", s.Address, p.message(s.Message), p.Now.Sub(s.Since).Round(time.Second), where)
	}
	p.more("", len(all)-p.shown(len(all), examples))
}

// settings writes in one line which settings were changed.
func (p *printer) settings(indent string, all []Problem) {
	p.Line("%s%d %s: settings of the kernel that Services need, changed since nftproxy started, such as %s: nftproxy status --problems", indent, len(all), SettingChanged, all[0].Message)
}

// shown returns how many of n lines are printed.
func (p *printer) shown(n, examples int) int {
	if !p.All && n > examples+1 { // a line for one more is as long as that one
		return examples
	}
	return n
}

func (p *printer) more(indent string, n int) {
	if n > 0 {
		p.Line("%s    and %d more: nftproxy status --problems", indent, n)
	}
}
