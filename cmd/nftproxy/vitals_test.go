package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestHealthThatActs: 10.31 to 10.33. The page, the file, the program and the address follow the last usable server of
// a Balance, also of one server alone, whose rules do not change; and nothing changes while nftproxy is
// down.
func TestHealthThatActs(t *testing.T) {
	lab := netlab.TestLab(t, 2)
	ns, dir := lab.Node.Namespace, t.TempDir()
	out, err := ns.Output("sh", "-c", "ip -o route get "+lab.Client.IPv4.String()+" | sed 's/.* dev \\([^ ]*\\).*/\\1/'")
	if err != nil {
		t.Fatal(err)
	}
	link := strings.TrimSpace(out)
	announced := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("the address on %s: %v", link, want), func() bool {
			out, err := ns.Output("ip", "-o", "address", "show", "dev", link, "to", "203.0.113.11/32")
			return err == nil && (out != "") == want
		})
	}
	first, second := &server{pod: lab.Pods[0]}, &server{pod: lab.Pods[1]}
	first.set(t, true)
	second.set(t, true)
	conf := writeFile(t, strings.NewReplacer("FIRST", first.pod.IPv4.String(), "SECOND", second.pod.IPv4.String()).Replace(announcedBalance)+
		fmt.Sprintf("---\nkind: Balance\nname: one\nnamespace: shop\nlisten: 203.0.113.11:80\nbackends: [\"%s:8081\"]\ncheck: {tcp, interval: 200ms, rise: 1, fall: 2}\nannounce: %s\n", second.pod.IPv4, link))
	calls, script, health := filepath.Join(dir, "calls"), filepath.Join(dir, "program"), filepath.Join(dir, "health")
	page := regexp.MustCompile("(?s)<!-- begin change -->\n\n```sh\n(.*?)```").FindStringSubmatch(readText(t, "../../docs/ecmp.md"))
	if page == nil {
		t.Fatal("docs/ecmp.md has no program")
	}
	program := strings.ReplaceAll(page[1], "ip route ", "echo ip route >>"+calls+" ") +
		"echo $NFTPROXY_SERVICE $NFTPROXY_STATE $NFTPROXY_USABLE/$NFTPROXY_SERVERS$HOME >>" + calls + "\n"
	if err := os.WriteFile(script, []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func() *process {
		return startCommand(t, ns, asNftproxy(t, "run", "-f", conf, "--health-directory", health, "--on-change", script, "--healthz-bind-address", "127.0.0.1:7014"))
	}
	p := run()
	is := func(name, file string, code int, lines ...string) {
		t.Helper()
		eventually(t, strings.Join(lines, ", "), func() bool {
			value, _ := os.ReadFile(filepath.Join(health, strings.ReplaceAll(name, "/", "_")))
			got, _ := get(t, ns, "http://127.0.0.1:7014/healthz/"+name)
			log, _ := os.ReadFile(calls)
			for _, line := range lines {
				if !strings.Contains(string(log), line+"\n") {
					return false
				}
			}
			return string(value) == file+"\n" && got == code
		})
	}
	is("default/web", "0", 200, "ip route replace blackhole 198.51.100.10/32", "default/web usable 2/2")
	is("shop/one", "0", 200, "shop/one usable 1/1")
	announced(true)
	second.set(t, false)
	is("shop/one", "1", 503, "shop/one unusable 0/1")
	announced(false)
	is("default/web", "0", 200)
	first.set(t, false)
	is("default/web", "1", 503, "ip route flush exact 198.51.100.10/32", "default/web unusable 0/2")
	if code, _ := get(t, ns, "http://127.0.0.1:7014/healthz/shop/other"); code != 404 {
		t.Errorf("an unknown Balance: %d", code)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(t, 0)
	if value, err := os.ReadFile(filepath.Join(health, "default_web")); string(value) != "1\n" {
		t.Errorf("while nftproxy is down: %q, %v", value, err)
	}
	first.set(t, true)
	run()
	is("default/web", "0", 200, "default/web usable 1/2")
	log, err := os.ReadFile(calls)
	if err != nil || strings.Count(string(log), "default/web") != 3 || strings.Count(string(log), "ip route") != 3 {
		t.Errorf("calls: %s, %v", log, err)
	}
}
