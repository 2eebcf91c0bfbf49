package common

import (
	"io"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/conntest"
)

// PrintTest prints the report of a test, which may not be complete. As text, it has all cases, or these that have
// not passed.
func PrintTest(w io.Writer, r *conntest.Report, output *cli.Output, all bool) error {
	return output.PrintJudged(w, r, !r.Complete(), func(w io.Writer) error {
		if output.Format == JUnit {
			return r.JUnit(w)
		}
		return r.Print(w, all, output.Paint)
	})
}

// JUnit is the format of test for CI.
const JUnit = "junit"
