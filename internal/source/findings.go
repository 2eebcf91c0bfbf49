package source

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
	first []*manifest.FieldError
	count int
	// wrong means that a problem after the first ones is more than a warning.
	wrong bool
}

// add reports a field. value is nil where there is none to show.
func (f *Findings) add(field string, value any, problem string) {
	f.report(place{path: field}, value, problem, false)
}

// Warn reports a field that the API server accepts.
func (f *Findings) Warn(field string, value any, problem string) {
	f.report(place{path: field}, value, problem, true)
}

// addAt and warnAt are for lists, which may have hundreds of thousands of wrong entries.
func (f *Findings) addAt(p place, value any, problem string) { f.report(p, value, problem, false) }

func (f *Findings) warnAt(p place, value any, problem string) { f.report(p, value, problem, true) }

// report prints nothing of problems that are only counted.
func (f *Findings) report(p place, value any, problem string, warning bool) {
	if len(f.first) < budget.Findings {
		f.put(&manifest.FieldError{Field: p.String(), Value: printValue(value), Problem: problem, Warning: warning})
		return
	}
	f.count++
	f.wrong = f.wrong || !warning
}

// place is where a value is in an object. Its path is printed for the first problems only.
type place struct {
	path  string
	entry int    // from 1; zero: path is no list
	field string // of the entry; empty: the entry itself
}

// entryOf returns the place of entry i of a list.
func entryOf(path string, i int) place { return place{path: path, entry: i + 1} }

// of returns the place of a field of an entry.
func (p place) of(field string) place {
	p.field = field
	return p
}

// String returns for example "spec.ports[3].name".
func (p place) String() string {
	switch {
	case p.entry == 0:
		return p.path
	case p.field == "":
		return fmt.Sprintf("%s[%d]", p.path, p.entry-1)
	}
	return fmt.Sprintf("%s[%d].%s", p.path, p.entry-1, p.field)
}

func (f *Findings) put(all ...*manifest.FieldError) {
	for _, e := range all {
		if f.count++; len(f.first) < budget.Findings {
			e.Problem = shortened(e.Problem)
			f.first = append(f.first, e)
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
	if more := f.count - len(f.first); more > 0 {
		return append(f.first[:len(f.first):len(f.first)], manifest.More(more, !f.wrong))
	}
	return f.first
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
