package show

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// table writes the frontends, or how to list them.
func (p *statusPrinter) table(r *api.Status) {
	if r.Omitted > 0 {
		p.WriteString("\n")
		p.Line("%s", terminal.Count(r.Omitted, "frontend")+" are not listed; nftproxy status -A lists all, -n NAMESPACE, NAME or 'NAMESPACE/NAME*' some")
		return
	}
	if len(r.ServicePorts) == 0 {
		return
	}
	options := slices.ContainsFunc(r.ServicePorts, func(s api.ServicePort) bool {
		return slices.ContainsFunc(s.Frontends, func(f api.Frontend) bool { return optionsOf(&s, &f) != "" })
	})
	heading := []string{"SERVICE PORT", "FRONTEND", "KIND", "ENDPOINTS"}
	if r.Counted {
		heading = append(heading, "CONNECTIONS")
	}
	if options {
		heading = append(heading, "OPTIONS")
	}
	rows := [][]string{heading}
	for i := range r.ServicePorts {
		s := &r.ServicePorts[i]
		name := portLabel(s)
		for j := range s.Frontends {
			rows = append(rows, append([]string{name}, frontendCells(s, &s.Frontends[j], r.Counted)...))
			name = ""
		}
	}
	p.WriteString("\n")
	p.Table("", rows)
}

// frontendCells returns all but the first cell of the row of a frontend.
func frontendCells(s *api.ServicePort, f *api.Frontend, counted bool) []string {
	cells := []string{s.Protocol + " " + f.Address, words.Of(s.Balance).Text(f.Kind), decisions(f)}
	switch {
	case f.Connections != nil:
		cells = append(cells, strconv.FormatUint(*f.Connections, 10))
	case counted: // but not this one
		cells = append(cells, "")
	}
	return append(cells, optionsOf(s, f))
}

// optionsOf returns the options that are not the default.
func optionsOf(s *api.ServicePort, f *api.Frontend) string {
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
	if f.Relayed {
		out = append(out, setting.Relay.Label)
	}
	if f.ClientAddresses != "" {
		out = append(out, setting.ClientAddresses.Label+" "+f.ClientAddresses)
	}
	if f.Limits {
		out = append(out, setting.Limits.Label)
	}
	return strings.Join(out, ", ")
}

// portLabel returns "namespace/name:port", without the colon for an unnamed port.
func portLabel(s *api.ServicePort) string {
	return model.PortName{Service: model.ServiceName{Namespace: s.Namespace, Name: s.Name}, Port: s.Port}.String()
}

func decisions(f *api.Frontend) string {
	if f.Outside == nil || *f.Outside == f.Decision {
		return decisionText(f.Decision, f.Known)
	}
	return decisionText(f.Decision, f.Known) + ", outside " + decisionText(*f.Outside, 0)
}

// decisionText returns the number of endpoints that take connections, and of all if they are
// more; known is 0 if their number is not known.
func decisionText(f api.Decision, known int) string {
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
