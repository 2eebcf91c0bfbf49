package kubelets

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestTestImages: the images of the release are found in its source.
func TestTestImages(t *testing.T) {
	source, err := goCommand(t.Context(), "../../tools", "list", "-m", "-f", "{{.Dir}}", filepath.Clean(kubernetesPath))
	if err != nil {
		t.Fatal(err)
	}
	images, err := testImages(filepath.Join(source, "test/utils/image/manifest.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(images["Agnhost"], "/agnhost:") {
		t.Errorf("the image of agnhost is %q", images["Agnhost"])
	}
}
