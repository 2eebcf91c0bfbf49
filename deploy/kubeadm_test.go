package deploy_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/migrate"
)

// kubeProxy is a DaemonSet as kubeadm makes it (14.5, 14.6), cut down.
const kubeProxy = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-proxy, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: kube-proxy}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}
  template:
    metadata: {labels: {k8s-app: kube-proxy}}
    spec:
      serviceAccountName: kube-proxy
      containers:
      - name: kube-proxy
        image: registry.example.com/kube-proxy:v1.36.0
        command: [/usr/local/bin/kube-proxy, --config=/var/lib/kube-proxy/config.conf, --hostname-override=$(NODE_NAME)]
        securityContext: {privileged: true}
        volumeMounts: [{name: kube-proxy, mountPath: /var/lib/kube-proxy}]
      volumes: [{name: kube-proxy, configMap: {name: kube-proxy}}]
      nodeSelector: {kubernetes.io/os: linux}
`

// patched returns the DaemonSet after "kubectl patch --patch-file".
func patched(t *testing.T, path string) (before, after *appsv1.DaemonSet) {
	t.Helper()
	before = decode[appsv1.DaemonSet](t, []byte(kubeProxy))
	original, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := yaml.YAMLToJSON(read(t, path))
	if err != nil {
		t.Fatal(err)
	}
	out, err := strategicpatch.StrategicMergePatch(original, patch, appsv1.DaemonSet{})
	if err != nil {
		t.Fatal(err)
	}
	return before, decode[appsv1.DaemonSet](t, out)
}

// Only the image changes, so that the command, the ConfigMap and the rights are
// those of kube-proxy (14.2, 14.4, 14.9), and a node at a time.
func TestTakeOver(t *testing.T) {
	want, got := patched(t, "kubeadm/take-over.yaml")
	_, proxy := containers(t)
	want.Spec.Template.Spec.Containers[0].Image = proxy.Image
	want.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after the patch (-want +got):\n%s", diff)
	}
}

// The overlay runs nftproxy on the nodes that the commands of "nftproxy migrate keep-off" keep
// kube-proxy off (14.11).
func TestNodeByNode(t *testing.T) {
	overlay := decode[struct {
		APIVersion, Kind string
		Resources        []string
		Patches          []struct{ Patch string }
	}](t, read(t, "kustomize/overlays/node-by-node/kustomization.yaml"))
	label, err := migrate.ParseLabel(migrate.DefaultLabel)
	if err != nil {
		t.Fatal(err)
	}
	got := decode[appsv1.DaemonSet](t, []byte(overlay.Patches[0].Patch)).Spec.Template.Spec.NodeSelector
	if diff := cmp.Diff(map[string]string{label.Key: label.Value}, got); diff != "" {
		t.Errorf("nodes of the overlay (-want +got):\n%s", diff)
	}
}
