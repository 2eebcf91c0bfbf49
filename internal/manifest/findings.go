package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/budget"
)

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

// FirstOf returns the first problems of an object of an API server, and how many more there
// are.
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
