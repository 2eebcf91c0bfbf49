package deploy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/testkit/tarball"
)

// TestKrew: the manifest for krew names archives with their checksums, and each has the program
// under the name that kubectl looks for.
func TestKrew(t *testing.T) {
	dir := t.TempDir()
	var programs []string
	for _, system := range []string{"linux", "darwin", "windows"} {
		programs = append(programs, "kubectl-nftproxy-"+system+"-amd64", "kubectl-nftproxy-"+system+"-arm64")
	}
	for _, p := range programs {
		if err := os.WriteFile(filepath.Join(dir, p), []byte("program "+p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("../scripts/krew", append([]string{"v1.2.3", dir}, programs...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "kubectl-nftproxy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version   string
			Platforms []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.UnmarshalStrict(text, new(map[string]any)); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil || manifest.Metadata.Name != "nftproxy" || manifest.Spec.Version != "v1.2.3" || len(manifest.Spec.Platforms) != len(programs) {
		t.Fatalf("%v\n%s", err, text)
	}
	for i, p := range manifest.Spec.Platforms {
		if programs[i] != "kubectl-nftproxy-"+p.Selector.MatchLabels["os"]+"-"+p.Selector.MatchLabels["arch"] || (p.Bin == "kubectl-nftproxy.exe") != (p.Selector.MatchLabels["os"] == "windows") {
			t.Errorf("%s is for %v", programs[i], p.Selector.MatchLabels)
		}
		archive, err := os.ReadFile(filepath.Join(dir, filepath.Base(p.URI)))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(archive); hex.EncodeToString(sum[:]) != p.SHA256 || !strings.Contains(p.URI, "/releases/download/v1.2.3/") {
			t.Errorf("%s: other checksum or address than %+v", programs[i], p)
		}
		if files := contents(t, archive); files[p.Bin] != "program "+programs[i] || files["LICENSE"] == "" || files["kubectl_complete-nftproxy"] == "" || len(files) != 3 {
			t.Errorf("%s has %v", p.URI, slices.Sorted(maps.Keys(files)))
		}
	}
}

// contents returns the files of an archive that others may read.
func contents(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for name, f := range tarball.Read(t, archive) {
		if f.Mode&0o044 == 0o044 {
			files[name] = f.Content
		}
	}
	return files
}
