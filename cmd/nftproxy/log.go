package main

import (
	"fmt"
	"io"
	"log/slog"

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
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: asText}
	if format == logsapi.JSONLogFormat {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}

// asText replaces a value by its text, as the text format does by itself.
func asText(_ []string, a slog.Attr) slog.Attr {
	value := a.Value.Any()
	_, isError := value.(error) // both formats take the text of errors
	if v, ok := value.(fmt.Stringer); ok && !isError && a.Value.Kind() == slog.KindAny {
		a.Value = slog.StringValue(v.String())
	}
	return a
}

func levelOf(verbosity logsapi.VerbosityLevel) slog.Level {
	if verbosity >= 2 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
