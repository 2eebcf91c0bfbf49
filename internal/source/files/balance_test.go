package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestBalanceProblems: 1.43 to 1.46, each mistake is named where it was made.
func TestBalanceProblems(t *testing.T) {
	const where, servers = "listen: 203.0.113.10:443", "backends: [10.128.0.2]"
	const tooMany = "makes more than 1024 ports that lead to others, or to different ones of each backend: keep the ports, or use several Balances"
	for _, c := range []struct{ name, fields, want string }{
		{"no listen", servers, "listen: missing: write where clients connect to, like 203.0.113.10:443"},
		{"empty listen", "listen: []\n" + servers, "listen: missing: write where clients connect to, like 203.0.113.10:443"},
		{"no backends", where, "backends: missing: write the addresses of the servers, like 10.0.0.2:8443"},
		{"null backends", where + "\nbackends:", "backends: missing: write the addresses of the servers, like 10.0.0.2:8443"},
		{"IPv6 without port", `listen: "2001:db8::10"` + "\n" + servers, `listen: "2001:db8::10" has no port: write it like "[2001:db8::10]:443"`},
		{"brackets", `listen: "[2001:db8::10"` + "\n" + servers, `listen: "[2001:db8::10" is not an address with a port: write it like "[2001:db8::10]:443"`},
		{"behind brackets", `listen: "[2001:db8::10]443"` + "\n" + servers, `listen: "[2001:db8::10]443" is not an address with a port: write it like "[2001:db8::10]:443"`},
		{"all ports of no address", `listen: "*:all"` + "\n" + servers, `listen: "*:all" would take all ports of this machine, also those of its own programs: name ports`},
		{"all ports of an interface", "listen: eth0:all\n" + servers, `listen: "eth0:all" would take all ports of this machine, also those of its own programs: name ports`},
		{"all addresses twice", "listen: [':80', '*:80']\n" + servers, `listen[1]: "*:80" has tcp 80 of all addresses, as listen[0]: remove one of them`},
		{"other ports of an interface", "listen: [':80', 'eth0:81']\n" + servers, `listen[1]: "eth0:81" makes a difference: all addresses has tcp 80, and interface eth0 has not; give all addresses the same ports, or write a Balance for each`},
		{"clients of one family for all addresses", "listen: ':80'\n" + servers + "\nclients: 192.0.2.0/24",
			`clients: has no IPv6 range, and listen has all addresses: add a range, or "::/0" for all clients`},
		{"a name", "listen: www.example.com:80\n" + servers, `listen: "www.example.com" is a name: listen has addresses of this machine, or an interface; write one`},
		{"a URL", "listen: http://203.0.113.10:80/\n" + servers, `listen: "http://203.0.113.10:80/" is a URL: write 203.0.113.10:80`},
		{"backend URL", where + "\nbackends: http://10.1.1.2:8080", `backends: "http://10.1.1.2:8080" is a URL: write 10.1.1.2:8080`},
		{"leading zeros", "listen: 203.0.113.010:80\n" + servers, `listen: "203.0.113.010" has leading zeros, which other programs read as octal: write 203.0.113.10`},
		{"leading zeros of a port", "listen: 203.0.113.10:080\n" + servers, `listen: "080" has leading zeros: write 80`},
		{"leading zeros of a range", "listen: 203.0.113.10:80-090\n" + servers, `listen: "80-090" has leading zeros: write 90`},
		{"leading zeros of a backend", where + "\nbackends: [10.1.1.02]", `backends[0]: "10.1.1.02" has leading zeros, which other programs read as octal: write 10.1.1.2`},
		{"leading zeros of a backend's port", where + "\nbackends: [{address: 10.1.1.2, port: '08080'}]", `backends[0].port: "08080" has leading zeros: write 8080`},
		{"leading zeros of a client", where + "\n" + servers + "\nclients: [192.0.2.007/32]", `clients[0]: "192.0.2.007/32" has leading zeros, which other programs read as octal: write 192.0.2.7/32`},
		{"leading zeros of a denied client", where + "\n" + servers + "\ndeny: [192.0.2.007]", `deny[0]: "192.0.2.007" has leading zeros, which other programs read as octal: write 192.0.2.7`},
		{"a rate without unit", where + "\n" + servers + "\nlimits: {rate: 10}", "limits.rate: 10 is not a rate of connections: write it like 100/second, 30/minute or 100/second burst 20"},
		{"a counting scheduler", where + "\n" + servers + "\nscheduler: leastconn", `scheduler: "leastconn" is unknown: the kernel's rules do not count the open connections of a server; use "round-robin", with weights for unequal servers`},
		{"a slow start without unit", where + "\n" + servers + "\nslowStart: 30", "slowStart: 30 is not a duration: write it like 30s or 5m"},
		{"a slow start as text without unit", where + "\n" + servers + "\nslowStart: \"30\"", `slowStart: "30" is not a duration: write it like 30s or 5m`},
		{"a short slow start", where + "\n" + servers + "\nslowStart: 1ms", `slowStart: "1ms" is not the time of a slow start: use 1s to 1h, with its unit`},
		{"a slow start of the past", where + "\n" + servers + "\nslowStart: -30s", `slowStart: "-30s" is not the time of a slow start: use 1s to 1h, with its unit`},
		{"a slow start for ever", where + "\n" + servers + "\nslowStart: 10000h", `slowStart: "10000h0m0s" is not the time of a slow start: use 1s to 1h, with its unit`},
		{"colon", `listen: "203.0.113.10:"` + "\n" + servers, `listen: "203.0.113.10:" has a ':' and no port: add the port, or remove it`},
		{"port 0", "listen: 203.0.113.10:0\n" + servers, `listen: "0" is not a port: use 1 to 65535, or a range such as 5000-5099`},
		{"sign", "listen: 203.0.113.10:+5\n" + servers, `listen: "+5" is not a port: use 1 to 65535, or a range such as 5000-5099`},
		{"number", "listen: 443\n" + servers, "listen: 443 is not an address with a port: write it like 203.0.113.10:443"},
		{"number in a list", "listen: [80, 203.0.113.10:443]\n" + servers, "listen[0]: 80 is not an address with a port: write it like 203.0.113.10:80"},
		{"protocol", where + "\n" + servers + "\nprotocol: tcp, upd", `protocol: "upd" is not a protocol: did you mean udp?`},
		{"protocol twice", where + "\n" + servers + "\nprotocol: [tcp, TCP]", `protocol[1]: "TCP" is given twice: remove one of them`},
		{"twice", "listen: [203.0.113.10:443, 203.0.113.10:440-450]\n" + servers, `listen[1]: "203.0.113.10:440-450" has tcp 443 of 203.0.113.10, as listen[0]: remove one of them`},
		{"different ports", "listen: [203.0.113.10:443, 203.0.113.11:443, 203.0.113.11:80]\n" + servers,
			`listen[1]: "203.0.113.11:443" makes a difference: 203.0.113.11 has tcp 80, and 203.0.113.10 has not; give all addresses the same ports, or write a Balance for each`},
		{"many ports", "listen: 203.0.113.10:1-1024\nprotocol: tcp, udp\nbackends: [10.128.0.2:2001-3024]", `listen: "203.0.113.10:1-1024" ` + tooMany},
		{"different ports of backends", "listen: [203.0.113.10:1-512, 203.0.113.10:1000-65535]\nbackends: [10.128.0.2, 10.128.0.3:80]", `listen[1]: "203.0.113.10:1000-65535" ` + tooMany},
		{"all ports and one of them", "listen: [203.0.113.10:all/udp, 203.0.113.10:53/udp]\n" + servers, `listen[1]: "203.0.113.10:53/udp" has udp 53 of 203.0.113.10, as listen[0]: remove one of them`},
		{"ranges that overlap", "listen: [203.0.113.10:70-90, 203.0.113.10:60-69, 203.0.113.10:50-100]\n" + servers, `listen[2]: "203.0.113.10:50-100" has tcp 60 of 203.0.113.10, as listen[1]: remove one of them`},
		{"ranges that differ", "listen: [203.0.113.10:70-90, 203.0.113.11:70-79, 203.0.113.11:81-90]\n" + servers,
			`listen[1]: "203.0.113.11:70-79" makes a difference: 203.0.113.10 has tcp 80, and 203.0.113.11 has not; give all addresses the same ports, or write a Balance for each`},
		{"all without brackets", "listen: 2001:db8::10:all\n" + servers, `listen: "2001:db8::10:all" is not an IP address: write it like 10.96.0.1 or fd00::1`},
		{"backend range", "listen: [203.0.113.10:100-199, 203.0.113.10:80]\nbackends: [10.128.0.2:200-299]",
			"backends[0]: has 100 ports for 1 of listen: give a range of the same length, one port for all, or none to keep the port"},
		{"misspelt address", where + "\nbackends: 10.128.0.l:80", `backends: "10.128.0.l" is not an IP address: write it like 10.96.0.1 or fd00::1, or a name like app.example.com`},
		{"misspelt name", where + "\nbackends: web..example.com", `backends: "web..example.com" is neither an address nor a name: a name has labels of 1 to 63 letters, digits and '-', between dots`},
		{"this machine", where + "\nbackends: localhost:80", `backends: "localhost" stands for this machine itself, where packets of clients do not get: let the server listen on an address of an interface, and write that address; or write relay: true, and 127.0.0.1 or ::1`},
		{"relay of UDP", "listen: 203.0.113.10:53/udp\n" + servers + "\nrelay: true", `listen: "203.0.113.10:53/udp" is of udp, and relay is for TCP: use another Balance for it, without relay`},
		{"relay of a range", "listen: 203.0.113.10:80-90\n" + servers + "\nrelay: true", `listen: "203.0.113.10:80-90" is a range of ports, and relay is for single ports: write these, or relay: false`},
		{"relay that keeps clients", where + "\n" + servers + "\nrelay: true\nclientAddresses: keep", "clientAddresses: is not possible with relay: its connections come from this machine; write clientAddresses: masquerade, and relay: proxy-v2 for a server that reads the PROXY protocol, or relay: false"},
		{"relay with affinity", where + "\n" + servers + "\nrelay: true\naffinity: 10m", "affinity: is not possible with relay: write affinity: 0s and scheduler: source-hash, which gives a client the same server while the servers stay"},
		{"relay with tables", where + "\n" + servers + "\nrelay: true\nscheduler: maglev", "scheduler: is not possible with relay, which has no tables: use round-robin, random or source-hash"},
		{"relay on the fast path", where + "\n" + servers + "\nrelay: true\nfastPath: use", "fastPath: is not possible with relay: packets go to nftproxy run; write fastPath: avoid, or relay: false"},
		{"relay that is observed", where + "\n" + servers + "\nrelay: true\nobserve: connections", "observe: is not possible with relay: rules do not know which server it uses; write observe: none, or relay: false"},
		{"relay with samples", where + "\n" + servers + "\nrelay: true\ncheck: passive", "check: of type passive is not possible with relay: rules do not know which server it uses; use tcp or another type"},
		{"relay to itself", where + "\nbackends: 203.0.113.10\nrelay: true", `backends: "203.0.113.10" is an address and port of listen, not of a server: connections would come back to this machine; write the address of the server`},
		{"an unknown relay", where + "\n" + servers + "\nrelay: proxy", `relay: "proxy" is unknown: use "true" or "proxy-v2"`},
		{"no relay", where + "\nbackends: 127.0.0.1:80\nrelay: false", `backends: "127.0.0.1" stands for this machine itself, where packets of clients do not get: let the server listen on an address of an interface, and write that address; or write relay: true, and 127.0.0.1 or ::1`},
		{"loopback", where + "\nbackends: 127.0.0.1:80", `backends: "127.0.0.1" stands for this machine itself, where packets of clients do not get: let the server listen on an address of an interface, and write that address; or write relay: true, and 127.0.0.1 or ::1`},
		{"port of a name", where + "\nbackends: app.example.com:0", `backends: "0" is not a port: use 1 to 65535, or a range such as 5000-5099`},
		{"name twice", where + "\nbackends: [app.example.com:80, {address: App.example.com, port: 80}]", `backends[1].address: "App.example.com" is also backends[0]: remove one of them, or give one a weight`},
		{"port of SRV records", where + "\nbackends: _http._tcp.example.com:80", `backends: "_http._tcp.example.com:80" has SRV records, which say the port, the weight and the priority: leave out the port`},
		{"weight of SRV records", where + "\nbackends: [{address: _http._tcp.example.com, weight: 3}]", `backends[0].address: "_http._tcp.example.com" has SRV records, which say the port, the weight and the priority: leave out the weight`},
		{"range for SRV records", "listen: 203.0.113.10:80-90\nbackends: _http._tcp.example.com", `backends: "_http._tcp.example.com" has SRV records, which lead to one port, and listen[0] has a range: write single ports`},
		{"link-local", where + `
backends: ["fe80::1"]`, `backends[0]: "fe80::1" is a link-local address: use one that can be routed`},
		{"backend twice", where + "\nbackends: [10.128.0.2:80, {address: 10.128.0.2, port: 80}]", `backends[1].address: "10.128.0.2" is also backends[0]: remove one of them, or give one a weight`},
		{"two ports", where + "\nbackends: [{address: 10.128.0.2:80, port: 81}]", "backends[0].port: 81 is given in the address, too: remove one of them"},
		{"weight", where + "\nbackends: [{address: 10.128.0.2, weight: -1}]", "backends[0].weight: -1 is not a weight: use 0 to 100"},
		{"text weight", where + "\nbackends: [{address: 10.128.0.2, weight: '3'}]", `backends[0].weight: "3" is text, not a number: leave out the quotes`},
		{"priority", where + "\nbackends: [{address: 10.128.0.2, priority: 10}]", "backends[0].priority: 10 is not a priority: use 0 to 9, where 0 comes first"},
		{"backup", where + "\nbackends: [{address: 10.128.0.2, backup: yes please}]", `backends[0].backup: "yes please" is not a truth value: use true or false, without quotes`},
		{"list in a list", where + "\nbackends: [[10.128.0.2]]", `backends[0]: is not an object: write its fields as "name: value"`},
		{"affinity", where + "\n" + servers + "\naffinity: 25h", `affinity: "25h0m0s" is not the time that a client stays: use whole seconds, 1s to 24h`},
		{"part of a second", where + "\n" + servers + "\naffinity: 1500ms", `affinity: "1.5s" is not the time that a client stays: use whole seconds, 1s to 24h`},
		{"affinity number", where + "\n" + servers + "\naffinity: 600", "affinity: 600 is not a duration: write it like 30s or 5m"},
		{"limits", "listen: 203.0.113.10:443\n" + servers + "\nlimits: {connections: 0}",
			`limits.connections: 0 is not a number of connections: use 1 to 50000`},
		{"rate of clients", "listen: 203.0.113.10:443\n" + servers + "\nlimits: {ratePerClient: fast}", `limits.ratePerClient: "fast" is not a rate of connections: write it like 100/second, 30/minute or 100/second burst 20`},
		{"limit without a name", "listen: 203.0.113.10:443\n" + servers + "\nlimits: 100/second", `limits: "100/second" is not an object: write its fields as "name: value"`},
		{"clients of one family", `listen: ["203.0.113.10:443", "[2001:db8::10]:443"]` + "\n" + servers + "\nclients: 192.0.2.0/24",
			`clients: has no IPv6 range, and listen has 2001:db8::10: add a range, or "::/0" for all clients`},
		{"denied", where + "\n" + servers + "\ndeny: [192.0.2.7, 192.0.2.0/33]", `deny[1]: "192.0.2.0/33" has a wrong prefix length: use 0 to 32 after the '/'`},
		{"check", where + "\n" + servers + "\ncheck: {http: /x, timeout: 1h}", `check.timeout: "1h" is out of range: use 10ms to 1m`},
		{"check of another protocol", where + "\n" + servers + "\nprotocol: udp\ncheck: http", "check: is of type http, which fits none of the ports: name the port of the endpoints to check, such as {http, port: 8080}"},
		{"name", where + "\n" + servers + "\nnamespace: A_b", `namespace: "A_b" is not a namespace: use lower case letters, digits and '-'`},
		{"misspelt", "listn: 203.0.113.10:443\n" + servers, "listn: unknown field: did you mean listen?"},
		{"mapping for a list", "listen:\n  a: 3\n" + servers, "listen[0]: is a list or an object: a single value belongs here"},
		{"one backend", where + "\nbackends:\n  address: 10.128.0.2\n  wieght: 3", "backends[0].wieght: unknown field: did you mean weight?"},
		{"spec", where + "\n" + servers + "\nspec: {}", "spec: unknown field: a Balance has its fields at the top, like name and listen"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load("kind: Balance\nname: web\n" + c.fields + "\n")
			if err == nil {
				t.Fatalf("no error, want %s", c.want)
			}
			if line := lineOf(t, err); c.name == "one backend" && line != 6 {
				t.Errorf("line %d, want 6", line)
			}
			_, got, _ := strings.Cut(err.Error(), "): ")
			_, got, _ = strings.Cut(got, ": ")
			if got != c.want {
				t.Errorf("\n%s, want\n%s", got, c.want)
			}
		})
	}
}

func lineOf(t *testing.T, err error) int {
	t.Helper()
	var all manifest.Errors
	if !errors.As(err, &all) {
		t.Fatal(err)
	}
	return all[0].Line
}

// TestBalanceNames: 1.47, names of Balances and of the objects that they stand for.
func TestBalanceNames(t *testing.T) {
	const web = "kind: Balance\nname: web\nlisten: 203.0.113.10:443\nbackends: 10.128.0.2\n---\n"
	for _, c := range []struct{ name, text, want string }{
		{"twice", web + web, "document 2 (line 6): Balance web: is defined twice, first in standard input: document 1 (line 1): remove one of them"},
		{"in the default namespace", web + strings.Replace(web, "name: web", "name: web\nnamespace: default", 1),
			"Balance web: is defined twice, first in standard input: document 1 (line 1): remove one of them"},
		{"a Service", web + service("web", "10.96.0.1"), "Service default/web: has the name of Balance web in standard input: document 1 (line 1): rename one of them"},
		{"after a Service", service("web", "10.96.0.1") + "---\n" + web, "Balance web: has the name of Service default/web in standard input: document 1 (line 1): rename one of them"},
		{"a slice", web + "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: {kubernetes.io/service-name: x}}\naddressType: IPv4\n",
			"EndpointSlice default/web-1: has the name of one for which Balance web in standard input: document 1 (line 1) stands: rename one of them"},
		{"after a slice", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: {kubernetes.io/service-name: x}}\naddressType: IPv4\n---\n" + web,
			"Balance web: stands for EndpointSlice default/web-1, which is in standard input: document 1 (line 1), too: rename one of them"},
		{"dots", strings.Replace(web, "name: web", "name: web.example", 1), `name: "web.example" is not a name: use at most 63 lower case letters, digits and '-'`},
	} {
		if _, err := load(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	in, err := load(web + strings.Replace(web, "name: web", "name: web\nnamespace: shop", 1))
	if err != nil || in.Objects["Balance"] != 2 {
		t.Fatalf("%v, %v", in, err)
	}
	want := "map[Balance web:standard input: document 1 (line 1) Balance shop/web:standard input: document 2 (line 6)]"
	if got := fmt.Sprint(in.Places()); got != want {
		t.Errorf("places %s, want %s", got, want)
	}
}

// FuzzBalance: a Balance is expanded or has problems. The objects of a valid one have
// none, and lead to the same snapshot.
func FuzzBalance(f *testing.F) {
	for _, s := range sourcetest.Seeds(f) {
		if text := string(s); strings.Contains(text, "Balance") && len(text) < 4096 {
			for document := range strings.SplitSeq(text, "---\n") {
				f.Add(document)
			}
		}
	}
	f.Add(`{"kind": "Balance", "name": "a", "listen": "1.2.3.4:1-3/udp", "backends": [{"address": "::1:2:3", "port": "5-7"}, "1.2.3.4"], "check": {"udp": "echo"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		in, err := (&Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text), Keep: true}).Load()
		if err != nil {
			sourcetest.CheckErrors(t, err)
			return
		}
		var objects strings.Builder
		if err := in.WriteManifests(&objects); err != nil {
			t.Fatal(err)
		}
		again, err := load(objects.String())
		if err != nil {
			t.Fatalf("%v in\n%s", err, &objects)
		}
		for _, s := range slices.Concat(in.Snapshot.Services, again.Snapshot.Services) {
			s.Balance = false
		}
		if diff := cmp.Diff(snapshotText(t, in.Snapshot), snapshotText(t, again.Snapshot)); diff != "" {
			t.Errorf("(-input +objects):\n%s\n%s", diff, &objects)
		}
	})
}

func snapshotText(t *testing.T, s *model.Snapshot) string {
	t.Helper()
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRangeWithHostBits: 1.49. A range of clients that is written as one of its addresses
// is used, with a warning.
func TestRangeWithHostBits(t *testing.T) {
	in, err := (&Reader{Paths: []string{"-"}, Stdin: strings.NewReader("kind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackends: [10.128.0.2]\nclients: [192.0.2.7/24, 192.0.2.0/24, 198.51.100.7]\ndeny: [192.0.2.9/30]\n")}).Load()
	if err != nil {
		t.Fatal(err)
	}
	const tail = ": write the range, or the address alone"
	want := []string{
		`clients[0]: "192.0.2.7/24" stands for 192.0.2.0/24, which has "192.0.2.7"` + tail,
		`deny[0]: "192.0.2.9/30" stands for 192.0.2.8/30, which has "192.0.2.9"` + tail,
	}
	if got := in.Warnings.Lines(); len(got) != len(want) || !strings.Contains(got[0], want[0]) || !strings.Contains(got[1], want[1]) {
		t.Errorf("warnings %q", got)
	}
}

// TestBalanceRanges: 1.44, 1.58. Ranges that keep their ports or lead to one are native,
// of any length.
func TestBalanceRanges(t *testing.T) {
	for _, c := range []struct{ fields, want, ports string }{
		{"listen: 203.0.113.10:10000-20000/udp, backends: [10.128.0.2, 10.128.0.3]", "10000-20000/udp", "[]"},
		{"listen: 203.0.113.10:10000-20000/udp, backends: [10.128.0.2:10000-20000, 10.128.0.3]", "10000-20000/udp", "[]"},
		{"listen: 203.0.113.10:10000-20000, protocol: [tcp, udp], backends: ['10.128.0.2:5000']", "10000-20000/tcp:5000 10000-20000/udp:5000", "[]"},
		{"listen: [203.0.113.10:all, 203.0.113.11:all], backends: 10.128.0.2", "all/tcp all/udp all/sctp", "[]"},
		{"listen: 203.0.113.10:all, protocol: udp, backends: 10.128.0.2", "all/udp", "[]"},
		{"listen: '[2001:db8::1]:all/udp', backends: 'fd00::1'", "all/udp", "[]"},
		{"listen: [203.0.113.10:21, 203.0.113.10:100-200], backends: 10.128.0.2", "100-200/tcp", "[21]"},
		{"listen: 203.0.113.10:10-12, backends: ['10.128.0.2:20-22']", "", "[10 11 12]"},
		{"listen: 203.0.113.10:10-12, backends: ['10.128.0.2:20', 10.128.0.3]", "", "[10 11 12]"},
		{"listen: 203.0.113.10:10-12, backends: 10.128.0.2, affinity: 1m", "", "[10 11 12]"},
		{"listen: 203.0.113.10:10-5000, backends: 10.128.0.2, affinity: 1m", "10-5000/tcp", "[]"},
		{"listen: 203.0.113.10:10-12, backendsFrom: default/kubernetes", "10-12/tcp", "[]"},
	} {
		in, err := load("{kind: Balance, name: a, " + c.fields + "}")
		if err != nil {
			t.Errorf("%s: %v", c.fields, err)
			continue
		}
		s := in.Snapshot.Services[0]
		var got []string
		for _, r := range s.Extra().Ranges {
			got = append(got, r.Name)
			if r.OnNode == (r.Last == model.AllPorts) {
				t.Errorf("%s: %s may be on an address of the machine: %t", c.fields, r.Name, r.OnNode)
			}
		}
		var ports []uint16
		for _, p := range s.Ports {
			ports = append(ports, p.Port)
		}
		if joined := strings.Join(got, " "); joined != c.want || fmt.Sprint(ports) != c.ports {
			t.Errorf("%s: ranges %s, ports %d, want %s, %s", c.fields, joined, ports, c.want, c.ports)
		}
	}
}

// TestBalanceWords: the decoder accepts the words of the schema.
func TestBalanceWords(t *testing.T) {
	type kind struct {
		Properties map[string]struct{ Enum []any }
	}
	var schema struct{ Definitions map[string]kind }
	if err := json.Unmarshal(balance.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	root := schema.Definitions[balance.Kind]
	for _, field := range []string{"scheduler", "maglevTableSize", "clientAddresses", "onFailure"} {
		words := root.Properties[field].Enum
		if len(words) == 0 {
			t.Errorf("no words for %s", field)
		}
		for _, word := range words {
			if _, err := load("kind: Balance\nname: x\nlisten: 1.2.3.4:5\nbackends: 1.2.3.5\n" + field + ": " + fmt.Sprint(word) + "\n"); err != nil {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
}
