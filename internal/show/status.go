// Package show prints the documents of api as text, for people.
package show

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// View is how a report is printed.
type View struct {
	Now    time.Time
	Colour bool
	All    bool // list everything; otherwise long lists are cut
}

// Most lines of lists that are cut.
const (
	maxExamples     = 3   // of the problems with one reason
	maxManyReasons  = 6   // with more reasons, each has one example
	maxHealthChecks = 4   // of Services
	maxAddresses    = 8   // of the node
	maxMessage      = 240 // characters of a problem
)

// Status writes a report as text: what is wrong, the state of the daemon, totals, then
// the frontends.
func Status(w io.Writer, r *api.Status, v View) error {
	p := &statusPrinter{terminal.NewPrinter(w, ""), v}
	p.Words = r.Words
	verdict := r.Verdict()
	p.WriteString(verdictColours[verdict.State].Paint(verdict.Text, p.Colour) + "\n")
	p.problems("", r.Problems, r)
	p.problems("good to know", r.Notes, r)
	p.WriteString("\n")
	if r.From == api.FromDaemon {
		p.daemon(r)
	} else {
		p.Fact("daemon", "%s; the following is from the kernel's tables", cmp.Or(r.NoDaemon, "not asked"))
	}
	p.totals(r)
	p.table(r)
	return p.Flush()
}

var verdictColours = [...]terminal.Colour{api.StateServing: terminal.Green, api.StateDegraded: terminal.Yellow, api.StateFailing: terminal.Red}

type statusPrinter struct {
	*terminal.Printer
	View
}

func (p *statusPrinter) problems(title string, all []api.Problem, r *api.Status) {
	if len(all) == 0 {
		return
	}
	p.WriteString("\n")
	indent := ""
	if title != "" {
		p.Line("%s", title)
		indent = "  "
	}
	examples := maxExamples
	reasons := make(map[model.Reason]bool)
	for i := range all {
		reasons[all[i].Reason] = true
	}
	if len(reasons) > maxManyReasons {
		examples = 1
	}
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Reason == all[0].Reason {
			n++
		}
		switch reason := all[0].Reason; {
		case reason == model.CheckFailing && r.IsGrouped():
			p.servers(r.FailingServers, all[:n], examples)
			if p.All {
				p.group(indent, all[:n], examples)
			}
		case reason == model.SettingChanged && n > 1 && !p.All:
			p.settings(indent, all[:n])
		default:
			p.group(indent, all[:n], examples)
		}
		all = all[n:]
	}
}

func (p *statusPrinter) group(indent string, all []api.Problem, examples int) {
	text := p.wordsOf(all).Text(api.ReasonText(all[0].Reason))
	if text != "" {
		text = ": " + text
	}
	p.Line("%s%d %s%s", indent, len(all), all[0].Reason, text)
	shown := all[:p.shown(len(all), examples)]
	for i := range shown {
		p.Line("%s    %s: %s", indent, shown[i].Object, p.message(shown[i].Message))
	}
	p.more(indent, len(all)-len(shown))
}

// wordsOf returns the words for problems: of their objects, or else for all that the node serves.
func (p *statusPrinter) wordsOf(all []api.Problem) words.Vocabulary {
	services, balances := 0, 0
	for i := range all {
		name, ok := all[i].Object.Service()
		if !ok {
			return p.Words
		}
		services++
		if all[i].Object == name.BalanceObject() {
			balances++
		}
	}
	return words.Among(services, balances)
}

// message returns the part of a message that is printed: it may be long, as for a
// file with many mistakes. The log has all of it, also the stack of a panic.
func (p *statusPrinter) message(text string) string {
	first, rest, more := strings.Cut(text, "\n")
	if runes := []rune(first); !p.All && len(runes) > maxMessage {
		first, more = string(runes[:maxMessage])+"...", rest != ""
	}
	if more {
		first += fmt.Sprintf(" (and %s)", terminal.Count(strings.Count(rest, "\n")+1, "more line"))
	}
	return first
}

func (p *statusPrinter) daemon(r *api.Status) {
	since := func(t time.Time) time.Duration { return p.Now.Sub(t).Round(time.Second) }
	p.Fact("daemon", "nftproxy %s, started %s ago (%s)", r.Version, since(r.Started), r.Started.Local().Format(time.DateTime))
	if r.Node != "" {
		p.Fact("node", "%s", r.Node)
	}
	p.Fact("source", "%s", r.Source)
	if e := r.SourceError; e != nil {
		p.Fact("source", "ERROR for %s: %s", since(e.Since), p.message(e.Message))
	}
	switch s := r.LastSync; {
	case s == nil && !r.PostponedUntil.IsZero():
		p.Fact("last sync", "none yet: the source is read in %s (--start-jitter); the rules of an earlier run serve", -since(r.PostponedUntil))
	case s == nil:
		p.Fact("last sync", "none yet: waiting for the source")
	case s.Error != "":
		p.Fact("last sync", "FAILED %s ago: %s", since(s.Started), p.message(s.Error))
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

func (p *statusPrinter) totals(r *api.Status) {
	name := "serves"
	if r.Filtered {
		name = "selected"
	}
	in := p.Words
	if r.Services > 0 {
		in = words.Among(r.Services, r.Balances)
	}
	p.Fact(name, "%s, %s, %s in use", in.Count(r.Services, "Service"), terminal.Count(r.Frontends, "frontend"), p.Count(r.Endpoints, "endpoint"))
	if len(r.NodePortAddresses) > 0 {
		p.Fact("NodePorts", "on %s", terminal.List(r.NodePortAddresses, maxAddresses))
	}
	if len(r.Localhost) > 0 {
		p.Fact("localhost", "NodePorts of TCP on %s", terminal.List(r.Localhost, maxAddresses))
	}
	for _, a := range r.Announced {
		why := ""
		if !a.Usable {
			why = ": not usable: " + a.Reason
		}
		p.Fact("announces", "%s on %s%s", a.Address, a.Interface, why)
	}
	for _, a := range r.Affinity {
		p.Fact("affinity", "%s: %s of %d clients remembered", a.Name(), a.Count(), a.Size)
	}
	if o := r.Observe; o != nil {
		p.Fact("observed", "%s", observedText(o))
	}
	if len(r.Refused) > 0 {
		p.Fact("refused", "%s", refused(r.Refused))
	}
	if c := r.EndpointChecks; c != nil {
		p.Fact("checks", "%s", checksText(c, p.Words))
	}
	p.starting(r)
	for i, h := range r.HealthChecks {
		if i == maxHealthChecks && !p.All && len(r.HealthChecks) > maxHealthChecks+1 {
			p.Fact("health", "and %d more: nftproxy status -A", len(r.HealthChecks)-i)
			break
		}
		p.Fact("health", "%s/%s on port %d: %s on this node", h.Namespace, h.Name, h.Port, localEndpoints(h.Endpoints))
	}
}

func (p *statusPrinter) starting(r *api.Status) {
	shown := r.Starting[:p.shown(len(r.Starting), maxExamples)]
	for _, s := range shown {
		p.Fact("starting", "%s of %s, %s", s.Address, s.Object(), startingText(&s.Starting, p.Now))
	}
	if more := r.StartingCount - len(shown); more > 0 {
		p.Fact("starting", "and %d more: nftproxy status -A", more)
	}
}

// startingText returns for example "30 % of its weight, all of it in 21s".
func startingText(s *api.Starting, now time.Time) string {
	text := fmt.Sprintf("%.0f %% of its weight", 100*s.Part)
	if s.Full.IsZero() {
		return text
	}
	return text + fmt.Sprintf(", all of it in %s", max(0, s.Full.Sub(now)).Round(time.Second))
}

func localEndpoints(byFamily map[string]int) string {
	var out []string
	for _, f := range slices.Sorted(maps.Keys(byFamily)) {
		out = append(out, fmt.Sprintf("%d over %s", byFamily[f], f))
	}
	return strings.Join(out, ", ")
}

// servers writes the failing servers in place of the problems of their Services.
func (p *statusPrinter) servers(all []api.FailingServer, of []api.Problem, examples int) {
	p.Line("%d %s, in %s: servers fail their health check", len(all), model.CheckFailing, p.wordsOf(of).Count(len(of), "Service"))
	for _, s := range all[:p.shown(len(all), examples)] {
		where := "in " + words.Among(s.Services, s.Balances).Count(s.Services, "Service")
		if s.Services == 1 {
			where = "in " + s.Object()
		}
		name := ""
		if s.Name != "" {
			name = " (" + s.Name + ")"
		}
		p.Line("    %s%s: %s, for %s, %s", s.Address, name, p.message(s.Message), p.Now.Sub(s.Since).Round(time.Second), where)
	}
	p.more("", len(all)-p.shown(len(all), examples))
}

// settings writes in one line which settings were changed.
func (p *statusPrinter) settings(indent string, all []api.Problem) {
	p.Line("%s%d %s: settings of the kernel that Services need, changed since nftproxy started, such as %s: nftproxy status --problems", indent, len(all), model.SettingChanged, all[0].Message)
}

// shown returns how many of n lines are printed.
func (p *statusPrinter) shown(n, examples int) int {
	if !p.All && n > examples+1 { // a line for one more is as long as that one
		return examples
	}
	return n
}

func (p *statusPrinter) more(indent string, n int) {
	if n > 0 {
		p.Line("%s    and %d more: nftproxy status --problems", indent, n)
	}
}

func observedText(o *api.Observing) string {
	text := fmt.Sprintf("%s, %s", o.Level, terminal.Count(int(o.Events), "event"))
	if o.Lost > 0 {
		text += fmt.Sprintf(", %d lost", o.Lost)
	}
	if o.Error != "" {
		text += "; not read now"
	}
	return text + ": nftproxy observe"
}

func checksText(c *api.EndpointChecks, in words.Vocabulary) string {
	text := fmt.Sprintf("%s of %s: %d pass, %d fail", in.Count(c.Passing+c.Failing+c.Waiting, "endpoint"), words.Among(c.Services, c.Balances).Count(c.Services, "Service"), c.Passing, c.Failing)
	if c.Waiting > 0 {
		text += fmt.Sprintf(", %d not checked yet", c.Waiting)
	}
	return text
}
