package main

import (
	"io"
	"log/slog"

	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nftproxy/nftproxy/internal/logwriter"
)

// newLogger returns the log, which w receives. The format has been checked.
func newLogger(w io.Writer, format string, level *slog.LevelVar) *slog.Logger {
	if lw, ok := w.(*logwriter.Writer); ok {
		lw.Dropped = func(to io.Writer, lines int) {
			slog.New(newHandler(to, format, level)).Error("log lines were dropped here, because the log could not be written", "lines", lines)
		}
	}
	return slog.New(newHandler(w, format, level))
}

func newHandler(w io.Writer, format string, level *slog.LevelVar) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if format == logsapi.JSONLogFormat {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}

// levelOf returns the level of detail that -v asks for.
func levelOf(verbosity logsapi.VerbosityLevel) slog.Level {
	if verbosity >= 2 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
