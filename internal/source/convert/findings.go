package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
)

// Findings collects the field errors of one object: the first ones, and how many there are.
// An object can have tens of thousands, at each of its changes.
type Findings struct {
	First []*manifest.FieldError
	Count int
	// wrong means that a problem after the first ones is more than a warning.
	wrong bool
}

// Add reports a field. value is nil where there is none to show.
func (f *Findings) Add(field string, value any, problem string) {
	f.report(Place{Path: field}, value, problem, false)
}

// Warn reports a field that the API server accepts.
func (f *Findings) Warn(field string, value any, problem string) {
	f.report(Place{Path: field}, value, problem, true)
}

// addAt and warnAt are for lists, which may have hundreds of thousands of wrong entries.
func (f *Findings) addAt(p Place, value any, problem string) { f.report(p, value, problem, false) }

func (f *Findings) warnAt(p Place, value any, problem string) { f.report(p, value, problem, true) }

// report prints nothing of problems that are only counted.
func (f *Findings) report(p Place, value any, problem string, warning bool) {
	if len(f.First) < budget.Findings {
		f.Put(&manifest.FieldError{Field: p.String(), Value: printValue(value), Problem: problem, Warning: warning})
		return
	}
	f.Count++
	f.wrong = f.wrong || !warning
}

// Place is where a value is in an object. Its path is printed for the first problems only.
type Place struct {
	Path  string
	entry int    // from 1; zero: path is no list
	field string // of the entry; empty: the entry itself
}

// entryOf returns the place of entry i of a list.
func entryOf(path string, i int) Place { return Place{Path: path, entry: i + 1} }

// of returns the place of a field of an entry.
func (p Place) of(field string) Place {
	p.field = field
	return p
}

// String returns for example "spec.ports[3].name".
func (p Place) String() string {
	switch {
	case p.entry == 0:
		return p.Path
	case p.field == "":
		return fmt.Sprintf("%s[%d]", p.Path, p.entry-1)
	}
	return fmt.Sprintf("%s[%d].%s", p.Path, p.entry-1, p.field)
}

func (f *Findings) Put(all ...*manifest.FieldError) {
	for _, e := range all {
		if f.Count++; len(f.First) < budget.Findings {
			e.Problem = shortened(e.Problem)
			f.First = append(f.First, e)
			continue
		}
		f.wrong = f.wrong || !e.Warning
	}
}

// shortened returns a problem without what makes it too long.
func shortened(problem string) string {
	if len(problem) <= budget.FindingText {
		return problem
	}
	return strings.ToValidUTF8(problem[:budget.FindingText], "") + "..."
}

// All returns the first problems, and how many more there are.
func (f *Findings) All() []*manifest.FieldError {
	if more := f.Count - len(f.First); more > 0 {
		return append(f.First[:len(f.First):len(f.First)], manifest.More(more, !f.wrong))
	}
	return f.First
}

// FirstOf returns the first problems of an object of an API server, and how many more there
// are.
func FirstOf(found []*manifest.FieldError) []*manifest.FieldError {
	if len(found) <= budget.ReportedFindings {
		return found
	}
	more, warning := 0, true
	for _, e := range found[budget.ReportedFindings:] {
		more += max(1, e.Others)
		warning = warning && e.Warning
	}
	return append(slices.Clone(found[:budget.ReportedFindings]), manifest.More(more, warning))
}

func printValue(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return manifest.Quote(v)
	}
	return fmt.Sprint(value)
}

// entries reads a list in an annotation, with commas: read is called for each entry and
// returns the problem with it, which report adds as [Findings.add] and [Findings.warn] do.
// entries returns how many entries are wrong; those beyond the limit count as one.
func (f *Findings) entries(annotation, text string, report func(field string, value any, problem string), read func(i int, entry string) string) (wrong int) {
	field, i := annotationField(annotation), 0
	for entry := range strings.SplitSeq(text, ",") {
		if i == budget.ListEntries {
			report(field, nil, fmt.Sprintf("has more than %d entries: the others are not used; shorten the list", budget.ListEntries))
			wrong++
			break
		}
		entry = strings.TrimSpace(entry)
		if problem := read(i, entry); problem != "" {
			if wrong++; wrong <= budget.WrongEntries {
				report(field, entry, problem)
			}
		}
		i++
	}
	if more := wrong - budget.WrongEntries; more > 0 {
		report(field, nil, fmt.Sprintf("has %d more wrong entries", more))
	}
	return wrong
}
