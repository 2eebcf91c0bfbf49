package memory

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestUnmapProgram: 13.31. Most pages of the program are given back, and it goes on.
func TestUnmapProgram(t *testing.T) {
	before := (program{}).size()
	if err := unmapProgram(); err != nil {
		t.Fatal(err)
	}
	if after := (program{}).size(); before < 1<<20 || after > before/2 {
		t.Errorf("%d bytes of files were resident, and are %d", before, after)
	}
}

// TestUnchanged: only what is as in the file of the program is given back.
func TestUnchanged(t *testing.T) {
	const name = "/usr/bin/nftproxy (deleted)"
	var smaps strings.Builder
	for i, m := range []struct{ access, name, anonymous string }{
		{"r-xp", name, "0"},
		{"r--p", name, "0"},
		{"r--p", name, "4"}, // a linker or a debugger has changed it
		{"rw-p", name, "0"},
		{"r-xp", "/usr/lib/libc.so.6", "0"},
		{"r-xp", "/usr/bin/nftproxy", "0"}, // another file has that name now
		{"r--p", "", "0"},
	} {
		fmt.Fprintf(&smaps, "%x000-%x000 %s 00000000 fe:00 42 %s\nSize: 4 kB\nPrivate_Clean: 0 kB\nAnonymous: %s kB\nAnonHugePages: 0 kB\n", i+1, i+2, m.access, m.name, m.anonymous)
	}
	if got, want := unchanged(strings.NewReader(smaps.String()), name), []extent{{0x1000, 0x2000}, {0x2000, 0x3000}}; !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}
