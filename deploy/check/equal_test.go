package check

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const server = "https://192.0.2.1:6443"

// TestHelmEqualsKustomize compares the objects of both ways to install (14.1,
// 14.2, 14.4, 14.5, 14.6, 14.7, 14.10): everything that ../deploy_test.go asks
// of the base, the chart has too.
func TestHelmEqualsKustomize(t *testing.T) {
	for name, c := range map[string]struct {
		overlay string
		release string
		values  values
	}{
		"base": {"base", "nftproxy", nil},
		"node by node": {"overlays/node-by-node", "nftproxy", values{
			"nodeSelector": values{"nftproxy.dev/proxy": "nftproxy"}}},
		"canary": {"overlays/canary", "nftproxy-canary", values{
			"serviceProxyName": "nftproxy",
			"config": values{
				"healthzBindAddress": "0.0.0.0:10356",
				"metricsBindAddress": "127.0.0.1:10349",
				"conntrack": values{"maxPerCore": 0, "min": 0,
					"tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			all := values{"apiServer": server}
			for k, v := range c.values {
				all[k] = v
			}
			want := typed(t, kustomize(t, withServer(t, c.overlay), "site"))
			got := typed(t, helmManifests(t, c.release, all))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kustomize (-) and helm (+) differ:\n%s", diff)
			}
		})
	}
}

// withServer returns a file system with the kustomizations, and one in the
// directory "site" that names the API server for an overlay, as the overlay
// "example" does.
func withServer(t *testing.T, overlay string) filesys.FileSystem {
	t.Helper()
	fs := filesys.MakeFsInMemory()
	disk := filesys.MakeFsOnDisk()
	err := disk.Walk("../kustomize", func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		content, err := disk.ReadFile(path)
		if err != nil {
			return err
		}
		return fs.WriteFile(strings.TrimPrefix(path, "../"), content)
	})
	if err != nil {
		t.Fatal(err)
	}
	example, err := fs.ReadFile("kustomize/overlays/example/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var site values
	if err := yaml.Unmarshal(example, &site); err != nil {
		t.Fatal(err)
	}
	site["resources"] = []any{"../kustomize/" + overlay}
	delete(site, "images")
	content, err := yaml.Marshal(site)
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.WriteFile("site/kustomization.yaml", content); err != nil {
		t.Fatal(err)
	}
	return fs
}

// hash is what the name of the ConfigMap ends with; both tools compute their own.
var hash = regexp.MustCompile(`(nftproxy|nftproxy-canary)-[0-9a-z]{10}\b`)

// typed decodes every object into the type of its kind, without unknown fields,
// and the files within ConfigMaps as YAML.
func typed(t *testing.T, text string) map[string]any {
	t.Helper()
	out := make(map[string]any)
	for key, object := range decoded(t, hash.ReplaceAllString(text, "$1-HASH")) {
		kind, _, _ := strings.Cut(key, " ")
		content, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		into, known := map[string]any{
			"ServiceAccount":     &corev1.ServiceAccount{},
			"ClusterRole":        &rbacv1.ClusterRole{},
			"ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
			"ConfigMap":          &corev1.ConfigMap{},
			"DaemonSet":          &appsv1.DaemonSet{},
		}[kind]
		if !known {
			t.Fatalf("unexpected object %s", key)
		}
		if err := yaml.UnmarshalStrict(content, into); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		out[key] = into
		if m, ok := into.(*corev1.ConfigMap); ok {
			out[key] = files(t, m)
		}
	}
	return out
}

// files returns the labels and the decoded files of a ConfigMap.
func files(t *testing.T, m *corev1.ConfigMap) map[string]any {
	t.Helper()
	out := map[string]any{"namespace": m.Namespace, "labels": m.Labels}
	for name, text := range m.Data {
		var content any
		if err := yaml.Unmarshal([]byte(text), &content); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = content
	}
	return out
}
