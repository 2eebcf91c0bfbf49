// Package testbed is what the end-to-end tests share: the programs that they run,
// a cluster of one node with an API server and its etcd, Services, packets, and a
// load of clients.
package testbed

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Program is one that the tests run.
type Program struct {
	Name string
	tool string // package that it is built from
	Path string // of the executable
}

var (
	NFTProxy = Program{Name: "nftproxy"}
	// Plugin is the program that kubectl runs as "kubectl nftproxy".
	Plugin            = Program{Name: "kubectl-nftproxy"}
	etcd              = Program{Name: "etcd", tool: "go.etcd.io/etcd/server/v3"}
	apiserver         = Program{Name: "kube-apiserver", tool: "k8s.io/kubernetes/cmd/kube-apiserver"}
	ControllerManager = Program{Name: "kube-controller-manager", tool: "k8s.io/kubernetes/cmd/kube-controller-manager"}
	KubeProxy         = Program{Name: "kube-proxy", tool: "k8s.io/kubernetes/cmd/kube-proxy"}
	Kubeadm           = Program{Name: "kubeadm", tool: "k8s.io/kubernetes/cmd/kubeadm"}
	// Reflectors is the program in compare/reflectors.
	Reflectors = Program{Name: "reflectors"}

	kubectl = Program{Name: "kubectl", tool: "k8s.io/kubernetes/cmd/kubectl"}
)

// root is the directory of the module.
var root string

// programsVariable in the environment names a directory of Build, so that "make e2e" builds once for
// all packages.
const programsVariable = "E2E_PROGRAMS"

// Run builds the programs and runs the tests.
func Run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return fail("these tests make network namespaces and load nftables rules: run them as root")
	}
	dir := os.Getenv(programsVariable)
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "nftproxy-e2e-"); err != nil {
			return fail("make directory for the program: %v", err)
		}
		defer os.RemoveAll(dir)
		if err := Build(dir); err != nil {
			return fail("%v", err)
		}
	}
	if err := use(dir); err != nil {
		return fail("%v", err)
	}
	return m.Run()
}

// programs are what Build makes.
var programs = []*Program{&NFTProxy, &Plugin, &Reflectors, &etcd, &apiserver, &ControllerManager, &KubeProxy, &Kubeadm, &kubectl}

// Build makes the programs, or links to them, in a directory.
func Build(dir string) (err error) {
	if root, err = GoCommand("list", "-m", "-f", "{{.Dir}}"); err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	for _, p := range programs {
		file := filepath.Join(dir, p.Name)
		switch p {
		case &NFTProxy, &Plugin:
			// In its own module, with the dependencies that it is released with.
			_, err = GoCommand("-C", filepath.Join(root, ".."), "build", "-ldflags", "-X main.version="+commit(), "-o", file, "./cmd/"+p.Name)
		case &Reflectors:
			_, err = GoCommand("-C", root, "build", "-o", file, "./compare/reflectors")
		default:
			var path string
			if path, err = GoCommand("-C", filepath.Join(root, "tools"), "tool", "-n", p.tool); err == nil {
				err = os.Symlink(path, file)
			}
		}
		if err != nil {
			return fmt.Errorf("build %s: %w", p.Name, err)
		}
	}
	return nil
}

// use takes the programs from a directory of Build. NFTPROXY names a program to test instead, such
// as a released one.
func use(dir string) (err error) {
	if root, err = GoCommand("list", "-m", "-f", "{{.Dir}}"); err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	for _, p := range programs {
		if p.Path, err = filepath.EvalSymlinks(filepath.Join(dir, p.Name)); err != nil {
			return err
		}
	}
	if path := os.Getenv("NFTPROXY"); path != "" {
		NFTProxy.Path = path
	}
	return nil
}

// commit returns the name of the source that is tested: results name it. Results that were
// written meanwhile do not change the source.
func commit() string {
	out, err := exec.Command("git", "-C", root, "describe", "--tags", "--always").Output()
	if err != nil {
		return "(devel)" // no repository, such as an archive of the source
	}
	name := strings.TrimSpace(string(out))
	if exec.Command("git", "-C", filepath.Join(root, ".."), "diff", "--quiet", "HEAD", "--", ":(exclude)docs").Run() != nil {
		name += "-dirty"
	}
	return name
}

// BuildTool builds a tool of a module in the directory tools.
func BuildTool(t testing.TB, module, tool string) Program {
	t.Helper()
	path, err := GoCommand("-C", filepath.Join(root, "tools", module), "tool", "-n", tool)
	if err != nil {
		t.Fatalf("build %s: %v", tool, err)
	}
	return Program{filepath.Base(tool), tool, path}
}

// ToolModule returns a field of what "go list -m" says of a dependency of a
// module in the directory tools, such as its Version or Dir.
func ToolModule(t testing.TB, module, path, field string) string {
	t.Helper()
	value, err := GoCommand("-C", filepath.Join(root, "tools", module), "list", "-m", "-f", "{{."+field+"}}", path)
	if err != nil {
		t.Fatalf("find module %s: %v", path, err)
	}
	return value
}

// GoCommand runs the go command and returns what it prints. "go tool -n" builds
// a tool, keeps it in the build cache and prints where.
func GoCommand(args ...string) (string, error) {
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

// Tools builds the tools of a module below tools and returns their files by
// package.
func Tools(module string) (map[string]string, error) {
	dir := filepath.Join(root, "tools", module)
	list, err := GoCommand("-C", dir, "list", "tool")
	if err != nil {
		return nil, fmt.Errorf("list tools of %s: %w", dir, err)
	}
	files := map[string]string{}
	for _, tool := range strings.Fields(list) {
		if files[tool], err = GoCommand("-C", dir, "tool", "-n", tool); err != nil {
			return nil, fmt.Errorf("build %s: %w", tool, err)
		}
	}
	return files, nil
}

// ToolVersion returns the version of a dependency of a module below tools.
func ToolVersion(module, dependency string) (string, error) {
	return GoCommand("-C", filepath.Join(root, "tools", module), "list", "-m", "-f", "{{.Version}}", dependency)
}
