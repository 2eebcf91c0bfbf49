package neighbours

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const metallbModule = "go.universe.tf/metallb"

// balanced is a cluster of nodes on one link with a load balancer. A client outside of the cluster is on the same link. The API server has a network
// of its own, so that it stays when a node goes.
type balanced struct {
	*testbed.Cluster
	sw      *netlab.Switch
	outside *netlab.Host
	members []*member
}

// member is a node with one pod.
type member struct {
	*netlab.Host
	pod            *netlab.Host
	proxy, speaker *testbed.Process
	balancer       *testbed.Process // other than MetalLB
}

// newBalanced makes the nodes and starts nftproxy and MetalLB with its
// configuration.
func newBalanced(t *testing.T, nodes int, config string) *balanced {
	t.Helper()
	b := newMembers(t, nodes)
	b.installMetalLB(config)
	for _, m := range b.members {
		b.startSpeaker(m)
	}
	b.joined()
	return b
}

// newMembers makes the nodes and starts nftproxy.
func newMembers(t *testing.T, nodes int) *balanced {
	t.Helper()
	b := &balanced{Cluster: testbed.NewCluster(t, 0, "--disable-admission-plugins", "ServiceAccount")}
	// Speakers take every Node for one with a speaker.
	if err := b.API.CoreV1().Nodes().Delete(t.Context(), testbed.NodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.sw, err = netlab.NewSwitch(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.sw.Close() })
	if b.outside, err = b.sw.AddHost("client", 2); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		b.addMember(i)
	}
	b.route()
	for _, m := range b.members {
		b.startProxyOn(m)
	}
	return b
}

// joined waits until each speaker knows all others: before that, several announce
// the same address.
func (b *balanced) joined() {
	b.T.Helper()
	for _, m := range b.members {
		for _, other := range b.members {
			event := fmt.Sprintf(`"node event":"NodeJoin","node name":%q`, other.Name)
			testbed.Eventually(b.T, func() error {
				if !strings.Contains(m.speaker.Log.String(), event) {
					return fmt.Errorf("the speaker of %s does not know %s", m.Name, other.Name)
				}
				return nil
			})
		}
	}
}

// addMember makes a node, its pod, and the objects of the API server for it.
func (b *balanced) addMember(i int) {
	b.T.Helper()
	host, err := b.sw.AddRouter(fmt.Sprintf("node-%d", i), 11+i)
	if err != nil {
		b.T.Fatal(err)
	}
	m := &member{Host: host}
	b.members = append(b.members, m)
	cidrs := podCIDRs(i)
	if m.pod, err = host.AddPod(fmt.Sprintf("pod-%d", i), cidrs[model.IPv4], cidrs[model.IPv6]); err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { m.pod.Close() })
	b.StartEcho(m.pod)
	b.RelayAPI(host)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host.Name}}
	if node, err = b.API.CoreV1().Nodes().Create(b.T.Context(), node, metav1.CreateOptions{}); err != nil {
		b.T.Fatal(err)
	}
	for _, f := range model.Families {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: host.Address(f).String()})
	}
	if _, err := b.API.CoreV1().Nodes().UpdateStatus(b.T.Context(), node, metav1.UpdateOptions{}); err != nil {
		b.T.Fatal(err)
	}
}

func podCIDRs(i int) map[model.Family]netip.Prefix {
	return map[model.Family]netip.Prefix{
		model.IPv4: netip.MustParsePrefix(fmt.Sprintf("10.128.%d.0/24", i+1)),
		model.IPv6: netip.MustParsePrefix(fmt.Sprintf("fd00:10:128:%x::/64", i+1)),
	}
}

// route gives each node routes to the pods of the others.
func (b *balanced) route() {
	b.T.Helper()
	for _, from := range b.members {
		for i, to := range b.members {
			for f, cidr := range podCIDRs(i) {
				if from == to {
					continue
				}
				if err := from.AddRoute(cidr, to.Address(f)); err != nil {
					b.T.Fatal(err)
				}
			}
		}
	}
}

// startProxyOn starts nftproxy as on a node of a cluster.
func (b *balanced) startProxyOn(m *member) {
	b.T.Helper()
	m.proxy = testbed.Start(b.T, m.Host, testbed.NFTProxy, "run", "--kubeconfig", b.Kubeconfig(testbed.ProxyUser),
		"--hostname-override", m.Name, "--cluster-cidr", testbed.ClusterCIDRs, "--conntrack-max-per-core", "0")
}

const metallbNamespace = "metallb-system"

// installMetalLB creates what MetalLB's release does, and its configuration, and
// starts its controller. Nothing in this cluster answers its webhooks.
func (b *balanced) installMetalLB(config string) {
	b.T.Helper()
	dir := testbed.ToolModule(b.T, "metallb", metallbModule, "Dir")
	b.Kubectl("create", "-f", filepath.Join(dir, "config/manifests/metallb-native.yaml"))
	b.Kubectl("delete", "validatingwebhookconfiguration", "metallb-webhook-configuration")
	b.Kubectl("patch", "crd", "bgppeers.metallb.io", "--type=merge", "-p", `{"spec": {"conversion": {"strategy": "None", "webhook": null}}}`)
	b.Kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "-l", "!none")
	file := filepath.Join(b.Dir, "pool.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		b.T.Fatal(err)
	}
	b.Kubectl("create", "-f", file)
	b.createMetalLBPod("controller", "controller", b.Node)
	testbed.Start(b.T, b.Node, testbed.BuildTool(b.T, "metallb", metallbModule+"/controller"), "--kubeconfig", b.metallbUser("controller"),
		"--namespace", metallbNamespace, "--pod-name", "controller", "--webhook-mode", "disabled", "--disable-cert-rotation", "--port", "0")
}

// onLink announces addresses on the link of nodes and client.
const onLink = `
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: pool, namespace: metallb-system}
spec: {addresses: [192.0.2.200-192.0.2.209, "2001:db8::200-2001:db8::209"]}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: pool, namespace: metallb-system}
spec: {ipAddressPools: [pool]}
`

// metallbUser returns a file with the rights that MetalLB's release gives one of
// its programs.
func (b *balanced) metallbUser(program string) string {
	return b.Kubeconfig("system:serviceaccount:"+metallbNamespace+":"+program, "system:serviceaccounts", "system:authenticated")
}

// startSpeaker starts the speaker of a node. Speakers notice each other's end by
// the protocol of their memberlist.
func (b *balanced) startSpeaker(m *member) {
	b.T.Helper()
	pod := "speaker-" + m.Name
	if m.speaker == nil {
		b.createMetalLBPod(pod, "speaker", m.Host)
	}
	m.speaker = testbed.Start(b.T, m.Host, testbed.BuildTool(b.T, "metallb", metallbModule+"/speaker"), "--kubeconfig", b.metallbUser("speaker"),
		"--namespace", metallbNamespace, "--pod-name", pod, "--node-name", m.Name, "--port", "0",
		"--ml-bindaddr", m.IPv4.String(), "--ml-labels", "component=speaker")
}

// createMetalLBPod creates the Pod that a program of MetalLB takes itself for.
func (b *balanced) createMetalLBPod(name, component string, on *netlab.Host) {
	b.T.Helper()
	pods := b.API.CoreV1().Pods(metallbNamespace)
	pod, err := pods.Create(b.T.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"component": component}},
		Spec:       corev1.PodSpec{NodeName: on.Name, Containers: []corev1.Container{{Name: component, Image: component}}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.T.Fatal(err)
	}
	pod.Status.PodIP = on.IPv4.String()
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	if _, err := pods.UpdateStatus(b.T.Context(), pod, metav1.UpdateOptions{}); err != nil {
		b.T.Fatal(err)
	}
}
