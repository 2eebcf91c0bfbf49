package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEmptyAccess: a file that names no API server is named, and without one the flag is.
func TestEmptyAccess(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("apiVersion: v1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", empty)
	for file, want := range map[string]string{
		"":    "no API server: name a file with --kubeconfig, or set KUBECONFIG",
		empty: "--kubeconfig: " + empty + " names no API server: name a file that kubectl can use",
	} {
		if _, err := (Access{Kubeconfig: file}).Config(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
	}
}
