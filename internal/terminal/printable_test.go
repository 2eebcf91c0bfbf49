package terminal_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"default/web:http (2 of 3) é": "default/web:http (2 of 3) é",
		"":                            "",
		"\x1b[2Ja":                    `\x1b[2Ja`,
		"a\nb\tc\rd":                  `a\nb\tc\rd`,
		"\u009b31m\x7f":               `\u009b31m\x7f`,
		"\u202egpj":                   `\u202egpj`,
		"\u2028":                      `\u2028`,
		"a\x9b1m":                     "a\ufffd1m",
	} {
		if got := terminal.Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}
