// Package e2e holds end-to-end tests: the real program, the kernel of this
// machine and real packets, as in package test, and what tells the program
// about services is a real kube-apiserver with its etcd.
//
// It is a module of its own, and so are the programs of Kubernetes (directory
// tools): they are built with the dependencies that they are released with,
// whatever nftproxy depends on.
package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program is one that the tests run.
type program struct {
	Name string
	tool string // package that it is built from
	Path string // of the executable
}

var (
	nftproxy          = program{Name: "nftproxy"}
	etcd              = program{Name: "etcd", tool: "go.etcd.io/etcd/server/v3"}
	apiserver         = program{Name: "kube-apiserver", tool: "k8s.io/kubernetes/cmd/kube-apiserver"}
	controllerManager = program{Name: "kube-controller-manager", tool: "k8s.io/kubernetes/cmd/kube-controller-manager"}
	kubeProxy         = program{Name: "kube-proxy", tool: "k8s.io/kubernetes/cmd/kube-proxy"}
	kubeadm           = program{Name: "kubeadm", tool: "k8s.io/kubernetes/cmd/kubeadm"}
	kubectl           = program{Name: "kubectl", tool: "k8s.io/kubernetes/cmd/kubectl"}
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// root is the directory of the module.
var root string

// run builds the programs and runs the tests.
func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return fail("these tests make network namespaces and load nftables rules: run them as root")
	}
	dir, err := os.MkdirTemp("", "nftproxy-e2e-")
	if err != nil {
		return fail("make directory for the program: %v", err)
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		return fail("%v", err)
	}
	return m.Run()
}

// build builds the programs. NFTPROXY names a program to test instead, such as
// a released one.
func build(dir string) (err error) {
	if root, err = goCommand("list", "-m", "-f", "{{.Dir}}"); err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	if nftproxy.Path = os.Getenv("NFTPROXY"); nftproxy.Path == "" {
		nftproxy.Path = filepath.Join(dir, nftproxy.Name)
		// In its own module, with the dependencies that it is released with.
		if _, err := goCommand("-C", filepath.Join(root, ".."), "build", "-o", nftproxy.Path, "./cmd/nftproxy"); err != nil {
			return fmt.Errorf("build nftproxy: %w", err)
		}
	}
	for _, p := range []*program{&etcd, &apiserver, &controllerManager, &kubeProxy, &kubeadm, &kubectl} {
		if p.Path, err = goCommand("-C", filepath.Join(root, "tools"), "tool", "-n", p.tool); err != nil {
			return fmt.Errorf("build %s: %w", p.Name, err)
		}
	}
	return nil
}

// goCommand runs the go command and returns what it prints. "go tool -n" builds
// a tool, keeps it in the build cache and prints where.
func goCommand(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, &stderr)
	}
	return strings.TrimSpace(stdout.String()), nil
}

func fail(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	return 1
}
