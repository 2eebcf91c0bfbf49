package input

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const importedFiles = "../../../internal/source/importer/testdata/"

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
		r := program.Run("", "import", importedFiles+file)
		if r.Code != want.code || !strings.HasPrefix(r.Stderr, want.stderr) {
			t.Errorf("import %s: code %d, %s", file, r.Code, r.Stderr)
		}
		if v := program.Run(r.Stdout, "validate", "-f", "-"); v.Code != 0 {
			t.Errorf("%s: %s%s", file, v.Stdout, v.Stderr)
		}
	}
	const listen = "listen web\nbind :443\nserver a 10.128.0.2:8443 check\n"
	r := program.Run(listen, "import", "-", "--format", "haproxy", "--address", "203.0.113.10,2001:db8::10")
	if r.Code != 0 || !strings.Contains(r.Stdout, `listen: [203.0.113.10:443, "[2001:db8::10]:443"]`) || !strings.HasPrefix(r.Stderr, "1 Balance, 1 remark in") {
		t.Errorf("code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// TestImportPage: the example of docs/import.md is what the command prints.
func TestImportPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/import.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := fence.FindAllString(string(page), 3)
	config := strings.Trim(blocks[0], "`\n") + "\n"
	r := program.Run(config, "import", "-")
	if want := "```console\n$ nftproxy import shop.cfg >shop.yaml\n" + r.Stderr + "```"; blocks[1] != want {
		t.Errorf("the page has\n%s\nwant\n%s", blocks[1], want)
	}
	if want := "```yaml\n" + strings.Replace(r.Stdout, "standard input", "shop.cfg", 1) + "```"; blocks[2] != want {
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
		r := program.Run("hello\n", append([]string{"import"}, strings.Fields(args)...)...)
		if r.Code != 2 || r.Stdout != "" || !strings.Contains(r.Stderr, want) {
			t.Errorf("import %s: code %d, %s%s, want %s", args, r.Code, r.Stdout, r.Stderr, want)
		}
	}
}
