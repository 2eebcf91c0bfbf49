package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
)

// clean are the facts of a machine with nothing to complain about.
func clean() *Facts {
	return &Facts{
		Kernel: "6.12.0", Ownership: true, AllProcesses: true,
		Forwarding: map[model.Family]Forwarding{model.IPv4: {On: true}, model.IPv6: {On: true}},
		Conntrack:  Conntrack{Count: 10, Max: 1000, Buckets: 250},
	}
}

// worst returns the first finding of a check.
func worst(f *Facts, u Use, name string) Finding {
	for _, c := range Check(f, u) {
		if c.Check == name {
			return c
		}
	}
	return Finding{}
}

// 11.20: what a machine says that no test can make of the kernel of the tests.
func TestFacts(t *testing.T) {
	for _, c := range []struct {
		name, check string
		facts       func(*Facts)
		level       Level
		says        string
	}{
		{"clean", "conntrack", func(*Facts) {}, OK, "10 of 1000 connections"},
		{"conntrack is not loaded", "conntrack", func(f *Facts) { f.Conntrack = Conntrack{} }, OK, "not in use yet"},
		{"conntrack nearly full", "conntrack", func(f *Facts) { f.Conntrack.Count = 800 }, Warning, "800 of 1000 connections tracked: the kernel drops"},
		{"conntrack full", "conntrack", func(f *Facts) { f.Conntrack.Count = 950 }, Problem, "raise net.netfilter.nf_conntrack_max"},
		{"small hash table", "conntrack", func(f *Facts) { f.Conntrack.Buckets = 100 }, Warning, "echo 250 > /sys/module/nf_conntrack/parameters/hashsize"},
		{"a missing feature", "kernel", func(f *Facts) { f.Missing = []string{"rejecting (ip): no such file: load the module nft_reject_ipv4"} }, Problem,
			"the kernel lacks rejecting (ip): no such file: load the module nft_reject_ipv4"},
		{"a bridge that the rules see", "bridge-nf", func(f *Facts) {
			f.Bridges = []Bridge{{"cni0", 2, []netip.Prefix{netip.MustParsePrefix("10.128.0.0/24")}}}
			f.BridgeNF = map[model.Family]bool{model.IPv4: true}
		}, OK, "do not keep replies"},
		{"a bridge that the rules see IPv6 of", "bridge-nf", func(f *Facts) {
			f.Bridges = []Bridge{{"cni0", 2, []netip.Prefix{netip.MustParsePrefix("10.128.0.0/24")}}}
			f.BridgeNF = map[model.Family]bool{model.IPv6: true}
		}, Warning, "net.bridge.bridge-nf-call-iptables is not 1: pods on the bridge cni0"},
		{"no table owner", "table-owner", func(f *Facts) { f.Ownership = false }, OK, "from kernel 6.9 on they cannot"},
		{"nftproxy runs", "table-owner", func(f *Facts) { f.Owner = host.Process{PID: 7, Name: "nftproxy"} }, OK, `belong to process 7 ("nftproxy")`},
		{"flow tables", "flow-tables", func(f *Facts) { f.FlowTables = []string{"inet f a", "b", "c", "d", "e", "f", "g"} }, OK, "(inet f a, b, c, d, e and 2 more) follow endpoints"},
		{"a flow table in hardware", "flow-tables", func(f *Facts) {
			f.FlowTables, f.HardwareFlowTables = []string{"inet f a", "inet f b"}, []string{"inet f b"}
		}, Warning, "(inet f b) were not tried"},
		{"invisible processes", "kube-proxy", func(f *Facts) { f.AllProcesses = false }, Unseen, "hostPID"},
		{"kube-proxy", "kube-proxy", func(f *Facts) { f.Processes = []host.Process{{PID: 9, Name: "kube-proxy"}} }, Warning, `process 9 ("kube-proxy")`},
		{"no access", "nat-chains", func(f *Facts) { f.Hidden = map[Group]error{NFTables: errors.New("not permitted")} }, Unseen, "cannot read the rules of nf_tables: not permitted: run as root"},
		{"no access twice", "forward-filter-legacy", func(f *Facts) { f.Hidden = map[Group]error{IPTables: errors.Join(errors.New("a"), errors.New("b"))} }, Unseen, "cannot read the rules of iptables-legacy: a; b: run as root"},
		{"a verdict map", "forward-filter", func(f *Facts) {
			f.Chains = []Chain{{Family: "inet", Table: "t", Name: "c", Type: "filter", Hook: Forward, Drops: true, Rules: []Rule{{Verdict: Unknown}}}}
		}, Warning, "cannot be seen from here"},
		{"too many chains", "forward-filter", func(f *Facts) {
			f.Chains = []Chain{{Family: "ip", Table: "t", Name: "c", Type: "filter", Hook: Forward, Drops: true, Rules: []Rule{{Verdict: Jump, To: "d"}}},
				{Family: "ip", Table: "t", Name: "d", Unread: true}}
		}, Warning, "cannot be seen from here"},
		{"chains in a circle", "forward-filter", func(f *Facts) {
			f.Chains = []Chain{{Family: "ip", Table: "t", Name: "c", Type: "filter", Hook: Forward, Drops: true, Rules: []Rule{{Verdict: Jump, To: "c"}, {Verdict: Jump, To: "gone"}}}}
		}, Problem, "no rule accepts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := clean()
			c.facts(f)
			if got := worst(f, Use{}, c.check); got.Level != c.level || !strings.Contains(got.String(), c.says) {
				t.Errorf("%s: %s, want %s: %s", got.Level, got, c.level, c.says)
			}
		})
	}
}

// TestObserve: 17.8. The check says what the kernel lacks for --observe.
func TestObserve(t *testing.T) {
	if found := worst(clean(), Use{}, "observe"); found != (Finding{}) {
		t.Errorf("without the flag: %+v", found)
	}
	for want, observe := range map[string]error{
		"the kernel logs what --observe asks for":                        nil,
		"not observed as --observe asks: no nft_log: use another kernel": errors.New("no nft_log"),
	} {
		if found := worst(clean(), Use{Observe: &Trial{observe}}, "observe").String(); !strings.Contains(found, want) {
			t.Errorf("%q, want %q", found, want)
		}
	}
}

// TestObserveGroup: 17.8. A reader of another group does not matter.
func TestObserveGroup(t *testing.T) {
	f := clean()
	f.LogReaders = map[uint16]host.Process{5: {PID: 9, Name: "ulogd"}, 7: {}}
	for group, want := range map[uint16]string{
		0: "", 6: "no other program reads group 6 of nflog",
		5: `process 9 ("ulogd") reads group 5 of nflog: refused connections are not observed: choose another group with --observe-group`,
		7: "another program reads group 7",
	} {
		found := worst(f, Use{ObserveGroup: group}, "observe-group")
		if (found.Message == "") != (want == "") || !strings.Contains(found.String(), want) {
			t.Errorf("group %d: %s, want %q", group, found, want)
		}
	}
	f.Hidden = map[Group]error{LogGroups: errors.New("not permitted")}
	if found := worst(f, Use{ObserveGroup: 6}, "observe-group"); found.Level != Unseen || !strings.Contains(found.String(), "cannot read the readers of nflog: not permitted: run as root") {
		t.Errorf("without access: %s", found)
	}
}

// TestFastPath: 9.31, 9.35. The check of the fast path knows what keeps connections off it.
func TestFastPath(t *testing.T) {
	passes := new(Trial)
	for _, c := range []struct {
		name   string
		use    Use
		others []string // flow tables
		rules  int      // of policy routing
		level  Level
		says   []string
		not    string
	}{
		{"off", Use{}, nil, 0, Problem, nil, "fast path"},
		{"passes", Use{FastPath: passes}, nil, 0, OK, []string{"established connections skip the rules"}, "TCP"},
		{"fails", Use{FastPath: &Trial{errors.New("no flow tables")}}, nil, 0, Warning, []string{"--fast-path has no effect: no flow tables"}, ""},
		{"closes TCP", Use{FastPath: passes, ClosesTCP: true}, nil, 0, OK, []string{"of TCP only those to Services with nftproxy.dev/on-failure: keep"}, ""},
		{"beside another", Use{FastPath: passes, ClosesTCP: true}, []string{"inet calico"}, 0, OK, []string{"of TCP only", "another flow table (inet calico) takes first"}, ""},
		{"policy routing", Use{FastPath: passes}, nil, 1, OK, []string{"1 rule of policy routing"}, ""},
	} {
		f := clean()
		f.FlowTables, f.PolicyRules = c.others, c.rules
		found := worst(f, c.use, "fast-path")
		for _, text := range c.says {
			if !strings.Contains(found.Message, text) {
				t.Errorf("%s: got %s, want %q", c.name, found, text)
			}
		}
		if found.Level != c.level || c.not != "" && strings.Contains(found.Message, c.not) {
			t.Errorf("%s: got %s, want level %q, without %q", c.name, found, c.level, c.not)
		}
	}
}

// TestServing has problems only, and none of what does not concern packets.
func TestServing(t *testing.T) {
	f := clean()
	f.Missing, f.Conntrack.Count = []string{"x: y"}, 850
	if got := Serving(f, Use{}); len(got) > 0 {
		t.Errorf("found %v", got)
	}
	f.Forwarding[model.IPv4] = Forwarding{}
	if got := Serving(f, Use{}); len(got) != 1 || got[0].Check != "forwarding" {
		t.Errorf("found %v, want forwarding", got)
	}
}

func TestPrint(t *testing.T) {
	f := clean()
	f.Forwarding[model.IPv4] = Forwarding{}
	f.Interfaces = []string{"cilium_host"}
	f.AllProcesses = false
	r := NewReport(f, Use{Cluster: true, PodRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	r.Checks[0].Message += " \x1b[2J"
	var plain, coloured, encoded bytes.Buffer
	if err := errors.Join(r.Print(&plain, false), r.Print(&coloured, true), r.WriteJSON(&encoded)); err != nil {
		t.Fatal(err)
	}
	const begins = `problem  forwarding: net.ipv4.ip_forward is 0: connections from other machines do not reach endpoints on other machines or in pods \x1b[2J
         do: sysctl -w net.ipv4.ip_forward=1, and write it to /etc/sysctl.d/
         see https://github.com/nftproxy/nftproxy/blob/main/docs/runbooks.md#nftproxymachineproblem
warning  other-proxies: Cilium may serve Services itself
`
	const ends = "\nNOT READY as a node of a cluster: 1 problem, 1 warning, 1 check without access\n"
	if !strings.HasPrefix(plain.String(), begins) || !strings.HasSuffix(plain.String(), ends) {
		t.Errorf("printed\n%s", plain.String())
	}
	if got := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(coloured.String(), ""); got != plain.String() || got == coloured.String() {
		t.Errorf("in colour\n%s", got)
	}
	var back Report
	if err := json.Unmarshal(encoded.Bytes(), &back); err != nil || back.Ready || back.Problems != 1 || back.Checks[0].Level != Problem {
		t.Errorf("JSON: %v, %+v", err, back)
	}
	if new(Level).UnmarshalText([]byte("fine")) == nil {
		t.Error("an unknown level is accepted")
	}
}

func TestVerdict(t *testing.T) {
	for want, r := range map[string]Report{
		"ready as x":                        {Mode: "x"},
		"ready as x: 2 warnings":            {Mode: "x", Warnings: 2},
		"no problem seen as x: 1 check":     {Mode: "x", Unseen: 1},
		"NOT READY as x: 1 problem, 1 warn": {Mode: "x", Problems: 1, Warnings: 1},
	} {
		if _, got := r.summaryLine(); !strings.HasPrefix(got, want) {
			t.Errorf("verdict %q, want %q", got, want)
		}
	}
}

var notInAnchor = regexp.MustCompile(`[^a-z0-9 -]`)

// TestDocumentation: every finding refers to a heading that exists.
func TestDocumentation(t *testing.T) {
	code, err := os.ReadFile("check.go")
	if err != nil {
		t.Fatal(err)
	}
	pages := regexp.MustCompile(`"docs/[a-z-]+\.md[#a-z-]*"`).FindAllString(string(code), -1)
	if len(pages) < 12 {
		t.Errorf("check.go has the pages %q, want at least 12", pages)
	}
	pages = append(pages, pageFastPath+"#routes-that-depend-on-marks")
	for _, page := range pages {
		file, anchor, _ := strings.Cut(strings.Trim(page, `"`), "#")
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Error(err)
			continue
		}
		found := anchor == ""
		for line := range strings.Lines(string(text)) {
			heading := strings.TrimSpace(strings.TrimLeft(line, "#"))
			slug := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
			found = found || strings.HasPrefix(line, "#") && slug == anchor
		}
		if !found {
			t.Errorf("%s has no heading %q", file, anchor)
		}
	}
}

// TestChecksAreDocumented: docs/check.md lists every check, in order.
func TestChecksAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, row[1])
	}
	var names []string
	for _, c := range checks {
		names = append(names, c.name)
	}
	if got, want := strings.Join(listed, " "), strings.Join(names, " "); got != want {
		t.Errorf("listed %s\nwant %s", got, want)
	}
}
