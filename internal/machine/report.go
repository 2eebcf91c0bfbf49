package machine

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Report is the result of all checks. The names of the JSON fields are stable.
type Report struct {
	Ready    bool      `json:"ready"` // no problem was found
	Kernel   string    `json:"kernel"`
	Mode     string    `json:"mode"` // the use that the machine was checked for
	Problems int       `json:"problems"`
	Warnings int       `json:"warnings"`
	Unseen   int       `json:"unseen"`
	Checks   []Finding `json:"checks"` // problems first
}

// NewReport checks a machine.
func NewReport(f *Facts, u Use) *Report {
	r := &Report{Kernel: f.Kernel, Mode: u.describeMode(), Checks: Check(f, u)}
	for _, c := range r.Checks {
		switch c.Level {
		case Problem:
			r.Problems++
		case Warning:
			r.Warnings++
		case Unseen:
			r.Unseen++
		}
	}
	r.Ready = r.Problems == 0
	return r
}

func (u Use) describeMode() string {
	switch {
	case u.BesideAnother:
		return "a node of a cluster, beside kube-proxy"
	case u.Cluster:
		return "a node of a cluster"
	}
	return "a single machine"
}

// WriteJSON writes the report as a JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	return terminal.JSON(w, r)
}

// Repository is where documentation is read.
const repository = "https://github.com/nftproxy/nftproxy/blob/main/"

var colours = [...]terminal.Colour{Problem: terminal.Red, Warning: terminal.Yellow, Unseen: terminal.Cyan, OK: terminal.Green}

// Print writes the report as text, with the verdict last.
func (r *Report) Print(w io.Writer, colour bool) error {
	p := terminal.NewPrinter(w, "")
	paint := func(l Level, text string) string { return colours[l].Paint(text, colour) }
	const margin = "         "
	for _, c := range r.Checks {
		// Escapes of colours are not printable.
		fmt.Fprintf(p, "%s  %s\n", paint(c.Level, fmt.Sprintf("%-7s", c.Level)), terminal.Printable(c.Check+": "+c.Message))
		if c.Level == OK {
			continue
		}
		if c.Remedy != "" {
			p.Line("%sdo: %s", margin, c.Remedy)
		}
		if c.Documentation != "" {
			p.Line("%ssee %s%s", margin, repository, c.Documentation)
		}
	}
	level, verdict := r.summaryLine()
	fmt.Fprintf(p, "\n%s\n", paint(level, verdict))
	return p.Flush()
}

func (r *Report) summaryLine() (Level, string) {
	counts := []string{}
	for _, c := range []struct {
		n    int
		what string
	}{{r.Problems, "problem"}, {r.Warnings, "warning"}} {
		if c.n > 0 {
			counts = append(counts, terminal.Count(c.n, c.what))
		}
	}
	if r.Unseen > 0 {
		counts = append(counts, terminal.Count(r.Unseen, "check")+" without access")
	}
	details := ""
	if len(counts) > 0 {
		details = ": " + strings.Join(counts, ", ")
	}
	switch {
	case r.Problems > 0:
		return Problem, "NOT READY as " + r.Mode + details
	case r.Unseen > 0:
		return Unseen, "no problem seen as " + r.Mode + details
	case r.Warnings > 0:
		return Warning, "ready as " + r.Mode + details
	}
	return OK, "ready as " + r.Mode
}

// Level says how bad a finding is.
type Level uint8

const (
	Problem Level = iota // Services would not work
	Warning              // something to look at: they may not work
	Unseen               // the check had no access to the facts that it needs
	OK
)

var levelNames = [...]string{"problem", "warning", "unseen", "ok"}

func (l Level) String() string { return levelNames[l] }

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Level) UnmarshalText(text []byte) error {
	i := slices.Index(levelNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown level %q", text)
	}
	*l = Level(i)
	return nil
}

// Finding is the result of one check. The names of the JSON fields are stable.
type Finding struct {
	Check string `json:"check"` // its name, stable
	Level Level  `json:"level"`
	// Subject tells several findings of a check apart: an IP family, a chain, a bridge.
	Subject string `json:"subject,omitempty"`
	Message string `json:"message"`
	// Remedy says how to solve the problem, empty if nothing has to be done.
	Remedy string `json:"remedy,omitempty"`
	// Documentation is the page about it, relative to the root of the repository.
	Documentation string `json:"documentation,omitempty"`
}

// Reason returns the name of the check as one word, for the status of a daemon.
func (f Finding) Reason() model.Reason {
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == f.Check && c.reason != "" })
	if i < 0 {
		return model.Reason(f.Check)
	}
	return checks[i].reason
}

// Notice returns the finding as the status of a daemon has it.
func (f Finding) Notice() model.Notice {
	return model.Notice{Object: model.Machine(), Reason: f.Reason(), Message: f.String()}
}

// String returns the message with the remedy.
func (f Finding) String() string {
	if f.Remedy == "" {
		return f.Message
	}
	return f.Message + ": " + f.Remedy
}

func sortFindings(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(a.Level, b.Level) })
	return all
}
