package parity

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"sigs.k8s.io/yaml"
)

// samples are values other than the default, for fields where a value of the same type
// does not do: by field, in YAML.
var samples = map[string]string{
	"bindAddress":                         "192.0.2.7",
	"clientConnection.acceptContentTypes": "application/json",
	"clientConnection.contentType":        "application/json",
	"clientConnection.kubeconfig":         "/dev/null",
	"clusterCIDR":                         "10.0.0.0/8",
	"configSyncPeriod":                    "1m",
	"conntrack.tcpCloseWaitTimeout":       "2h",
	"conntrack.tcpEstablishedTimeout":     "2h",
	"conntrack.udpStreamTimeout":          "2m",
	"conntrack.udpTimeout":                "2m",
	"detectLocal.bridgeInterface":         "cni0",
	"detectLocal.interfaceNamePrefix":     "veth",
	"detectLocalMode":                     "NodeCIDR",
	"featureGates":                        "{AllowServiceExternalIPs: false}",
	"healthzBindAddress":                  "127.0.0.1:10256",
	"hostnameOverride":                    "other",
	"ipvs.excludeCIDRs":                   "[10.0.0.0/8]",
	"ipvs.scheduler":                      "rr",
	"logging.flushFrequency":              "6s",
	"logging.format":                      "json",
	"logging.options.json.infoBufferSize": "1Ki",
	"logging.options.text.infoBufferSize": "1Ki",
	"logging.vmodule":                     "[{filePattern: a, verbosity: 1}]",
	"metricsBindAddress":                  "127.0.0.2:10249",
	"mode":                                "iptables",
	"nftables.minSyncPeriod":              "2s",
	"nodePortAddresses":                   "[10.0.0.0/8]",
	"oomScoreAdj":                         "-998",
	"portRange":                           "1-2",
	"showHiddenMetricsForVersion":         "'1.36'",
	"winkernel.networkName":               "l2bridge",
	"winkernel.rootHnsEndpointName":       "other",
	"winkernel.sourceVip":                 "192.0.2.7",
}

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// fields compares the fields of a configuration file: those that kube-proxy writes.
func fields(t *testing.T) *table {
	x := &table{title: "Configuration", anchor: "configuration", column: "field",
		about: "The fields of KubeProxyConfiguration, each with a value that is not its default. What has no effect is accepted, and the log says why ([12.8](behaviour.md#s12.8))."}
	defaults := configuration(t, testbed.KubeProxy, header+"mode: nftables\n")
	names := slices.Sorted(maps.Keys(defaults))
	if len(names) < 50 {
		t.Fatalf("kube-proxy writes only %d fields: %v", len(names), names)
	}
	for _, name := range names {
		if name == "apiVersion" || name == "kind" {
			continue
		}
		value := sample(name, defaults[name])
		if value == "" {
			t.Errorf("no sample for the field %s, whose default is %v", name, defaults[name])
			continue
		}
		x.rows = append(x.rows, field(t, name, value))
	}
	return x
}

// field compares what a value of a field does.
func field(t *testing.T, name, value string) row {
	text := header + nested(name, value)
	if name != "mode" {
		text += "mode: nftables\n"
	}
	kube, _ := takes(t, testbed.KubeProxy, text)
	nft, log := takes(t, testbed.NFTProxy, text)
	r := row{name: name, kube: kube, nft: nft}
	switch why := because(log, "field", name); {
	case why == "" || nft != taken:
	case name == "mode":
		r.nft = why
	default:
		r.nft, r.explained = "no effect: "+why, true
	}
	return r
}

// sample returns a value in YAML that is not the default, or nothing.
func sample(name string, byDefault any) string {
	if s, has := samples[name]; has {
		return s
	}
	switch v := byDefault.(type) {
	case bool:
		return fmt.Sprint(!v)
	case float64:
		return fmt.Sprint(v + 1)
	case string:
		if strings.HasSuffix(v, "s") { // a duration
			return "31s"
		}
	}
	return ""
}

// nested returns a field in YAML: "{a: {b: value}}" for "a.b".
func nested(name, value string) string {
	parts := strings.Split(name, ".")
	return strings.Join(parts, ": {") + ": " + value + strings.Repeat("}", len(parts)-1) + "\n"
}

// takes returns whether a program takes a file, and what it logs.
func takes(t *testing.T, program testbed.Program, text string) (verdict, log string) {
	t.Helper()
	written, log := loadFile(t, program, text)
	if len(written) == 0 {
		return refused, log
	}
	return taken, log
}

// loadFile has a program read a configuration file, as [load].
func loadFile(t *testing.T, program testbed.Program, text string) (written []byte, log string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return load(t, program, "--config", file)
}

// configuration returns the fields that a program writes for a file, flat.
func configuration(t *testing.T, program testbed.Program, text string) map[string]any {
	t.Helper()
	written, log := loadFile(t, program, text)
	var all map[string]any
	if err := yaml.Unmarshal(written, &all); err != nil || len(all) == 0 {
		t.Fatalf("%s wrote %q: %v\n%s", program.Name, written, err, log)
	}
	flat := map[string]any{}
	flatten(flat, "", all)
	return flat
}

// flatten collects the leaves of a document. Maps without entries are leaves.
func flatten(into map[string]any, at string, value any) {
	section, is := value.(map[string]any)
	if !is || len(section) == 0 {
		into[strings.TrimPrefix(at, ".")] = value
		return
	}
	for name, v := range section {
		flatten(into, at+"."+name, v)
	}
}
