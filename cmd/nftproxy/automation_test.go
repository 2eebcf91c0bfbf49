package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// automation runs the commands of docs/automation.md on a machine without servers.
type automation struct {
	*testing.T
	ns           *netlab.Namespace
	conf, socket string
}

func newAutomation(t *testing.T, content string) *automation {
	t.Helper()
	dir := t.TempDir()
	a := &automation{t, netlab.TestLab(t, 1).Node.Namespace, filepath.Join(dir, "conf.d", "web.yaml"), filepath.Join(dir, "run", "control.sock")}
	if err := os.MkdirAll(filepath.Dir(a.conf), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.conf, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	startCommand(t, a.ns, asNftproxy(t, "run", "-f", filepath.Dir(a.conf), "--drain-file", filepath.Join(dir, "drain.yaml"),
		"--changes-file", filepath.Join(dir, "changes.yaml"), "--control-socket", a.socket, "--metrics-bind-address", "127.0.0.1:7013"))
	eventually(t, "the first sync", func() bool {
		_, text := get(t, a.ns, "http://127.0.0.1:7013"+api.DrainPath)
		return strings.Contains(text, `"pending":false`)
	})
	return a
}

// run runs a command of the page here, and returns its output.
func (a *automation) run(words []string) string {
	a.Helper()
	words = slices.Clone(words)
	for i, w := range words {
		words[i] = strings.Replace(w, "/etc/nftproxy/conf.d/web.yaml", a.conf, 1)
	}
	switch words[0] {
	case "set", "add", "remove", "enable", "disable", "undo":
		words = append(words, "--control-socket", a.socket)
	case "validate":
	default:
		words = append(words, "--metrics-bind-address", "127.0.0.1:7013")
	}
	r := ask(a.T, a.ns, words...)
	if r.code != 0 && !slices.Contains(words, "--serves") { // no server answers here
		a.Errorf("%s: exit code %d: %s%s", strings.Join(words, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// blocks returns the blocks of a language of the page, by the title of their section.
func blocks(t *testing.T, language string) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/automation.md")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]string)
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
			out[title] = append(out[title], m[1])
		}
	}
	if len(out) == 0 {
		t.Fatalf("the page has no block of %s", language)
	}
	return out
}

// TestAutomation runs docs/automation.md: its tasks say what they have changed, and change nothing
// the second time.
func TestAutomation(t *testing.T) {
	var init struct {
		WriteFiles []struct{ Path, Content string } `yaml:"write_files"`
		Runcmd     [][]string
	}
	if err := yaml.Unmarshal([]byte(blocks(t, "yaml")["cloud-init"][0]), &init); err != nil || len(init.WriteFiles) != 1 {
		t.Fatalf("cloud-init: %+v, %v", init, err)
	}
	a := newAutomation(t, init.WriteFiles[0].Content)
	for _, words := range init.Runcmd {
		if words[0] == "nftproxy" {
			a.run(words[1:])
		}
	}
	ran := 0
	for _, section := range []string{"Commands", "What is in the file, and what is not"} {
		for line := range strings.Lines(blocks(t, "sh")[section][0]) {
			words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(strings.Split(line, "#")[0]), "nftproxy "))
			a.run(words)
			ran++
		}
	}
	if ran < 12 {
		t.Errorf("%d commands", ran)
	}
	a.run([]string{"add", "web", "10.1.1.3:8080", "--write"}) // a task removes it
	a.ansible()
	a.terraform()
}

// ansible runs the tasks of the playbooks.
func (a *automation) ansible() {
	a.Helper()
	changed := []bool{}
	for _, text := range blocks(a.T, "yaml")["Ansible"] {
		var plays []struct {
			Tasks []map[string]any
		}
		if err := yaml.Unmarshal([]byte(text), &plays); err != nil || len(plays) != 1 {
			a.Fatalf("%v: %s", err, text)
		}
		for _, task := range plays[0].Tasks {
			command, is := task["ansible.builtin.command"].(map[string]any)
			if !is {
				continue
			}
			var words []string
			for _, w := range command["argv"].([]any)[1:] {
				words = append(words, w.(string))
			}
			if !slices.Contains(words, "json") {
				a.run(words)
				continue
			}
			for range 2 {
				var answer api.Controlled
				if err := json.Unmarshal([]byte(a.run(words)), &answer); err != nil {
					a.Errorf("%v: %v", words, err)
				}
				changed = append(changed, answer.Changed)
			}
		}
	}
	if want := []bool{true, false, true, false, true, false, true, false, true, false}; !slices.Equal(changed, want) {
		a.Errorf("tasks changed %v, want %v", changed, want)
	}
}

// terraform runs the commands of the provisioners.
func (a *automation) terraform() {
	a.Helper()
	commands := regexp.MustCompile(`command = "ssh root@\$\{[a-z.]+\} nftproxy (.*)"`).FindAllStringSubmatch(blocks(a.T, "hcl")["Terraform"][0], -1)
	for _, m := range commands {
		a.run(strings.Fields(strings.NewReplacer("${var.weight}", "2", "${self.input.address}", "10.1.1.5:8080").Replace(m[1])))
	}
	content, err := os.ReadFile(a.conf)
	if err != nil || len(commands) != 3 || !strings.Contains(string(content), "{address: 10.1.1.2:8080, weight: 2}") || strings.Contains(string(content), "10.1.1.5") {
		a.Errorf("%d commands, %v; the file is\n%s", len(commands), err, content)
	}
}
