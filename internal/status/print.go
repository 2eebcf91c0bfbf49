package status

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Print writes the report for people; now is the present time.
func (r *Report) Print(w io.Writer, now time.Time) error {
	p := &printer{w: bufio.NewWriter(w), now: now}
	if r.From == Daemon {
		p.daemon(r)
	}
	p.fact("serves", "%s, %s, %s", number(r.Services, "Service"), number(r.Frontends, "frontend"), number(r.Endpoints, "endpoint"))
	if len(r.NodePortAddresses) > 0 {
		p.fact("NodePorts", "on %s", addressList(r.NodePortAddresses))
	}
	for _, a := range r.Affinity {
		p.fact("affinity", "%s: %s of %d clients remembered", a.name(), a.count(), a.Size)
	}
	for _, h := range r.HealthChecks {
		p.fact("health", "%s/%s on port %d: %s on this node", h.Namespace, h.Name, h.Port, localEndpoints(h.Endpoints))
	}
	for _, n := range r.Problems {
		p.fact("problem", "%s: %s", n.Object, n.Message)
	}
	p.table(r)
	return p.w.Flush()
}

// printer writes lines. A bufio.Writer keeps the first error.
type printer struct {
	w    *bufio.Writer
	now  time.Time
	last string // name of the fact printed last
}

// fact writes a line under a name, which is not repeated.
func (p *printer) fact(name, format string, args ...any) {
	shown := name
	if name == p.last {
		shown = ""
	}
	p.last = name
	fmt.Fprintf(p.w, "%-9s  %s\n", shown, terminal.Printable(fmt.Sprintf(format, args...)))
}

func (p *printer) daemon(r *Report) {
	p.fact("daemon", "nftproxy %s, started %s ago (%s)", r.Version, p.since(r.Started), r.Started.Local().Format(time.DateTime))
	if r.Node != "" {
		p.fact("node", "%s", r.Node)
	}
	p.fact("source", "%s", r.Source)
	switch s := r.LastSync; {
	case s == nil:
		p.fact("last sync", "none yet: the source is not known")
	case s.Error != "":
		reason, _, _ := strings.Cut(s.Error, "\n") // a panic has more, which is in the log
		p.fact("last sync", "FAILED %s ago: %s", p.since(s.Started), reason)
		if !r.LastSuccess.IsZero() {
			p.fact("last good", "%s ago; what follows is of then", p.since(r.LastSuccess))
		}
	default:
		took := time.Duration(s.Seconds * float64(time.Second)).Round(100 * time.Microsecond)
		p.fact("last sync", "%s ago in %s: %d added, %d changed, %d deleted", p.since(s.Started), took, s.Added, s.Changed, s.Deleted)
	}
	if !r.PendingSince.IsZero() {
		p.fact("pending", "for %s", p.since(r.PendingSince))
	}
}

func (p *printer) since(t time.Time) time.Duration { return p.now.Sub(t).Round(time.Second) }

// table lists the frontends of each service port.
func (p *printer) table(r *Report) {
	if len(r.ServicePorts) == 0 {
		return
	}
	fmt.Fprintln(p.w)
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	heading := "SERVICE PORT\tFRONTEND\tKIND\tENDPOINTS"
	if r.Counted {
		heading += "\tCONNECTIONS"
	}
	fmt.Fprintln(t, heading)
	for i := range r.ServicePorts {
		s := &r.ServicePorts[i]
		name, protocol := terminal.Printable(s.label()), terminal.Printable(s.Protocol)
		for j := range s.Frontends {
			f := &s.Frontends[j]
			row := fmt.Sprintf("%s\t%s %s\t%s\t%s", name, protocol, terminal.Printable(f.Address), terminal.Printable(f.Kind), f.fates())
			if f.Connections != nil {
				row += fmt.Sprintf("\t%d", *f.Connections)
			}
			fmt.Fprintln(t, row)
			name = ""
		}
	}
	_ = t.Flush() // p.w keeps the error
}

// label returns "namespace/name:port", without the colon for an unnamed port.
func (s *ServicePort) label() string {
	name := s.Namespace + "/" + s.Name
	if s.Port != "" {
		name += ":" + s.Port
	}
	return name
}

func (f *Frontend) fates() string {
	if f.Outside == nil || *f.Outside == f.Fate {
		return f.text()
	}
	return f.text() + ", outside " + f.Outside.text()
}

func (f Fate) text() string {
	switch f.Verdict {
	case "reject":
		return "rejects"
	case "drop":
		return "drops"
	}
	return fmt.Sprint(f.Endpoints)
}

func number(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// maxAddresses is how many addresses are listed.
const maxAddresses = 8

// addressList lists some addresses.
func addressList(all []netip.Addr) string {
	shown := all[:min(len(all), maxAddresses)]
	texts := make([]string, len(shown))
	for i, a := range shown {
		texts[i] = a.String()
	}
	text := strings.Join(texts, ", ")
	if rest := len(all) - len(shown); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}

// localEndpoints lists the numbers of a health check by family.
func localEndpoints(byFamily map[string]int) string {
	var out []string
	for _, f := range slices.Sorted(maps.Keys(byFamily)) {
		out = append(out, fmt.Sprintf("%d over %s", byFamily[f], f))
	}
	return strings.Join(out, ", ")
}

// Only reduces the report to the Services of one namespace. The numbers of all
// that is served stay.
func (r *Report) Only(namespace string) {
	r.ServicePorts = slices.DeleteFunc(r.ServicePorts, func(s ServicePort) bool { return s.Namespace != namespace })
	r.HealthChecks = slices.DeleteFunc(r.HealthChecks, func(h HealthCheck) bool { return h.Namespace != namespace })
}
