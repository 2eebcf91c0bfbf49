package nodes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// The cluster goes from kube-proxy to nftproxy and back by the commands of
// docs/migration.md, each as it is written there: no request fails (12.59, 12.61).
func TestMigration(t *testing.T) {
	c := on(t, kubelets.KubeProxy)
	g := c.openGuide(t)
	l := c.startLoad(t, everywhere...)
	g.look()
	g.tryOneService()
	l.check()
	g.moveNodes()
	l.check()
	g.removeKubeProxy()
	l.check()
	g.moveBack()
	l.check()
	g.complete(map[string]string{
		"make build": "the program is there",
		"helm install nftproxy deploy/helm/nftproxy -n kube-system -f values.yaml":                    "instead of kustomize",
		"kubectl -n kube-system patch daemonset kube-proxy --patch-file take-over.yaml":               "TestMigrationInDaemonSetOfKubeadm",
		"kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE": "TestMigrationInDaemonSetOfKubeadm",
		"ssh root@NODE iptables -t nat -S KUBE-SERVICES # in the mode iptables: the same":             "kube-proxy is in mode nftables",
	})
}

// look is step 1.
func (g *guide) look() {
	g.t.Helper()
	g.do("kubectl -n kube-system get daemonset,configmap kube-proxy -o yaml > kube-proxy-before.yaml")
	g.do(`kubectl -n kube-system get configmap kube-proxy -o jsonpath='{.data.config\.conf}' > config.conf`)
	if out := g.do(`kubectl -n kube-system get configmap kube-proxy -o jsonpath='{.data.kubeconfig\.conf}' | grep server:`); !strings.Contains(out, g.c.Config.Host) {
		g.t.Errorf("address of the API server: %s", out)
	}
	service := g.c.web(g.t)
	g.do("kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml > cluster.yaml")
	g.do("bin/nftproxy render -f cluster.yaml --config config.conf --hostname-override NODE > rules.nft", "NODE", "n1")
	if rules, err := os.ReadFile(filepath.Join(g.dir, "rules.nft")); err != nil || !strings.Contains(string(rules), service.Spec.ClusterIP) {
		g.t.Errorf("rules.nft without %s: %v", service.Spec.ClusterIP, err)
	}
	g.see("10.244.", "bin/nftproxy explain -f cluster.yaml --config config.conf --hostname-override NODE --from POD-ADDRESS tcp CLUSTER-IP:PORT",
		"NODE", "n1", "POD-ADDRESS", "10.244.4.99", "CLUSTER-IP:PORT", service.Spec.ClusterIP+":80")
	g.do("scp bin/nftproxy cluster.yaml config.conf root@NODE:", "NODE", "n1")
	out, err := g.try("ssh root@NODE ./nftproxy diff -f cluster.yaml --config config.conf --hostname-override NODE", "NODE", "n1")
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(out, "ip nftproxy") || !strings.Contains(out, "ip6 nftproxy") {
		g.t.Errorf("diff: %v\n%s", err, out)
	}
	g.checkNodes()
	g.tests("n1")
}

// checkNodes checks all nodes before anything changes.
func (g *guide) checkNodes() {
	g.t.Helper()
	in := *g
	in.dir = filepath.Join(g.dir, "check")
	in.values = append([]string{"PATH-TO", "../" + g.values[1]}, g.values[2:]...)
	in.file("kustomization.yaml", "kustomize/check")
	g.do("kubectl apply -k check")
	g.do("kubectl -n kube-system rollout status daemonset/nftproxy-check --timeout=5m")
	g.see("(?s)(?:kube-proxy-rules: rules of kube-proxy.*){3}", "kubectl -n kube-system logs -l k8s-app=nftproxy-check --prefix --tail=-1 --max-log-requests=1000")
	g.do("kubectl delete -k check")
}

// tests opens connections from a node.
func (g *guide) tests(node string) {
	g.t.Helper()
	if out := g.do("kubectl nftproxy test --nodes NODE --image IMAGE", "NODE", node); strings.Contains(out, " failed") {
		g.t.Errorf("connections fail:\n%s", out)
	}
}

// tryOneService is step 2.
func (g *guide) tryOneService() {
	g.t.Helper()
	err := g.c.Apply(g.t.Context(), `
apiVersion: v1
kind: Service
metadata: {name: trial}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}`)
	if err != nil {
		g.t.Fatal(err)
	}
	canary := *g
	canary.dir = filepath.Join(g.dir, "canary")
	canary.values = append([]string{"PATH-TO", "../" + g.values[1]}, g.values[2:]...)
	canary.file("kustomization.yaml", "overlays/canary")
	config, err := os.ReadFile(filepath.Join(g.dir, "deploy/kustomize/overlays/canary/config.conf"))
	if err != nil {
		g.t.Fatal(err)
	}
	canary.write("config.conf", strings.Replace(string(config), `clusterCIDR: ""`, "clusterCIDR: "+g.c.ClusterCIDR(), 1))
	for _, n := range g.c.NodeList {
		g.link(filepath.Join(g.dir, n.Name), filepath.Join("canary", n.Name))
	}
	g.link(filepath.Join(g.dir, "path"), "canary/path")
	canary.do("kubectl apply -k .")
	canary.do("kubectl -n kube-system rollout status daemonset/nftproxy-canary")
	canary.see("No resources found", "kubectl get services -A -l service.kubernetes.io/service-proxy-name=nftproxy")
	canary.do("kubectl label service SERVICE service.kubernetes.io/service-proxy-name=nftproxy")
	canary.do("kubectl -n kube-system exec daemonset/nftproxy-canary -- /usr/local/bin/nftproxy status --metrics-bind-address 127.0.0.1:10349")
	canary.see("default/trial", "ssh root@NODE nft list map ip nftproxy services | grep SERVICE", "NODE", "n2")
	canary.do("kubectl label service SERVICE service.kubernetes.io/service-proxy-name-")
	canary.do("kubectl delete -k .")
	g.c.kubectl(g.t, "delete", "service", "trial")
}

// moveNodes is step 3.
func (g *guide) moveNodes() {
	g.t.Helper()
	g.do("bin/nftproxy migrate keep-off")
	g.do("bin/nftproxy migrate keep-off | sh")
	g.file("kustomization.yaml", "overlays/node-by-node")
	g.do("kubectl apply -k .")
	g.see(`nftproxy +0 `, "kubectl -n kube-system get daemonset nftproxy")
	for _, n := range g.c.NodeList {
		node := []string{"NODE-ADDRESS", n.IPv4, "NODE", n.Name}
		g.do("kubectl label node NODE nftproxy.dev/proxy=nftproxy", node...)
		g.see(n.Name+` +yes +none +ready`, "bin/nftproxy migrate status", node...)
		if n == g.c.NodeList[0] {
			g.tests(n.Name)
		}
		g.see(`1/1 .* `+n.Name+` `, "kubectl -n kube-system get pods -o wide -l k8s-app=nftproxy", node...)
		g.see(`"healthy": ?true`, "curl -s http://NODE-ADDRESS:10256/healthz", node...)
		g.do("kubectl -n kube-system exec POD -- /usr/local/bin/nftproxy status", "POD", g.c.proxyPod(g.t, n.Name).Name)
		g.see(marker, "ssh root@NODE nft list chains", node...)
		if out := g.do("ssh root@NODE nft list chains", node...); strings.Contains(out, "nat-prerouting") && strings.Contains(out, "filter-prerouting") {
			g.t.Errorf("chains of kube-proxy are left:\n%s", out)
		}
		if out, _ := g.try("ssh root@NODE 'iptables-save; ip6tables-save' | grep -c 'KUBE-S[VE][CP]-'", node...); strings.TrimSpace(out) != "0" {
			g.t.Errorf("leftovers in iptables: %s", out)
		}
		if _, err := g.try("ssh root@NODE ip link show kube-ipvs0", node...); err == nil {
			g.t.Error("kube-ipvs0 exists")
		}
	}
}

// marker is the chain of kube-proxy's tables that stays (12.62).
const marker = "served-by-nftproxy"

// removeKubeProxy is step 4.
func (g *guide) removeKubeProxy() {
	g.t.Helper()
	g.do("bin/nftproxy migrate status # exit code 0")
	g.see(`kube-proxy +0 (.|\n)*nftproxy +3 +3 +3`, `kubectl -n kube-system get daemonset kube-proxy nftproxy # 0 of the one, all nodes of the other`)
	g.do("kubectl -n kube-system get daemonset,configmap kube-proxy -o yaml > kube-proxy.yaml")
	g.do("kubectl -n kube-system delete daemonset kube-proxy")
	g.kustomize("overlays/node-by-node", "base")
}

// kustomize changes a word of the kustomization, and applies it.
func (g *guide) kustomize(from, to string) {
	g.t.Helper()
	file := filepath.Join(g.dir, "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		g.t.Fatal(err)
	}
	if !strings.Contains(g.text, "`"+from+"`") || !strings.Contains(g.text, to) {
		g.t.Errorf("the guide does not name %s and %s", from, to)
	}
	g.write("kustomization.yaml", strings.Replace(string(text), "/"+from+"]", "/"+to+"]", 1))
	g.do("kubectl apply -k . # with overlays/node-by-node in resources")
	g.c.kubectl(g.t, "-n", "kube-system", "rollout", "status", "daemonset/nftproxy", "--timeout=120s")
}

// moveBack is the way back, after step 4.
func (g *guide) moveBack() {
	g.t.Helper()
	g.do("kubectl label nodes --all nftproxy.dev/proxy=nftproxy")
	g.kustomize("base", "overlays/node-by-node")
	g.do("kubectl apply -f kube-proxy.yaml")
	for _, n := range g.c.NodeList {
		node := []string{"NODE", n.Name}
		g.do("kubectl label node NODE nftproxy.dev/proxy-", node...)
		g.see(`kube-proxy-\S+ +1/1 +Running`, "kubectl -n kube-system get pods -o wide --field-selector spec.nodeName=NODE # wait for kube-proxy, Running and ready", node...)
		g.cleanUp(n)
	}
	g.c.deleteDebuggers(g.t)
	g.do("kubectl delete -k . # or: helm uninstall nftproxy -n kube-system")
	g.do("bin/nftproxy migrate undo | sh")
}

// The cluster goes to nftproxy in the DaemonSet that kubeadm has made for
// kube-proxy, and back.
func TestMigrationInDaemonSetOfKubeadm(t *testing.T) {
	c := on(t, kubelets.KubeProxy)
	g := c.openGuide(t)
	l := c.startLoad(t, everywhere...)
	patch, err := os.ReadFile(filepath.Join(g.dir, "deploy/kubeadm/take-over.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	image := kubelets.NFTProxyImage + ":" + kubelets.NFTProxyTag
	g.write("take-over.yaml", strings.Replace(string(patch), "nftproxy:latest", image, 1))
	g.do("kubectl -n kube-system patch daemonset kube-proxy --patch-file take-over.yaml")
	g.replacePods(image)
	g.do(`kubectl -n kube-system patch daemonset kube-proxy -p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'`)
	l.check()

	c.kubectl(t, "-n", "kube-system", "patch", "daemonset", "kube-proxy", "-p", `{"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}`)
	c.kubectl(t, "-n", "kube-system", "set", "image", "daemonset/kube-proxy", "kube-proxy="+kubelets.KubeProxyImage)
	g.replacePods(kubelets.KubeProxyImage)
	for _, n := range c.NodeList {
		g.cleanUp(n)
	}
	c.deleteDebuggers(t)
	c.kubectl(t, "-n", "kube-system", "patch", "daemonset", "kube-proxy", "-p", `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`)
	l.check()
}

// cleanUp removes nftproxy's rules from a node once those of kube-proxy are there.
func (g *guide) cleanUp(n *kubelets.Node) {
	g.t.Helper()
	node := []string{"NODE", n.Name}
	g.see("chain nat-prerouting", "ssh root@NODE nft list chain ip kube-proxy nat-prerouting # in its mode nftables: wait until it is there", node...)
	g.see("chain nat-prerouting", "ssh root@NODE nft list chain ip6 kube-proxy nat-prerouting # the same, if the cluster has IPv6", node...)
	fmt.Fprintln(g.t.Output(), g.do("kubectl debug node/NODE -it --profile=sysadmin --image=IMAGE -- /usr/local/bin/nftproxy cleanup", node...))
	eventually(g.t, func() error {
		out, err := g.try("ssh root@NODE nft list chains # none of nftproxy, and no served-by-nftproxy", node...)
		if err == nil && strings.Contains(out, "nftproxy") {
			err = fmt.Errorf("chains on %s after the way back:\n%s", n.Name, out)
		}
		return err
	})
}

// replacePods deletes the pods of the DaemonSet one by one, and waits until there
// are others with the image.
func (g *guide) replacePods(image string) {
	g.t.Helper()
	for _, n := range g.c.NodeList {
		g.do("kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE", "NODE", n.Name)
		eventually(g.t, func() error {
			out, err := g.c.Kubectl(g.t.Context(), "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy", "--field-selector", "spec.nodeName="+n.Name,
				"-o", `jsonpath={range .items[*]}{.spec.containers[0].image} {.status.conditions[?(@.type=="Ready")].status}{end}`)
			if err == nil && out != image+" True" {
				err = fmt.Errorf("pods on %s: %s", n.Name, out)
			}
			return err
		})
	}
}

// deleteDebuggers deletes the pods that kubectl debug leaves.
func (c *cluster) deleteDebuggers(t *testing.T) {
	t.Helper()
	for _, pod := range strings.Fields(c.kubectl(t, "get", "pods", "-o", "name")) {
		if strings.Contains(pod, "node-debugger") {
			c.kubectl(t, "delete", pod)
		}
	}
}
