package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/config"
)

const chartTemplates = "../../deploy/helm/nftproxy/templates"

// notInChart are the flags of run that neither a value of the chart nor a field of its
// value "config" sets, with the reason.
var notInChart = map[string]string{
	"filename":          "the objects come from the API server",
	"isolate-files":     "the objects come from the API server",
	"context":           "the kubeconfig of the chart has one context",
	"manage-sysctl":     "/proc/sys is read-only in the container; kubelets and CNI plugins turn forwarding on",
	"version":           "the process prints something and exits",
	"help":              "the process prints something and exits",
	"write-config-to":   "the process writes a file and exits",
	"changes-file":      "runtime changes are of Balances in files",
	"control-socket":    "runtime changes are of Balances in files",
	"health-directory":  "it is about Balances in files",
	"on-change":         "it is about Balances in files",
	"announce-interval": "it is about Balances in files",
	"cleanup":           "the process removes the rules and exits",
	"dns-servers":       "only files have names of servers",
	"dns-timeout":       "only files have names of servers",
	"dns-min-ttl":       "only files have names of servers",
	"dns-max-ttl":       "only files have names of servers",
}

// TestChartFlags: a value of the chart sets each flag of run, except those with a reason
// (14.26). A new flag needs one or the other.
func TestChartFlags(t *testing.T) {
	inChart, run := flagsOfChart(t), commandOf(t, "run")
	run.InitDefaultHelpFlag()
	run.Flags().VisitAll(func(f *pflag.Flag) {
		reason := notInChart[f.Name]
		set := inChart[f.Name] || config.InFile(f.Name)
		switch {
		case f.Hidden:
		case !set && reason == "":
			t.Errorf("--%s has neither a value in %s/_features.tpl nor a reason in notInChart", f.Name, chartTemplates)
		case set && reason != "":
			t.Errorf("--%s is in the chart or in its configuration file, and notInChart says %q", f.Name, reason)
		}
	})
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(inChart)), slices.Sorted(maps.Keys(notInChart))) {
		if f := run.Flags().Lookup(name); f == nil || f.Hidden {
			t.Errorf("run has no flag --%s", name)
		}
	}
}

// flagsOfChart returns the flags that the DaemonSet of the chart can have.
func flagsOfChart(t *testing.T) map[string]bool {
	t.Helper()
	argument := regexp.MustCompile(`(?m)^ *- (?:\{\{ printf ")?--([a-z-]+)`)
	out := make(map[string]bool)
	for _, name := range []string{"_config.tpl", "_features.tpl", "daemonset.yaml"} {
		text, err := os.ReadFile(filepath.Join(chartTemplates, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range argument.FindAllSubmatch(text, -1) {
			out[string(m[1])] = true
		}
	}
	if len(out) < 15 {
		t.Errorf("the chart has the flags %v only", slices.Sorted(maps.Keys(out)))
	}
	return out
}
