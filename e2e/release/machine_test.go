package release

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// machine is where an operator works: in the network of the control plane, with the programs
// helm and kubectl, and with a registry in place of ghcr.io.
type machine struct {
	*testing.T
	*kubelets.Cluster
	hub     *hub
	version string
	text    string   // of the pages, and what commands have printed, without line breaks
	values  []string // of the placeholders, for strings.NewReplacer
	dir     string   // with the programs in bin
}

// operate starts a cluster without a service proxy, whose nodes have the registry as the mirror
// of ghcr.io.
func operate(t *testing.T, h *hub) *machine {
	t.Helper()
	programs, err := kubelets.Build(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubelets.Start(t.Context(), kubelets.Options{Programs: programs, Families: kubelets.DualStack, Nodes: 3,
		Log: t.Output(), Logs: os.Getenv("LOGS")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &machine{T: t, Cluster: c, hub: h, dir: t.TempDir(), version: strings.TrimSpace(readFile(t, top+"/VERSION"))}
	for _, page := range []string{"README.md", "docs/migration.md", "docs/upgrade.md"} {
		m.read(strings.ReplaceAll(readFile(t, filepath.Join(top, page)), "\\\n", ""))
	}
	listener, err := c.Control.Listen("tcp", ":"+h.port)
	if err != nil {
		t.Fatal(err)
	}
	h.on(listener)
	m.useRegistry()
	m.install()
	return m
}

// useRegistry makes the registry the mirror of ghcr.io on the nodes, and the place of the chart.
func (m *machine) useRegistry() {
	m.Helper()
	server, err := url.Parse(m.Config.Host)
	if err != nil {
		m.Fatal(err)
	}
	for _, n := range m.NodeList {
		hosts := fmt.Sprintf("server = \"http://%s:%s\"\n", server.Hostname(), m.hub.port)
		if _, err := n.Output("sh", "-ec", "mkdir -p /etc/containerd/certs.d/ghcr.io && printf %s \"$1\" >/etc/containerd/certs.d/ghcr.io/hosts.toml", "sh", hosts); err != nil {
			m.Fatal(err)
		}
	}
	chart := "oci://ghcr.io/nftproxy/charts/nftproxy"
	m.values = []string{chart, strings.Replace(chart, "ghcr.io", m.hub.own(), 1), "VERSION", m.version,
		"ADDRESS", server.Hostname(), "RANGE", `'` + strings.ReplaceAll(m.ClusterCIDR(), ",", `\,`) + `'`}
	own := strings.NewReplacer(m.values...).Replace(chart + " --version VERSION")
	m.values = append(m.values, "CHART", own, "deploy/helm/nftproxy", own)
}

// install puts helm and kubectl where commands find them.
func (m *machine) install() {
	m.Helper()
	helm, err := testbed.GoCommand("-C", filepath.Join(top, "tools/release"), "tool", "-n", "helm")
	if err != nil {
		m.Fatal(err)
	}
	bin := filepath.Join(m.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		m.Fatal(err)
	}
	for name, program := range map[string]string{"helm": helm, "kubectl": m.Programs.Path("kubectl")} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			m.Fatal(err)
		}
	}
}

// read adds a text whose commands can be used.
func (m *machine) read(text string) { m.text += " " + strings.Join(strings.Fields(text), " ") }

// do runs a command of the pages, or of what an earlier command has printed, with further
// arguments, and returns what it prints.
func (m *machine) do(command string, further ...string) string {
	m.Helper()
	if !strings.Contains(m.text, command) {
		m.Fatalf("neither the pages nor the commands before have %q", command)
	}
	text := strings.NewReplacer(m.values...).Replace(strings.Join(append([]string{command}, further...), " "))
	out, err := m.shell(text)
	if err != nil {
		m.Fatalf("%s: %v\n%s", text, err, out)
	}
	m.read(out)
	return out
}

// shell runs a command on the machine, and returns all that it prints.
func (m *machine) shell(text string) (string, error) {
	var out strings.Builder
	cmd := m.ControlCommand(m.Context(), "sh", "-ec", text)
	cmd.Dir, cmd.Stdout, cmd.Stderr = m.dir, &out, &out
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(m.dir, "bin")+":"+os.Getenv("PATH"))
	err := m.Control.Run(cmd)
	fmt.Fprintf(m.Output(), "$ %s\n%s\n", text, out.String())
	return out.String(), err
}

// tests finds that connections to Services of all kinds, or to the one in the arguments, go where they should. It is
// repeated: each has a few seconds, which a busy machine exceeds.
func (m *machine) tests(image string, args ...string) {
	m.Helper()
	args = append(args, "--outside")
	var out string
	var err error
	for range 3 {
		if out, err = m.Test(m.Context(), image, args...); err == nil {
			first, _, _ := strings.Cut(out, "\n")
			fmt.Fprintf(m.Output(), "kubectl nftproxy test %s: %s\n", strings.Join(args, " "), first)
			return
		}
	}
	m.Fatalf("kubectl nftproxy test %s: %v\n%s", strings.Join(args, " "), err, out)
}

// patience limits how long a test waits for what must happen.
const patience = 5 * time.Minute

// eventually waits until f returns nil.
func (m *machine) eventually(f func() error) {
	m.Helper()
	if err := await.Poll(patience, 200*time.Millisecond, f); err != nil {
		m.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
