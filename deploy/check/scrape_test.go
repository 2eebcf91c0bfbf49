package check

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"sigs.k8s.io/yaml"
)

// TestScrape: the scrape configuration keeps the port of the metrics and no other, and
// makes the labels that the alerts ask for.
func TestScrape(t *testing.T) {
	text, err := os.ReadFile("../prometheus/scrape.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		ScrapeConfigs []struct {
			JobName             string           `json:"job_name"`
			ScrapeInterval      string           `json:"scrape_interval"`
			KubernetesSDConfigs []values         `json:"kubernetes_sd_configs"`
			RelabelConfigs      []map[string]any `json:"relabel_configs"`
		} `json:"scrape_configs"`
		RuleFiles []string `json:"rule_files"`
	}
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		t.Fatal(err)
	}
	scrape := config.ScrapeConfigs[0]
	relabeled := func(app, port string) (labels.Labels, bool) {
		b := labels.NewBuilder(labels.FromStrings("job", scrape.JobName, "instance", "192.0.2.1:10249",
			"__meta_kubernetes_pod_label_k8s_app", app, "__meta_kubernetes_pod_container_port_name", port, "__meta_kubernetes_pod_node_name", "node-1"))
		keep := true
		for _, step := range scrape.RelabelConfigs {
			keep = keep && relabel.ProcessBuilder(b, relabelConfig(t, step))
		}
		return b.Labels(), keep
	}
	if got, keep := relabeled("nftproxy", "metrics"); !keep || got.Get("job") != "nftproxy" || got.Get("instance") != "node-1" {
		t.Errorf("labels %s, kept: %t", got, keep)
	}
	for _, other := range [][2]string{{"nftproxy", "healthz"}, {"kube-proxy", "metrics"}, {"nftproxy-check", ""}} {
		if _, keep := relabeled(other[0], other[1]); keep {
			t.Errorf("%v is scraped", other)
		}
	}
	for _, file := range config.RuleFiles {
		if _, err := os.Stat("../prometheus/" + file); err != nil {
			t.Error(err)
		}
	}
}

// relabelConfig reads a step with Prometheus' defaults.
func relabelConfig(t *testing.T, step map[string]any) *relabel.Config {
	t.Helper()
	c := relabel.DefaultRelabelConfig
	c.NameValidationScheme = model.UTF8Validation
	for key, value := range step {
		switch key {
		case "source_labels":
			for _, name := range value.([]any) {
				c.SourceLabels = append(c.SourceLabels, model.LabelName(name.(string)))
			}
		case "regex":
			c.Regex = relabel.MustNewRegexp(value.(string))
		case "action":
			c.Action = relabel.Action(value.(string))
		case "target_label":
			c.TargetLabel = value.(string)
		default:
			t.Fatalf("unknown field %s", key)
		}
	}
	return &c
}

// TestPodMonitor: the component for kustomize equals the chart's.
func TestPodMonitor(t *testing.T) {
	fs := withServer(t, "base")
	site, err := fs.ReadFile("site/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.WriteFile("site/kustomization.yaml", append(site, "components: [../kustomize/components/podmonitor]\n"...)); err != nil {
		t.Fatal(err)
	}
	want := decoded(t, kustomize(t, fs, "site"))["PodMonitor nftproxy"]
	got := decoded(t, helmManifests(t, "nftproxy", values{"apiServer": server, "podMonitor": values{"enabled": true},
		"config": values{"metricsBindAddress": "0.0.0.0:10249"}}))["PodMonitor nftproxy"]
	if diff := cmp.Diff(want, got); diff != "" || got == nil {
		t.Errorf("kustomize (-) and helm (+) differ:\n%s", diff)
	}
}
