package changes

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// GitHub refuses comments of more than 65,536 characters. The rest is for the
// text of a workflow around the report.
const (
	markdownLimit = 60_000
	tableLimit    = 40_000 // bytes of the table of Services
)

// Markdown writes a report for a pull request: a table of the Services, and in a
// section that opens on demand the elements of the rules. What does not fit into a
// comment on GitHub is left out, with a note.
func Markdown(w io.Writer, services []Service, p *plan.Plan, elements bool) error {
	var b bytes.Buffer
	title := "no changes"
	if !p.Empty() || len(services) > 0 {
		title = headingOf(Summary(services), Words(services))
	}
	fmt.Fprintf(&b, "### nftproxy: %s\n", title)
	if len(services) > 0 {
		writeTable(&b, services)
	}
	if elements && !p.Empty() {
		writeRules(&b, p, markdownLimit-b.Len())
	} else {
		summary := p.Summary()
		if p.Empty() && len(services) > 0 {
			summary = SameRules
		}
		fmt.Fprintf(&b, "\n%s\n", summary)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// headingOf returns for example "1 Service added, 2 changed" for "1 added, 2 changed".
func headingOf(summary string, in words.Vocabulary) string {
	number, rest, _ := strings.Cut(summary, " ")
	switch number {
	case "1":
		return in.Text("1 Service ") + rest
	case "none":
		return in.Text("no Service ") + rest
	}
	return number + in.Text(" Services ") + rest
}

var actionWords = map[Action]string{Added: "added", Changed: "changed", Removed: "removed"}

func writeTable(b *bytes.Buffer, services []Service) {
	in := Words(services)
	b.WriteString(in.Text("\n| Service | | What changes | Established connections |\n|---|---|---|---|\n"))
	services, others, text := groupUnnoticed(services)
	for i := range services {
		s := &services[i]
		var what, connections []string
		for _, d := range s.Details {
			what = append(what, escapeCell(d.Text))
			if d.Connections != "" && !strings.Contains(strings.Join(connections, "\n"), escapeCell(d.Connections)) {
				connections = append(connections, escapeCell(d.Connections))
			}
		}
		row := fmt.Sprintf("| %s | %s | %s | %s |\n", codeCell(s.Name.String()), actionWords[s.Action],
			strings.Join(what, "<br>"), strings.Join(connections, "<br>"))
		if b.Len()+len(row) > tableLimit {
			fmt.Fprintf(b, "\n**%s more** left out here, to stay within GitHub's limit: %s. `nftproxy diff --elements=never` lists all.\n",
				Words(services[i:]).Count(len(services)-i, "Service"), Summary(services[i:]))
			return
		}
		b.WriteString(row)
	}
	if others > 0 {
		fmt.Fprintf(b, "| %s | %s | %s | |\n", in.Count(others, "Service"), actionWords[Changed], escapeCell(text))
	}
}

// escapeCell returns a text for a cell of a table, in which it has no effect.
func escapeCell(text string) string {
	var b strings.Builder
	for _, r := range html.EscapeString(terminal.Printable(text)) {
		switch r {
		case '|', '`', '*', '_', '[', ']', '\\', '~', '@', '#', '!':
			if r == '#' && strings.HasSuffix(b.String(), "&") { // of an HTML entity
				break
			}
			fmt.Fprintf(&b, "&#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// codeCell returns a name as code, in which "@" mentions no user.
func codeCell(name string) string { return "<code>" + escapeCell(name) + "</code>" }

// writeRules writes the changes of the rules as a diff, as far as there is room.
func writeRules(b *bytes.Buffer, p *plan.Plan, room int) {
	const around = 400 // bytes of the section itself
	room -= around
	var all, shown strings.Builder
	_ = p.PrintChanges(&all, false, room) // a strings.Builder does not fail; each has a line at least
	n, note := 0, ""
	for line := range strings.Lines(all.String()) {
		line = signFirst(line)
		if shown.Len()+len(line) > room {
			note = fmt.Sprintf("\nThe first %d lines; the rest is left out to stay within GitHub's limit. `nftproxy diff --elements=always` lists all.\n", n)
			break
		}
		shown.WriteString(line)
		n++
	}
	fence := "```"
	for strings.Contains(shown.String(), fence) {
		fence += "`"
	}
	fmt.Fprintf(b, "\n<details><summary>Rules: %s</summary>\n\n%sdiff\n%s%s\n%s\n</details>\n", p.Summary(), fence, &shown, fence, note)
}

// signFirst moves the sign of a line to its beginning. A diff shows "!" as changed.
func signFirst(line string) string {
	rest := strings.TrimLeft(line, " ")
	indent := line[:len(line)-len(rest)]
	if indent == "" || len(rest) < 2 || rest[1] != ' ' || !strings.Contains("+-~", rest[:1]) {
		return line
	}
	return strings.Replace(rest[:1], "~", "!", 1) + indent[1:] + rest[1:]
}
