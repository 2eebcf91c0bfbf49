package source

import (
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// maxShown is how many problems a message lists: a file of the wrong sort can
// have one on every line.
const maxShown = 20

// place is where something stands in the input.
type place struct {
	file     string
	document int // in the file, counted from 1; zero: the file as a whole
	item     int // in a List, counted from 1; zero: no List
	line     int // in the file, counted from 1; zero: unknown
}

// String returns for example "services.yaml: document 3, item 2 (line 41)".
func (p place) String() string {
	if p.document == 0 {
		return p.file
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: document %d", p.file, p.document)
	if p.item > 0 {
		fmt.Fprintf(&b, ", item %d", p.item)
	}
	if p.line > 0 {
		fmt.Fprintf(&b, " (line %d)", p.line)
	}
	return b.String()
}

// Error is one problem of the input.
type Error struct {
	File     string // as the user gave it, or "standard input"
	Document int    // in the file, counted from 1; zero: the file as a whole
	Item     int    // in a List, counted from 1; zero: no List
	Line     int    // in the file, counted from 1; zero: unknown
	Object   string // for example "Service default/web"; empty: unknown
	Err      error  // often a *FieldError
}

// Error returns for example "services.yaml: document 3 (line 41): Service
// default/web: spec.ports[0].port: 70000 is not a port number: use 1 to 65535".
func (e *Error) Error() string {
	at := place{e.File, e.Document, e.Item, e.Line}.String()
	if e.Object != "" {
		at += ": " + e.Object
	}
	return terminal.Printable(at + ": " + e.Err.Error())
}

func (e *Error) Unwrap() error { return e.Err }

func (p place) problem(object string, err error) *Error {
	return &Error{p.file, p.document, p.item, p.line, object, err}
}

// Errors is everything that is wrong with the input, in its order.
type Errors []*Error

// Error lists the problems, one a line, the first ones if there are many.
func (e Errors) Error() string {
	lines := make([]string, 0, maxShown+1)
	for _, one := range e[:min(len(e), maxShown)] {
		lines = append(lines, one.Error())
	}
	if more := len(e) - maxShown; more > 0 {
		lines = append(lines, "and "+count(more, "more problem"))
	}
	return strings.Join(lines, "\n")
}

func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, one := range e {
		out[i] = one
	}
	return out
}

// count returns for example "1 problem" or "3 problems".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
