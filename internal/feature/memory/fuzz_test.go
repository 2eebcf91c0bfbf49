package memory

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// TestNoRange: a range that ends before it begins would be one of other memory (found by FuzzUnchanged).
func TestNoRange(t *testing.T) {
	if got := unchanged(strings.NewReader("2000-1000 r--p 0 fe:00 42 /a\nAnonymous: 0 kB\n"), "/a"); len(got) > 0 {
		t.Errorf("%x", got)
	}
}

// FuzzUnchanged: of any maps of a process, what is given back are ranges of the named file, each of which a
// line has, and whole. The names of other files are any.
func FuzzUnchanged(f *testing.F) {
	const name = "/usr/bin/nftproxy"
	for _, smaps := range []string{
		"1000-2000 r-xp 00000000 fe:00 42 " + name + "\nAnonymous: 0 kB\n2000-1000 r--p 0 fe:00 42 " + name + "\nAnonymous: 0 kB\n",
		"1000-2000 r--p 0 fe:00 42 " + name + "\nAnonymous: 4 kB\n2000-3000 rw-p 0 fe:00 42 /tmp/a " + name + "\nAnonymous: 0 kB\n",
		"ffffffffffffffff-0 r--p 0 0:0 0 " + name + "\nAnonymous: 0\n", "1000-2000 r--p 0 fe:00 42 /tmp/\xff\x1b " + name + "\nAnonymous:\nAnonymous: 0\nAnonymous: 0\n",
	} {
		f.Add(smaps)
	}
	f.Fuzz(func(t *testing.T, smaps string) {
		var all []extent
		hostile.CheckMemory(t, len(smaps), 512, func() { all = unchanged(strings.NewReader(smaps), name) })
		for _, e := range all {
			if e.from >= e.to {
				t.Errorf("from %x to %x: what is given back would be other memory", e.from, e.to)
			}
		}
		if n := strings.Count(smaps, name+"\n"); len(all) > n {
			t.Errorf("%d ranges of %d", len(all), n)
		}
	})
}
