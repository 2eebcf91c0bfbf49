package status

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// table writes the frontends, or how to list them.
func (p *printer) table(r *Report) {
	if r.Omitted > 0 {
		p.WriteString("\n")
		p.Line("%s", terminal.Count(r.Omitted, "frontend")+" are not listed; nftproxy status -A lists all, -n NAMESPACE, NAME or 'NAMESPACE/NAME*' some")
		return
	}
	if len(r.ServicePorts) == 0 {
		return
	}
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(cells []string) {
		for i, c := range cells {
			cells[i] = terminal.Printable(c)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	options := slices.ContainsFunc(r.ServicePorts, func(s ServicePort) bool {
		return slices.ContainsFunc(s.Frontends, func(f Frontend) bool { return s.options(&f) != "" })
	})
	heading := []string{"SERVICE PORT", "FRONTEND", "KIND", "ENDPOINTS"}
	if r.Counted {
		heading = append(heading, "CONNECTIONS")
	}
	if options {
		heading = append(heading, "OPTIONS")
	}
	p.WriteString("\n")
	row(heading)
	for i := range r.ServicePorts {
		s := &r.ServicePorts[i]
		name := s.label()
		for j := range s.Frontends {
			row(append([]string{name}, s.cells(&s.Frontends[j], r.Counted)...))
			name = ""
		}
	}
	_ = t.Flush() // a strings.Builder does not fail
	for line := range strings.Lines(text.String()) {
		p.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// cells returns all but the first cell of the row of a frontend.
func (s *ServicePort) cells(f *Frontend, counted bool) []string {
	cells := []string{s.Protocol + " " + f.Address, f.Kind, f.decisions()}
	switch {
	case f.Connections != nil:
		cells = append(cells, strconv.FormatUint(*f.Connections, 10))
	case counted: // but not this one
		cells = append(cells, "")
	}
	return append(cells, s.options(f))
}

// options returns what is not the default.
func (s *ServicePort) options(f *Frontend) string {
	var out []string
	if f.Policy != "" {
		out = append(out, "policy "+f.Policy)
	}
	if s.AffinitySeconds > 0 {
		out = append(out, setting.Affinity.Label+" "+setting.ShortTime(time.Duration(s.AffinitySeconds*float64(time.Second))))
	}
	if s.Scheduler != "" {
		out = append(out, s.Scheduler)
	}
	if f.AllowList {
		out = append(out, setting.AllowedClients.Label)
	}
	if f.DenyList {
		out = append(out, setting.DeniedClients.Label)
	}
	if f.ClientAddresses != "" {
		out = append(out, setting.ClientAddresses.Label+" "+f.ClientAddresses)
	}
	if f.Limits {
		out = append(out, setting.Limits.Label)
	}
	return strings.Join(out, ", ")
}

// label returns "namespace/name:port", without the colon for an unnamed port.
func (s *ServicePort) label() string {
	return model.PortName{Service: model.ServiceName{Namespace: s.Namespace, Name: s.Name}, Port: s.Port}.String()
}

func (f *Frontend) decisions() string {
	if f.Outside == nil || *f.Outside == f.Decision {
		return f.text(f.Known)
	}
	return f.text(f.Known) + ", outside " + f.Outside.text(0)
}

// text returns the number of endpoints that take connections, and of all if they are
// more; known is 0 if their number is not known.
func (f Decision) text(known int) string {
	of := ""
	if known > f.Endpoints {
		of = fmt.Sprintf("/%d", known)
	}
	if f.Verdict == model.Forward.String() {
		return fmt.Sprint(f.Endpoints, of)
	}
	if of != "" {
		of = " (0" + of + ")"
	}
	return f.Verdict + "s" + of
}
