package kubelets

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/nftproxy/nftproxy/internal/testkit/release"
)

// KubernetesVersion is the version of what [Build] compiles.
const KubernetesVersion = release.Kubernetes

// program is one that [Build] compiles.
type program struct {
	name   string
	module string // directory in e2e
	path   string // of the package
	test   bool   // whether it is a test binary
}

const kubernetesPath = "k8s.io/kubernetes/"

var programs = []program{
	{name: "etcd", module: "tools", path: "go.etcd.io/etcd/server/v3"},
	{name: "kube-apiserver", module: "tools", path: kubernetesPath + "cmd/kube-apiserver"},
	{name: "kube-controller-manager", module: "tools", path: kubernetesPath + "cmd/kube-controller-manager"},
	{name: "kube-scheduler", module: "tools", path: kubernetesPath + "cmd/kube-scheduler"},
	{name: "kube-proxy", module: "tools", path: kubernetesPath + "cmd/kube-proxy"},
	{name: "kubelet", module: "tools", path: kubernetesPath + "cmd/kubelet"},
	{name: "kubectl", module: "tools", path: kubernetesPath + "cmd/kubectl"},
	{name: "agnhost", module: "tools", path: kubernetesPath + "test/images/agnhost"},
	{name: "regression-issue-74839", module: "tools", path: kubernetesPath + "test/images/regression-issue-74839"},
	{name: "e2e.test", module: "tools", path: kubernetesPath + "test/e2e", test: true},
	{name: "ginkgo", module: "tools", path: "github.com/onsi/ginkgo/v2/ginkgo"},
	{name: "containerd", module: "tools/containerd", path: "github.com/containerd/containerd/v2/cmd/containerd"},
	{name: "containerd-shim-runc-v2", module: "tools/containerd", path: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
	{name: "ctr", module: "tools/containerd", path: "github.com/containerd/containerd/v2/cmd/ctr"},
	{name: "coredns", module: "tools/coredns", path: "github.com/coredns/coredns"},
}

// Programs are compiled programs and images.
type Programs struct {
	Dir      string   // of the programs of others, in the cache of the user
	OwnDir   string   // of the project's own, and of the images
	Images   []string // docker archives
	NFTProxy string   // the program under test
	module   string   // directory e2e
}

// Path returns the path of a program.
func (p *Programs) Path(name string) string {
	switch name {
	case "nftproxy", "kubectl-nftproxy", "pause", "init":
		return filepath.Join(p.OwnDir, name)
	}
	return filepath.Join(p.Dir, name)
}

// Build compiles what the cache of the user does not have yet, which takes about
// ten minutes of processor time at first, and nftproxy. It reports what it does
// to log.
func Build(ctx context.Context, log io.Writer) (*Programs, error) {
	p, err := locate(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range programs {
		if err := p.build(ctx, log, x); err != nil {
			return nil, fmt.Errorf("build %s: %w", x.name, err)
		}
	}
	// These are part of the project: what changed since is compiled.
	p.OwnDir = filepath.Join(p.module, "../bin/kubelets")
	if err := os.MkdirAll(p.OwnDir, 0o755); err != nil {
		return nil, err
	}
	p.NFTProxy = p.Path("nftproxy")
	version, err := p.describe(ctx)
	if err != nil {
		return nil, err
	}
	for out, args := range map[string][]string{
		p.NFTProxy:                 {filepath.Join(p.module, ".."), "./cmd/nftproxy"},
		p.Path("kubectl-nftproxy"): {filepath.Join(p.module, ".."), "./cmd/kubectl-nftproxy"},
		p.Path("pause"):            {p.module, "./internal/kubelets/pause"},
		p.Path("init"):             {p.module, "./internal/kubelets/init"},
	} {
		if _, err := goCommand(ctx, args[0], "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version, "-o", out, args[1]); err != nil {
			return nil, fmt.Errorf("build %s: %w", args[1], err)
		}
	}
	return p, p.buildImages(ctx, log)
}

// Cached reports whether [Build] finds all programs in the cache of the user.
func Cached() bool {
	p, err := locate(context.Background())
	if err != nil {
		return false
	}
	for _, x := range programs {
		if _, err := os.Stat(p.Path(x.name)); err != nil {
			return false
		}
	}
	return true
}

// locate finds the module and the cache.
func locate(ctx context.Context) (p *Programs, err error) {
	p = &Programs{}
	if p.module, err = goCommand(ctx, "", "list", "-m", "-f", "{{.Dir}}", "github.com/nftproxy/nftproxy/e2e"); err != nil {
		return nil, err
	}
	p.Dir, err = p.cacheDir()
	return p, err
}

// cacheDir makes a directory for the programs of these versions.
func (p *Programs) cacheDir() (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), programs)
	for _, x := range []string{"tools", "tools/containerd", "tools/coredns"} {
		sums, err := os.ReadFile(filepath.Join(p.module, x, "go.sum"))
		if err != nil {
			return "", err
		}
		hash.Write(sums)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "nftproxy-kubelets", fmt.Sprintf("%x", hash.Sum(nil)[:8]))
	return dir, os.MkdirAll(dir, 0o755)
}

// build compiles a program, unless the cache has it.
func (p *Programs) build(ctx context.Context, log io.Writer, x program) error {
	if _, err := os.Stat(p.Path(x.name)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fmt.Fprintf(log, "compile %s\n", x.name)
	// The programs report this version, and tests choose by it what they check.
	version := "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion +
		" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=" + release.Number()
	// Under another name until it is complete: a build can be interrupted.
	unfinished := p.Path(x.name) + ".new"
	args := []string{"build", "-ldflags", version, "-o", unfinished, x.path}
	if x.test {
		// The source of others needs no vet, which would look at all that it imports.
		args = append([]string{"test", "-c", "-vet=off"}, args[1:]...)
	}
	if _, err := goCommand(ctx, filepath.Join(p.module, x.module), args...); err != nil {
		return err
	}
	return os.Rename(unfinished, p.Path(x.name))
}

// goCommand runs the go command in a directory and returns what it prints.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, &stderr)
	}
	return strings.TrimSpace(stdout.String()), nil
}

// describe names the commit of the project, as make build does.
func (p *Programs) describe(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", p.module, "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "", fmt.Errorf("git describe: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// NFTProxyVersion returns the version that the program under test reports.
func (p *Programs) NFTProxyVersion() string {
	out, err := exec.Command(p.NFTProxy, "--version").Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) < 2 {
		return "unknown"
	}
	return words[1]
}
