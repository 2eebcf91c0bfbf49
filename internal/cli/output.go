// Package cli has what all commands share: how they print, how they end, and their help.
package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Formats of most commands. A command may have others.
const (
	Text = "text"
	JSON = "json"
	YAML = "yaml"
)

// Output is how a command prints: the flags --output and --color.
type Output struct {
	// Format is one of the formats of the command.
	Format string
	// Paint reports whether text has colours, after [Output.Check].
	Paint bool

	formats []string
	colour  string          // when to use them
	meter   *terminal.Meter // which ends before something is printed; nil: none
}

// autoColour is the default of --color: colours for terminals.
const autoColour = "auto"

// Add adds both flags to a command, which then starts with valid values. The first of the formats is the default;
// without any, they are text, json and yaml.
func (o *Output) Add(c *cobra.Command, note string, formats ...string) {
	o.addFormat(c.Flags(), note, formats...)
	o.AddColour(c)
}

// AddFormat adds --output, with a note behind the formats in its help. A document is printed as JSON and as YAML.
func (o *Output) AddFormat(c *cobra.Command, note string, formats ...string) {
	o.addFormat(c.Flags(), note, formats...)
	o.checkBefore(c)
}

func (o *Output) checkBefore(c *cobra.Command) {
	AddCheck(c, func(c *cobra.Command, _ []string) error {
		o.meter = MeterOf(c)
		return o.Check(c.OutOrStdout())
	})
}

func (o *Output) addFormat(f *pflag.FlagSet, note string, formats ...string) {
	if o.formats = formats; len(formats) == 0 {
		o.formats = []string{Text, JSON, YAML}
	}
	usage := "`format`: " + o.listFormats() + note
	declare.In(f, declare.Output, func() { f.StringVarP(&o.Format, "output", "o", o.formats[0], usage) })
	declare.Values(f, "output", o.formats...)
}

// AddColour adds --color.
func (o *Output) AddColour(c *cobra.Command) {
	o.checkBefore(c)
	f := c.Flags()
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
		o.Paint = os.Getenv("NO_COLOR") == "" && IsTerminal(w)
	default:
		err = fmt.Errorf("--color: unknown value %q: use auto, always or never", o.colour)
	}
	if len(o.formats) > 0 && !slices.Contains(o.formats, o.Format) {
		err = errors.Join(err, fmt.Errorf("--output: unknown format %q: use %s", o.Format, o.listFormats()))
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

// ForPrograms reports whether a document is printed, for programs.
func (o *Output) ForPrograms() bool { return o.Format == JSON || o.Format == YAML }

// Print writes a document, or else has text write it for people.
func (o *Output) Print(w io.Writer, document any, text func(io.Writer) error) error {
	if o.meter != nil {
		o.meter.Stop()
	}
	if !o.ForPrograms() {
		return text(w)
	}
	write := func(w io.Writer) error { return terminal.JSON(w, document) }
	if d, ok := document.(JSONWriter); ok {
		write = d.WriteJSON
	}
	if o.Format == JSON {
		return write(w)
	}
	return writeYAML(w, "", write)
}

// PrintJudged is Print for a document that may say that something is wrong: then the command ends with [ErrNo].
func (o *Output) PrintJudged(w io.Writer, document any, isWrong bool, text func(io.Writer) error) error {
	err := o.Print(w, document, text)
	if err == nil && isWrong {
		return ErrNo
	}
	return err
}

// PrintRecord writes one of several documents: a line of JSON, or a document of YAML.
func (o *Output) PrintRecord(w io.Writer, document any) error {
	write := func(w io.Writer) error { return json.NewEncoder(w).Encode(document) }
	if o.Format == JSON {
		return write(w)
	}
	return writeYAML(w, "---\n", write)
}

// writeYAML writes what write writes as JSON.
func writeYAML(w io.Writer, before string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	text, err := yaml.JSONToYAML(b.Bytes())
	if err != nil {
		return fmt.Errorf("convert to YAML: %w", err)
	}
	_, err = w.Write(append([]byte(before), text...))
	return err
}

func (o *Output) listFormats() string {
	last := len(o.formats) - 1
	return strings.Join(o.formats[:last], ", ") + " or " + o.formats[last]
}
