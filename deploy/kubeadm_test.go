package deploy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
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

// applied returns a DaemonSet after the patch that kubectl makes of a template.
func applied(t *testing.T, path string, before *appsv1.DaemonSet) *appsv1.DaemonSet {
	t.Helper()
	object, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(object, &fields); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := template.Must(template.New(path).Parse(string(read(t, path)))).Execute(&text, fields); err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch([]byte(text.String()))
	if err != nil {
		t.Fatalf("%v: %s", err, text.String())
	}
	after, err := patch.Apply(object)
	if err != nil {
		t.Fatalf("%v: %s", err, text.String())
	}
	return decode[appsv1.DaemonSet](t, after)
}

// nodeLabel returns the label of the nodes that the overlay selects.
func nodeLabel(t *testing.T) (key, value string) {
	t.Helper()
	overlay := decode[struct {
		APIVersion, Kind string
		Resources        []string
		Patches          []struct{ Patch string }
	}](t, read(t, "kustomize/overlays/node-by-node/kustomization.yaml"))
	selected := decode[appsv1.DaemonSet](t, []byte(overlay.Patches[0].Patch)).Spec.Template.Spec.NodeSelector
	if len(selected) != 1 {
		t.Fatalf("the overlay selects %v", selected)
	}
	for key, value = range selected {
	}
	return key, value
}

// kube-proxy leaves exactly the nodes that the overlay selects, whatever affinity
// its DaemonSet has, and comes back as it was.
func TestKeepOff(t *testing.T) {
	const (
		fargate   = "{key: compute-type, operator: NotIn, values: [fargate]}"
		windows   = "{key: os, operator: NotIn, values: [windows]}"
		byName    = "{key: metadata.name, operator: In, values: [node-1]}"
		preferred = "preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [" + windows + "]}}]"
		pods      = "podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchLabels: {b: c}}}]}"
		required  = "requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
	)
	key, value := nodeLabel(t)
	own := "{key: " + key + ", operator: NotIn, values: [" + value + "]}"
	only := required + "[{matchExpressions: [" + own + "]}]}"
	for _, c := range []struct{ name, before, after string }{
		{"no affinity", "", "{nodeAffinity: {" + only + "}}"},
		{"affinity of pods", "{" + pods + "}", "{" + pods + ", nodeAffinity: {" + only + "}}"},
		{"preferred nodes", "{nodeAffinity: {" + preferred + "}}", "{nodeAffinity: {" + preferred + ", " + only + "}}"},
		{"a term", "{nodeAffinity: {" + required + "[{matchExpressions: [" + fargate + "]}]}}}",
			"{nodeAffinity: {" + required + "[{matchExpressions: [" + fargate + ", " + own + "]}]}}}"},
		{"several terms, and everything else",
			"{" + pods + ", nodeAffinity: {" + preferred + ", " + required + "[{matchExpressions: [" + fargate + ", " + windows + "]}, {matchFields: [" + byName + "]}, {matchExpressions: [" + windows + "], matchFields: [" + byName + "]}, {}]}}}",
			"{" + pods + ", nodeAffinity: {" + preferred + ", " + required + "[{matchExpressions: [" + fargate + ", " + windows + ", " + own + "]}, {matchFields: [" + byName + "], matchExpressions: [" + own + "]}, {matchExpressions: [" + windows + ", " + own + "], matchFields: [" + byName + "]}, {}]}}}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, want := decode[appsv1.DaemonSet](t, []byte(kubeProxy)), decode[appsv1.DaemonSet](t, []byte(kubeProxy))
			if c.before != "" {
				before.Spec.Template.Spec.Affinity = decode[corev1.Affinity](t, []byte(c.before))
			}
			want.Spec.Template.Spec.Affinity = decode[corev1.Affinity](t, []byte(c.after))
			got := applied(t, "kubeadm/keep-off.tmpl", before)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("after the patch (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, applied(t, "kubeadm/keep-off.tmpl", got)); diff != "" {
				t.Errorf("after the patch, twice (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, applied(t, "kubeadm/keep-off-undo.tmpl", got)); diff != "" {
				t.Errorf("after the undo (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, applied(t, "kubeadm/keep-off-undo.tmpl", before)); diff != "" {
				t.Errorf("after the undo, twice (-want +got):\n%s", diff)
			}
		})
	}
}
