package files

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// written returns the objects for which files stand.
func written(t *testing.T, paths ...string) string {
	t.Helper()
	in, err := (&Reader{Paths: paths, Keep: true}).Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Warnings) > 0 {
		t.Errorf("warnings %v", in.Warnings)
	}
	var b bytes.Buffer
	check(t, in.WriteManifests(&b))
	return b.String()
}

// TestPoolsAreWrittenOut: 1.63 to 1.65. The example of two machines, with a pool and defaults, stands
// for the same objects as without them, in half as many lines.
func TestPoolsAreWrittenOut(t *testing.T) {
	short, long := "../../../deploy/pair/web.yaml", "testdata/pair.yaml"
	if written(t, short) != written(t, long) {
		t.Errorf("%s\nwant\n%s", written(t, short), written(t, long))
	}
	lines := func(path string) int {
		text, err := os.ReadFile(path)
		check(t, err)
		return bytes.Count(text, []byte("\n"))
	}
	if s, l := lines(short), lines(long); s > 25 || l < 40 {
		t.Errorf("%d lines in place of %d", s, l)
	}
}

// TestBalanceStays: 1.48. A Balance that Kubernetes has no objects for is written with all that it has
// from others, and reading it gives the same snapshot.
func TestBalanceStays(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(`kind: Defaults
relay: proxy-v2
check: tcp
scheduler: random
---
kind: Servers
name: app
servers: [127.0.0.1:8080, {address: 10.0.0.2, priority: 2}]
---
kind: Balance
name: relayed
listen: [203.0.113.10:80, "[2001:db8::10]:80"]
backends: [{servers: app, port: 81, weight: 3}, "fd00::2"]
scheduler: source-hash
---
kind: Balance
name: announced
listen: 203.0.113.11:80
backends: 10.0.0.1
check: {http: /healthz, interval: 5s}
relay: false
announce: eth0
---
kind: Balance
name: of-others
listen: eth0:80
backends: [app.example.com:8080, 10.0.0.1]
relay: false
---
kind: Balance
name: plain
listen: 203.0.113.12:80
backends: 10.0.0.1
relay: false
check: none
`), 0o600))
	text := written(t, dir)
	for _, want := range []string{`# A Balance, because Kubernetes has no objects with relay.
kind: Balance
name: relayed
listen: [203.0.113.10:80, "[2001:db8::10]:80"]
backends:
- {address: 127.0.0.1:8080, weight: 3}
- {address: 10.0.0.2, port: 81, weight: 3, priority: 2}
- fd00::2
scheduler: source-hash
check: tcp
relay: proxy-v2
`, "# A Balance, because Kubernetes has no objects with announce.\n", "# A Balance, because Kubernetes has no objects with interfaces in listen and names in backends.\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nhas no\n%s", text, want)
		}
	}
	if strings.Contains(text, "name: plain\nlisten") {
		t.Errorf("a Balance that Kubernetes has objects for stays:\n%s", text)
	}
	before, err := (&Reader{Paths: []string{dir}}).Load()
	check(t, err)
	after, err := load(text)
	check(t, err)
	for _, s := range slices.Concat(before.Snapshot.Services, after.Snapshot.Services) {
		s.Balance = false
	}
	if !reflect.DeepEqual(before.Snapshot, after.Snapshot) {
		t.Errorf("%+v\nwant %+v\n%s", after.Snapshot, before.Snapshot, text)
	}
}

// TestPoolFields: 1.63, 1.64. What a Balance gets from the entry, the pool and the defaults.
func TestPoolFields(t *testing.T) {
	const balance = "kind: Balance\nname: web\nlisten: [\"203.0.113.10:80\", \"203.0.113.10:53/udp\"]\n"
	const plain = balance + "backends: [10.0.0.1:81, {address: 10.0.0.2, port: 82}, {address: 10.0.0.3, weight: 3}]\n"
	const tcp, udp = "kind: Balance\nname: web\nlisten: 203.0.113.10:80\n", "kind: Balance\nname: web\nlisten: 203.0.113.10:53/udp\nbackends: 10.0.0.1\n"
	pool := func(fields string) string {
		return "---\nkind: Servers\nname: app\n" + fields
	}
	servers := "servers: [10.0.0.1:81, {address: 10.0.0.2, port: 82}, {address: 10.0.0.3, weight: 3}]\n"
	for _, c := range []struct{ name, given, same string }{
		{"alone", balance + "backends: {servers: app}\n" + pool(servers), plain},
		{"in a list, behind another server", balance + "backends: [10.0.0.9, {servers: app}]\n" + pool("servers: 10.0.0.1\n"), balance + "backends: [10.0.0.9, 10.0.0.1]\n"},
		{"port and weight of the entry", balance + "backends: {servers: app, port: 90, weight: 2}\n" + pool(servers),
			balance + "backends: [{address: 10.0.0.1:81, weight: 2}, {address: 10.0.0.2, port: 82, weight: 2}, {address: 10.0.0.3, port: 90, weight: 3}]\n"},
		{"stands by", balance + "backends: [10.0.0.9, {servers: app, backup: true}]\n" + pool("servers: [10.0.0.1, {address: 10.0.0.2, priority: 2}]\n"),
			balance + "backends: [10.0.0.9, {address: 10.0.0.1, backup: true}, {address: 10.0.0.2, priority: 2}]\n"},
		{"loopback addresses of a relay", "kind: Balance\nname: web\nlisten: 203.0.113.10:80\nrelay: true\nbackends: {servers: app}\n" + pool("servers: [127.0.0.1:8080, 10.0.0.1]\n"),
			"kind: Balance\nname: web\nlisten: 203.0.113.10:80\nrelay: true\nbackends: [127.0.0.1:8080, 10.0.0.1]\n"},
		{"drained", balance + "backends: [10.0.0.9, {servers: app, drain: true}]\n" + pool("servers: 10.0.0.1\n"), balance + "backends: [10.0.0.9, {address: 10.0.0.1, drain: true}]\n"},
		{"check of the pool", balance + "backends: {servers: app}\n" + pool("servers: 10.0.0.1\ncheck: tcp\n"), balance + "backends: 10.0.0.1\ncheck: tcp\n"},
		{"check of its own", balance + "backends: {servers: app}\ncheck: {http: /x}\n" + pool("servers: 10.0.0.1\ncheck: tcp\n"), balance + "backends: 10.0.0.1\ncheck: {http: /x}\n"},
		{"no check", balance + "backends: {servers: app}\ncheck: none\n" + pool("servers: 10.0.0.1\ncheck: tcp\n"), balance + "backends: 10.0.0.1\n"},
		{"check that does not fit", "kind: Balance\nname: web\nlisten: 203.0.113.10:53/udp\nbackends: {servers: app}\n" + pool("servers: 10.0.0.1\ncheck: tcp\n"),
			"kind: Balance\nname: web\nlisten: 203.0.113.10:53/udp\nbackends: 10.0.0.1\n"},
		{"defaults", plain + "---\nkind: Defaults\nscheduler: random\ncheck: tcp\nslowStart: 30s\nlimits: {rate: 10/second}\nclients: 192.0.2.0/24\n",
			plain + "scheduler: random\ncheck: tcp\nslowStart: 30s\nlimits: {rate: 10/second}\nclients: 192.0.2.0/24\n"},
		{"a field of its own", plain + "limits: {connections: 5}\nscheduler: round-robin\n---\nkind: Defaults\nscheduler: random\nlimits: {rate: 10/second}\n", plain + "limits: {connections: 5}\nscheduler: round-robin\n"},
		{"none of the defaults", plain + "affinity: 0s\nslowStart: 0s\nlimits: {}\ndeny: []\nclients: []\ncheck: none\n---\nkind: Defaults\naffinity: 10m\nslowStart: 30s\nlimits: {rate: 10/second}\ndeny: 192.0.2.0/24\nclients: 192.0.2.0/24\ncheck: tcp\n", plain},
		{"pool before defaults", balance + "backends: {servers: app}\n" + pool("servers: 10.0.0.1\ncheck: tcp\n") + "---\nkind: Defaults\ncheck: {http: /x}\n", balance + "backends: 10.0.0.1\ncheck: tcp\n"},
		{"a default without effect", plain + "---\nkind: Defaults\nmaglevTableSize: 251\nscheduler: random\n", plain + "scheduler: random\nmaglevTableSize: 251\n"},
		{"relay", tcp + "backends: [10.0.0.1, {servers: app}]\n" + pool("servers: 127.0.0.1:8080\n") + "---\nkind: Defaults\nrelay: proxy-v2\nannounce: eth0\n",
			tcp + "backends: [10.0.0.1, 127.0.0.1:8080]\nrelay: proxy-v2\nannounce: eth0\n"},
		{"no relay and more", tcp + "backends: 10.0.0.1\nrelay: false\nobserve: none\nannounce: none\n---\nkind: Defaults\nrelay: true\nannounce: eth0\n", tcp + "backends: 10.0.0.1\n"},
		{"nothing observed", tcp + "backends: 10.0.0.1\nobserve: none\n---\nkind: Defaults\nobserve: connections\n", tcp + "backends: 10.0.0.1\n"},
		{"relay beside a table by default", tcp + "backends: 10.0.0.1\nrelay: true\n---\nkind: Defaults\nmaglevTableSize: 251\n", tcp + "backends: 10.0.0.1\nrelay: true\n"},
		{"relay without a port of TCP", udp + "---\nkind: Defaults\nrelay: true\n", udp},
		{"a List", "kind: List\napiVersion: v1\nitems:\n- {kind: Servers, name: app, servers: 10.0.0.1}\n- {kind: Balance, name: web, listen: \"203.0.113.10:80\", backends: {servers: app}}\n",
			"kind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackends: 10.0.0.1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := load(c.given)
			check(t, err)
			want, err := load(c.same)
			check(t, err)
			if !reflect.DeepEqual(got.Snapshot, want.Snapshot) {
				t.Errorf("%+v\nwant %+v", got.Snapshot, want.Snapshot)
			}
		})
	}
}

// many returns a Balance that names a pool of so many servers in several entries.
func many(entries, servers int) string {
	var b strings.Builder
	b.WriteString("kind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackends:\n")
	for i := range entries {
		fmt.Fprintf(&b, "- {servers: app, port: %d}\n", 1000+i)
	}
	b.WriteString("---\nkind: Servers\nname: app\nservers:\n")
	for i := range servers {
		fmt.Fprintf(&b, "- 10.0.%d.%d\n", i/250, 1+i%250)
	}
	return b.String()
}

// TestPoolProblems: 1.66. Each mistake has the file, the object and the field.
func TestPoolProblems(t *testing.T) {
	const balance = "kind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackends: {servers: app}\n"
	for _, c := range []struct{ name, text, want string }{
		{"missing pool", balance, `document 1 (line 4): Balance web: backends[0].servers: "app" is not the name of an object of kind Servers in the files: add one, or correct the name`},
		{"similar name", balance + "---\nkind: Servers\nname: apps\nservers: 10.0.0.1\n", `backends[0].servers: "app" is not the name of an object of kind Servers in the files: did you mean apps?`},
		{"other namespace", balance + "---\nkind: Servers\nname: app\nnamespace: shop\nservers: 10.0.0.1\n", `backends[0].servers: "app" is in namespace shop: a Balance uses Servers of its own namespace, default`},
		{"address beside", strings.Replace(balance, "{servers: app}", "{servers: app, address: 10.0.0.1}", 1) + "---\n" + pool, `backends[0].servers: "app" is given beside an address: write an entry for each`},
		{"twice", balance + "---\n" + pool + "---\n" + pool, "document 3 (line 10): Servers app: is defined twice, first in standard input: document 2 (line 6): remove one of them"},
		{"cyclic", balance + "---\nkind: Servers\nname: app\nservers: {servers: app}\n", `document 2 (line 8): Servers app: servers[0].servers: "app" is a list in a list: write the addresses of its servers`},
		{"no servers", balance + "---\nkind: Servers\nname: app\n", "Servers app: servers: missing: write the addresses of the servers, like 10.0.0.2:8443"},
		{"no name", "kind: Servers\nservers: 10.0.0.1\n", "document 1 (line 1): Servers: name: missing"},
		{"backends of a pool", balance + "---\nkind: Servers\nname: app\nbackends: 10.0.0.1\n", "Servers app: backends: unknown field: the list of Servers is in servers"},
		{"weight", balance + "---\nkind: Servers\nname: app\nservers: [{address: 10.0.0.1, weight: 300}]\n", "Servers app: servers[0].weight: 300 is not a weight: use 0 to 100"},
		{"check", balance + "---\nkind: Servers\nname: app\nservers: 10.0.0.1\ncheck: htttp\n", "Servers app: check: "},
		{"server twice, by two entries", strings.Replace(balance, "{servers: app}", "[10.0.0.1, {servers: app}]", 1) + "---\n" + pool,
			`Balance web: backends[1].servers: server "10.0.0.1" of Servers app: is also backends[0]: remove one of them, or give one a weight`},
		{"loopback address without a relay", balance + "---\nkind: Servers\nname: app\nservers: 127.0.0.1\n", `document 1 (line 4): Balance web: backends[0].servers: server "127.0.0.1" of Servers app: stands for this machine itself`},
		{"too many servers", many(128, 129), `document 1 (line 132): Balance web: backends[127].servers: "app" makes more than 16384 servers of the Balance: name fewer lists, or shorter ones`},
		{"range of another length", "kind: Balance\nname: web\nlisten: 203.0.113.10:80-89\nbackends: {servers: app}\n---\nkind: Servers\nname: app\nservers: 10.0.0.1:100-104\n",
			`Balance web: backends[0].servers: server "10.0.0.1:100-104" of Servers app: has 5 ports for 10 of listen`},
		{"defaults twice", balance + "---\n" + pool + "---\nkind: Defaults\n---\nkind: Defaults\n", "document 4 (line 12): Defaults: are given twice for this directory, first in standard input: document 3 (line 10): join them"},
		{"defaults with an address", balance + "---\n" + pool + "---\nkind: Defaults\nlisten: 203.0.113.10:80\n", "document 3 (line 11): Defaults: listen: has no default: write it in each Balance"},
		{"defaults with a name", balance + "---\n" + pool + "---\nkind: Defaults\nname: x\n", "Defaults: name: has no default: write it in each Balance"},
		{"misspelt default", balance + "---\n" + pool + "---\nkind: Defaults\nchek: tcp\n", "Defaults: chek: unknown field: did you mean check?"},
		{"defaults that exclude each other", balance + "---\n" + pool + "---\nkind: Defaults\nrelay: true\naffinity: 10m\n", `Defaults: affinity: is not possible with relay: write affinity: 0s and scheduler: source-hash`},
		{"relay of a range by default", strings.Replace(balance, ":80", ":80-89", 1) + "---\n" + pool + "---\nkind: Defaults\nrelay: true\n",
			`Balance web: listen: "203.0.113.10:80-89" is a range of ports, and relay is for single ports: write these, or relay: false`},
		{"relay of loopback without a port of TCP", strings.Replace(balance, ":80", ":53/udp", 1) + "---\nkind: Servers\nname: app\nservers: 127.0.0.1\n---\nkind: Defaults\nrelay: true\n",
			`server "127.0.0.1" of Servers app: stands for this machine itself`},
		{"wrong default", balance + "---\n" + pool + "---\nkind: Defaults\nslowStart: 10000h\n", `Defaults: slowStart: "10000h0m0s" is not the time of a slow start: use 1s to 1h, with its unit`},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, err := load(c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("%v, %v\nwant %s", in, err, c.want)
			}
		})
	}
	in, err := load(pool + "---\nkind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackends: 10.0.0.9\n")
	check(t, err)
	if got := in.Warnings.Error(); !strings.Contains(got, `document 1 (line 1): Servers app: is used by no Balance: name it in one, like "backends: {servers: app}", or remove it`) {
		t.Errorf("warnings %s", got)
	}
}

// TestDefaultsOfDirectory: 1.65. Defaults are for the files of their directory alone.
func TestDefaultsOfDirectory(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for name, text := range map[string]string{
		"a/0.yaml": "kind: Defaults\nscheduler: random\n", "a/1.yaml": "kind: Balance\nname: a\nlisten: 203.0.113.10:80\nbackends: {servers: app}\n",
		"b/1.yaml": "kind: Balance\nname: b\nlisten: 203.0.113.11:80\nbackends: {servers: app}\n", "b/2.yaml": pool,
	} {
		path := filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check(t, os.WriteFile(path, []byte(text), 0o644))
		paths = append(paths, path)
	}
	in, err := (&Reader{Paths: paths}).Load()
	check(t, err)
	got := make(map[string]model.Scheduler)
	for _, s := range in.Snapshot.Services {
		got[s.Name.Name] = s.Scheduler
	}
	if want := map[string]model.Scheduler{"a": model.Random, "b": model.DefaultScheduler}; !maps.Equal(got, want) {
		t.Errorf("schedulers %v, want %v", got, want)
	}
}

// poolEdits returns texts of a file, each made of the one before by an edit of a pool, of a user, or of
// the defaults.
func poolEdits(r *rand.Rand, n int) (texts []string) {
	const pools, balances = 4, 12
	parts := make(map[string]string)
	one := func(kind string, i int) string {
		return fmt.Sprintf("kind: %s\nname: x%d\n", kind, i)
	}
	edit := func() {
		switch i := r.IntN(balances); r.IntN(8) {
		case 0, 1, 2:
			parts[fmt.Sprint("pool", i%pools)] = one("Servers", i%pools) + fmt.Sprintf("servers: [10.0.0.%d, 10.0.1.%d]\n", r.IntN(9), r.IntN(9))
		case 3:
			delete(parts, fmt.Sprint("pool", i%pools))
		case 4:
			parts["defaults"] = []string{"", "kind: Defaults\nscheduler: random\n", "kind: Defaults\ncheck: tcp\n"}[r.IntN(3)]
		case 5:
			parts[fmt.Sprint("comment", i)] = "# a comment\n" + one("Balance", 100+i) + fmt.Sprintf("listen: 203.0.114.%d:80\nbackends: 10.0.2.%d\n", i, r.IntN(9))
		default:
			parts[fmt.Sprint("balance", i)] = one("Balance", i) + fmt.Sprintf("listen: 203.0.113.%d:80\nbackends: {servers: x%d}\n", i, r.IntN(pools))
		}
	}
	for i := range pools {
		parts[fmt.Sprint("pool", i)] = one("Servers", i) + "servers: 10.0.0.1\n"
	}
	for i := range balances {
		parts[fmt.Sprint("balance", i)] = one("Balance", i) + fmt.Sprintf("listen: 203.0.113.%d:80\nbackends: {servers: x%d}\n", i, i%pools)
	}
	for range n {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			if parts[name] != "" {
				all = append(all, parts[name])
			}
		}
		texts = append(texts, strings.Join(all, "---\n"))
		edit()
	}
	return texts
}

// TestFollowPools: after each edit, a follower has the states, the changes and the problems of a
// reader that reads all for the first time.
func TestFollowPools(t *testing.T) {
	texts := poolEdits(rand.New(rand.NewPCG(7, 8)), 300)
	s, path := follow(t, []byte(texts[0]))
	c := comparison{t: t, s: s}
	for i, text := range texts {
		check(t, os.WriteFile(path, []byte(text), 0o600))
		_ = c.load(fmt.Sprintf("edit %d to\n%s\n", i, text), func() *Reader { return &Reader{Paths: []string{path}} })
	}
	if c.failed == 0 {
		t.Errorf("none of %d texts was invalid", len(texts))
	}
}

// TestPoolEditConcernsItsUsers: an edited pool makes other objects of its users, and of no other
// Balance.
func TestPoolEditConcernsItsUsers(t *testing.T) {
	text := pool + "---\nkind: Servers\nname: other\nservers: 10.0.0.7\n"
	for i := range 20 {
		text += fmt.Sprintf("---\nkind: Balance\nname: b%d\nlisten: 203.0.113.%d:80\nbackends: {servers: %s}\n", i, i, []string{"app", "other", "other", "other"}[i%4])
	}
	s, path := follow(t, []byte(text))
	_, err := s.Load()
	check(t, err)
	before := maps.Clone(s.Lookup(nil))
	check(t, os.WriteFile(path, []byte(strings.Replace(text, "10.0.0.1", "10.0.0.5", 1)), 0o600))
	u, err := s.Load()
	check(t, err)
	same := 0
	for name, state := range s.Lookup(nil) {
		if state.Service == before[name].Service {
			same++
		}
	}
	if len(u.Services) != 5 || same != 15 {
		t.Errorf("%d changed, %d Services are the same values, want 5 and 15", len(u.Services), same)
	}
}
