package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/spf13/cobra"
)

// TestCodeOf: a program ends with the code of its command's error, and prints the error unless the output says all.
func TestCodeOf(t *testing.T) {
	failed, open := errors.New("failed"), errors.New("connections are open")
	run := new(cobra.Command)
	FailWithNo(run)
	for _, c := range []struct {
		command *cobra.Command
		err     error
		code    int
		printed error
	}{
		{new(cobra.Command), nil, CodeDone, nil},
		{new(cobra.Command), failed, CodeError, failed},
		{new(cobra.Command), ErrNo, CodeNo, nil},
		{new(cobra.Command), ErrInvalid, CodeError, nil},
		{new(cobra.Command), ErrUnexplained, CodeUnexplained, nil},
		{new(cobra.Command), Exit{CodeNo, open}, CodeNo, open},
		{new(cobra.Command), fmt.Errorf("wait: %w", Exit{CodeNo, open}), CodeNo, open},
		{run, failed, CodeNo, failed},
		{run, nil, CodeDone, nil},
	} {
		if code, printed := CodeOf(c.command, c.err); code != c.code || !errors.Is(printed, c.printed) || (printed == nil) != (c.printed == nil) {
			t.Errorf("%v: %d, %v; want %d, %v", c.err, code, printed, c.code, c.printed)
		}
	}
}

// TestOutput: each format is checked, and prints its own way.
func TestOutput(t *testing.T) {
	for _, c := range []struct {
		args        []string
		want, fails string
	}{
		{nil, "text false", ""},
		{[]string{"-o", "json"}, "{\n  \"A\": 1\n}\n", ""},
		{[]string{"-o", "yaml"}, "A: 1\n", ""},
		{[]string{"--color", "always"}, "text true", ""},
		{[]string{"-o", "xml"}, "", `--output: unknown format "xml": use text, json or yaml`},
		{[]string{"--color", "blue", "-o", "xml"}, "", "--color: unknown value \"blue\": use auto, always or never\n--output: unknown format \"xml\": use text, json or yaml"},
	} {
		var o Output
		command := new(cobra.Command)
		o.Add(command, "")
		var b bytes.Buffer
		command.SetOut(&b)
		command.SetContext(t.Context())
		err := errors.Join(command.ParseFlags(c.args), command.PreRunE(command, nil))
		if err != nil {
			if err.Error() != c.fails {
				t.Errorf("%q: %v, want %s", c.args, err, c.fails)
			}
			continue
		}
		err = o.Print(&b, struct{ A int }{1}, func(w io.Writer) error { _, err := fmt.Fprint(w, "text ", o.Paint); return err })
		if err != nil || b.String() != c.want || c.fails != "" {
			t.Errorf("%q: %q, %v; want %q", c.args, b.String(), err, c.want+c.fails)
		}
	}
}
