package daemon

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// note returns the start of a program with a build ID.
func note(id string) []byte {
	b := []byte("\x7fELF and what else comes first")
	for _, n := range []int{4, len(id), 4} {
		b = binary.NativeEndian.AppendUint32(b, uint32(n))
	}
	return append(append(b, "Go\x00\x00"...), id...)
}

// TestIdentify: 13.30. Another program has another identity, by its build ID or without one.
func TestIdentify(t *testing.T) {
	const id, other = "inputs/main/package/output", "inputs/main/package/other"
	long := make([]byte, 2*headerBytes)
	for name, c := range map[string]struct {
		a, b []byte
		same bool
	}{
		"a build ID":            {note(id), append(note(id), long...), true},
		"another build ID":      {note(id), note(other), false},
		"none":                  {long, long[1:], false},
		"none, short":           {[]byte("a"), []byte("b"), false},
		"none, another ending":  {slices.Concat(long, []byte("a")), slices.Concat(long, []byte("b")), false},
		"one for all programs":  {append(note("redacted"), 1), append(note("redacted"), 2), false},
		"an empty one":          {append(note(""), 1), append(note(""), 2), false},
		"too long":              {note(id)[:len(note(id))-1], append(note(id)[:len(note(id))-2], "xy"[0]), false},
		"a note at the start":   {note(id)[len("\x7fELF and what else comes first")+8:], note(id), false},
		"a note far behind":     {append(long, note(id)...), append(long[1:], note(id)...), false},
		"the same, without one": {long, bytes.Clone(long), true},
	} {
		a, err := identify(bytes.NewReader(c.a))
		b, errB := identify(bytes.NewReader(c.b))
		if err != nil || errB != nil || bytes.Equal(a, b) != c.same || len(a) == 0 {
			t.Errorf("%s: %x and %x, %v, %v", name, a, b, err, errB)
		}
	}
	if got, err := identify(bytes.NewReader(nil)); err == nil {
		t.Errorf("an empty file: %x", got)
	}
}

// TestProgram: the build ID is the one that the go command reads.
func TestProgram(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := exec.Command("go", "tool", "buildid", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := program(); err != nil || string(got) != string(bytes.TrimSpace(want)) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// BenchmarkProgram compares the build ID with a hash of the program.
func BenchmarkProgram(b *testing.B) {
	b.Run("build ID", func(b *testing.B) {
		for b.Loop() {
			if _, err := program(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hash", func(b *testing.B) {
		for b.Loop() {
			path, _ := os.Executable()
			f, err := os.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			_, err = f.Seek(headerBytes, 0)
			if err == nil {
				_, err = identify(f)
			}
			_ = f.Close()
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
