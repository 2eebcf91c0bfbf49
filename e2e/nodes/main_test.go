package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// loadImage has the program in load.
const loadImage = "nftproxy.dev/load:test"

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "nodes need namespaces, mounts and cgroups: run these tests as root")
		os.Exit(1)
	}
	status := m.Run()
	if shared.Cluster != nil {
		shared.stopGates()
		if err := shared.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "end the cluster: %v\n", err)
			status = 1
		}
	}
	os.Exit(status)
}

// cluster is real kubelets, and at most one service proxy.
type cluster struct {
	*kubelets.Cluster
	stopGates context.CancelFunc
}

// shared is the cluster of all tests.
var shared cluster

// build compiles what a cluster needs.
var build = sync.OnceValues(func() (*kubelets.Programs, error) {
	p, err := kubelets.Build(context.Background(), os.Stdout)
	if err != nil {
		return nil, err
	}
	return p, p.AddImage(context.Background(), loadImage, "./nodes/load")
})

// start starts the cluster of all tests, with servers.
var start = sync.OnceValue(func() error {
	p, err := build()
	if err != nil {
		return err
	}
	c, err := kubelets.Start(context.Background(), kubelets.Options{Programs: p, Families: kubelets.DualStack, Nodes: 3,
		Log: os.Stdout, Logs: os.Getenv("LOGS")})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	shared = cluster{Cluster: c, stopGates: cancel}
	go shared.openGates(ctx)
	return errors.Join(
		c.StartBalancer(os.Stdout, func(namespace string) bool { return namespace == "default" }),
		c.Apply(ctx, webManifest))
})

// on returns the cluster with its servers running, and a service proxy.
func on(t testing.TB, proxy kubelets.Proxy) *cluster {
	t.Helper()
	if err := start(); err != nil {
		t.Fatal(err)
	}
	c := &shared
	c.use(t, proxy)
	c.kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
	return c
}

// patience limits how long a test waits for what must happen.
const patience = 3 * time.Minute

// eventually waits until f returns nil.
func eventually(t testing.TB, f func() error) {
	t.Helper()
	if err := await.Poll(patience, 200*time.Millisecond, f); err != nil {
		t.Fatal(err)
	}
}

// kubectl runs kubectl as an administrator.
func (c *cluster) kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// output runs a command in the network of the control plane and returns what it
// prints.
func (c *cluster) output(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := c.Control.Run(cmd)
	return out.String(), err
}
