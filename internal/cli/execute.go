package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nftproxy/nftproxy/internal/logwriter"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

type meterKey struct{}

// IsTerminal reports whether a stream is a terminal that can do more than print lines.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// newMeter returns a meter that shows progress if w is a terminal.
func newMeter(w io.Writer) *terminal.Meter {
	if !IsTerminal(w) {
		return terminal.NewMeter(w, nil)
	}
	return terminal.NewMeter(w, func() int { return Width(w) })
}

// ShowProgress shows a phase of the work of a command.
func ShowProgress(c *cobra.Command, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	MeterOf(c).Start(func() string { return text })
}

// MeterOf returns what shows the progress of a command that [Execute] runs.
func MeterOf(c *cobra.Command) *terminal.Meter {
	if m, ok := c.Context().Value(meterKey{}).(*terminal.Meter); ok {
		return m
	}
	return terminal.NewMeter(io.Discard, nil)
}

// PrintableLines returns a message of one or more lines without control characters
// of terminals.
func PrintableLines(message string) string {
	lines := strings.Split(message, "\n")
	for i, line := range lines {
		lines[i] = terminal.Printable(line)
	}
	return strings.Join(lines, "\n")
}

// refuseUnknownShells makes cobra's command completion refuse an unknown shell. It must be called when
// the output of the program is set, where cobra writes the completion.
func refuseUnknownShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = NoArguments, func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
}

// HelpWidth is the width of help that is not written to a terminal.
const HelpWidth = 100

// Width returns the width of texts for a writer.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return HelpWidth
}

// Execute runs a command line and returns the exit code. A blocked stderr does not block the command.
func Execute(root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	meter := newMeter(stderr)
	log := logwriter.New(meter)
	defer log.Close()
	root.SetArgs(append([]string{}, args...)) // it reads os.Args in place of nil
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(log)
	refuseUnknownShells(root)
	command, err := root.ExecuteContextC(context.WithValue(context.Background(), meterKey{}, meter))
	meter.Stop()
	code, err := CodeOf(command, err)
	if err != nil {
		fmt.Fprintf(log, "%s: %s\n", root.DisplayName(), PrintableLines(err.Error()))
	}
	return code
}

// EndAtSignal ends the context of a command, which it returns too, at SIGTERM, SIGINT or one of more signals until
// stop is called.
func EndAtSignal(c *cobra.Command, more ...os.Signal) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(c.Context(), append(more, syscall.SIGTERM, syscall.SIGINT)...)
	c.SetContext(ctx)
	return ctx, stop
}
