package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// ginkgoReport has a test of each outcome, and one that was not selected.
const ginkgoReport = `[{"SpecReports": [
	{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
	{"ContainerHierarchyTexts": ["[sig-network] Services"], "LeafNodeType": "It", "LeafNodeText": "serve [Conformance]",
	 "State": "passed", "RunTime": 12340000000},
	{"ContainerHierarchyTexts": ["[sig-network] Services"], "LeafNodeType": "It", "LeafNodeText": "break",
	 "State": "failed", "RunTime": 1000000000, "Failure": {"Message": "no | answer from /root/.cache/x/kubectl --kubeconfig=/tmp/y/admin\nmore"}},
	{"ContainerHierarchyTexts": ["[sig-network] Services"], "LeafNodeType": "It", "LeafNodeText": "hang",
	 "State": "timedout", "Failure": {"Message": "A suite timeout occurred"}},
	{"ContainerHierarchyTexts": ["[sig-network] Services"], "LeafNodeType": "It", "LeafNodeText": "flake",
	 "State": "passed", "NumAttempts": 2, "RunTime": 3000000000},
	{"ContainerHierarchyTexts": ["[sig-network] Nodes"], "LeafNodeType": "It", "LeafNodeText": "need six",
	 "State": "skipped", "Failure": {"Message": "Requires 6 nodes"}},
	{"ContainerHierarchyTexts": ["[sig-network] Netpol"], "LeafNodeType": "It", "LeafNodeText": "NetworkPolicy denies",
	 "State": "skipped"},
	{"ContainerHierarchyTexts": ["[sig-network] Services"], "LeafNodeType": "It", "LeafNodeText": "not in the focus",
	 "State": "skipped"},
	{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "run", "State": "skipped"}
]}]`

func read(t *testing.T, report string) (*result, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, []byte(report), 0o644); err != nil {
		t.Fatal(err)
	}
	return readReport(file, omitted(kubelets.IPv6))
}

func TestReadReport(t *testing.T) {
	r, err := read(t, ginkgoReport)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]outcome{
		"[sig-network] Services serve [Conformance]": {State: passed, Seconds: 12.3},
		"[sig-network] Services break":               {State: failed, Seconds: 1, Reason: "failed: no | answer from kubectl --kubeconfig=admin"},
		"[sig-network] Services hang":                {State: failed, Reason: "timedout: A suite timeout occurred"},
		"[sig-network] Services flake":               {State: passed, Seconds: 3, Again: true},
		"[sig-network] Nodes need six":               {State: skipped, Reason: "Requires 6 nodes"},
		"[sig-network] Netpol NetworkPolicy denies":  {State: skipped, Reason: "network policies are the CNI plugin's"},
	}
	if diff := cmp.Diff(want, r.Tests); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if got := len(r.failed()); got != 2 {
		t.Errorf("%d tests failed, want 2", got)
	}
}

// A suite that could not begin has no tests that failed, and is not a success.
func TestReadReportOfBrokenSuite(t *testing.T) {
	_, err := read(t, `[{"SpecReports": [{"LeafNodeType": "SynchronizedBeforeSuite", "State": "failed", "Failure": {"Message": "no nodes"}}]}]`)
	const want = "SynchronizedBeforeSuite of the tests failed: no nodes"
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// A run takes the place of an earlier one in the same cluster, and leaves others,
// which can have been made with another release of Kubernetes.
func TestSave(t *testing.T) {
	document := filepath.Join(t.TempDir(), "page.md")
	page := "<!-- bench:runs -->\n<!-- /bench -->\n<!-- bench:tests -->\n<!-- /bench -->\n<!-- bench:omitted -->\n<!-- /bench -->\n"
	if err := os.WriteFile(document, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := read(t, ginkgoReport)
	if err != nil {
		t.Fatal(err)
	}
	r.Proxy, r.Version, r.Kubernetes, r.Families, r.Nodes = kubelets.NFTProxy, "v1", "v1.10.0", kubelets.IPv4, 3
	r.Date, r.Kernel, r.Cores = "2026-01-02", "6.1", 2
	before := *r
	before.Tests = map[string]outcome{"[sig-network] gone": {State: passed}}
	other := *r
	other.Proxy, other.Version, other.Kubernetes = kubelets.KubeProxy, "v1.9.3", "v1.9.3"
	other.Tests = map[string]outcome{"[sig-network] Services break": {State: passed, Seconds: 2}}
	for _, x := range []*result{&before, &other, r} {
		if err := x.save(document); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	want := `<!-- bench:runs -->

| proxy | tests of | cluster | date | kernel, cores | passed | of these when repeated | failed | skipped | minutes |
|---|---|---|---|---|--:|--:|--:|--:|--:|
| nftproxy v1 | Kubernetes v1.10.0 | 3 nodes, ipv4 | 2026-01-02 | Linux 6.1, 2 | 2 | 1 | 2 | 1 | 0 |
| kube-proxy v1.9.3 | Kubernetes v1.9.3 | 3 nodes, ipv4 | 2026-01-02 | Linux 6.1, 2 | 1 | 0 | 0 | 0 | 0 |

<!-- /bench -->
<!-- bench:tests -->

| test | nftproxy, ipv4, v1.10.0 | kube-proxy, ipv4, v1.9.3 |
|---|---|---|
| Nodes need six | skipped: Requires 6 nodes | - |
| Services break | **failed**: failed: no \| answer from kubectl --kubeconfig=admin | passed, 2 s |
| Services flake | passed when repeated, 3 s | - |
| Services hang | **failed**: timedout: A suite timeout occurred | - |
| Services serve [Conformance] | passed, 12 s | - |

<!-- /bench -->
<!-- bench:omitted -->

1 tests: network policies are the CNI plugin's.

- Netpol NetworkPolicy denies

<!-- /bench -->
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
}
