package importer

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

var update = flag.Bool("update", false, "write the expected files")

// TestFiles: each configuration becomes the file beside it, which is valid.
func TestFiles(t *testing.T) {
	for _, name := range []string{"haproxy.cfg", "keepalived.conf", "ipvsadm.save"} {
		t.Run(name, func(t *testing.T) {
			input, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			got := imported(t, string(input), Options{})
			golden := filepath.Join("testdata", strings.TrimSuffix(name, filepath.Ext(name))+".yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("%v, got\n%s", err, got)
			}
			valid(t, got)
		})
	}
}

// imported returns the text of a configuration.
func imported(t *testing.T, input string, o Options) string {
	t.Helper()
	c, err := Parse(input, o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Text("it")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// valid reports a text that is no file for nftproxy run -f.
func valid(t *testing.T, text string) {
	t.Helper()
	if !strings.Contains(text, "\n---\n") {
		return // comments only
	}
	if _, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text)}).Load(); err != nil {
		t.Errorf("the file is not valid: %v\n%s", err, text)
	}
}

// TestHAProxyLines: what lines of HAProxy become.
func TestHAProxyLines(t *testing.T) {
	for lines, want := range map[string]string{
		"":                                 "- 10.0.0.1:80\n",
		"balance random(2)":                "scheduler: random\n",
		"balance source":                   "scheduler: source-hash\n",
		"balance url_param id":             "balance url_param: it looks into connections, or is not known",
		"bind 192.0.2.2:80":                `listen: [192.0.2.1:80, 192.0.2.2:80]`,
		"bind 192.0.2.2:81":                "name: x-2\nlisten: 192.0.2.2:81\n",
		"bind 192.0.2.1:90-99":             "listen: [192.0.2.1:80, 192.0.2.1:90-99]",
		"bind /run/x.sock":                 "(/run/x.sock is no address and port)",
		"bind 192.0.2.2:80 interface eth1": ": no equivalent of interface\n",
		"bind 192.0.2.2:80 accept-proxy":   ": no equivalent of accept-proxy\n",
		"bind :80":                         "listen: [192.0.2.1:80, 0.0.0.0:80]\n",
		"bind :::81 v4v6":                  "name: x-2\nlisten: \":81\"\n",
		"bind [::]:81":                     "name: x-2\nlisten: \"[::]:81\"\n",
		"disabled":                         "# Not used: it is disabled",
		"server b 10.0.0.2:80 weight 3 maxconn 9": "(no equivalent of maxconn)",
		"server b 10.0.0.2:80 ssl verify none":    "# Not used: it starts TLS to its servers",
		"server b 10.0.0.2:+10":                   "the port of a server is relative to the client",
		"server b /run/b":                         ": /run/b is no address\n",
		"server b fd00::2:80":                     `- "[fd00::2]:80"`,
		"server b":                                ": a server has no address\n",
		"server b 10.0.0.2:80 check":              "# Differs: 4: server a 10.0.0.1:80  (a server without a check has the one of the others here)",
		"server-template w 1-3 x.example:80":      "- x.example:80\n",
		"option allbackups\nserver b 10.0.0.2:80 backup\nserver c 10.0.0.3:80 backup": "- {address: 10.0.0.3:80, backup: true}",
		"rate-limit sessions 100":                                                           "limits: {rate: 100/second}",
		"source 0.0.0.0 usesrc clientip":                                                    "clientAddresses: keep",
		"source 10.0.0.9":                                                                   "connections to servers come from the address that the machine's routes choose",
		"stick on req.ssl_sni":                                                              "affinity goes by the address of the client, so",
		"tcp-request connection reject if { src 192.0.2.64/26 }":                            "deny: 192.0.2.64/26\n",
		"tcp-request connection reject unless { src 192.0.2.64/26 }":                        "clients: 192.0.2.64/26\n",
		"acl a src 192.0.2.7\ntcp-request connection reject if a":                           "deny: 192.0.2.7\n",
		"acl a src 192.0.2.7\ntcp-request connection reject if ! a":                         "clients: 192.0.2.7\n",
		"acl a src 192.0.2.7\ntcp-request connection reject if a { dst_port 80 }":           ": clients and deny are lists\n",
		"tcp-request connection reject if":                                                  ": clients and deny are lists\n",
		"tcp-request connection reject if !":                                                ": clients and deny are lists\n",
		"tcp-request connection accept if { src 192.0.2.7 }\ntcp-request connection reject": "clients: 192.0.2.7\n",
		"acl a src -f /etc/list":                                                            "(connections have no content: only lists of client addresses are used)",
		"option tcp-check\ntcp-check send PING\ntcp-check expect string PONG\ntcp-check connect port 99\nserver b 10.0.0.2:80 check": "check: {tcp, send: PING, expect: PONG, port: 99, timeout: 2s, whenAllFail: reject}",
		"option httpchk OPTIONS /x\nserver b 10.0.0.2:80 check inter 500":                                                            "check: {http: /x, interval: 500ms, timeout: 500ms, whenAllFail: reject}",
		"option httpchk HEAD /x HTTP/1.1\\r\\nHost:\\ a.example\nserver b 10.0.0.2:80 check":                                         "check: {http: /x, method: HEAD, host: ",
		"hold your horses": "# Not used: line 3: hold your horses: not known in this place",
	} {
		input := "listen x\nbind 192.0.2.1:80\n" + lines + "\nserver a 10.0.0.1:80\n"
		got := imported(t, input, Options{})
		if !strings.Contains(got, want) {
			t.Errorf("%s:\n%s\nhas no %s", lines, got, want)
		}
		valid(t, got)
	}
}

// TestHAProxyServers: what parameters of servers become that a Balance has once for all.
func TestHAProxyServers(t *testing.T) {
	const v2 = "default-server send-proxy-v2\n"
	for lines, want := range map[string]string{
		v2: "- 10.0.0.1:80\nrelay: proxy-v2\n",
		v2 + "balance source\nhash-type consistent\nsource 0.0.0.0 usesrc clientip": "- 10.0.0.1:80\nscheduler: source-hash\nrelay: proxy-v2\n",
		v2 + "stick-table type ip size 1k expire 30m\nstick on src":                 "- 10.0.0.1:80\nscheduler: source-hash\nrelay: proxy-v2\n",
		v2 + "bind 192.0.2.1:90-99":                                                 "# Not used: listen[1]: ",
		v2 + "server b 10.0.0.2:80 no-send-proxy-v2":                                "# Not used: some servers have send-proxy-v2 and others do not",
		v2 + "option httpchk GET /\nserver b 10.0.0.2:80 check":                     "# Differs: checks send no header of the PROXY protocol",
		v2 + "default-server proxy-v2-options ssl":                                  "(no equivalent of proxy-v2-options)",
		"server b 10.0.0.2:80 send-proxy":                                           "no equivalent of send-proxy: write relay: proxy-v2 if the server reads version 2",
		"server b 10.0.0.2:80 slowstart 30s":                                        "# Differs: servers have different times of slowstart: a Balance has one, here the longest",
		"default-server slowstart 60000":                                            "- 10.0.0.1:80\nslowStart: 1m\n",
		"default-server slowstart 500":                                              "# Differs: slowstart of servers is left out: slowStart is from 1s to 1h",
	} {
		got := imported(t, "listen x\nbind 192.0.2.1:80\n"+lines+"\nserver a 10.0.0.1:80\n", Options{})
		if !strings.Contains(got, want) {
			t.Errorf("%s:\n%s\nhas no %s", lines, got, want)
		}
		valid(t, got)
	}
}

// TestSharedDefaults: sections that share defaults get the same lists of clients from them.
func TestSharedDefaults(t *testing.T) {
	got := imported(t, `defaults inside
tcp-request connection reject if !{ src 10.0.0.0/8 }
listen a from inside
bind 192.0.2.1:80
server a 10.0.0.1:80
listen b from inside
bind 192.0.2.1:81
server b 10.0.0.2:80
`, Options{})
	if strings.Count(got, "\nclients: 10.0.0.0/8\n") != 2 || strings.Contains(got, "deny") {
		t.Errorf("not both allow the same clients:\n%s", got)
	}
	valid(t, got)
}

// TestDefaultsOnce: a frontend and its backend have the same defaults, which count once.
func TestDefaultsOnce(t *testing.T) {
	got := imported(t, `defaults inside
tcp-request connection reject if { src 10.0.0.0/8 }
frontend a from inside
bind 192.0.2.1:80
default_backend b
backend b from inside
server a 10.0.0.1:80
`, Options{})
	if !strings.Contains(got, "\ndeny: 10.0.0.0/8\n") {
		t.Errorf("the list is not there once:\n%s", got)
	}
	valid(t, got)
}

// TestRangeBeyond: a range whose end is no octet is not one of other networks.
func TestRangeBeyond(t *testing.T) {
	got := imported(t, "virtual_server_group g {\n192.0.2.250-300 80\n192.0.2.7 80\n}\nvirtual_server group g {\nreal_server 10.0.0.1 80 {\n}\n}\n", Options{})
	if strings.Contains(got, "192.0.3.") || !strings.Contains(got, "write the addresses out") {
		t.Errorf("got\n%s", got)
	}
}

// TestWeights: weights that are too large keep their proportion.
func TestWeights(t *testing.T) {
	for _, c := range []struct{ of, want []int32 }{
		{[]int32{1, 1}, []int32{1, 1}},
		{[]int32{100, 50}, []int32{100, 50}},
		{[]int32{200, 100, 0}, []int32{2, 1, 0}},
		{[]int32{256, 1}, []int32{100, 1}},
		{[]int32{255, 101}, []int32{100, 40}},
		{nil, nil},
	} {
		b := Balance{Balance: balance.Balance{Backends: make([]balance.Backend, len(c.of))}}
		var of []int
		for _, w := range c.of {
			of = append(of, int(w))
		}
		b.setWeights(of)
		for i, server := range b.Backends {
			got := int32(1)
			if server.Weight != nil {
				got = *server.Weight
			}
			if got != c.want[i] {
				t.Errorf("%v: weight %d is %d, want %d", c.of, i, got, c.want[i])
			}
		}
	}
}

// TestWildcards: --address stands for all addresses of the machine.
func TestWildcards(t *testing.T) {
	o := Options{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}
	got := imported(t, "listen x\nbind *:80\nbind :::81\nserver a 10.0.0.1:80\n", o)
	if want := `listen: [192.0.2.1:80, 192.0.2.1:81, "[2001:db8::1]:80", "[2001:db8::1]:81"]`; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant %s", got, want)
	}
}

// TestConflicts: a second Balance with an address and port is a comment.
func TestConflicts(t *testing.T) {
	const one = "bind 192.0.2.1:80\nserver a 10.0.0.1:80\n"
	got := imported(t, "listen x\n"+one+"listen x\n"+one, Options{})
	if valid(t, got); !strings.Contains(got, "# Not used: ") || !strings.Contains(got, "#   name: x-2\n") {
		t.Error(got)
	}
}

// TestComments: no text of a configuration leaves its comment.
func TestComments(t *testing.T) {
	got := imported(t, "listen x\nbind 192.0.2.1:80\nserver a 10.0.0.1:80\nlog \u2028kind: Balance\u0085\x1b[31m\r\v\n", Options{})
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "# 4: ") && strings.Contains(line, `\u2028kind: Balance\u0085\x1b[31m`) {
			return
		}
	}
	t.Errorf("%q", got)
}

// TestEscapes: texts outside of quotes and in double quotes have HAProxy's escapes.
func TestEscapes(t *testing.T) {
	for line, want := range map[string]string{
		`PING\r\n`:       "PING\r\n",
		`"a\tb \x41\"c"`: "a\tb A\"c",
		`'\r\x41'`:       `\r\x41`,
		`a\ b\#c\\`:      `a b#c\`,
		`\d\$"\$"\`:      `\d\$$\`,
	} {
		words, _, err := splitWords(line)
		if err != nil || len(words) != 1 || words[0] != want {
			t.Errorf("%s: %q %v, want %q", line, words, err, want)
		}
	}
}

// TestVariables: a section that has an environment variable is not used, wherever it stands.
func TestVariables(t *testing.T) {
	const text = "defaults d\nmode tcp\nfrontend a from d\nbind 192.0.2.1:80\ndefault_backend b\nbackend b from d\nserver s 10.0.0.1:80\n"
	for _, c := range []struct {
		old, new string
		line     int // of the variable; 0: there is none
	}{
		{"192.0.2.1:80", `"${ADDRESS}:80"`, 4}, {"192.0.2.1:80", `192.0.2.1:"$PORT"`, 4},
		{"10.0.0.1:80", `10.0.0.1:80 weight "$WEIGHT"`, 7}, {"default_backend b", `default_backend "$B"`, 5},
		{"frontend a", `frontend "$A"`, 3}, {"backend b from", `backend b "$D" from`, 6}, {"mode tcp", `mode "${MODE}"`, 2},
		{"server s", `server "${.LINE}"`, 7}, {"10.0.0.1:80", `10.0.0.1:80 "${OPTIONS[*]}"`, 7},
		{"server s", `server '$s'`, 0}, {"server s", `server "\$s"`, 0}, {"server s", `server $s`, 0}, {"server s", "server s 10.0.0.2:80 # \"$x\"\nserver r", 0},
	} {
		got := imported(t, strings.Replace(text, c.old, c.new, 1), Options{})
		want := fmt.Sprintf("# Not used: line %d: environment variables have no value here", c.line)
		if strings.Contains(got, want) != (c.line > 0) || c.line == 0 && strings.Contains(got, "variable") {
			t.Errorf("%s:\n%s\nwant %s", c.new, got, want)
		}
		valid(t, got)
	}
}

// TestServers: servers that several Balances have from one section are one list, and the objects of these
// Balances are the same as with a copy for each.
func TestServers(t *testing.T) {
	const front = "frontend %s\nbind 192.0.2.1:%d\ndefault_backend App_Servers\n"
	const servers = "server s1 10.0.0.1:8080 weight 2\nserver s2 10.0.0.2:8080 backup\nserver s3 [fd00::1]:8080 disabled\n"
	got := imported(t, fmt.Sprintf(front+front, "a", 80, "b", 81)+"backend App_Servers\n"+servers+"listen c\nbind 192.0.2.1:82\n"+servers, Options{})
	if strings.Count(got, "kind: Servers\nname: app-servers\nservers:\n- {address: 10.0.0.1:8080, weight: 2}\n") != 1 || strings.Count(got, "- {servers: app-servers}") != 2 {
		t.Errorf("got\n%s", got)
	}
	valid(t, got)
	copies := strings.NewReplacer("- {servers: app-servers}", "- {address: 10.0.0.1:8080, weight: 2}\n- {address: 10.0.0.2:8080, backup: true}\n- {address: \"[fd00::1]:8080\", drain: true}").Replace(got)
	if diff := cmp.Diff(objects(t, copies), objects(t, got)); diff != "" {
		t.Error(diff)
	}
	ports := imported(t, "listen x\nbind 192.0.2.1:80\nbind 192.0.2.2:81\n"+servers, Options{})
	if strings.Count(ports, "- {servers: x}") != 2 {
		t.Errorf("the Balances of one section have copies:\n%s", ports)
	}
}

// objects returns what a file holds.
func objects(t *testing.T, text string) any {
	t.Helper()
	in, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text)}).Load()
	if err != nil {
		t.Fatal(err)
	}
	return in.Manifests
}

// TestSharedBackend: a backend of many frontends ends with an error before it fills the memory.
func TestSharedBackend(t *testing.T) {
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "frontend f%d\nbind 192.0.2.1:%d\ndefault_backend b\n", i, i+1)
	}
	text.WriteString("backend b\n")
	for i := range 3000 {
		fmt.Fprintf(&text, "server s%d 10.0.%d.%d:80\n", i, i/250, i%250+1)
	}
	if _, err := Parse(text.String(), Options{}); err == nil || !strings.Contains(err.Error(), "more than 100000 servers") {
		t.Error(err)
	}
}

// TestRepeatedList: a list of clients that many lines name has each address once.
func TestRepeatedList(t *testing.T) {
	got := imported(t, "listen x\nbind 192.0.2.1:80\nserver a 10.0.0.1:80\n"+
		strings.Repeat("acl a src 192.0.2.7 192.0.2.8\ntcp-request connection reject if a\n", 300), Options{})
	if valid(t, got); !strings.Contains(got, "\ndeny: [192.0.2.7, 192.0.2.8]\n") {
		t.Errorf("%.2000s", got)
	}
}

// TestErrors: what cannot be read names the line.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"hello":                                  "no line of ipvsadm -S -n: name another file, or its format with --format",
		"global\n":                               "as a configuration of haproxy, it has no frontend or listen section",
		"global\nlog \"a\n":                      `line 2: a text in " has no end`,
		"log x\nlisten y\n":                      `line 1: "log" is before the first section`,
		"virtual_server 192.0.2.1 80 {\n":        `line 1: the block "virtual_server 192.0.2.1 80" has no end`,
		"virtual_server 192.0.2.1 80 {\n}\n}":    "line 3: no block begins before this }",
		"global_defs\n{{":                        "line 2: ",
		"vrrp_instance a {\n}\n":                 "it has no virtual_server",
		"-A -t 192.0.2.1:80\n-A -t 192.0.2.1:80": "line 2: -t 192.0.2.1:80 is added a second time",
		"-a -t 192.0.2.1:80 -r 10.0.0.1:80":      "line 1: no line before adds -t 192.0.2.1:80",
		"-A -s rr":                               "line 1: \"-A -s rr\" is no line of ipvsadm -S -n",
	} {
		if _, err := Parse(text, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := Parse("", Options{Format: "nginx"}); err == nil || !strings.Contains(err.Error(), `"nginx" is not a format: use`) {
		t.Error(err)
	}
}

// TestControlCharacters: a Balance whose values YAML cannot have is a comment, and the others are not.
func TestControlCharacters(t *testing.T) {
	c, err := Parse("listen a\n mode tcp\n bind 192.0.2.1:80\n server s 10.0.0.1:80\n server x 10.12\x00\x7f9:80 check check-ssl backup\nlisten c\n bind 192.0.2.3:80\n server s 10.\xff:80\nlisten b\n mode tcp\n bind 192.0.2.2:80\n server s 10.0.0.2:80\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Text("it")
	if err != nil || !strings.Contains(text, "# Not used: backends[1]") || !strings.Contains(text, "# Not used: backends[0]: has bytes that are no text") || !strings.Contains(text, "\nname: b\n") || strings.Contains(text, "\nname: a\n") {
		t.Errorf("%v\n%s", err, text)
	}
	valid(t, text)
}

// FuzzParse: whatever the text, of whatever format it is said to be, the file is valid, and has no
// control characters. It takes memory in proportion to the text.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*", "testdata/corpus/*"} {
		for _, extension := range []string{".cfg", ".conf", ".save"} { // the others are results
			names, _ := filepath.Glob(pattern + extension)
			for _, name := range names {
				text, err := os.ReadFile(name)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(string(text), "")
			}
		}
	}
	for _, format := range append(Formats, "nginx\x1b") {
		f.Add("listen a\n bind :80\n server a\x1b[2J 10.0.0.1:80\n", format)
		f.Add("virtual_server 192.0.2.1 80 {\n real_server 10.0.0.1 80 {\n }\n}\n", format)
		f.Add("-A -t 192.0.2.1:80 -s rr\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m\n", format)
	}
	f.Fuzz(func(t *testing.T, input, format string) {
		hostile.CheckMemory(t, len(input), perByte, func() {
			c, err := Parse(input, Options{Format: format})
			if err != nil {
				return // which is printed as any error
			}
			text, err := c.Text("it")
			if err != nil {
				t.Fatal(err)
			}
			hostile.CheckText(t, text)
			valid(t, text)
		})
	})
}

// perByte is the memory that an import may take for a byte of its input: a line of few bytes is an object.
const perByte = 64 << 10
