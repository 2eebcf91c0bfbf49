package check

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// daemonSet returns the DaemonSet that the chart makes of values.
func daemonSet(t *testing.T, given values) *appsv1.DaemonSet {
	t.Helper()
	given["apiServer"] = server
	return typed(t, helmManifests(t, "nftproxy", given))["DaemonSet nftproxy"].(*appsv1.DaemonSet)
}

func TestChartImage(t *testing.T) {
	const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for want, image := range map[string]any{
		"nftproxy:latest":                     values{},
		"registry.example.com/nftproxy:v1":    values{"repository": "registry.example.com/nftproxy", "tag": "v1"},
		"registry.example.com:5000/n:1.36":    values{"repository": "registry.example.com:5000/n", "tag": 1.36},
		"nftproxy@" + digest:                  values{"digest": digest},
		"registry.example.com/nftproxy:v0":    "registry.example.com/nftproxy:v0", // all of it, as before there were parts
		"registry.example.com/n:v0@" + digest: "registry.example.com/n:v0@" + digest,
	} {
		pod := daemonSet(t, values{"image": image}).Spec.Template.Spec
		if got := pod.Containers[0].Image; got != want || pod.InitContainers[0].Image != want {
			t.Errorf("images %s and %s, want %s", got, pod.InitContainers[0].Image, want)
		}
	}
}

// TestChartPods sets what each cluster has its own rules for.
func TestChartPods(t *testing.T) {
	set := daemonSet(t, values{
		"imagePullPolicy":  "Always",
		"imagePullSecrets": []any{values{"name": "pull"}},
		"nodeSelector":     values{"pool": "a"},
		"affinity": values{"nodeAffinity": values{"requiredDuringSchedulingIgnoredDuringExecution": values{
			"nodeSelectorTerms": []any{values{"matchExpressions": []any{values{"key": "type", "operator": "NotIn", "values": []any{"fargate"}}}}}}}},
		"tolerations":       []any{values{"key": "special", "operator": "Exists"}},
		"priorityClassName": "proxies",
		"podAnnotations":    values{"a": "1"},
		"podLabels":         values{"team": "net"},
		"updateStrategy":    values{"type": "OnDelete"},
		"extraArgs":         []any{"-v=2"},
		"extraEnv":          []any{values{"name": "GOGC", "value": "30"}},
		"extraVolumes":      []any{values{"name": "more", "emptyDir": values{}}},
		"extraVolumeMounts": []any{values{"name": "more", "mountPath": "/more"}},
		"resources":         values{"limits": values{"memory": "1Gi"}},
	})
	pod := set.Spec.Template.Spec
	proxy := pod.Containers[0]
	for what, pair := range map[string][2]any{
		"pull policy":   {corev1.PullAlways, proxy.ImagePullPolicy},
		"pull secrets":  {[]corev1.LocalObjectReference{{Name: "pull"}}, pod.ImagePullSecrets},
		"node selector": {map[string]string{"kubernetes.io/os": "linux", "pool": "a"}, pod.NodeSelector},
		"affinity":      {"fargate", pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values[0]},
		"tolerations":   {[]corev1.Toleration{{Key: "special", Operator: corev1.TolerationOpExists}}, pod.Tolerations},
		"priority":      {"proxies", pod.PriorityClassName},
		"annotations":   {map[string]string{"a": "1"}, set.Spec.Template.Annotations},
		"labels":        {map[string]string{"k8s-app": "nftproxy", "team": "net"}, set.Spec.Template.Labels},
		"selector":      {map[string]string{"k8s-app": "nftproxy"}, set.Spec.Selector.MatchLabels},
		"strategy":      {appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}, set.Spec.UpdateStrategy},
		"flag":          {"-v=2", proxy.Args[len(proxy.Args)-1]},
		"variable":      {corev1.EnvVar{Name: "GOGC", Value: "30"}, proxy.Env[len(proxy.Env)-1]},
		"volume":        {"more", pod.Volumes[len(pod.Volumes)-1].Name},
		"mount":         {corev1.VolumeMount{Name: "more", MountPath: "/more"}, proxy.VolumeMounts[len(proxy.VolumeMounts)-1]},
		"limit":         {"1Gi", proxy.Resources.Limits.Memory().String()},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	percent := daemonSet(t, values{"maxUnavailable": "3%", "tolerations": []any{}, "priorityClassName": ""})
	if got := percent.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable; *got != intstr.FromString("3%") ||
		len(percent.Spec.Template.Spec.Tolerations) > 0 || percent.Spec.Template.Spec.PriorityClassName != "" {
		t.Errorf("a cluster without rules of its own: %+v", percent.Spec)
	}
}

// 14.16: the chart has the DaemonSet that checks nodes, and nothing else then.
func TestCheckOnly(t *testing.T) {
	want := typed(t, kustomize(t, withServer(t, "base"), "kustomize/check"))
	got := typed(t, helmManifests(t, "nftproxy", values{"checkOnly": true, "podMonitor": values{"enabled": true}, "prometheusRule": values{"enabled": true}}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kustomize (-) and helm (+) differ:\n%s", diff)
	}
	files, err := helm(t, "nftproxy", values{"checkOnly": true, "config": values{"clusterCIDR": "10.0.0.0/8", "masqueradeAll": true},
		"podLabels": values{"team": "net"}, "podAnnotations": values{"a": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	set := files["nftproxy/templates/check.yaml"]
	for _, text := range []string{"- --cluster-cidr=10.0.0.0/8\n", "- --masquerade-all\n", "k8s-app: nftproxy-check\n        team: net\n", "a: \"1\"\n"} {
		if !strings.Contains(set, text) {
			t.Errorf("no %q in\n%s", text, set)
		}
	}
	notes := files["nftproxy/templates/NOTES.txt"]
	if !strings.Contains(notes, "nothing is changed") || strings.Contains(notes, "serves all") {
		t.Errorf("notes:\n%s", notes)
	}
}
