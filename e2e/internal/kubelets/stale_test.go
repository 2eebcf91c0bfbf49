package kubelets

import (
	"os"
	"testing"
)

// A cluster removes what is left of one that was killed, and not of one that
// lives.
func TestMakeDir(t *testing.T) {
	parent := t.TempDir()
	killed, lock, err := makeDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil { // as the kernel does
		t.Fatal(err)
	}
	living, lock, err := makeDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	third, lock, err := makeDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for dir, want := range map[string]bool{killed: false, living: true, third: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", dir, err == nil, want)
		}
	}
}
