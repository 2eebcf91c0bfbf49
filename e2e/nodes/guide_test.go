package nodes

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// guide is docs/migration.md, and an operator who follows it: on a machine in the
// network of the control plane, in a directory with the files of the repository.
type guide struct {
	t      *testing.T
	c      *cluster
	text   string          // without line breaks
	blocks []string        // of code
	done   map[string]bool // commands
	dir    string
	values []string // of the placeholders, for strings.NewReplacer
}

// codeBlock is a fenced block. Those with a language are files and output.
var codeBlock = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

func (c *cluster) openGuide(t *testing.T) *guide {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "docs/migration.md"))
	if err != nil {
		t.Fatal(err)
	}
	g := &guide{t: t, c: c, text: strings.Join(strings.Fields(string(content)), " "), done: map[string]bool{}, dir: t.TempDir()}
	for _, m := range codeBlock.FindAllStringSubmatch(string(content), -1) {
		if m[1] == "" {
			g.blocks = append(g.blocks, strings.ReplaceAll(m[2], "\\\n", ""))
		}
	}
	path, err := filepath.Rel(g.dir, root)
	if err != nil {
		t.Fatal(err)
	}
	g.values = []string{"PATH-TO", path, "IMAGE-WITHOUT-TAG", kubelets.NFTProxyImage, "TAG", kubelets.NFTProxyTag,
		"IMAGE", kubelets.NFTProxyImage + ":" + kubelets.NFTProxyTag, "SERVICE", "trial",
		"https://ADDRESS:6443", c.Config.Host}
	g.link(filepath.Join(root, "deploy"), "deploy")
	g.link(c.Programs.NFTProxy, "bin/nftproxy")
	g.link(c.Programs.Path("kubectl"), "path/kubectl")
	g.link(c.Programs.Path("kubectl-nftproxy"), "path/kubectl-nftproxy")
	g.write("path/ssh", fmt.Sprintf("#!/bin/sh\nnode=${1#root@}\nshift\n"+
		"exec nsenter -t $(cat %[1]s/$node/pid) -a -- sh -c \"cd %[1]s/$node && $*\"\n", g.dir))
	g.write("path/scp", fmt.Sprintf("#!/bin/sh\nfor to; do :; done\nnode=${to#root@}\nnode=${node%%:}\n"+
		"for file; do [ $file = $to ] || cp $file %s/$node/; done\n", g.dir))
	for _, n := range c.NodeList {
		g.write(n.Name+"/pid", fmt.Sprint(n.PID()))
	}
	return g
}

func (g *guide) link(to, name string) {
	g.t.Helper()
	name = filepath.Join(g.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Symlink(to, name); err != nil {
		g.t.Fatal(err)
	}
}

// write writes a file, in which the guide's placeholders have values.
func (g *guide) write(name, text string) {
	g.t.Helper()
	name = filepath.Join(g.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		g.t.Fatal(err)
	}
}

// file writes the file that a block shows, of which the text has a part.
func (g *guide) file(name, part string) {
	g.t.Helper()
	for _, b := range g.blocks {
		if strings.Contains(b, part) {
			g.write(name, strings.NewReplacer(g.values...).Replace(b))
			return
		}
	}
	g.t.Fatalf("no block of the guide has %q", part)
}

// try runs a command of the guide, with values for more placeholders, and returns
// what it prints.
func (g *guide) try(command string, values ...string) (string, error) {
	g.t.Helper()
	plain := strings.Join(strings.Fields(command), " ")
	// In a table a vertical line is escaped.
	if !strings.Contains(strings.ReplaceAll(g.text, `\|`, "|"), plain) && !strings.Contains(strings.ReplaceAll(g.text, `\ `, ""), plain) {
		g.t.Fatalf("the guide has no command %q", command)
	}
	g.done[plain] = true
	text := strings.NewReplacer(append(values, g.values...)...).Replace(command)
	cmd := g.c.ControlCommand(g.t.Context(), "sh", "-ec", text)
	cmd.Dir = g.dir
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(g.dir, "path")+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := g.c.output(cmd)
	fmt.Fprintf(g.t.Output(), "$ %s\n%s\n", text, out)
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", text, err, out)
	}
	return out, err
}

// do runs a command that must succeed.
func (g *guide) do(command string, values ...string) string {
	g.t.Helper()
	out, err := g.try(command, values...)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// see runs a command until it prints what it is to print: the guide says to wait,
// or to check.
func (g *guide) see(want, command string, values ...string) {
	g.t.Helper()
	eventually(g.t, func() error {
		out, err := g.try(command, values...)
		if err == nil && !regexp.MustCompile(want).MatchString(out) {
			err = fmt.Errorf("%s prints\n%s\nwant %s", command, out, want)
		}
		return err
	})
}

// complete checks that all commands of the guide's blocks were run, or were left
// out for a reason.
func (g *guide) complete(leftOut map[string]string) {
	g.t.Helper()
	for _, b := range g.blocks {
		if strings.HasPrefix(b, "# kustomization.yaml") || strings.HasPrefix(b, "apiVersion:") {
			continue
		}
		for _, line := range strings.Split(strings.TrimSpace(b), "\n") {
			plain := strings.Join(strings.Fields(line), " ")
			if leftOut[plain] == "" && !g.done[plain] && !strings.HasPrefix(plain, "#") {
				g.t.Errorf("command of the guide that was not run: %s", plain)
			}
			delete(leftOut, plain)
		}
	}
	for _, command := range slices.Sorted(maps.Keys(leftOut)) {
		g.t.Errorf("not in the guide any more: %s", command)
	}
}
