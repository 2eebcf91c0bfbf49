package main

import (
	"io"
	"log/slog"

	logsapi "k8s.io/component-base/logs/api/v1"
)

// newLogger returns the log, which w receives. The format has been checked.
func newLogger(w io.Writer, format string, level *slog.LevelVar) *slog.Logger {
	h := &slog.HandlerOptions{Level: level}
	if format == logsapi.JSONLogFormat {
		return slog.New(slog.NewJSONHandler(w, h))
	}
	return slog.New(slog.NewTextHandler(w, h))
}

// levelOf returns the level of detail that -v asks for.
func levelOf(verbosity logsapi.VerbosityLevel) slog.Level {
	if verbosity >= 2 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
