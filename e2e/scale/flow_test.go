package scale

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// TestPriorityLevel applies the objects of docs/scale.md: they move the requests of
// nftproxy from the priority level of all service accounts in kube-system to one of
// their own.
func TestPriorityLevel(t *testing.T) {
	c := testbed.NewCluster(t, 1, testbed.WithoutOwnEndpoint)
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig("system:serviceaccount:kube-system:nftproxy",
		"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"))
	if err != nil {
		t.Fatal(err)
	}
	config.Dial = c.Node.DialContext
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	level := func() string {
		request, err := http.NewRequest(http.MethodGet, "https://"+testbed.APIAddress+"/api/v1/services", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		levels, err := c.API.FlowcontrolV1().PriorityLevelConfigurations().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range levels.Items {
			if string(l.UID) == answer.Header.Get("X-Kubernetes-PF-PriorityLevel-UID") {
				return l.Name
			}
		}
		return ""
	}
	become := func(want string) {
		t.Helper()
		testbed.Eventually(t, func() error {
			if got := level(); got != want {
				return fmt.Errorf("requests have the priority level %q, want %q", got, want)
			}
			return nil
		})
	}
	become("workload-high")
	page, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	file := filepath.Join(c.Dir, "flow.yaml")
	if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Kubectl("apply", "-f", file)
	become("service-proxies")
}
