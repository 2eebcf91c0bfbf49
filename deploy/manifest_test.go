// Package deploy_test checks the files in this directory without a cluster
// and without the tools that read it; the module check has those.
package deploy_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/control"
)

const base = "kustomize/base/"

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// decode fails for fields that the type of T does not have.
func decode[T any](t *testing.T, content []byte) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict(content, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// daemonSet returns that of the base.
func daemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	return decode[appsv1.DaemonSet](t, read(t, base+"daemonset.yaml"))
}

// containers returns the two of the base.
func containers(t *testing.T) (init, proxy corev1.Container) {
	t.Helper()
	pod := daemonSet(t).Spec.Template.Spec
	if len(pod.InitContainers) != 1 || len(pod.Containers) != 1 {
		t.Fatalf("%d init containers, %d containers", len(pod.InitContainers), len(pod.Containers))
	}
	return pod.InitContainers[0], pod.Containers[0]
}

// All rights in the API server are those of the role that kube-proxy has, so
// that there are no more of them (14.1, 14.2).
func TestRights(t *testing.T) {
	documents := strings.Split(string(read(t, base+"rbac.yaml")), "---\n")
	if len(documents) != 2 {
		t.Fatalf("%d objects, want the service account and its binding", len(documents))
	}
	account := decode[corev1.ServiceAccount](t, []byte(documents[0]))
	binding := decode[rbacv1.ClusterRoleBinding](t, []byte(documents[1]))
	if account.Kind != "ServiceAccount" || binding.Kind != "ClusterRoleBinding" {
		t.Fatalf("a %s and a %s", account.Kind, binding.Kind)
	}
	if want := (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"}); binding.RoleRef != want {
		t.Errorf("bound to %+v, want %+v", binding.RoleRef, want)
	}
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != account.Name {
		t.Errorf("bound is %+v, want %s", binding.Subjects, account.Name)
	}
	if got := daemonSet(t).Spec.Template.Spec.ServiceAccountName; got != account.Name {
		t.Errorf("pods run as %q, want %q", got, account.Name)
	}
}

// 14.5 the pod is where and how kube-proxy's is.
func TestPod(t *testing.T) {
	set := daemonSet(t)
	pod := set.Spec.Template.Spec
	if set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		t.Errorf("update strategy %q", set.Spec.UpdateStrategy.Type)
	}
	if !pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Errorf("host network %v, PID %v, IPC %v; want the network only", pod.HostNetwork, pod.HostPID, pod.HostIPC)
	}
	if pod.PriorityClassName != "system-node-critical" {
		t.Errorf("priority class %q", pod.PriorityClassName)
	}
	if len(pod.Tolerations) != 1 || pod.Tolerations[0] != (corev1.Toleration{Operator: corev1.TolerationOpExists}) {
		t.Errorf("tolerations %+v, want one of everything", pod.Tolerations)
	}
	if len(pod.NodeSelector) != 1 || pod.NodeSelector[corev1.LabelOSStable] != "linux" {
		t.Errorf("node selector %v", pod.NodeSelector)
	}
	for _, container := range []corev1.Container{pod.InitContainers[0], pod.Containers[0]} {
		if len(container.Resources.Requests) != 2 {
			t.Errorf("%s requests %v, want CPU and memory", container.Name, container.Resources.Requests)
		}
	}
}

// 14.6 nothing of the node is mounted: kernel modules are loaded by the kernel
// itself, and nftables have no lock file. The socket for root has a directory of the pod.
func TestMounts(t *testing.T) {
	pod := daemonSet(t).Spec.Template.Spec
	if len(pod.Volumes) != 2 || pod.Volumes[0].ConfigMap == nil || pod.Volumes[1].EmptyDir == nil {
		t.Fatalf("volumes %+v, want the ConfigMap and an empty directory only", pod.Volumes)
	}
	if m := pod.InitContainers[0].VolumeMounts; len(m) != 1 || m[0].MountPath != "/var/lib/kube-proxy" {
		t.Errorf("the init container mounts %+v", m)
	}
	if m := pod.Containers[0].VolumeMounts; len(m) != 2 || m[0].MountPath != "/var/lib/kube-proxy" || m[1].Name != pod.Volumes[1].Name || m[1].MountPath != control.DefaultDirectory {
		t.Errorf("the container mounts %+v", m)
	}
}

// 14.7 the container that stays has one capability; the privileged one before it
// ends after --init-only. End-to-end tests run both with these rights.
func TestPrivileges(t *testing.T) {
	init, proxy := containers(t)
	s := proxy.SecurityContext
	if s.Privileged != nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		t.Errorf("privileged %v, escalation %v", s.Privileged, s.AllowPrivilegeEscalation)
	}
	if c := s.Capabilities; len(c.Add) != 1 || c.Add[0] != "NET_ADMIN" || len(c.Drop) != 1 || c.Drop[0] != "ALL" {
		t.Errorf("capabilities %+v", c)
	}
	if s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("seccomp %+v", s.SeccompProfile)
	}
	last := init.Args[len(init.Args)-1]
	if !*init.SecurityContext.Privileged || last != "--init-only" {
		t.Errorf("the init container: privileged %v, last argument %s", *init.SecurityContext.Privileged, last)
	}
	if got, want := strings.Join(init.Args[:len(init.Args)-1], " "), strings.Join(proxy.Args, " "); got != want {
		t.Errorf("arguments of the init container %s\nof the other one              %s", got, want)
	}
	for _, c := range []corev1.Container{init, proxy} {
		if !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s can write to its files", c.Name)
		}
	}
}

// 14.16: the pods that check nodes have one capability, and neither an account nor a
// mount.
func TestCheckPod(t *testing.T) {
	pod := decode[appsv1.DaemonSet](t, read(t, "kustomize/check/daemonset.yaml")).Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || len(pod.Volumes) > 0 || pod.HostPID || !pod.HostNetwork {
		t.Errorf("the pod: %+v", pod)
	}
	_, proxy := containers(t)
	if got, want := pod.Containers[0].SecurityContext, proxy.SecurityContext; !reflect.DeepEqual(got, want) {
		t.Errorf("rights %+v, want those of the proxy %+v", got, want)
	}
	if got := strings.Join(pod.Containers[0].Args, " "); got != "check --stay" {
		t.Errorf("it runs %s", got)
	}
}
