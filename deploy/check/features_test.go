package check

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestChartFlags: each value gives its flag to the container that serves, and to no other
// (14.26).
func TestChartFlags(t *testing.T) {
	plain := daemonSet(t, values{}).Spec.Template.Spec
	for _, c := range []struct {
		given values
		want  string
	}{
		{values{"serviceMetrics": true}, "--service-metrics"},
		{values{"endpointMetrics": true}, "--endpoint-metrics"},
		{values{"observe": "refusals"}, "--observe=refusals"},
		{values{"observeGroup": 65535}, "--observe-group=65535"},
		{values{"logConnections": "refused"}, "--log-connections=refused"},
		{values{"web": true}, "--web"},
		{values{"allowedHosts": []any{"*.example.com", "proxy"}}, "--allowed-hosts=*.example.com,proxy"},
		{values{"scheduler": "maglev"}, "--scheduler=maglev"},
		{values{"affinitySize": 20000000}, "--affinity-size=20000000"},
		{values{"answerPing": true}, "--answer-ping"},
		{values{"masqueradeFrom": []any{"primary", "192.0.2.1"}}, "--masquerade-from=primary,192.0.2.1"},
		{values{"loadBalancerCIDRs": []any{"203.0.113.0/24", "2001:db8::/64"}}, "--load-balancer-cidrs=203.0.113.0/24,2001:db8::/64"},
		{values{"healthChecks": true}, "--health-checks"},
		{values{"conntrackTCPCleanup": true}, "--conntrack-tcp-cleanup"},
		{values{"announceNFTables": true}, "--announce-nftables"},
		{values{"tableOwner": false}, "--no-table-owner"},
		{values{"startJitter": "1m30s"}, "--start-jitter=1m30s"},
		{values{"nodeCondition": true}, "--node-condition"},
		{values{"drainDirectory": "/srv/drains/"}, "--drain-file=/srv/drains/drain.yaml"},
	} {
		pod := daemonSet(t, c.given).Spec.Template.Spec
		want := append(slices.Clone(plain.Containers[0].Args), c.want)
		if diff := cmp.Diff(want, pod.Containers[0].Args); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.given, diff)
		}
		if diff := cmp.Diff(plain.InitContainers, pod.InitContainers); diff != "" {
			t.Errorf("%v: the init container is another one (-want +got):\n%s", c.given, diff)
		}
	}
}

// TestChartNodeCondition: 14.29. The value adds one right, and nothing has it without the value.
func TestChartNodeCondition(t *testing.T) {
	given := values{"apiServer": server}
	plain := decoded(t, helmManifests(t, "svc-proxy", given))
	given["nodeCondition"] = true
	all := decoded(t, helmManifests(t, "svc-proxy", given))
	const name = "svc-proxy-node-condition"
	for key := range all {
		if _, known := plain[key]; !known && key != "ClusterRole "+name && key != "ClusterRoleBinding "+name {
			t.Errorf("the value adds %s", key)
		}
	}
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	for key, into := range map[string]any{"ClusterRole " + name: &role, "ClusterRoleBinding " + name: &binding} {
		content, err := yaml.Marshal(all[key])
		if err == nil {
			err = yaml.UnmarshalStrict(content, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}}}, role.Rules); diff != "" {
		t.Errorf("the role (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, binding.RoleRef); diff != "" {
		t.Errorf("the binding (-want +got):\n%s", diff)
	}
	if s := binding.Subjects; len(s) != 1 || s[0].Kind != rbacv1.ServiceAccountKind || s[0].Name != "svc-proxy" || s[0].Namespace == "" {
		t.Errorf("subjects %+v", s)
	}
}

// TestChartDirectories: pods mount a directory of the node only if a value names it, at the
// path that it has on the node (14.27).
func TestChartDirectories(t *testing.T) {
	pod := daemonSet(t, values{"drainDirectory": "/var/lib/nftproxy", "runtimeDirectory": "/run/nftproxy"}).Spec.Template.Spec
	if init := pod.InitContainers[0]; len(init.VolumeMounts) != 1 {
		t.Errorf("the init container mounts %+v", init.VolumeMounts)
	}
	proxy, create := pod.Containers[0], corev1.HostPathDirectoryOrCreate
	for name, path := range map[string]string{"drain": "/var/lib/nftproxy", "runtime": "/run/nftproxy"} {
		volume := corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &create}}}
		if at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name }); at < 0 || !cmp.Equal(pod.Volumes[at], volume) {
			t.Errorf("volumes %+v, want %+v", pod.Volumes, volume)
		}
		if want := (corev1.VolumeMount{Name: name, MountPath: path}); !slices.ContainsFunc(proxy.VolumeMounts, func(m corev1.VolumeMount) bool { return cmp.Equal(m, want) }) {
			t.Errorf("mounts %+v, want %+v", proxy.VolumeMounts, want)
		}
	}
	if want := (corev1.EnvVar{Name: "RUNTIME_DIRECTORY", Value: "/run/nftproxy"}); !slices.Contains(proxy.Env, want) {
		t.Errorf("variables %+v, want %+v", proxy.Env, want)
	}
}

// TestChartSocket: the directory of the socket for root is one of the pod, unless the values have one at
// this place or another runtime directory (14.27).
func TestChartSocket(t *testing.T) {
	for name, c := range map[string]struct {
		given values
		want  int
	}{
		"default": {values{}, 1},
		"runtime": {values{"runtimeDirectory": "/run/nftproxy"}, 0},
		"own":     {values{"extraVolumes": []any{values{"name": "mine", "emptyDir": values{}}}, "extraVolumeMounts": []any{values{"name": "mine", "mountPath": "/run/nftproxy"}}}, 0},
		"volume":  {values{"extraVolumes": []any{values{"name": "socket", "emptyDir": values{}}}}, 0},
	} {
		pod := daemonSet(t, c.given).Spec.Template.Spec
		mounts, volumes := 0, 0
		for _, m := range pod.Containers[0].VolumeMounts {
			if m.Name == "socket" && m.MountPath == "/run/nftproxy" {
				mounts++
			}
		}
		for _, v := range pod.Volumes {
			if v.Name == "socket" && v.EmptyDir != nil && name != "volume" {
				volumes++
			}
		}
		if mounts != c.want || volumes != c.want {
			t.Errorf("%s: %d mounts, %d volumes, want %d: %+v", name, mounts, volumes, c.want, pod.Volumes)
		}
	}
}

// TestChartDashboard: the ConfigMap has the dashboard of deploy/grafana, and the label by
// which Grafana's sidecar finds it (14.28).
func TestChartDashboard(t *testing.T) {
	all := decoded(t, helmManifests(t, "svc-proxy", values{"apiServer": server, "dashboard": values{
		"enabled": true, "namespace": "monitoring", "annotations": values{"grafana_folder": "Network"}}}))
	content, err := yaml.Marshal(all["ConfigMap svc-proxy-dashboard"])
	if err != nil {
		t.Fatal(err)
	}
	var m corev1.ConfigMap
	if err := yaml.UnmarshalStrict(content, &m); err != nil {
		t.Fatal(err)
	}
	if m.Namespace != "monitoring" || m.Labels["grafana_dashboard"] != "1" || m.Annotations["grafana_folder"] != "Network" {
		t.Errorf("metadata %+v", m.ObjectMeta)
	}
	file, err := os.ReadFile("../grafana/nftproxy.json")
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal([]byte(m.Data["nftproxy.json"]), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the dashboard (-want +got):\n%s", diff)
	}
	for _, given := range []values{{"apiServer": server}, {"checkOnly": true, "dashboard": values{"enabled": true}}} {
		if text := helmManifests(t, "nftproxy", given); strings.Contains(text, "-dashboard") {
			t.Errorf("%v makes a dashboard", given)
		}
	}
}
