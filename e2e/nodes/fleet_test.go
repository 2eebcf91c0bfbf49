package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
	"github.com/nftproxy/nftproxy/internal/fleet"
)

// allow gives a user the permissions of files in deploy/kubectl, and returns the kubeconfig. A
// file has a ClusterRole, and may have a Role, with its name.
func (c *cluster) allow(t testing.TB, user string, files ...string) string {
	t.Helper()
	for _, f := range files {
		c.kubectl(t, "apply", "-f", "../../deploy/kubectl/"+f+".yaml")
		c.kubectl(t, "create", "clusterrolebinding", user+"-"+f, "--clusterrole=nftproxy-"+f, "--user="+user)
		if out := c.kubectl(t, "-n", "kube-system", "get", "role", "nftproxy-"+f, "--ignore-not-found", "-o", "name"); out != "" {
			c.kubectl(t, "-n", "kube-system", "create", "rolebinding", user+"-"+f, "--role=nftproxy-"+f, "--user="+user)
		}
		t.Cleanup(func() {
			_, err := c.Kubectl(context.Background(), "-n", "kube-system", "delete", "--ignore-not-found", "clusterrolebinding/"+user+"-"+f, "rolebinding/"+user+"-"+f)
			if err != nil {
				t.Error(err)
			}
		})
	}
	file, err := c.UserConfig(user)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// pluginCommand is a command of the plug-in, as kubectl runs it, where kubectl runs.
func (c *cluster) pluginCommand(t testing.TB, kubeconfig string, args ...string) *exec.Cmd {
	t.Helper()
	link := filepath.Join(t.TempDir(), "kubectl-nftproxy")
	if err := os.Symlink(c.Programs.Path("nftproxy"), link); err != nil {
		t.Fatal(err)
	}
	return c.ControlCommand(t.Context(), link, append(args, "--kubeconfig", kubeconfig)...)
}

// plugin runs a command of the plug-in, and returns its document and exit code.
func (c *cluster) plugin(t testing.TB, kubeconfig string, document any, args ...string) (code int) {
	t.Helper()
	cmd := c.pluginCommand(t, kubeconfig, append(args, "-o", "json")...)
	out, err := c.output(cmd)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	if err := json.Unmarshal([]byte(out), document); err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return cmd.ProcessState.ExitCode()
}

// verdictsOf returns the verdicts by node.
func verdictsOf(r *fleet.Report) map[string]fleet.Verdict {
	out := make(map[string]fleet.Verdict)
	for _, n := range r.Nodes {
		out[n.Name] = n.Verdict
	}
	return out
}

// TestPlugin: 18.1, 18.2, 18.4, 18.6, 18.8, 18.10, 18.12, 18.14, 18.15, 18.20. With the permissions of the page, over real kubelets, a stopped process and an
// element that was changed by hand are named, each with its node, and nothing else.
func TestPlugin(t *testing.T) {
	c := on(t, kubelets.NFTProxy)
	c.kubectl(t, "-n", "kube-system", "patch", "daemonset", "nftproxy", "--type=json",
		"-p", `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--no-table-owner"}]`) // else the kernel refuses the change by hand
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "-n", "kube-system", "rollout", "undo", "daemonset/nftproxy"); err != nil {
			t.Error(err)
		}
	})
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/nftproxy", "--timeout=120s")
	config := c.allow(t, "viewer", "viewer")
	eventually(t, func() error {
		r := new(fleet.Report)
		if code := c.plugin(t, config, r, "status"); code != 0 || r.Verdicts[fleet.NoAnswer]+r.Wrong() > 0 || len(r.Nodes) != c.Nodes || r.NewestError != "" ||
			r.Nodes[0].Seen["services"] == "" || r.Nodes[0].Seen["endpointslices"] == "" {
			return fmt.Errorf("code %d: %+v", code, r)
		}
		return nil
	})
	d := new(fleet.Differences)
	if code := c.plugin(t, config, d, "diff"); code != 0 || len(d.Nodes) != c.Nodes || d.Nodes[0].Services < 3 {
		t.Errorf("nothing was changed: code %d, %+v", code, d)
	}

	c.traces(t, config)
	c.converges(t, config)
	c.collects(t, config)

	stopped, changed := c.NodeList[0], c.NodeList[1]
	const process = "$(pgrep -o -f '^/usr/local/bin/nftproxy run')"
	address := strings.TrimSpace(c.kubectl(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"))
	family := "ip"
	if strings.Contains(address, ":") {
		family = "ip6"
	}
	onNode(t, stopped, "sh", "-ec", "kill -STOP "+process)
	t.Cleanup(func() { onNode(t, stopped, "sh", "-ec", "kill -CONT "+process) })
	onNode(t, changed, "nft", fmt.Sprintf("delete element %s nftproxy services { %s . tcp . 80 }", family, address))
	begin := time.Now()
	eventually(t, func() error {
		r := new(fleet.Report)
		asked := time.Now()
		code := c.plugin(t, config, r, "status")
		got := verdictsOf(r)
		if code != 1 || len(got) != c.Nodes || r.Nodes[0].Name != stopped.Name || got[stopped.Name] != fleet.NoAnswer || got[changed.Name] != fleet.Problems ||
			got[c.NodeList[2].Name] != fleet.Good {
			return fmt.Errorf("code %d: %+v", code, r.Nodes)
		}
		for _, n := range r.Nodes {
			if n.Name == changed.Name && (len(n.Problems) != 1 || !strings.Contains(n.Reason, "RulesChanged") || !strings.Contains(n.Reason, address+" . tcp . 80") ||
				!strings.Contains(n.Reason, "of Service default/web")) {
				return fmt.Errorf("%+v", n)
			}
		}
		fmt.Fprintf(t.Output(), "named %v after the changes, in a run of %v\n", time.Since(begin), time.Since(asked))
		return nil
	})
	if code := c.plugin(t, config, d, "diff", c.NodeList[1].Name, c.NodeList[2].Name); code != 0 || len(d.Nodes) != 2 {
		t.Errorf("after the repair: code %d, %+v", code, d)
	}
}

// traces explains a connection of a pod, and describes its Service on all nodes.
func (c *cluster) traces(t *testing.T, config string) {
	t.Helper()
	pod, node, _ := strings.Cut(strings.TrimSpace(c.kubectl(t, "get", "pods", "-l", "app=web", "-o", `jsonpath={.items[0].metadata.name} {.items[0].spec.nodeName}`)), " ")
	var traced struct {
		Service  string
		Notes    []string
		Outcomes []struct {
			Endpoint string
			Share    float64
		}
	}
	if code := c.plugin(t, config, &traced, "explain", "tcp", "default/web:http", "--from", "pod/default/"+pod); code != 0 || traced.Service != "default/web:http" ||
		len(traced.Outcomes) < 3 || !strings.Contains(strings.Join(traced.Notes, "; "), "on node "+node) {
		t.Errorf("code %d, from %s on %s: %+v", code, pod, node, traced)
	}
	var served []fleet.Served
	if code := c.plugin(t, config, &served, "describe", "default/web"); code != 0 || len(served) == 0 || len(served[0].Nodes)*len(served) != c.Nodes {
		t.Errorf("code %d: %+v", code, served)
	}
}
