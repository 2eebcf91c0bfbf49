package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/logwriter"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

func newLogger(w io.Writer, format string, level *slog.LevelVar) *slog.Logger {
	if lw, ok := w.(*logwriter.Writer); ok {
		lw.Dropped = func(to io.Writer, lines int) {
			slog.New(newHandler(to, format, level)).Error("log lines were dropped here because they could not be written", "lines", lines)
		}
	}
	return slog.New(newHandler(w, format, level))
}

func newHandler(w io.Writer, format string, level *slog.LevelVar) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if format == logsapi.JSONLogFormat {
		o.ReplaceAttr = plainJSON
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}

// plainJSON formats durations as seconds and Stringers as text in JSON logs, as the text
// format does by itself.
func plainJSON(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	case slog.KindAny:
		a.Value = slog.AnyValue(plain(a.Value.Any()))
	}
	return a
}

func plain(value any) any {
	if _, isError := value.(error); isError { // both formats take the text of errors
		return value
	}
	if text, ok := value.(fmt.Stringer); ok {
		return text.String()
	}
	list := reflect.ValueOf(value)
	if list.Kind() != reflect.Slice {
		return value
	}
	out := make([]any, list.Len())
	for i := range out {
		out[i] = plain(list.Index(i).Interface())
	}
	return out
}

// LevelOf returns the level of a log with a verbosity of Kubernetes.
func LevelOf(verbosity logsapi.VerbosityLevel) slog.Level {
	if verbosity >= 2 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// Warnings counts the warnings about the input.
type Warnings struct {
	Strict bool // they are errors
	count  int
	places func() map[model.Object]manifest.Place // of the Services in files
}

func (w *Warnings) AddFlag(c *cobra.Command) {
	declare.In(c.Flags(), declare.Input, func() {
		c.Flags().BoolVar(&w.Strict, "strict", false, "treat warnings about the input as errors")
	})
}

// LogInput logs the warnings about files.
func (w *Warnings) LogInput(log *slog.Logger, in *files.Input) {
	problems, _ := in.Warnings.Split()
	w.count += len(problems) + len(in.Unused)
	w.places = in.Places
	for _, line := range slices.Concat(in.Unused.Lines(), in.Warnings.Lines()) {
		log.Warn(line)
	}
}

// notices logs what cannot be served as the objects ask.
func (w *Warnings) notices(log *slog.Logger, all []model.Notice) {
	w.count += len(all)
	places := map[model.Object]manifest.Place{}
	if len(all) > 0 && w.places != nil {
		places = w.places()
	}
	for _, n := range all[:min(len(all), manifest.MaxShown)] {
		attrs := []any{"object", n.Object}
		if at, ok := places[n.Object]; ok {
			attrs = append(attrs, "at", at)
		}
		log.Warn(n.Message, attrs...)
	}
	if more := len(all) - manifest.MaxShown; more > 0 {
		log.Warn(fmt.Sprintf("and %d more", more))
	}
}

// Check returns an error if there are warnings and they are errors.
func (w *Warnings) Check() error {
	if !w.Strict || w.count == 0 {
		return nil
	}
	return fmt.Errorf("--strict: %s about the input: nothing is done", terminal.Count(w.count, "warning"))
}

// onceLogger is the log of a command that ends by itself: in text, a person reads
// warnings there.
func onceLogger(w io.Writer, format string, level *slog.LevelVar) *slog.Logger {
	log := newLogger(w, format, level)
	if format == logsapi.JSONLogFormat {
		return log
	}
	return slog.New(plainWarnings{log.Handler(), w})
}

// levelNote is the level of messages for a person who reads the output of a command.
const levelNote = slog.LevelInfo + 1

// plainWarnings is a handler that writes a warning as a line such as
// "warning: services.yaml: document 2 (line 15): Service shop/web: ...".
type plainWarnings struct {
	slog.Handler
	w io.Writer
}

// Handle implements [slog.Handler].
func (h plainWarnings) Handle(ctx context.Context, r slog.Record) error {
	switch r.Level {
	case slog.LevelWarn:
	case levelNote:
		_, err := fmt.Fprintln(h.w, terminal.Printable(r.Message))
		return err
	default:
		return h.Handler.Handle(ctx, r)
	}
	parts := map[string]string{}
	var rest []string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "at", "object":
			parts[a.Key] = a.Value.String() + ": "
		default:
			rest = append(rest, a.Key+": "+a.Value.String())
		}
		return true
	})
	line := parts["at"] + parts["object"] + r.Message
	if len(rest) > 0 {
		line += " (" + strings.Join(rest, ", ") + ")"
	}
	_, err := fmt.Fprintln(h.w, "warning:", terminal.Printable(line))
	return err
}

// WithAttrs implements [slog.Handler], for a log with attributes for each line.
func (h plainWarnings) WithAttrs(attrs []slog.Attr) slog.Handler { return h.Handler.WithAttrs(attrs) }

// WithGroup implements [slog.Handler].
func (h plainWarnings) WithGroup(name string) slog.Handler { return h.Handler.WithGroup(name) }
