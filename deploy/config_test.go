package deploy_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/internal/config"
)

// loaded returns what a container makes of its arguments and of the files in a
// directory that stands for its ConfigMap.
func loaded(t *testing.T, container corev1.Container, dir string) *config.Config {
	t.Helper()
	set := pflag.NewFlagSet(container.Name, pflag.ContinueOnError)
	flags := config.NewFlags(set)
	flags.AddRules()
	flags.AddCluster()
	flags.AddLogging()
	flags.AddDaemon()
	replace := strings.NewReplacer("$(NODE_NAME)", "Node-1", "$(API_SERVER)", server,
		container.VolumeMounts[0].MountPath, dir)
	if container.Args[0] != "run" {
		t.Fatalf("command %s", container.Args[0])
	}
	var args []string
	for _, arg := range container.Args[1:] {
		args = append(args, replace.Replace(arg))
	}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	c, err := flags.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Remarks {
		t.Errorf("a remark about the configuration: %s %v", r.Message, r.Args)
	}
	return c
}

const server = "https://192.0.2.1:6443"

// TestConfiguration reads the files as the program does (14.4, 14.10).
func TestConfiguration(t *testing.T) {
	_, proxy := containers(t)
	for dir, ports := range map[string][2]int32{
		base:                         {10256, 10249},
		"kustomize/overlays/canary/": {10356, 10349},
	} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			decode[v1alpha1.KubeProxyConfiguration](t, read(t, dir+"config.conf"))
			c := loaded(t, proxy, dir)
			if c.Node.NodeName != "node-1" || c.Master != server {
				t.Errorf("node %s, API server %s", c.Node.NodeName, c.Master)
			}
			if got, want := c.Kube.ClientConnection.Kubeconfig, proxy.VolumeMounts[0].MountPath+"/kubeconfig.conf"; got != want {
				t.Errorf("kubeconfig %s, want %s", got, want)
			}
			for i, address := range []string{c.Kube.HealthzBindAddress, c.Kube.MetricsBindAddress} {
				if got := port(t, address); got != ports[i] {
					t.Errorf("port of %s, want %d", address, ports[i])
				}
			}
		})
	}
}

// TestProbes asks the health server where it is, on all addresses of the node
// (14.10).
func TestProbes(t *testing.T) {
	_, proxy := containers(t)
	c := loaded(t, proxy, base)
	named := make(map[string]int32)
	for _, p := range proxy.Ports {
		named[p.Name] = p.ContainerPort
	}
	if named["healthz"] != port(t, c.Kube.HealthzBindAddress) || named["metrics"] != port(t, c.Kube.MetricsBindAddress) {
		t.Errorf("ports %v, configured %s and %s", named, c.Kube.HealthzBindAddress, c.Kube.MetricsBindAddress)
	}
	if host, _, _ := net.SplitHostPort(c.Kube.HealthzBindAddress); host != "0.0.0.0" {
		t.Errorf("the health server is on %s: load balancers cannot ask it", host)
	}
	for probe, want := range map[*corev1.Probe]string{
		proxy.LivenessProbe: "/livez", proxy.StartupProbe: "/livez", proxy.ReadinessProbe: "/healthz",
	} {
		if get := probe.HTTPGet; get.Path != want || get.Port.StrVal != "healthz" {
			t.Errorf("a probe asks %s at port %s, want %s", get.Path, get.Port.String(), want)
		}
	}
}

func port(t *testing.T, address string) int32 {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// The kubeconfig has the credentials of the pod and no address, so that there is
// one place for the address; without it no pod starts (14.4).
func TestAddressOfTheServer(t *testing.T) {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	dir := t.TempDir()
	kubeconfig := strings.ReplaceAll(string(read(t, base+"kubeconfig.conf")), account, dir)
	for name, content := range map[string]string{"ca.crt": "", "token": "secret", "kubeconfig.conf": kubeconfig} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	connect := func(server string) (*rest.Config, error) {
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: filepath.Join(dir, "kubeconfig.conf")},
			&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: server}}).ClientConfig()
	}
	got, err := connect(server)
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != server || got.BearerTokenFile != filepath.Join(dir, "token") || got.CAFile != filepath.Join(dir, "ca.crt") {
		t.Errorf("server %s, token in %s, CA in %s", got.Host, got.BearerTokenFile, got.CAFile)
	}
	if got, err := connect(""); err == nil {
		t.Errorf("there is an address without --master: %s", got.Host)
	}
	init, proxy := containers(t)
	for _, c := range []corev1.Container{init, proxy} {
		at := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "API_SERVER" })
		if at < 0 || !slices.Contains(c.Args, "--master=$(API_SERVER)") {
			t.Fatalf("%s: no address among %v", c.Name, c.Args)
		}
		if key := c.Env[at].ValueFrom.ConfigMapKeyRef; key == nil || key.Key != "api-server" || key.Optional != nil {
			t.Errorf("%s takes the address from %v", c.Name, c.Env[at].ValueFrom)
		}
	}
}

// 14.8 the settings that static pods have.
func TestStaticPod(t *testing.T) {
	pod := corev1.Container{
		Args: []string{"run", "--kubeconfig=/var/lib/kube-proxy/kubeconfig", "--cluster-cidr=10.128.0.0/9",
			"--oom-score-adj=-998", "--hostname-override=node-1", "-v=2"},
		VolumeMounts: []corev1.VolumeMount{{MountPath: "/var/lib/kube-proxy"}},
	}
	c := loaded(t, pod, "/srv")
	if got := *c.Kube.OOMScoreAdj; got != -998 || c.Kube.ClientConnection.Kubeconfig != "/srv/kubeconfig" {
		t.Errorf("OOM score %d, kubeconfig %s", got, c.Kube.ClientConnection.Kubeconfig)
	}
}
