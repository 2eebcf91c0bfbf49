package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

func (p *statusPrinter) table(r *api.Status) {
	if r.Omitted > 0 {
		p.WriteString("\n")
		p.Line("%s", terminal.Count(r.Omitted, "frontend")+" are not listed; nftproxy status -A lists all, -n NAMESPACE, NAME or 'NAMESPACE/NAME*' some")
		return
	}
	if len(r.ServicePorts) == 0 {
		return
	}
	rows := [][]string{{"SERVICE PORT", "FRONTEND", "KIND", "ENDPOINTS", "CONNECTIONS", "OPTIONS"}}
	for i := range r.ServicePorts {
		s := &r.ServicePorts[i]
		name := portLabel(s)
		for j := range s.Frontends {
			f := &s.Frontends[j]
			rows = append(rows, []string{name, s.Protocol + " " + f.Address, words.Of(s.Balance).Text(f.Kind), decisions(f), optional(f.Connections), optionsOf(s, f)})
			name = ""
		}
	}
	p.WriteString("\n")
	p.Table("", terminal.Filled(rows))
}

// optionsOf returns the options that are not the default.
func optionsOf(s *api.ServicePort, f *api.Frontend) string {
	var out []string
	if f.Policy != "" {
		out = append(out, "policy "+f.Policy)
	}
	if s.AffinitySeconds > 0 {
		out = append(out, setting.Affinity.Label+" "+model.DurationText(time.Duration(s.AffinitySeconds*float64(time.Second))))
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

// frontendRows has a column for clients outside of the cluster where any of them is
// treated differently.
func frontendRows(p *api.DescribedPort, in words.Vocabulary) [][]string {
	differ := slices.ContainsFunc(p.Frontends, func(f api.DescribedFrontend) bool { return f.Inside != f.Outside })
	rows := [][]string{{"FRONTEND", "KIND", "CLIENTS ARE", "FROM INSIDE", "FROM OUTSIDE", "CONNECTIONS", "ALSO CLAIMED BY"}}
	for _, f := range p.Frontends {
		all, inside, outside := "", verdictText(f.Inside), verdictText(f.Outside)
		if f.ServedBy != "" {
			inside, outside = "served by "+f.ServedBy, ""
		}
		if !differ {
			all, inside, outside = inside, "", ""
		}
		kind := in.Text(f.Kind)
		if f.ConnectsTo != "" {
			kind += " through " + f.ConnectsTo
		}
		rows = append(rows, []string{f.Address, kind, all, inside, outside, optional(f.Connections), terminal.List(f.AlsoClaimed, maxListed)})
	}
	return terminal.Filled(rows)
}

// optional returns a number; empty: it is not known.
func optional[N int | uint64](n *N) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

func verdictText(v string) string {
	return map[string]string{"forward": "forwarded", "reject": "rejected", "drop": "dropped"}[v]
}

func endpointRows(p *api.DescribedPort) [][]string {
	differ := slices.ContainsFunc(p.Endpoints, func(e api.DescribedEndpoint) bool { return e.Outside != nil })
	rows := [][]string{{"ENDPOINT", "NAME", "NODE", "HINTS", "STATE", "CHECK", "WEIGHT", "SHARE", "FROM INSIDE", "FROM OUTSIDE",
		"CONNECTIONS", "OPEN", "CLIENTS", "FAILED SAMPLES", "LEFT OUT"}}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		all, inside, outside := shareText(e.Inside), "", ""
		if differ {
			all, inside = "", all
		}
		if e.Outside != nil {
			outside = shareText(*e.Outside)
		}
		rows = append(rows, []string{e.Address, e.Name, e.Node, hintsText(e), e.State, checkedText(e.Checked), weightText(e), all, inside, outside,
			optional(e.Connections), optional(e.Open), optional(e.Clients), sampledText(e.Sampled), leftOut(e)})
	}
	return terminal.Filled(rows)
}

// sampledText says how many sampled connections have failed; empty: none.
func sampledText(s *api.Sampled) string {
	if s == nil || s.Refused+s.Unanswered == 0 {
		return ""
	}
	all := s.Answered + s.Refused + s.Unanswered
	switch {
	case s.Unanswered == 0:
		return fmt.Sprintf("%d of %d refused", s.Refused, all)
	case s.Refused == 0:
		return fmt.Sprintf("%d of %d unanswered", s.Unanswered, all)
	}
	return fmt.Sprintf("%d refused and %d unanswered of %d", s.Refused, s.Unanswered, all)
}

func checkedText(c *api.Checked) string {
	switch {
	case c == nil:
		return ""
	case !c.Healthy:
		return "fails"
	case strings.HasPrefix(c.Message, model.NotChecked):
		return c.Message
	case c.Message != "":
		return "passes (last: " + c.Message + ")"
	case c.Since.IsZero():
		return "not checked yet"
	}
	return "passes"
}

func weightText(e *api.DescribedEndpoint) string {
	if e.State == "" {
		return ""
	}
	text := fmt.Sprint(e.Weight)
	if s := e.Starting; s != nil {
		text += fmt.Sprintf(" (%.0f %% now)", 100*s.Part)
	}
	return text
}

func hintsText(e *api.DescribedEndpoint) string {
	var out []string
	if len(e.Zones) > 0 {
		out = append(out, "zone "+strings.Join(e.Zones, ", "))
	}
	if len(e.Nodes) > 0 {
		out = append(out, "node "+strings.Join(e.Nodes, ", "))
	}
	return strings.Join(out, "; ")
}

func shareText(s api.Share) string {
	if s.Part == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*s.Part)
}

// leftOut says for whom an endpoint is left out, and why.
func leftOut(e *api.DescribedEndpoint) string {
	switch {
	case e.Outside == nil || e.Outside.LeftOut == e.Inside.LeftOut:
		return e.Inside.LeftOut
	case e.Inside.LeftOut == "":
		return "from outside: " + e.Outside.LeftOut
	case e.Outside.LeftOut == "":
		return "from inside: " + e.Inside.LeftOut
	}
	return "from inside: " + e.Inside.LeftOut + "; from outside: " + e.Outside.LeftOut
}

// refused prints how many connections were refused, with what each reason means and what to do.
func (p *describePrinter) refused(s *api.Description) {
	if len(s.Refused) == 0 {
		return
	}
	const name = "refused"
	p.Fact(name, "%s", refused(s.Refused))
	for _, reason := range refusedReasons(s.Refused) {
		if r := model.RefusalOf(reason); r != nil {
			p.Fact(name, "%s: %s; %s", r.Name, p.Words.Text(r.Text), p.Words.Text(r.Advice))
		}
	}
	if s.From == api.FromDaemon {
		p.Fact(name, "nftproxy observe %s/%s names the clients", s.Namespace, s.Name)
	}
}

// refusedReasons returns the reasons of some counts, the one of the largest number first.
func refusedReasons(counts map[string]uint64) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

// refused returns for example "12 denied, 3 no-endpoints", the largest number first.
func refused(counts map[string]uint64) string {
	reasons := refusedReasons(counts)
	texts := make([]string, len(reasons))
	for i, r := range reasons {
		texts[i] = fmt.Sprintf("%d %s", counts[r], r)
	}
	return strings.Join(texts, ", ")
}
