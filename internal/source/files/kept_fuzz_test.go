package files

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// FuzzSaved: any saved file, compressed or not, has a text of a bounded size, or an error.
func FuzzSaved(f *testing.F) {
	packed := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write([]byte(text)); err != nil {
			f.Fatal(err)
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}
	whole := packed("/etc/a.yaml\nkind: Balance\n")
	for _, saved := range [][]byte{nil, []byte("/etc/a.yaml\nkind: Balance\n"), whole, whole[:len(whole)-3], whole[:12], {0x1f, 0x8b}, {0x1f}, append(whole, whole...),
		packed(strings.Repeat("a", budget.FileSize+1)), packed("a\x00")} {
		f.Add(saved)
	}
	f.Fuzz(func(t *testing.T, saved []byte) {
		text, compressed, err := savedText(bufio.NewReader(bytes.NewReader(saved)))
		if len(text) > budget.FileSize || err != nil && text != nil {
			t.Errorf("%d bytes of text, and %v", len(text), err)
		}
		if err == nil && !compressed && !bytes.Equal(text, saved) {
			t.Errorf("%q is read as %q", saved, text)
		}
	})
}
