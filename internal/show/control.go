package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

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

// runtime writes the changes of servers that no file has.
func (p *describePrinter) runtime(all []api.RuntimeChange) {
	for i := range all {
		c := &all[i]
		p.Fact("runtime", "%s: %s, in the file %s (by %s; nftproxy undo ends it)", c.Server, controlledWeight(c.Weight), controlledWeight(c.FileWeight), c.By)
	}
}
