package command

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"

	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nftproxy/nftproxy/internal/logwriter"
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
