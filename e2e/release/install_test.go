package release

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var distFlag = flag.String("dist", "", "directory that scripts/release has filled")

const (
	// noLimit is for nodes that are network namespaces, in which the limit of connection tracking cannot be set.
	noLimit = "--set config.conntrack.maxPerCore=0"
	// plainHTTP is for a registry without TLS.
	plainHTTP = "--plain-http"
)

// TestInstall verifies a release, and installs, upgrades and removes it.
func TestInstall(t *testing.T) {
	if *distFlag == "" {
		t.Fatal(`which files are installed? See "make release-try".`)
	}
	h := serve(t)
	h.publish(*distFlag)
	image := "ghcr.io/nftproxy/nftproxy@" + h.verify()
	m := operate(t, h)

	h.changed.Store(true)
	m.do("helm install nftproxy oci://ghcr.io/nftproxy/charts/nftproxy --version VERSION -n kube-system "+
		"--set apiServer=https://ADDRESS:6443 --set config.clusterCIDR=RANGE", "--set checkOnly=true", noLimit, plainHTTP)
	m.refused(image)
	h.changed.Store(false)
	m.do("kubectl -n kube-system rollout status daemonset/nftproxy-check --timeout 5m")
	m.runs(image, "nftproxy-check")
	m.pulled()

	m.do("helm upgrade nftproxy CHART -n kube-system --reset-then-reuse-values --set checkOnly=false", plainHTTP)
	m.serves(image)
	m.tests(image)
	m.upgrade(image)
	m.uninstall(image)
}

// serves waits until the proxy runs on all nodes.
func (m *machine) serves(image string) {
	m.Helper()
	m.do("kubectl -n kube-system rollout status daemonset/nftproxy")
	m.runs(image, "nftproxy")
	out, err := m.shell("kubectl -n kube-system exec daemonset/nftproxy -c nftproxy -- /usr/local/bin/nftproxy version")
	if want := "nftproxy v" + m.version + " "; err != nil || !strings.HasPrefix(out, want) {
		m.Errorf("the pod prints %q, %v, want %q", out, err, want)
	}
}

// upgrade changes a value, with a file as the pages advise.
func (m *machine) upgrade(image string) {
	m.Helper()
	values := fmt.Sprintf("apiServer: %s\nconfig: {clusterCIDR: %q, conntrack: {maxPerCore: 0}}\nserviceMetrics: true\n", m.Config.Host, m.ClusterCIDR())
	if err := os.WriteFile(filepath.Join(m.dir, "values.yaml"), []byte(values), 0o644); err != nil {
		m.Fatal(err)
	}
	m.do("helm upgrade nftproxy deploy/helm/nftproxy -n kube-system -f values.yaml", plainHTTP)
	m.serves(image)
	for _, p := range m.pods("nftproxy") {
		if args := strings.Join(p.Spec.Containers[0].Args, " "); !strings.Contains(args, "--service-metrics") {
			m.Errorf("after the upgrade, pod %s runs with %s", p.Name, args)
		}
	}
	m.tests(image, "--nodes", m.NodeList[0].Name)
}

// kept is a Service that is older than the removal: later ones have no rules.
const kept = "kube-system/kube-dns"

// uninstall removes the release. Nodes serve until their rules are removed, too.
func (m *machine) uninstall(image string) {
	m.Helper()
	if out, err := m.shell("helm get manifest nftproxy -n kube-system >manifest.yaml"); err != nil {
		m.Fatal(err, out)
	}
	m.do("helm uninstall nftproxy -n kube-system")
	m.eventually(func() error {
		if pods := m.pods("nftproxy"); len(pods) > 0 {
			return fmt.Errorf("there are still %d pods", len(pods))
		}
		return nil
	})
	if out, err := m.shell("kubectl get -f manifest.yaml --ignore-not-found -o name"); err != nil || out != "" {
		m.Errorf("after the removal there are still %s, %v", out, err)
	}
	m.tests(image, kept)
	m.values = append(m.values, "IMAGE", image)
	for _, n := range m.NodeList {
		values := m.values
		m.values = append(values, "NODE", n.Name)
		m.do("kubectl debug node/NODE -it --profile=sysadmin --image=IMAGE -- /usr/local/bin/nftproxy cleanup")
		m.values = values
		m.eventually(func() error {
			chains, err := n.Output("nft", "list", "chains")
			if err == nil && strings.Contains(chains, "nftproxy") {
				err = fmt.Errorf("chains on %s after cleanup:\n%s", n.Name, chains)
			}
			return err
		})
	}
	if out, err := m.Test(m.Context(), image, kept); err == nil {
		m.Errorf("%s is served without rules:\n%s", kept, out)
	}
}

// refused waits until every node has refused to run what the registry has served.
func (m *machine) refused(image string) {
	m.Helper()
	m.eventually(func() error {
		pods := m.pods("nftproxy-check")
		if len(pods) != m.Nodes {
			return fmt.Errorf("%d pods on %d nodes", len(pods), m.Nodes)
		}
		for _, p := range pods {
			if p.Spec.Containers[0].Image != image {
				m.Fatalf("pod %s has the image %s, want %s", p.Name, p.Spec.Containers[0].Image, image)
			}
			for _, s := range p.Status.ContainerStatuses {
				if s.State.Running != nil {
					m.Fatalf("pod %s runs an image whose digest is not the one of the chart", p.Name)
				}
			}
			if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil ||
				!strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, "unexpected commit digest") {
				return fmt.Errorf("pod %s: %+v", p.Name, p.Status.ContainerStatuses)
			}
		}
		return nil
	})
}

// runs checks that a ready pod runs an image on every node.
func (m *machine) runs(image, name string) {
	m.Helper()
	pods := m.pods(name)
	if len(pods) != m.Nodes {
		m.Errorf("%s has %d pods on %d nodes", name, len(pods), m.Nodes)
	}
	for _, p := range pods {
		for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			if !s.Ready || s.ImageID != image || s.RestartCount > 0 {
				m.Errorf("container %s of %s: ready %t, image %s, %d restarts; want image %s", s.Name, p.Name, s.Ready, s.ImageID, s.RestartCount, image)
			}
		}
	}
}

// pulled checks that every node has pulled from the registry.
func (m *machine) pulled() {
	m.Helper()
	for _, n := range m.NodeList {
		if m.hub.pulls(n.IPv4) == 0 {
			m.Errorf("containerd of %s (%s) has pulled nothing from the registry", n.Name, n.IPv4)
		}
	}
}

// pods returns the pods of a DaemonSet.
func (m *machine) pods(name string) []corev1.Pod {
	m.Helper()
	pods, err := m.API.CoreV1().Pods("kube-system").List(m.Context(), metav1.ListOptions{LabelSelector: "k8s-app=" + name})
	if err != nil {
		m.Fatal(err)
	}
	return pods.Items
}
