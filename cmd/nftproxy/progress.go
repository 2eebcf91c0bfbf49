package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

type meterKey struct{}

// newMeter returns a meter that shows progress if w is a terminal.
func newMeter(w io.Writer) *terminal.Meter {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return terminal.NewMeter(w, nil)
	}
	return terminal.NewMeter(w, func() int { return width(f) })
}

// withMeter returns a context in which [meterOf] finds a meter.
func withMeter(ctx context.Context, m *terminal.Meter) context.Context {
	return context.WithValue(ctx, meterKey{}, m)
}

func meterOf(c *cobra.Command) *terminal.Meter {
	m, _ := c.Context().Value(meterKey{}).(*terminal.Meter)
	return m
}

// phase shows the present step of the command on a terminal, if it takes long.
func (o *options) phase(c *cobra.Command, format string, args ...any) {
	if !o.quiet {
		text := fmt.Sprintf(format, args...)
		meterOf(c).Start(func() string { return text })
	}
}

// inputs names files, with the size of all.
func inputs(paths []string) string {
	size := int64(0)
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
	}
	text := strings.Join(paths, " ")
	if size > 0 {
		text += fmt.Sprintf(" (%.1f MB)", float64(size)/1e6)
	}
	return text
}
