package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// autoColour is the default of --color: colours for terminals.
const autoColour = "auto"

// colourFlag is --color.
type colourFlag struct{ when string }

func (o *colourFlag) add(f *pflag.FlagSet) {
	f.StringVar(&o.when, "color", autoColour, "`when` to colour the text: auto, always or never; auto respects NO_COLOR")
}

// paints reports whether text that is written to w has colours.
func (o *colourFlag) paints(w io.Writer) (bool, error) {
	switch o.when {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case autoColour:
		f, ok := w.(*os.File)
		return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())), nil
	}
	return false, fmt.Errorf("--color: unknown value %q: use auto, always or never", o.when)
}
