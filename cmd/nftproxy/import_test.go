package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const importedFiles = "../../internal/source/importer/testdata/"

// TestImport: 12.95, a configuration of another load balancer becomes a file that validates.
func TestImport(t *testing.T) {
	for file, want := range map[string]struct {
		code   int
		stderr string
	}{
		"haproxy.cfg":     {1, "3 Balances, 26 remarks in comments, 17 of them about what differs\nnot used: listen legacy, line 53: line 55: no equivalent of send-proxy"},
		"keepalived.conf": {1, "1 Balance, 7 remarks in comments, 4 of them about what differs\nnot used: virtual_server group resolvers, line 53: line 65: MISC_CHECK"},
		"ipvsadm.save":    {1, "3 Balances, 7 remarks in comments, 7 of them about what differs\nnot used: -f 9, line 8: it goes by a mark"},
	} {
		r := execute("", "import", importedFiles+file)
		if r.code != want.code || !strings.HasPrefix(r.stderr, want.stderr) {
			t.Errorf("import %s: code %d, %s", file, r.code, r.stderr)
		}
		if v := execute(r.stdout, "validate", "-f", "-"); v.code != 0 {
			t.Errorf("%s: %s%s", file, v.stdout, v.stderr)
		}
	}
	const listen = "listen web\nbind :443\nserver a 10.128.0.2:8443 check\n"
	r := execute(listen, "import", "-", "--format", "haproxy", "--address", "203.0.113.10,2001:db8::10")
	if r.code != 0 || !strings.Contains(r.stdout, `listen: [203.0.113.10:443, "[2001:db8::10]:443"]`) || !strings.HasPrefix(r.stderr, "1 Balance, 1 remark in") {
		t.Errorf("code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// TestImportPage: the example of docs/import.md is what the command prints.
func TestImportPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/import.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := fence.FindAllString(string(page), 3)
	config := strings.Trim(blocks[0], "`\n") + "\n"
	r := execute(config, "import", "-")
	if want := "```console\n$ nftproxy import shop.cfg >shop.yaml\n" + r.stderr + "```"; blocks[1] != want {
		t.Errorf("the page has\n%s\nwant\n%s", blocks[1], want)
	}
	if want := "```yaml\n" + strings.Replace(r.stdout, "standard input", "shop.cfg", 1) + "```"; blocks[2] != want {
		t.Errorf("the page has\n%s\nwant\n%s", blocks[2], want)
	}
}

// TestImportErrors: 12.95, what cannot be read leaves the output empty.
func TestImportErrors(t *testing.T) {
	nul := filepath.Join(t.TempDir(), "nul")
	if err := os.WriteFile(nul, []byte("listen x\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                        "expected one file",
		"-":                       "standard input: is of no known format",
		"nowhere":                 "open nowhere: no such file",
		nul:                       "is no text: it has a NUL",
		"- --format nginx":        `standard input: "nginx" is not a format: use "haproxy", "keepalived" or "ipvsadm"`,
		"- --address 0.0.0.0":     `--address: "0.0.0.0" is no address that clients use`,
		"- --address web.example": `--address: "web.example" is no address`,
	} {
		r := execute("hello\n", append([]string{"import"}, strings.Fields(args)...)...)
		if r.code != 2 || r.stdout != "" || !strings.Contains(r.stderr, want) {
			t.Errorf("import %s: code %d, %s%s, want %s", args, r.code, r.stdout, r.stderr, want)
		}
	}
}
