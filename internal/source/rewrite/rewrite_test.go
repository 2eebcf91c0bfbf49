package rewrite

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

const block = `# the shop
kind: Balance
name: web   # important
listen: 203.0.113.10:443

backends:
  # the first rack
  - 10.1.1.2:8443   # old
  - {address: "10.1.1.3:8443", weight: 2}
  - address: 10.1.1.4:8443 # with a comment
    backup: true
  - "[fd00::2]:8443"
check: tcp
---
kind: Balance
name: web
namespace: other
listen: 203.0.113.11:443
backends: [10.1.1.2:8443, 10.1.1.3:8443]
`

const flow = `kind: Balance
name: web
listen: 203.0.113.10:443
backends: [10.1.1.2:8443, {address: 10.1.1.3:8443, drain: true}, 10.1.1.4] # ü, and "a # b"
description: "ü: [x"
`

const inJSON = `{"kind": "List", "items": [{"kind": "Balance", "name": "web",
  "listen": "203.0.113.10:443", "backends": ["10.1.1.2:8443", {"address": "10.1.1.3:8443"}]}]}
`

func weight(n int) *int { return &n }

// TestFile: each change touches its server alone, whatever the layout is.
func TestFile(t *testing.T) {
	for _, c := range []struct {
		what, text, server string
		port               uint16
		change             Change
		old, new           string // the only difference
	}{
		{"text becomes a mapping", block, "10.1.1.2", 0, Change{Weight: weight(3)}, "- 10.1.1.2:8443   # old", "- {address: 10.1.1.2:8443, weight: 3}   # old"},
		{"weight of a mapping", block, "10.1.1.3", 8443, Change{Weight: weight(0)}, "weight: 2}", "weight: 0}"},
		{"new weight in a block", block, "10.1.1.4", 0, Change{Weight: weight(5)}, "# with a comment\n", "# with a comment\n    weight: 5\n"},
		{"quoted text", block, "fd00::2", 0, Change{Weight: weight(9)}, `- "[fd00::2]:8443"`, `- {address: "[fd00::2]:8443", weight: 9}`},
		{"added to a block", block, "10.1.1.9", 8443, Change{Add: true, Weight: weight(2)}, "\"[fd00::2]:8443\"\n", "\"[fd00::2]:8443\"\n  - {address: 10.1.1.9:8443, weight: 2}\n"},
		{"IPv6 added", block, "fd00::3", 0, Change{Add: true}, "\"[fd00::2]:8443\"\n", "\"[fd00::2]:8443\"\n  - \"fd00::3\"\n"},
		{"removed from a block", block, "10.1.1.2", 0, Change{Remove: true}, "  - 10.1.1.2:8443   # old\n", ""},
		{"removed mapping", block, "10.1.1.4", 0, Change{Remove: true}, "  - address: 10.1.1.4:8443 # with a comment\n    backup: true\n", ""},
		{"removed from a list", flow, "10.1.1.3", 0, Change{Remove: true}, ", {address: 10.1.1.3:8443, drain: true}", ""},
		{"first of a list", flow, "10.1.1.2", 0, Change{Remove: true}, "10.1.1.2:8443, ", ""},
		{"drain ends", flow, "10.1.1.3", 0, Change{Weight: weight(2)}, "10.1.1.3:8443, drain: true", "10.1.1.3:8443, weight: 2, drain: false"},
		{"the port of clients", flow, "10.1.1.4", 443, Change{Weight: weight(2)}, "10.1.1.4]", "{address: 10.1.1.4, weight: 2}]"},
		{"added to a list", flow, "10.1.1.9", 0, Change{Add: true}, "10.1.1.4]", "10.1.1.4, 10.1.1.9]"},
		{"JSON", inJSON, "10.1.1.2", 0, Change{Weight: weight(3), JSON: true}, `"10.1.1.2:8443"`, `{"address": "10.1.1.2:8443", "weight": 3}`},
		{"JSON mapping", inJSON, "10.1.1.3", 0, Change{Weight: weight(3), JSON: true}, `"10.1.1.3:8443"}`, `"10.1.1.3:8443", "weight": 3}`},
		{"added to JSON", inJSON, "10.1.1.4", 80, Change{Add: true, JSON: true}, `8443"}]}`, `8443"}, "10.1.1.4:80"]}`},
		{"one server without a list", "kind: Balance\nname: web\nbackends: 10.1.1.2 # one\n", "10.1.1.3", 0, Change{Add: true}, "10.1.1.2 #", "[10.1.1.2, 10.1.1.3] #"},
		{"the last one of a block", "kind: Balance\nname: web\nbackends:\n- 10.1.1.2", "10.1.1.2", 0, Change{Remove: true}, "backends:\n- 10.1.1.2", "backends: []\n"},
		{"the first one", "kind: Balance\nname: web\nbackends: []\n", "10.1.1.2", 0, Change{Add: true}, "[]", "[10.1.1.2]"},
	} {
		c.change.Balance = model.ServiceName{Namespace: "default", Name: "web"}
		c.change.Address, c.change.Port = netip.MustParseAddr(c.server), c.port
		got, err := File([]byte(c.text), c.change)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if want := strings.Replace(c.text, c.old, c.new, 1); string(got) != want || want == c.text {
			t.Errorf("%s:\n%s\nwant\n%s", c.what, got, want)
		}
		c.change.Add = c.change.Add || c.change.Weight != nil
		if again, err := File(got, c.change); err != nil || string(again) != string(got) {
			t.Errorf("%s: the second time changes %s (%v)", c.what, again, err)
		}
	}
}

// TestFileRefuses: what cannot be changed alone is an error, and not a damaged file.
func TestFileRefuses(t *testing.T) {
	set := Change{Balance: model.ServiceName{Namespace: "default", Name: "web"}, Address: netip.MustParseAddr("10.1.1.2"), Weight: weight(3)}
	for text, want := range map[string]string{
		"kind: Balance\nname: db\nbackends: [10.1.1.2]\n":            "none of the files",
		"kind: Balance\nname: web\nbackends: [10.1.1.3]\n":           "has no server 10.1.1.2",
		"kind: Balance\nname: web\n":                                 "no field backends",
		"kind: Balance\nname: web\nbackends: [&a 10.1.1.2]\n":        "anchor",
		"a: &a [10.1.1.2]\nkind: Balance\nname: web\nbackends: *a\n": "by hand",
		"kind: Balance\nname: web\nbackends: [!!str 10.1.1.2]\n":     "tag",
		"kind: [\n": "did not find",
		"kind: Balance\rname: web\rbackends:\r- '10.1.1.2'\r":                      "line breaks",
		"# a\u2028# b\u0085# c\nkind: Balance\nname: web\nbackends:\n- '10.1.1.2'": "line breaks",
		"\xff\xfe" + utf16("kind: Balance\nname: web\nbackends: [10.1.1.2]\n"):     "UTF-8",
		"kind: Balance\nname: web\nbackends:\n- address:\n    10.1.1.2\n#":         "",
	} {
		got, err := File([]byte(text), set)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want an error with %q", text, got, err, want)
		}
	}
}

// utf16 returns a text of ASCII in UTF-16, which YAML allows.
func utf16(text string) (out string) {
	for _, c := range []byte(text) {
		out += string([]byte{c, 0})
	}
	return out
}

// TestWrite: links stay, and owner and permissions of the file.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target.yaml"), filepath.Join(dir, "conf.d", "web.yaml")
	if err := os.Mkdir(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, []byte(flow), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	set := Change{Balance: model.ServiceName{Namespace: "default", Name: "web"}, Address: netip.MustParseAddr("10.1.1.2"), Weight: weight(3)}
	valid := func(string, []byte) error { return nil }
	path, changed, err := Write([]string{filepath.Dir(link)}, set, valid)
	if path != link || !changed || err != nil {
		t.Fatalf("%s, %v, %v", path, changed, err)
	}
	if _, changed, err := Write([]string{link}, set, valid); changed || err != nil {
		t.Errorf("the second time: %v, %v", changed, err)
	}
	about, err := os.Stat(target)
	if err != nil || about.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", about.Mode(), err)
	}
	if to, err := os.Readlink(link); to != target || err != nil {
		t.Errorf("the link leads to %s, %v", to, err)
	}
	text, _ := os.ReadFile(target)
	set.Weight = weight(4)
	if _, _, err := Write([]string{link}, set, func(string, []byte) error { return os.ErrInvalid }); err == nil {
		t.Error("an invalid content was written")
	}
	if after, _ := os.ReadFile(target); string(after) != string(text) {
		t.Errorf("the file is %s", after)
	}
}
