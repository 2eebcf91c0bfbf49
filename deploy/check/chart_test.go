package check

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

func TestChartRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		values values
		want   string
	}{
		"14.4 no address of the API server":  {values{}, "apiServer is not set"},
		"an address without scheme":          {values{"apiServer": "192.0.2.1:6443"}, "apiServer"},
		"a mistyped value":                   {values{"apiServer": server, "clusterCIDR": "10.0.0.0/8"}, "clusterCIDR"},
		"another mode":                       {values{"apiServer": server, "config": values{"mode": "ipvs"}}, "mode"},
		"an address without port":            {values{"apiServer": server, "config": values{"healthzBindAddress": "0.0.0.0"}}, "healthzBindAddress"},
		"an image without tag":               {values{"apiServer": server, "image": values{"tag": ""}}, "image.tag is empty"},
		"an image without name":              {values{"apiServer": server, "image": ""}, "image"},
		"a malformed digest":                 {values{"apiServer": server, "image": values{"digest": "latest"}}, "digest"},
		"a part of an image that is not one": {values{"apiServer": server, "image": values{"name": "a"}}, "name"},
		"the label that selects the pods":    {values{"apiServer": server, "podLabels": values{"k8s-app": "a"}}, "podLabels"},
		"metrics that Prometheus cannot reach": {values{"apiServer": server, "podMonitor": values{"enabled": true}},
			"set it to 0.0.0.0:10249"},
		"no metrics for Prometheus": {values{"apiServer": server, "podMonitor": values{"enabled": true}, "config": values{"metricsBindAddress": "0.0.0.0:0"}},
			"set it to 0.0.0.0:10249"},
		"a page without its server":      {values{"apiServer": server, "web": true, "config": values{"metricsBindAddress": "127.0.0.1:0"}}, "web: config.metricsBindAddress has port 0"},
		"an unknown scheduler":           {values{"apiServer": server, "scheduler": "wrr"}, "scheduler"},
		"an address in place of a range": {values{"apiServer": server, "loadBalancerCIDRs": []any{"192.0.2.1"}}, "loadBalancerCIDRs"},
		"a number without unit":          {values{"apiServer": server, "startJitter": "30"}, "startJitter"},
		"a relative directory":           {values{"apiServer": server, "drainDirectory": "drains"}, "drainDirectory"},
		"a mistyped part of a dashboard": {values{"apiServer": server, "dashboard": values{"folder": "a"}}, "folder"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := helm(t, "nftproxy", c.values)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestChartUpdate sets the pace of a rolling update.
func TestChartUpdate(t *testing.T) {
	objects := decoded(t, helmManifests(t, "nftproxy", values{"apiServer": server, "minReadySeconds": 30, "maxUnavailable": "1%"}))
	spec := objects["DaemonSet nftproxy"]["spec"].(values)
	update := spec["updateStrategy"].(values)["rollingUpdate"].(values)
	if got := fmt.Sprint(spec["minReadySeconds"], " ", update["maxUnavailable"]); got != "30 1%" {
		t.Errorf("minReadySeconds and maxUnavailable are %s", got)
	}
}

// TestChartMonitoring turns on what needs the Prometheus operator.
func TestChartMonitoring(t *testing.T) {
	objects := decoded(t, helmManifests(t, "nftproxy", values{
		"apiServer":      server,
		"serviceMetrics": true,
		"config":         values{"metricsBindAddress": "[::]:10249"},
		"podMonitor":     values{"enabled": true, "labels": values{"release": "prometheus"}},
		"prometheusRule": values{"enabled": true},
	}))
	monitor := objects["PodMonitor nftproxy"]
	if labels := monitor["metadata"].(values)["labels"].(values); labels["release"] != "prometheus" {
		t.Errorf("labels of the PodMonitor: %v", labels)
	}
	rule, err := yaml.Marshal(objects["PrometheusRule nftproxy"]["spec"])
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(rule, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 || len(groups.Groups) == 0 || len(groups.Groups[0].Rules) == 0 {
		t.Errorf("rules of the chart: %v, errors %v", groups, errs)
	}
	daemonSet, err := yaml.Marshal(objects["DaemonSet nftproxy"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"- --service-metrics\n", "- containerPort: 10249\n"} {
		if !strings.Contains(string(daemonSet), want) {
			t.Errorf("no %q in the DaemonSet:\n%s", want, daemonSet)
		}
	}
}

// TestChartJob: the alerts are about the job that the PodMonitor makes, under any
// name of the release.
func TestChartJob(t *testing.T) {
	for _, release := range []string{"nftproxy", "svc-proxy"} {
		objects := decoded(t, helmManifests(t, release, values{
			"apiServer":      server,
			"config":         values{"metricsBindAddress": "0.0.0.0:10249"},
			"podMonitor":     values{"enabled": true},
			"prometheusRule": values{"enabled": true},
		}))
		spec := objects["PodMonitor "+release]["spec"].(values)
		labels := objects["DaemonSet "+release]["spec"].(values)["template"].(values)["metadata"].(values)["labels"].(values)
		job := labels[spec["jobLabel"].(string)]
		rules, err := yaml.Marshal(objects["PrometheusRule "+release]["spec"])
		if err != nil {
			t.Fatal(err)
		}
		named := regexp.MustCompile(`job="([^"]*)"`).FindAllStringSubmatch(string(rules), -1)
		if len(named) == 0 {
			t.Error("the alerts name no job")
		}
		for _, m := range named {
			if m[1] != job {
				t.Errorf("release %s: an alert is about job %q, and the PodMonitor makes %q", release, m[1], job)
			}
		}
	}
}

// TestChartProbes: probes go where the health server listens (12.9, 14.10).
func TestChartProbes(t *testing.T) {
	for _, c := range []struct {
		health, metrics string
		host            any
		ports           []any
	}{
		{"0.0.0.0:10256", "127.0.0.1:10249", nil, []any{10256.0, 10249.0}},
		{"[::]:10256", "127.0.0.1:0", nil, []any{10256.0}},
		{"127.0.0.1:10256", "0.0.0.0:0", "127.0.0.1", []any{10256.0}},
		{"[fd00::1]:99", "[::1]:98", "fd00::1", []any{99.0, 98.0}},
		{"0.0.0.0:0", "127.0.0.1:10249", "none", []any{10249.0}},
		{"0.0.0.0:0", "0.0.0.0:0", "none", nil},
	} {
		t.Run(c.health+" "+c.metrics, func(t *testing.T) {
			objects := decoded(t, helmManifests(t, "nftproxy", values{"apiServer": server,
				"config": values{"healthzBindAddress": c.health, "metricsBindAddress": c.metrics}}))
			pod := objects["DaemonSet nftproxy"]["spec"].(values)["template"].(values)["spec"].(values)
			container := pod["containers"].([]any)[0].(values)
			var ports []any
			if listed, ok := container["ports"]; ok {
				for _, p := range listed.([]any) {
					ports = append(ports, p.(values)["containerPort"])
				}
			}
			if diff := cmp.Diff(c.ports, ports); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			for _, name := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
				probe, ok := container[name].(values)
				if ok != (c.host != "none") {
					t.Errorf("%s: %v", name, probe)
				}
				if ok && probe["httpGet"].(values)["host"] != c.host {
					t.Errorf("%s asks %v, want %v", name, probe["httpGet"], c.host)
				}
			}
		})
	}
}

func TestChartNotes(t *testing.T) {
	for name, c := range map[string]struct {
		values values
		want   []string
		not    string
	}{
		"defaults":         {values{}, []string{"serves all Services.", "rollout status daemonset/nftproxy", "clusterCIDR is empty", "  kubectl nftproxy status\n"}, "leaves all others"},
		"a range":          {values{"config": values{"clusterCIDR": "10.128.0.0/9"}}, nil, "clusterCIDR is empty"},
		"another detector": {values{"config": values{"detectLocalMode": "NodeCIDR"}}, nil, "clusterCIDR is empty"},
		"a canary":         {values{"serviceProxyName": "canary"}, []string{"service-proxy-name: canary"}, "serves all Services"},
		"another port":     {values{"config": values{"metricsBindAddress": "0.0.0.0:9249"}}, []string{"  kubectl nftproxy status --agent-port 9249\n"}, "--agent-selector"},
		"no metrics":       {values{"config": values{"metricsBindAddress": "127.0.0.1:0"}}, nil, "kubectl nftproxy status"},
		"some nodes":       {values{"nodeSelector": values{"a": "b"}}, []string{"on the selected nodes"}, "leaves all others"},
	} {
		t.Run(name, func(t *testing.T) {
			c.values["apiServer"] = server
			files, err := helm(t, "nftproxy", c.values)
			if err != nil {
				t.Fatal(err)
			}
			notes := files["nftproxy/templates/NOTES.txt"]
			for _, want := range c.want {
				if !strings.Contains(notes, want) {
					t.Errorf("no %q in\n%s", want, notes)
				}
			}
			if strings.Contains(notes, c.not) {
				t.Errorf("%q in\n%s", c.not, notes)
			}
		})
	}
}
