package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// logOptions are the flags about the log, which goes to standard error.
type logOptions struct {
	verbosity int
	format    string
}

func (o *logOptions) addFlags(c *cobra.Command) {
	c.Flags().IntVarP(&o.verbosity, "v", "v", 0, "`level` of detail in the log: 0 problems and changes, 2 every transaction")
	c.Flags().StringVar(&o.format, "logging-format", "text", "`format` of the log: text or json")
}

func (o *logOptions) logger(w io.Writer) (*slog.Logger, error) {
	level := slog.LevelInfo
	if o.verbosity >= 2 {
		level = slog.LevelDebug
	}
	h := &slog.HandlerOptions{Level: level}
	switch o.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, h)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, h)), nil
	}
	return nil, fmt.Errorf("--logging-format: %q is not known: use text or json", o.format)
}
