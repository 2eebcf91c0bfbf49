package release

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

// modules are those that follow the release; other programs below e2e/tools bring the
// libraries that they were written for.
var modules = []string{".", "e2e", "e2e/tools", "deploy/check"}

type dependency struct{ Path, Version string }

type modFile struct {
	Require []dependency
	Replace []struct{ Old, New dependency }
}

func readModule(t *testing.T, dir string) (m modFile) {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(root, dir, "go.mod")).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestModules: no module is left behind at an older release. Which libraries belong to
// Kubernetes is what e2e/tools replaces.
func TestModules(t *testing.T) {
	ofKubernetes := map[string]string{"k8s.io/kubernetes": Kubernetes}
	for _, r := range readModule(t, "e2e/tools").Replace {
		ofKubernetes[r.Old.Path] = Libraries()
		if r.New != (dependency{r.Old.Path, Libraries()}) {
			t.Errorf("e2e/tools replaces %s by %s, want %s", r.Old.Path, r.New, Libraries())
		}
	}
	if len(ofKubernetes) < 20 {
		t.Fatalf("e2e/tools replaces only %d libraries", len(ofKubernetes))
	}
	for _, dir := range modules {
		found := 0
		for _, d := range readModule(t, dir).Require {
			want, is := ofKubernetes[d.Path]
			if !is {
				continue
			}
			found++
			replaced := dir == "e2e/tools" && d.Version == "v0.0.0"
			if d.Version != want && !replaced {
				t.Errorf("%s/go.mod requires %s %s, want %s: run scripts/kubernetes", dir, d.Path, d.Version, want)
			}
		}
		if found == 0 {
			t.Errorf("%s/go.mod requires nothing of Kubernetes", dir)
		}
	}
}

// TestPages: the pages that name the release that was tested name this one.
func TestPages(t *testing.T) {
	for page, texts := range map[string][]string{
		"docs/migration.md": {
			"for the chart | " + Minor() + " ([its own network tests](conformance.md)) |",
			"`nftables` with kube-proxy " + Minor() + " on nodes,",
			"kube-proxy in any mode | " + Minor() + ", modes `nftables` and `ipvs` |",
		},
		"docs/behaviour.md": {"kube-proxy " + Minor()},
		"docs/conformance.md": {
			"| Kubernetes " + Kubernetes + " | 3 nodes, ipv4 |",
			"| Kubernetes " + Kubernetes + " | 3 nodes, ipv6 |",
			"| Kubernetes " + Kubernetes + " | 3 nodes, dual |",
		},
		"docs/parity.md": {"# Kubernetes " + Kubernetes[1:] + " beside nftproxy", "kube-proxy " + Kubernetes + " in mode"},
	} {
		content, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if !strings.Contains(string(content), text) {
				t.Errorf("%s does not have %q", page, text)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	if got, want := "v"+Minor(), Kubernetes[:len("v1.37")]; got != want {
		t.Errorf("Minor() = %s, want %s", got, want)
	}
	if got, want := "v1."+Number(), Kubernetes[:len("v1.37")]; got != want {
		t.Errorf("Number() = %s, want %s", got, want)
	}
	if got, want := Libraries(), "v0"+Kubernetes[len("v1"):]; got != want {
		t.Errorf("Libraries() = %s, want %s", got, want)
	}
}
