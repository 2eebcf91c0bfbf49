package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// MaxShown limits the problems in a message: a file of another format can have one on every line.
const MaxShown = 20

// Place is a position in the input.
type Place struct {
	File     string // as the user gave it, or "standard input"
	Document int    // in the file, counted from 1; zero: not to be shown
	Item     int    // in a List, counted from 1; zero: no List
	Line     int    // in the file, counted from 1; zero: unknown
}

// String returns for example "services.yaml: document 3, item 2 (line 41)".
func (p Place) String() string {
	switch {
	case p.Document > 0 && p.Item > 0:
		return fmt.Sprintf("%s: document %d, item %d (line %d)", p.File, p.Document, p.Item, p.Line)
	case p.Document > 0:
		return fmt.Sprintf("%s: document %d (line %d)", p.File, p.Document, p.Line)
	case p.Line > 0:
		return fmt.Sprintf("%s: line %d", p.File, p.Line)
	}
	return p.File
}

// Error is one problem of the input.
type Error struct {
	Place         // without a file: the input as a whole
	Object string // for example "Service default/web"; empty: unknown
	Err    error  // often a *FieldError
	Note   bool   // nothing is wrong: a remark
}

// Error returns for example "services.yaml: document 3 (line 41): Service
// default/web: spec.ports[0].port: 70000 is not a port number: use 1 to 65535".
func (e *Error) Error() string {
	parts := slices.DeleteFunc([]string{e.Place.String(), e.Object, e.Err.Error()}, func(s string) bool { return s == "" })
	return terminal.Printable(strings.Join(parts, ": "))
}

func (e *Error) Unwrap() error { return e.Err }

// Errors are all problems of the input, in its order.
type Errors []*Error

// Error lists the problems, one a line, the first ones if there are many.
func (e Errors) Error() string { return strings.Join(e.Lines(), "\n") }

// Split returns the problems, and the remarks.
func (e Errors) Split() (problems, notes Errors) {
	for _, one := range e {
		if one.Note {
			notes = append(notes, one)
		} else {
			problems = append(problems, one)
		}
	}
	return problems, notes
}

// Lines returns a line for each problem, for the first ones if there are many.
func (e Errors) Lines() []string {
	var lines []string
	for _, one := range e[:min(len(e), MaxShown)] {
		lines = append(lines, one.Error())
	}
	if more := len(e) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return lines
}

// Shorten replaces the texts after the first ones with the number of them.
func Shorten(texts []string, most int) []string {
	if len(texts) <= most {
		return texts
	}
	return append(texts[:most:most], fmt.Sprintf("and %d more", len(texts)-most))
}

func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, one := range e {
		out[i] = one
	}
	return out
}

// FieldError is a problem with one field of an object.
type FieldError struct {
	// Field is the path of the field, for example spec.ports[1].nodePort; empty: the object itself.
	Field string
	// Value is the value as the user wrote it, strings in quotes; empty where there is none to show.
	Value string
	// Problem completes the sentence and says what is correct.
	Problem string
	// Warning is set where the API server accepts the field, but the object does not do what its author may expect.
	Warning bool
	// Others is how many problems it stands for, if it only counts some that are not reported one by one.
	Others int
}

// More returns a problem that stands for others.
func More(problems int, warning bool) *FieldError {
	return &FieldError{Problem: fmt.Sprintf("and %d more problems", problems), Warning: warning, Others: problems}
}

// Error returns for example "spec.ports[0].port: 70000 is not a port number: use 1 to 65535".
func (e *FieldError) Error() string {
	text := e.Problem
	if e.Value != "" {
		text = e.Value + " " + text
	}
	if e.Field == "" {
		return text
	}
	return terminal.Printable(e.Field) + ": " + text
}

// Quote returns a text in quotes, cut after [budget.QuotedText] bytes: an annotation may
// have 256 KiB, and the log has a line for each problem.
func Quote(s string) string {
	if len(s) > budget.QuotedText {
		return fmt.Sprintf("%q...", strings.ToValidUTF8(s[:budget.QuotedText], ""))
	}
	return fmt.Sprintf("%q", s)
}

// Findings collects the field errors of one object: the first ones, and how many there are.
// An object can have tens of thousands, at each of its changes.
type Findings struct {
	First []*FieldError // at most [budget.Findings]
	Count int           // of all
	// wrong means that a problem after the first ones is more than a warning.
	wrong bool
}

// Add reports a field. value is nil where there is none to show.
func (f *Findings) Add(field string, value any, problem string) {
	f.reportField(FieldPath{Path: field}, value, problem, false)
}

// Warn reports a field that the API server accepts.
func (f *Findings) Warn(field string, value any, problem string) {
	f.reportField(FieldPath{Path: field}, value, problem, true)
}

// AddAt is Add for an entry of a list, which may have hundreds of thousands of wrong ones.
func (f *Findings) AddAt(p FieldPath, value any, problem string) {
	f.reportField(p, value, problem, false)
}

// WarnAt is Warn for an entry of a list.
func (f *Findings) WarnAt(p FieldPath, value any, problem string) {
	f.reportField(p, value, problem, true)
}

// reportField prints nothing of problems that are only counted.
func (f *Findings) reportField(p FieldPath, value any, problem string, warning bool) {
	if len(f.First) < budget.Findings {
		f.Put(&FieldError{Field: p.String(), Value: printValue(value), Problem: problem, Warning: warning})
		return
	}
	f.Count++
	f.wrong = f.wrong || !warning
}

// FieldPath is where a value is in an object. It is printed for the first problems only.
type FieldPath struct {
	Path  string
	entry int    // from 1; zero: Path is no list
	field string // of the entry; empty: the entry itself
}

// EntryOf returns the path of entry i of a list.
func EntryOf(path string, i int) FieldPath { return FieldPath{Path: path, entry: i + 1} }

// Of returns the path of a field of an entry.
func (p FieldPath) Of(field string) FieldPath {
	p.field = field
	return p
}

// String returns for example "spec.ports[3].name".
func (p FieldPath) String() string {
	switch {
	case p.entry == 0:
		return p.Path
	case p.field == "":
		return fmt.Sprintf("%s[%d]", p.Path, p.entry-1)
	}
	return fmt.Sprintf("%s[%d].%s", p.Path, p.entry-1, p.field)
}

// Put adds findings that another function has made.
func (f *Findings) Put(all ...*FieldError) {
	for _, e := range all {
		if f.Count++; len(f.First) < budget.Findings {
			if len(e.Problem) > budget.FindingText {
				e.Problem = strings.ToValidUTF8(e.Problem[:budget.FindingText], "") + "..."
			}
			f.First = append(f.First, e)
			continue
		}
		f.wrong = f.wrong || !e.Warning
	}
}

// All returns the first problems, and how many more there are.
func (f *Findings) All() []*FieldError {
	if more := f.Count - len(f.First); more > 0 {
		return append(f.First[:len(f.First):len(f.First)], More(more, !f.wrong))
	}
	return f.First
}

// FirstOf returns the first problems of an object of an API server, and how many more there are.
func FirstOf(found []*FieldError) []*FieldError {
	if len(found) <= budget.ReportedFindings {
		return found
	}
	more, warning := 0, true
	for _, e := range found[budget.ReportedFindings:] {
		more += max(1, e.Others)
		warning = warning && e.Warning
	}
	return append(slices.Clone(found[:budget.ReportedFindings]), More(more, warning))
}

func printValue(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return Quote(v)
	}
	return fmt.Sprint(value)
}
