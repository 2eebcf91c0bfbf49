// Package cli has what all commands share: how they print, how they end, and their help.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Formats of most commands. A command may have others.
const (
	Text = "text"
	JSON = "json"
)

// Output is how a command prints: the flags --output and --color.
type Output struct {
	// Format is one of the formats of the command.
	Format string
	// Paint reports whether text has colours, after [Output.Check].
	Paint bool

	formats []string
	colour  string // when to use them
}

// autoColour is the default of --color: colours for terminals.
const autoColour = "auto"

// Add adds both flags. The first of the formats is the default; without any, they are text and json.
func (o *Output) Add(f *pflag.FlagSet, usage string, formats ...string) {
	o.AddFormat(f, usage, formats...)
	o.AddColour(f)
}

// AddFormat adds --output.
func (o *Output) AddFormat(f *pflag.FlagSet, usage string, formats ...string) {
	if o.formats = formats; len(formats) == 0 {
		o.formats = []string{Text, JSON}
	}
	declare.In(f, declare.Output, func() { f.StringVarP(&o.Format, "output", "o", o.formats[0], usage) })
	declare.Values(f, "output", o.formats...)
}

// AddColour adds --color.
func (o *Output) AddColour(f *pflag.FlagSet) {
	declare.In(f, declare.Output, func() {
		f.StringVar(&o.colour, "color", autoColour, "`when` to colour the text: auto, always or never; auto respects NO_COLOR")
	})
	declare.Values(f, "color", autoColour, "always", "never")
}

// Check returns an error about the values of the flags, and sets Paint for text that is written to w.
func (o *Output) Check(w io.Writer) (err error) {
	switch o.colour {
	case "always":
		o.Paint = true
	case "never":
	case autoColour, "": // the command has no such flag
		f, ok := w.(*os.File)
		o.Paint = ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
	default:
		err = fmt.Errorf("--color: unknown value %q: use auto, always or never", o.colour)
	}
	if len(o.formats) > 0 && !slices.Contains(o.formats, o.Format) {
		last := len(o.formats) - 1
		err = errors.Join(err, fmt.Errorf("--output: unknown format %q: use %s or %s", o.Format, strings.Join(o.formats[:last], ", "), o.formats[last]))
	}
	return err
}

// Forced reports whether the text has colours even if no terminal shows it.
func (o *Output) Forced() bool { return o.colour == "always" }

// A JSONWriter is a document that writes itself.
type JSONWriter interface{ WriteJSON(w io.Writer) error }

// A JSONFunc writes a document.
type JSONFunc func(w io.Writer) error

// WriteJSON implements [JSONWriter].
func (f JSONFunc) WriteJSON(w io.Writer) error { return f(w) }

// Print writes a document, or else has text write it for people.
func (o *Output) Print(w io.Writer, document any, text func(io.Writer) error) error {
	if o.Format != JSON {
		return text(w)
	}
	if d, ok := document.(JSONWriter); ok {
		return d.WriteJSON(w)
	}
	return terminal.JSON(w, document)
}
