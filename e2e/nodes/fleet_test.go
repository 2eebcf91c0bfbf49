package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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
	return c.ControlCommand(t.Context(), c.Programs.Path("kubectl-nftproxy"), append(args, "--kubeconfig", kubeconfig)...)
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

// shoot records what a command of the plug-in writes to a terminal, for its picture (make screenshots-nodes), and
// returns it; empty: no picture is asked for.
func (c *cluster) shoot(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return ""
	}
	out, err := c.output(c.pluginCommand(t, kubeconfig, append(args, "--color", "always")...))
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // a finding
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	text := "$ kubectl nftproxy " + strings.Join(args, " ") + "\n" + out
	if err := os.WriteFile(filepath.Join(dir, "cluster-"+args[0]+".txt"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return text
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
		"-p", `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--no-table-owner"},
			{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--observe=refusals"}]`) // else the kernel refuses the change by hand
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
	c.refuses(t, config)
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
	element := fmt.Sprintf("element %s nftproxy services { %s . tcp . 80 }", family, address)
	onNode(t, changed, "nft", "delete "+element)
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
	c.shoot(t, config, "status")
	c.differs(t, config, changed, element)
	eventually(t, func() error {
		if code := c.plugin(t, config, d, "diff", c.NodeList[1].Name, c.NodeList[2].Name); code != 0 || len(d.Nodes) != 2 {
			return fmt.Errorf("after the repair: code %d, %+v", code, d)
		}
		return nil
	})
}

// differs compares a node while its kernel lacks an element, which is deleted again and again: nftproxy repairs it.
func (c *cluster) differs(t *testing.T, config string, n *kubelets.Node, element string) {
	t.Helper()
	other := c.NodeList[2]
	ctx, cancel := context.WithCancel(t.Context())
	var deletes sync.WaitGroup
	deletes.Go(func() {
		for ctx.Err() == nil {
			_, _ = n.Output("nft", "delete "+element) // it may be missing
		}
	})
	stop := func() {
		cancel()
		deletes.Wait()
	}
	defer stop()
	eventually(t, func() error {
		d := new(fleet.Differences)
		code := c.plugin(t, config, d, "diff", n.Name, other.Name)
		text, err := json.Marshal(d)
		if err != nil {
			return err
		}
		if code != 1 || len(d.Nodes) != 2 || !strings.Contains(string(text), "default/web") {
			return fmt.Errorf("code %d: %s", code, text)
		}
		if shot := c.shoot(t, config, "diff", n.Name, other.Name); shot != "" && !strings.Contains(shot, "default/web") {
			return errors.New(shot)
		}
		return nil
	})
	stop()
	eventually(t, func() error {
		_, err := n.Output("nft", "get "+element)
		return err
	})
}

// refuses connects to a Service without endpoints from two nodes, and sees both connections refused.
func (c *cluster) refuses(t *testing.T, config string) {
	t.Helper()
	c.kubectl(t, "create", "service", "clusterip", "idle", "--tcp=80")
	defer func() {
		if _, err := c.Kubectl(context.Background(), "delete", "service", "idle"); err != nil {
			t.Error(err)
		}
	}()
	to := net.JoinHostPort(strings.TrimSpace(c.kubectl(t, "get", "service", "idle", "-o", "jsonpath={.spec.clusterIP}")), "80")
	eventually(t, func() error {
		for _, n := range c.NodeList[:2] {
			err := n.Do(func() error {
				conn, err := net.DialTimeout("tcp", to, time.Second)
				if err == nil {
					err = conn.Close()
				}
				return err
			})
			if !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("from %s to %s: %v", n.Name, to, err)
			}
		}
		out, err := c.output(c.pluginCommand(t, config, "observe", "default/idle", "-o", "json"))
		if err != nil || !strings.Contains(out, `"`+c.NodeList[0].Name+`"`) || !strings.Contains(out, `"`+c.NodeList[1].Name+`"`) {
			return fmt.Errorf("observed: %v\n%s", err, out)
		}
		return nil
	})
	c.shoot(t, config, "observe", "default/idle", "--last", "4")
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
