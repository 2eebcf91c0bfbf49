package check

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// TestGuidesPodMonitor: the PodMonitor of the guide finds the pods of the base, and
// makes the labels that dashboards and alerts for kube-proxy ask for.
func TestGuidesPodMonitor(t *testing.T) {
	guide, err := os.ReadFile("../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```\n(apiVersion: monitoring.coreos.com/v1\n.*?)```").FindSubmatch(guide)
	if block == nil {
		t.Fatal("the guide has no PodMonitor")
	}
	var monitor struct {
		APIVersion, Kind string
		Metadata         values
		Spec             struct {
			Selector            struct{ MatchLabels map[string]string }
			PodMetricsEndpoints []struct {
				Port        string
				Relabelings []struct {
					SourceLabels             model.LabelNames
					TargetLabel, Replacement string
				}
			}
		}
	}
	if err := yaml.UnmarshalStrict(block[1], &monitor); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../kustomize/base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.Unmarshal(text, &set); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(set.Spec.Template.Labels, monitor.Spec.Selector.MatchLabels); diff != "" {
		t.Errorf("labels of the pods (-), and those that are selected (+):\n%s", diff)
	}
	endpoint := monitor.Spec.PodMetricsEndpoints[0]
	found := false
	for _, p := range set.Spec.Template.Spec.Containers[0].Ports {
		found = found || p.Name == endpoint.Port
	}
	if !found {
		t.Errorf("the pods have no port %s", endpoint.Port)
	}
	series := labels.NewBuilder(labels.FromStrings("__meta_kubernetes_pod_node_name", "node-1", "job", "kube-system/nftproxy", "instance", "192.0.2.1:10249"))
	for _, r := range endpoint.Relabelings {
		c := relabel.DefaultRelabelConfig
		c.SourceLabels, c.TargetLabel, c.NameValidationScheme = r.SourceLabels, r.TargetLabel, model.UTF8Validation
		if r.Replacement != "" {
			c.Replacement = r.Replacement
		}
		relabel.ProcessBuilder(series, &c)
	}
	if got := series.Labels(); got.Get("job") != "kube-proxy" || got.Get("instance") != "node-1" {
		t.Errorf("series have the labels %s", got)
	}
}
