// Package hostile has checks for fuzz targets of input that strangers write.
package hostile

import (
	"runtime/metrics"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// slack is what a reader may allocate for any input, in bytes: the runtime counts small objects by
// spans, and those of other goroutines, too.
const slack = 1 << 20

// CheckMemory fails unless f allocates at most so many bytes in all for each byte of an input of that
// length, and [slack]. That limits its time as well.
func CheckMemory(t testing.TB, length, each int, f func()) {
	t.Helper()
	before := allocated()
	f()
	if got, most := allocated()-before, slack+uint64(length)*uint64(each); got > most {
		t.Errorf("%d bytes of input allocate %d bytes, more than %d", length, got, most)
	}
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// CheckText fails if a text would do more to a terminal or a log than add lines.
func CheckText(t testing.TB, text string) {
	t.Helper()
	if !IsPlain(text) {
		t.Errorf("a text has control characters, or is no UTF-8: %q", text)
	}
}

// IsPlain reports whether a text only adds lines to a terminal or a log.
func IsPlain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
}
