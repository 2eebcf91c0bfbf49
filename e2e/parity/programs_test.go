package parity

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

const (
	taken   = "taken"
	refused = "refused"
	absent  = "-"
)

// load has a program read a command line, and returns the configuration that it writes
// (empty: it refuses) and what it logs.
func load(t *testing.T, program testbed.Program, args ...string) (written []byte, log string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "written")
	args = append(args, "--write-config-to", out, "--logging-format", "json")
	if program.Name == testbed.NFTProxy.Name {
		args = append([]string{"run"}, args...)
	}
	text, _ := exec.Command(program.Path, args...).CombinedOutput()
	written, err := os.ReadFile(out)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return written, string(text)
}

// because returns why nftproxy says that a setting has no effect; the attribute names it.
func because(log, attribute, name string) string {
	for lines := bufio.NewScanner(strings.NewReader(log)); lines.Scan(); {
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) != nil || line[attribute] != name {
			continue
		}
		if why, _ := line["because"].(string); why != "" {
			return why
		}
		why, _ := line["msg"].(string)
		return why
	}
	return ""
}

var anyFlag = regexp.MustCompile(`--([a-z0-9-]+)`)

var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`)

// flags compares the flags: each one of kube-proxy by the line of its help, and each one of
// nftproxy by its page of all flags, hidden ones included.
func flags(t *testing.T) *table {
	x := &table{title: "Flags", anchor: "flags", column: "flag",
		about: "Of kube-proxy those of `--help`; nftproxy takes all of them; its help names those without an effect ([12.8](behaviour.md#s12.8))."}
	help, err := exec.Command(testbed.KubeProxy.Path, "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	own, err := exec.Command(testbed.NFTProxy.Path, "run", "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	// Below the flags with their usage it names those without an effect.
	visible, hidden, found := bytes.Cut(own, []byte("\n  without an effect:"))
	if !found {
		t.Fatalf("the help of nftproxy has no flags without an effect:\n%s", own)
	}
	described, ignored := names(flagLine, visible), names(anyFlag, hidden)
	for _, name := range names(flagLine, help) {
		_, log := load(t, testbed.NFTProxy, "--"+name)
		_, withValue := load(t, testbed.NFTProxy, "--"+name+"=")
		known := !strings.Contains(log, "unknown flag") && !strings.Contains(withValue, "unknown flag")
		switch {
		case !known:
			x.add(name, taken, absent)
		case slices.Contains(ignored, name):
			x.rows = append(x.rows, row{name, taken, "accepted without effect", true})
		case slices.Contains(described, name):
			x.add(name, taken, taken)
		default:
			x.rows = append(x.rows, row{name, taken, "accepted, for another one", true})
		}
	}
	if len(x.rows) < 40 {
		t.Fatalf("only %d flags in the help of kube-proxy:\n%s", len(x.rows), help)
	}
	return x
}

// names returns the first group of each match, sorted, once.
func names(r *regexp.Regexp, text []byte) []string {
	all := map[string]bool{}
	for _, m := range r.FindAllSubmatch(text, -1) {
		all[string(m[1])] = true
	}
	return slices.Sorted(maps.Keys(all))
}

var (
	gateHelp = regexp.MustCompile(`(\w+)=true\|false \(([A-Z]+) - default=(true|false)\)`)
	gateRead = regexp.MustCompile(`Enabled\(\w+\.(\w+)\)`)
)

// gates compares the feature gates that the source of kube-proxy reads.
func gates(t *testing.T) *table {
	x := &table{title: "Feature gates", anchor: "feature-gates", column: "gate",
		about: "Those that the source of kube-proxy reads. nftproxy accepts all others as well, with a line in the log."}
	read := names(gateRead, source(t))
	if len(read) < 5 {
		t.Fatalf("kube-proxy reads only the gates %q", read)
	}
	help, err := exec.Command(testbed.KubeProxy.Path, "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	inHelp := map[string][]string{}
	for _, m := range gateHelp.FindAllStringSubmatch(string(help), -1) {
		inHelp[m[1]] = m[2:]
	}
	for _, name := range read {
		x.rows = append(x.rows, gate(t, name, inHelp[name]))
	}
	return x
}

// gate compares a feature gate, whose help has its stage and its default; nil: the help of
// kube-proxy lists neither deprecated gates nor those that are always on.
func gate(t *testing.T, name string, help []string) row {
	value, r := "false", row{name: name, kube: "on"}
	if help != nil {
		value = map[string]string{"true": "false", "false": "true"}[help[1]]
		r.kube = strings.ToLower(help[0]) + ", " + map[string]string{"true": "on", "false": "off"}[help[1]]
	} else if written, _ := load(t, testbed.KubeProxy, "--feature-gates="+name+"=false"); len(written) == 0 {
		r.kube = "always on"
	}
	written, log := load(t, testbed.NFTProxy, "--feature-gates="+name+"="+value)
	switch why := because(log, "field", "featureGates."+name); {
	case len(written) == 0:
		r.nft = refused
	case why == "":
		r.nft, r.explained = "has its effect", true
	case why == "nothing depends on it":
		r.nft = "no effect"
	default:
		r.nft, r.explained = "no effect: "+why, true
	}
	return r
}

// source returns the source of kube-proxy for Linux, without tests.
func source(t *testing.T) []byte {
	t.Helper()
	root := testbed.ToolModule(t, "", "k8s.io/kubernetes", "Dir")
	var all bytes.Buffer
	for _, dir := range []string{"cmd/kube-proxy", "pkg/proxy"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && d.Name() == "winkernel" {
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.Bytes()
}

// event matches the arguments of a recorder.
var event = regexp.MustCompile(`EventType(\w+), "(\w+)", "(\w+)"`)

// events compares the reasons of events by the sources of both programs.
func events(t *testing.T) *table {
	x := &table{title: "Events", anchor: "events", column: "reason",
		about: "By the source of both. nftproxy has more: one for each reason why an object cannot be served as it asks ([12.56](behaviour.md#s12.56))."}
	own, err := os.ReadFile("../../internal/events/events.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range event.FindAllStringSubmatch(string(source(t)), -1) {
		if seen[m[2]] {
			continue
		}
		seen[m[2]] = true
		kube := strings.ToLower(m[1]) + ", action " + m[3]
		if strings.Contains(string(own), `"`+m[2]+`"`) {
			x.add(m[2], kube, kube)
		} else {
			x.add(m[2], kube, absent)
		}
	}
	if len(seen) < 5 {
		t.Fatalf("only the events %v in the source of kube-proxy", seen)
	}
	return x
}
