package status

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Print writes the report as text; now is the current time.
func (r *Report) Print(w io.Writer, now time.Time) error {
	p := terminal.NewPrinter(w, "")
	if r.From == Daemon {
		r.printDaemon(p, now)
	}
	p.Fact("serves", "%s, %s, %s", number(r.Services, "Service"), number(r.Frontends, "frontend"), number(r.Endpoints, "endpoint"))
	if len(r.NodePortAddresses) > 0 {
		p.Fact("NodePorts", "on %s", addressList(r.NodePortAddresses))
	}
	for _, a := range r.Affinity {
		p.Fact("affinity", "%s: %s of %d clients remembered", a.name(), a.count(), a.Size)
	}
	for _, h := range r.HealthChecks {
		p.Fact("health", "%s/%s on port %d: %s on this node", h.Namespace, h.Name, h.Port, localEndpoints(h.Endpoints))
	}
	for _, n := range r.Problems {
		p.Fact("problem", "%s: %s", n.Object, n.Message)
	}
	r.printTable(p)
	return p.Flush()
}

func (r *Report) printDaemon(p *terminal.Printer, now time.Time) {
	since := func(t time.Time) time.Duration { return now.Sub(t).Round(time.Second) }
	p.Fact("daemon", "nftproxy %s, started %s ago (%s)", r.Version, since(r.Started), r.Started.Local().Format(time.DateTime))
	if r.Node != "" {
		p.Fact("node", "%s", r.Node)
	}
	p.Fact("source", "%s", r.Source)
	if e := r.SourceError; e != nil {
		first, more, _ := strings.Cut(e.Message, "\n")
		p.Fact("source", "ERROR for %s: %s", since(e.Since), first)
		for line := range strings.Lines(more) {
			p.Fact("source", "%s", strings.TrimSuffix(line, "\n"))
		}
	}
	for _, w := range r.Warnings {
		p.Fact("warning", "%s", w)
	}
	switch s := r.LastSync; {
	case s == nil && !r.PostponedUntil.IsZero():
		p.Fact("last sync", "none yet: the source is read in %s (--start-jitter); the rules of an earlier run serve", -since(r.PostponedUntil))
	case s == nil:
		p.Fact("last sync", "none yet: waiting for the source")
	case s.Error != "":
		reason, _, _ := strings.Cut(s.Error, "\n") // the log has the stack of a panic
		p.Fact("last sync", "FAILED %s ago: %s", since(s.Started), reason)
		if !r.LastSuccess.IsZero() {
			p.Fact("last good", "%s ago; the following is from that sync", since(r.LastSuccess))
		}
	default:
		took := time.Duration(s.Seconds * float64(time.Second)).Round(100 * time.Microsecond)
		p.Fact("last sync", "%s ago in %s: %d added, %d changed, %d deleted", since(s.Started), took, s.Added, s.Changed, s.Deleted)
	}
	if !r.PendingSince.IsZero() {
		p.Fact("pending", "for %s", since(r.PendingSince))
	}
}

func (r *Report) printTable(p *terminal.Printer) {
	if len(r.ServicePorts) == 0 {
		return
	}
	t := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		for i, c := range cells {
			cells[i] = terminal.Printable(c)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	heading := []string{"SERVICE PORT", "FRONTEND", "KIND", "ENDPOINTS"}
	if r.Counted {
		heading = append(heading, "CONNECTIONS")
	}
	fmt.Fprintln(p)
	row(heading...)
	for i := range r.ServicePorts {
		s := &r.ServicePorts[i]
		name := s.label()
		for j := range s.Frontends {
			f := &s.Frontends[j]
			cells := []string{name, s.Protocol + " " + f.Address, f.Kind, f.decisions()}
			if f.Connections != nil {
				cells = append(cells, strconv.FormatUint(*f.Connections, 10))
			}
			row(cells...)
			name = ""
		}
	}
	_ = t.Flush() // p keeps the error
}

// label returns "namespace/name:port", without the colon for an unnamed port.
func (s *ServicePort) label() string {
	return model.PortName{Service: model.ServiceName{Namespace: s.Namespace, Name: s.Name}, Port: s.Port}.String()
}

func (f *Frontend) decisions() string {
	if f.Outside == nil || *f.Outside == f.Decision {
		return f.text()
	}
	return f.text() + ", outside " + f.Outside.text()
}

func (f Decision) text() string {
	if f.Verdict == model.Forward.String() {
		return fmt.Sprint(f.Endpoints)
	}
	return f.Verdict + "s"
}

func number(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func addressList(all []netip.Addr) string {
	shown := all[:min(len(all), 8)]
	text := strings.ReplaceAll(strings.Trim(fmt.Sprint(shown), "[]"), " ", ", ")
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

// Only reduces the report to the Services of one namespace. Totals stay unchanged.
func (r *Report) Only(namespace string) {
	r.ServicePorts = slices.DeleteFunc(r.ServicePorts, func(s ServicePort) bool { return s.Namespace != namespace })
	r.HealthChecks = slices.DeleteFunc(r.HealthChecks, func(h HealthCheck) bool { return h.Namespace != namespace })
}
