package kubelets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTestImages: the images of the release are found in its source, and the smoke test
// uses the same agnhost, so that the test on nodes has it.
func TestTestImages(t *testing.T) {
	source, err := goCommand(t.Context(), "../../tools", "list", "-m", "-f", "{{.Dir}}", filepath.Clean(kubernetesPath))
	if err != nil {
		t.Fatal(err)
	}
	images, err := testImages(filepath.Join(source, "test/utils/image/manifest.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"app.yaml", "run"} {
		text, err := os.ReadFile(filepath.Join("../../../deploy/smoke", name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), images["Agnhost"]) {
			t.Errorf("deploy/smoke/%s does not use %s", name, images["Agnhost"])
		}
	}
}
