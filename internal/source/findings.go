package source

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// FieldError is a problem with one field of an object.
type FieldError = manifest.FieldError

const (
	// maxFindings is how many problems of an object are reported one by one, maxReported how
	// many of an API server's, where each version of the object reports them again, and
	// maxWrongEntries those with entries of one list. An object can have tens of thousands.
	maxFindings     = 100
	maxReported     = 20
	maxWrongEntries = 10

	// maxProblem is the length of a reported problem, in bytes: it may quote a value.
	maxProblem = 500

	// maxEntries is how many entries of a list are read. All that fit into the annotations of
	// an object of an API server and are addresses do.
	maxEntries = 32_768
)

// findings collects the field errors of one object: the first ones, and how many there are.
type findings struct {
	first []*FieldError
	count int
	// wrong means that a problem after the first ones is more than a warning.
	wrong bool
}

// add reports a field. value is nil where there is none to show.
func (f *findings) add(field string, value any, problem string) {
	f.put(&FieldError{Field: field, Value: printValue(value), Problem: problem})
}

// warn reports a field that the API server accepts.
func (f *findings) warn(field string, value any, problem string) {
	f.put(&FieldError{Field: field, Value: printValue(value), Problem: problem, Warning: true})
}

func (f *findings) put(all ...*FieldError) {
	for _, e := range all {
		if f.count++; len(f.first) < maxFindings {
			e.Problem = shortened(e.Problem)
			f.first = append(f.first, e)
			continue
		}
		f.wrong = f.wrong || !e.Warning
	}
}

// shortened returns a problem without what makes it too long.
func shortened(problem string) string {
	if len(problem) <= maxProblem {
		return problem
	}
	return strings.ToValidUTF8(problem[:maxProblem], "") + "..."
}

// all returns the first problems, and how many more there are.
func (f *findings) all() []*FieldError {
	if more := f.count - len(f.first); more > 0 {
		return append(f.first[:len(f.first):len(f.first)], manifest.More(more, !f.wrong))
	}
	return f.first
}

// firstOf returns the first problems of an object of an API server, and how many more there
// are.
func firstOf(found []*FieldError) []*FieldError {
	if len(found) <= maxReported {
		return found
	}
	more, warning := 0, true
	for _, e := range found[maxReported:] {
		more += max(1, e.Others)
		warning = warning && e.Warning
	}
	return append(slices.Clone(found[:maxReported]), manifest.More(more, warning))
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
// returns the problem with it, which report adds as [findings.add] and [findings.warn] do.
// entries returns how many entries are wrong; those beyond the limit count as one.
func (f *findings) entries(annotation, text string, report func(field string, value any, problem string), read func(i int, entry string) string) (wrong int) {
	field, i := annotationField(annotation), 0
	for entry := range strings.SplitSeq(text, ",") {
		if i == maxEntries {
			report(field, nil, fmt.Sprintf("has more than %d entries: the others are not used; shorten the list", maxEntries))
			wrong++
			break
		}
		entry = strings.TrimSpace(entry)
		if problem := read(i, entry); problem != "" {
			if wrong++; wrong <= maxWrongEntries {
				report(field, entry, problem)
			}
		}
		i++
	}
	if more := wrong - maxWrongEntries; more > 0 {
		report(field, nil, fmt.Sprintf("has %d more wrong entries", more))
	}
	return wrong
}
