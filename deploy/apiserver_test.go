package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/control"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

const apiServer = "apiserver/"

// TestAPIServerFile: the file has no warnings, and asks for what its comments say (14.23).
func TestAPIServerFile(t *testing.T) {
	in, err := (&files.Reader{Paths: []string{apiServer + "apiserver.yaml"}}).Load()
	if err != nil || len(in.Warnings) > 0 || len(in.Snapshot.Services) != 1 {
		t.Fatalf("%v, warnings %v", err, in)
	}
	s := in.Snapshot.Services[0]
	if s.Extra().EndpointsFrom == nil || s.Extra().EndpointsFrom.String() != "default/kubernetes" {
		t.Errorf("endpoints from %v", s.Extra().EndpointsFrom)
	}
	if s.Check == nil || s.Check.Type != model.CheckHTTPS || s.Check.HTTP.Path != "/readyz" {
		t.Errorf("check %+v", s.Check)
	}
	routes := model.Resolve(in.Snapshot, model.Config{}).Routes
	if len(routes) != 1 || len(routes[0].Outside().Endpoints) != 3 {
		t.Errorf("routes %+v", routes)
	}
}

// TestAPIServerPod: the static pod reads only what it needs, with one capability, and its
// flags are those of the program (14.20).
func TestAPIServerPod(t *testing.T) {
	pod := decode[corev1.Pod](t, read(t, apiServer+"nftproxy.yaml"))
	_, proxy := containers(t)
	got := pod.Spec.Containers[0]
	if !pod.Spec.HostNetwork || pod.Spec.PriorityClassName != "system-node-critical" || len(pod.Spec.Containers) != 1 {
		t.Errorf("pod %+v", pod.Spec)
	}
	if want, have := *proxy.SecurityContext, *got.SecurityContext; !slices.Equal(want.Capabilities.Add, have.Capabilities.Add) ||
		!slices.Equal(want.Capabilities.Drop, have.Capabilities.Drop) || !*have.ReadOnlyRootFilesystem || *have.AllowPrivilegeEscalation {
		t.Errorf("security context %+v, want that of the DaemonSet", have)
	}
	mounted := make(map[string]string)
	for _, m := range got.VolumeMounts {
		if !m.ReadOnly && m.MountPath != control.DefaultDirectory {
			t.Errorf("%s is mounted writable", m.MountPath)
		}
		mounted[m.Name] = m.MountPath
	}
	for _, v := range pod.Spec.Volumes {
		if v.EmptyDir != nil && mounted[v.Name] == control.DefaultDirectory {
			continue
		}
		if v.HostPath == nil || v.HostPath.Path != mounted[v.Name] {
			t.Errorf("volume %s is not mounted at its path", v.Name)
		}
	}
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	paths := set.StringArray("filename", nil, "")
	flags := config.NewFlags(set)
	flags.AddRules()
	flags.AddCluster()
	flags.AddDaemon()
	if err := set.Parse(got.Args[1:]); err != nil || got.Args[0] != "run" {
		t.Fatalf("arguments %v: %v", got.Args, err)
	}
	c, err := flags.Load()
	if err != nil {
		t.Fatal(err)
	}
	in, err := (&files.Reader{Paths: []string{apiServer + "apiserver.yaml"}}).Load()
	if err != nil {
		t.Fatal(err)
	}
	s := in.Snapshot.Services[0]
	if got, want := c.Master, fmt.Sprintf("https://%s:%d", s.External.LoadBalancerIPs[0], s.Ports[0].Port); got != want {
		t.Errorf("API server %s, want %s as in the file", got, want)
	}
	for _, path := range append(*paths, c.Kube.ClientConnection.Kubeconfig) {
		if !slices.ContainsFunc(got.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(path, m.MountPath) }) {
			t.Errorf("%s is not mounted", path)
		}
	}
}

// TestAPIServerRights: the kubelets' credentials get the rights of a service proxy, and no
// more (14.2).
func TestAPIServerRights(t *testing.T) {
	binding := decode[rbacv1.ClusterRoleBinding](t, read(t, apiServer+"rbac.yaml"))
	if want := (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"}); binding.RoleRef != want {
		t.Errorf("bound to %+v, want %+v", binding.RoleRef, want)
	}
	if want := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:nodes"}}; !slices.Equal(binding.Subjects, want) {
		t.Errorf("subjects %+v, want %+v", binding.Subjects, want)
	}
}

// TestAPIServerUnit: the kubelet starts after the unit, which may wait for the API server.
func TestAPIServerUnit(t *testing.T) {
	unit := string(read(t, apiServer+"nftproxy.service.d/kubelet.conf"))
	for _, want := range []string{"[Unit]\nBefore=kubelet.service\n", "[Service]\n", "\nTimeoutStartSec=infinity\n"} {
		if !strings.Contains(unit, want) {
			t.Errorf("the drop-in has no %q", want)
		}
	}
}
