package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

const (
	keepOff    = "{key: nftproxy.dev/proxy, operator: NotIn, values: [nftproxy]}"
	noFargate  = "{key: compute-type, operator: NotIn, values: [fargate]}"
	noWindows  = "{key: os, operator: NotIn, values: [windows]}"
	isNode     = "{key: metadata.name, operator: In, values: [node]}"
	preferred  = "preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [" + noWindows + "]}}]"
	apart      = "podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchLabels: {b: c}}}]}"
	required   = "requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
	keptOff    = required + "[{matchExpressions: [" + keepOff + "]}]}"
	migrator   = "migrator"
	mayMigrate = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: migrator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: migrator}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: migrator}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "` + testbed.ProxyUser + `"}
`
)

// clusterRole is the one in the migration guide.
var clusterRole = regexp.MustCompile("(?s)```\n([^`]*kind: ClusterRole\n[^`]*)```")

// migration is a cluster with kubeadm's DaemonSet, and an operator with the rights
// that "nftproxy migrate" needs.
type migration struct {
	*cluster
	kubeconfig string
}

func newMigration(t *testing.T) *migration {
	c := newKubeadmCluster(t, 0)
	guide, err := os.ReadFile("../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	role := clusterRole.FindSubmatch(guide)
	if role == nil {
		t.Fatal("the guide has no ClusterRole")
	}
	c.Kubectl("apply", "-f", filepath.Join(c.writeFiles("rbac", map[string]string{"rbac.yaml": string(role[1]) + "---" + mayMigrate}), "rbac.yaml"))
	return &migration{c, c.Kubeconfig(migrator)}
}

// migrate runs a command and returns what it prints and its exit code.
func (m *migration) migrate(args ...string) (string, int) {
	m.T.Helper()
	cmd := exec.Command(testbed.NFTProxy.Path, append([]string{"migrate"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+m.kubeconfig)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = m.Node.Run(cmd) // the code says it
	return out.String(), cmd.ProcessState.ExitCode()
}

// prints runs a command that must succeed and print something.
func (m *migration) prints(want string, args ...string) {
	m.T.Helper()
	out, code := m.migrate(args...)
	m.T.Logf("nftproxy migrate %s\n%s", strings.Join(args, " "), out)
	if code != 0 || !strings.Contains(out, want) {
		m.T.Errorf("nftproxy migrate %s: code %d, want %q:\n%s", strings.Join(args, " "), code, want, out)
	}
}

// changes runs the patch that a command prints. Without kubelets, no rollout ends.
func (m *migration) changes(args ...string) {
	m.T.Helper()
	out, code := m.migrate(args...)
	m.T.Logf("nftproxy migrate %s\n%s", strings.Join(args, " "), out)
	patch, wait, _ := strings.Cut(out, "\n")
	if code != 0 || !strings.Contains(patch, " patch daemonset ") || !strings.Contains(wait, "rollout status") {
		m.T.Fatalf("nftproxy migrate %s: code %d\n%s", strings.Join(args, " "), code, out)
	}
	m.KubectlScript(m.kubeconfig, patch)
}

func (m *migration) daemonSet() *appsv1.DaemonSet {
	m.T.Helper()
	d, err := m.API.AppsV1().DaemonSets(systemNamespace).Get(m.T.Context(), kubeProxyName, metav1.GetOptions{})
	if err != nil {
		m.T.Fatal(err)
	}
	return d
}

func affinity(t *testing.T, text string) (a *corev1.Affinity) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// set gives the DaemonSet an affinity, as another client would.
func (m *migration) set(t *testing.T, a *corev1.Affinity) *appsv1.DaemonSet {
	t.Helper()
	value, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	patch := []byte(`[{"op":"add","path":"/spec/template/spec/affinity","value":` + string(value) + `}]`)
	d, err := m.API.AppsV1().DaemonSets(systemNamespace).Patch(t.Context(), kubeProxyName, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// is checks that the DaemonSet differs from an earlier one only by the affinity.
func (m *migration) is(t *testing.T, what string, before *appsv1.DaemonSet, want *corev1.Affinity) {
	t.Helper()
	template := before.Spec.Template.DeepCopy()
	template.Spec.Affinity = want
	if diff := cmp.Diff(*template, m.daemonSet().Spec.Template); diff != "" {
		t.Errorf("after %s (-want +got):\n%s", what, diff)
	}
}

// With the printed commands, kube-proxy's DaemonSet leaves the nodes with the label and comes back as
// it was, whatever affinity it has (14.11).
func TestKeepOff(t *testing.T) {
	m := newMigration(t)
	for _, c := range []struct{ name, before, after, undone string }{
		{"nodeSelector only", "null", "{nodeAffinity: {" + keptOff + "}}", "{nodeAffinity: {}}"},
		{"affinity of pods", "{" + apart + "}", "{" + apart + ", nodeAffinity: {" + keptOff + "}}", "{" + apart + ", nodeAffinity: {}}"},
		{"preferred terms", "{nodeAffinity: {" + preferred + "}}", "{nodeAffinity: {" + preferred + ", " + keptOff + "}}", ""},
		{"a term", "{nodeAffinity: {" + required + "[{matchExpressions: [" + noFargate + "]}]}}}",
			"{nodeAffinity: {" + required + "[{matchExpressions: [" + noFargate + ", " + keepOff + "]}]}}}", ""},
		{"several terms, and everything else",
			"{" + apart + ", nodeAffinity: {" + preferred + ", " + required + "[{matchExpressions: [" + noFargate + ", " + noWindows + "]}, {matchFields: [" + isNode + "]}, {matchExpressions: [" + noWindows + "], matchFields: [" + isNode + "]}, {}]}}}",
			"{" + apart + ", nodeAffinity: {" + preferred + ", " + required + "[{matchExpressions: [" + noFargate + ", " + noWindows + ", " + keepOff + "]}, {matchFields: [" + isNode + "], matchExpressions: [" + keepOff + "]}, {matchExpressions: [" + noWindows + ", " + keepOff + "], matchFields: [" + isNode + "]}, {}]}}}", ""},
	} {
		if c.undone == "" {
			c.undone = c.before
		}
		t.Run(c.name, func(t *testing.T) {
			before := m.set(t, affinity(t, c.before))
			m.prints("kubectl -n kube-system patch daemonset kube-proxy ", "keep-off")
			m.is(t, "printing keep-off", before, before.Spec.Template.Spec.Affinity)
			m.changes("keep-off")
			m.is(t, "keep-off", before, affinity(t, c.after))
			m.prints("# Nothing to do", "keep-off")
			m.changes("undo")
			m.is(t, "undo", before, affinity(t, c.undone))
			m.prints("# Nothing to do", "undo")
		})
	}
}

// The printed patch fails if another client has changed the affinity since.
func TestKeepOffBesideAnotherClient(t *testing.T) {
	m := newMigration(t)
	for _, terms := range []string{"null", "{nodeAffinity: {" + required + "[{matchExpressions: [" + noFargate + "]}]}}}"} {
		m.set(t, affinity(t, terms))
		out, code := m.migrate("keep-off")
		patch, _, _ := strings.Cut(out, "\n")
		other := affinity(t, "{nodeAffinity: {"+required+"[{matchExpressions: ["+noWindows+"]}, {matchFields: ["+isNode+"]}]}}}")
		before := m.set(t, other)
		said := m.KubectlScript(m.kubeconfig, "! "+patch)
		if code != 0 {
			t.Errorf("code %d\n%s", code, out)
		}
		m.is(t, "a patch that is late: "+said, before, other)
	}
}

// Other DaemonSets, labels and kubeconfigs are named by flags; what does not exist or
// is not allowed is an error that says so.
func TestMigrateNamesAndErrors(t *testing.T) {
	m := newMigration(t)
	d := m.daemonSet()
	d.ObjectMeta = metav1.ObjectMeta{Name: "service-proxy", Namespace: "default"}
	if _, err := m.API.AppsV1().DaemonSets("default").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.prints("# Nothing to do", "undo", "-n", "default", "--daemonset", "service-proxy")
	m.prints("kubectl --kubeconfig '"+m.kubeconfig+"' -n default patch daemonset service-proxy ", "keep-off", "-n", "default", "--daemonset", "service-proxy", "-l", "a/b=c", "--kubeconfig", m.kubeconfig)
	for want, args := range map[string][]string{
		"not every distribution runs it as a DaemonSet": {"keep-off", "--daemonset", "none"},
		"is not a label": {"keep-off", "-l", "a"},
		"forbidden":      {"keep-off", "--kubeconfig", m.Kubeconfig("nobody")},
		"does not exist": {"keep-off", "--context", "elsewhere"},
		"no such file":   {"keep-off", "--kubeconfig", "missing"},
		"lower case":     {"keep-off", "-n", "A/../b"},
		"unknown format": {"status", "-o", "xml"},
	} {
		if out, code := m.migrate(args...); code != 2 || !strings.Contains(out, want) {
			t.Errorf("nftproxy migrate %s: code %d, want %q in %s", strings.Join(args, " "), code, want, out)
		}
	}
}

// The status shows for each node which proxy runs there.
func TestMigrateStatus(t *testing.T) {
	m := newMigration(t)
	if out, code := m.migrate("status"); code != 1 || !strings.Contains(out, "does not keep off nodes") {
		t.Errorf("before keep-off: code %d\n%s", code, out)
	}
	m.changes("keep-off")
	d := m.daemonSet()
	d.Status = appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberReady: 1}
	if _, err := m.API.AppsV1().DaemonSets(systemNamespace).UpdateStatus(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.prints("keeps off nodes with nftproxy.dev/proxy=nftproxy", "status")
	m.Kubectl("label", "node", testbed.NodeName, "nftproxy.dev/proxy=nftproxy")
	out, code := m.migrate("status")
	fmt.Fprintln(t.Output(), out)
	if code != 1 || !strings.Contains(out, "no proxy runs here") {
		t.Errorf("code %d, %s", code, out)
	}
	out, code = m.migrate("status", "-o", "json")
	var s struct {
		KeepsOff bool
		Nodes    []struct{ Name, NFTProxy, Problem string }
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != 1 || !s.KeepsOff || len(s.Nodes) != 1 || s.Nodes[0].NFTProxy != "none" || s.Nodes[0].Problem == "" {
		t.Errorf("code %d, %v: %s", code, err, out)
	}
}
