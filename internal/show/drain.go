package show

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// DrainView is how the result of drain and undrain is printed.
type DrainView struct {
	Undo, All bool // the endpoints, or all of them, are back in service
	Left      int  // entries of the list
	Colour    bool
}

// DrainResult writes the result of drain or undrain.
func DrainResult(w io.Writer, r *api.DrainResult, v DrainView) error {
	p := terminal.NewPrinter(w, "")
	p.Colours, p.Words = v.Colour, r.Words
	for i := range r.Endpoints {
		drained(p, &r.Endpoints[i], r, v)
	}
	switch {
	case v.All && v.Left == 0:
		p.Line("no endpoint is drained")
	case v.All:
		p.Line("all drains are ended; since then, another command has drained %s", p.Count(v.Left, "endpoint"))
	}
	if r.NoDaemon != "" {
		p.Line("written to %s for \"nftproxy run\" and \"nftproxy apply\": %s", r.File, r.NoDaemon)
	}
	if r.NotCounted != "" {
		p.Line("connections are not counted: %s", r.NotCounted)
	}
	return p.Flush()
}

func drained(p *terminal.Printer, e *api.DrainedEndpoint, r *api.DrainResult, v DrainView) {
	name := e.Endpoint
	if e.Service != "" {
		name += " of " + model.ServiceText{Service: e.Service, Balance: r.Words == words.Balance}.Object()
	}
	switch {
	case v.Undo:
		p.Painted(terminal.Green, "%s is not drained any more", name)
		return
	case r.NoDaemon != "":
		p.Painted(terminal.Yellow, "%s is on the list of drained %s, which no running nftproxy applies: new connections may still reach it", name, p.Words.Text("endpoints"))
	case e.Open == nil:
		p.Line("%s is drained: no new connections", name)
	case e.Open.Total == 0:
		p.Painted(terminal.Green, "%s is drained: no new connections, and none is open", name)
	default:
		p.Painted(terminal.Yellow, "%s is drained: no new connections; open: %s", name, e.Open.Text())
	}
	for _, s := range e.Services {
		warning, colour := "", terminal.Colour("")
		if s.Left == 0 {
			warning, colour = ": new connections fail", terminal.Red
		}
		p.Painted(colour, "  %s: %d of %s left%s", s.Object(), s.Left, p.Count(s.Endpoints, "endpoint"), warning)
	}
	if len(e.Services) == 0 && r.NoDaemon == "" {
		p.Line("  no Service has it now")
	}
}

// Drains writes the list of drained endpoints.
func Drains(w io.Writer, r *api.DrainResult, now time.Time, paint bool) error {
	p := terminal.NewPrinter(w, "")
	p.Colours, p.Words = paint, r.Words
	if r.Error != "" {
		consequence := "its last list stays in force"
		if r.Unknown {
			consequence = "no earlier list is known"
		}
		p.Painted(terminal.Red, "%s cannot be used, and %s:", r.File, consequence)
		for _, line := range strings.Split(r.Error, "\n") {
			p.Line("  %s", line)
		}
	}
	if len(r.Endpoints) == 0 {
		p.Line("no endpoint is drained")
		return p.Flush()
	}
	rows := [][]string{{"ENDPOINT", "SERVICES", "SINCE", "OPEN"}}
	for _, e := range r.Endpoints {
		since, open := "-", "-"
		if !e.Since.IsZero() {
			since = now.Sub(e.Since).Round(time.Second).String() + " ago"
		}
		if e.Open != nil {
			open = e.Open.Text()
		}
		rows = append(rows, []string{e.Endpoint, drainedServices(&e, r), since, open})
	}
	p.Table("", rows)
	if r.NotCounted != "" {
		p.Line("connections are not counted: %s", r.NotCounted)
	}
	if r.NoDaemon != "" {
		p.Line("%s; this is from %s", r.NoDaemon, r.File)
	}
	return p.Flush()
}

// drainedServices returns the Services that have an endpoint, the first ones if there are many.
func drainedServices(e *api.DrainedEndpoint, r *api.DrainResult) string {
	const most = 3
	var names []string
	for _, s := range e.Services {
		names = append(names, s.Service)
	}
	switch {
	case len(names) == 0 && e.Service != "":
		return e.Service + " only"
	case len(names) == 0 && r.NoDaemon != "":
		return "all"
	case len(names) == 0:
		return "none"
	}
	text := terminal.List(names, most)
	if e.Service != "" {
		text += " only"
	}
	return text
}

// Controlled writes what a command has changed of servers, or the list of such changes. What no file has is yellow.
func Controlled(w io.Writer, r *api.Control, a *api.Controlled, paint bool) error {
	p := terminal.NewPrinter(w, "")
	p.Colours = paint
	switch {
	case r.Action == api.ControlList && len(a.Changes) == 0:
		p.Line("no runtime changes: all servers are as in the files")
	case r.Action == api.ControlList:
		rows := [][]string{{"BALANCE", "SERVER", "NOW", "IN THE FILE", "SINCE", "BY"}}
		for i := range a.Changes {
			c := &a.Changes[i]
			since := ""
			if !c.Since.IsZero() {
				since = c.Since.Local().Format("2006-01-02 15:04:05")
			}
			rows = append(rows, []string{c.Balance, c.Server, controlledWeight(c.Weight), controlledWeight(c.FileWeight), since, c.By})
		}
		p.Table("", rows)
	case !a.Changed:
		p.Line("%s", strings.TrimPrefix(strings.TrimSpace(a.Balance+" "+r.Server)+": nothing to do", ": "))
	}
	for _, s := range a.Steps {
		colour := terminal.Yellow
		if a.File != "" || r.Action == api.ControlUndo {
			colour = terminal.Green
		}
		p.Painted(colour, "%s: %s → %s", strings.TrimSpace(a.Balance+" "+s.Server), s.Old, s.New)
	}
	if a.File != "" {
		p.Line("written to %s", a.File)
	}
	return p.Flush()
}

// controlledWeight returns a weight in words; nil: there is no server.
func controlledWeight(weight *int) string {
	if weight == nil {
		return "absent"
	}
	return fmt.Sprintf("weight %d", *weight)
}

func (p *describePrinter) runtime(all []model.RuntimeChange) {
	for i := range all {
		c := &all[i]
		p.Fact("runtime", "%s: %s, in the file %s (by %s; nftproxy undo ends it)", c.Server, controlledWeight(c.Weight), controlledWeight(c.FileWeight), c.By)
	}
}
