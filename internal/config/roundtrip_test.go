package config

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRoundTripTexts: 12.58. Texts that YAML would read as something else are read back as they were written.
func TestRoundTripTexts(t *testing.T) {
	for _, text := range []string{"", "?", ":", "a: b", "#", "- a", "---", "0x1", "1e3", "yes", "null", "<<", "*a", "!t", "a\tb", "a\nb\n", " a ", "\ufeff", strings.Repeat("long ", 300)} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		c := mustLoad(t)
		c.Kube.ClientConnection.Kubeconfig = text
		if err := c.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		if got := mustLoad(t, "--config", path).Kube.ClientConnection.Kubeconfig; got != text {
			t.Errorf("%q is read as %q", text, got)
		}
	}
}
