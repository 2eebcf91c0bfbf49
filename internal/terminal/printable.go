package terminal

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns a text with escapes in the place of characters that would do
// something to a terminal, or begin a line. Names in a file, in the kernel and in
// what another process answers may hold anything.
func Printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if !unprintable(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
