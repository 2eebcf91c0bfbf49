package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// hostileNames are names that no API server would accept, and long ones that it
// does.
var hostileNames = [][3]string{
	{"default", "web", "http"},
	{"default", "web", ""},
	{`x" : drop }; } flush ruleset #`, "web\nflush ruleset", "a,b"},
	{"}\n}\ndelete table ip filter\n", `\"`, `\`},
	{"\x1b[2J\x00", "ü–\u202e\u2028", "\xff\xfe"},
	{strings.Repeat("n", 63), strings.Repeat("s", 63), strings.Repeat("p", 63)},
	{strings.Repeat("ü", 100), strings.Repeat(`"`, 200), strings.Repeat("\n", 100)},
	{"$(reboot)", "`reboot`", "%s%n{{.}}"},
}

// named is the ruleset of a Service with these names, which is in every place
// where a comment can be.
func named(namespace, name, port string) *nft.Ruleset {
	node := &model.Node{Name: name, Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("fd00::7")}}
	s := &model.Service{
		Name:       model.ServiceName{Namespace: namespace, Name: name},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")},
		External: &model.External{
			ExternalIPs:     []netip.Addr{netip.MustParseAddr("203.0.113.1")},
			LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("198.51.100.1")},
		},
		Ports: []model.ServicePort{{Name: port, Protocol: model.TCP, Port: 80, NodePort: 30080}},
	}
	slice := &model.EndpointSlice{
		Namespace: namespace, Name: name, Service: name, Family: model.IPv4,
		Ports: []model.EndpointPort{{Name: port, Protocol: model.TCP, Port: 8080}},
		Hosts: []model.Host{{Address: netip.MustParseAddr("10.128.0.1"), Ready: true, Serving: true, Place: model.OnNode(name)}},
	}
	snapshot := &model.Snapshot{Nodes: []*model.Node{node}, Services: []*model.Service{s}, Slices: []*model.EndpointSlice{slice}}
	return Render(model.Resolve(snapshot, model.Config{NodeName: name, Counters: true}))
}

func textOf(t testing.TB, rs *nft.Ruleset) string {
	t.Helper()
	var b strings.Builder
	if err := rs.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// FuzzNames: whatever Services are called, the rules as text and as JSON have the
// shape that they have for other names, and the text holds nothing but printable
// ASCII.
func FuzzNames(f *testing.F) {
	for _, n := range hostileNames {
		f.Add(n[0], n[1], n[2])
	}
	want := shape(f, textOf(f, named("default", "web", "http")))
	f.Fuzz(func(t *testing.T, namespace, name, port string) {
		rs := named(namespace, name, port)
		text := textOf(t, rs)
		if got := shape(t, text); got != want {
			t.Errorf("the rules have another shape:\n%s\nwant\n%s", got, want)
		}
		var b bytes.Buffer
		if err := rs.JSON(&b); err != nil || !json.Valid(b.Bytes()) {
			t.Errorf("JSON: %v\n%s", err, b.String())
		}
		for _, table := range rs.Tables {
			for _, s := range table.Sets {
				for _, e := range s.Elements {
					if len(e.Comment) > nft.MaxComment {
						t.Errorf("a comment of %d bytes: %q", len(e.Comment), e.Comment)
					}
				}
			}
		}
	})
}

// shape reads rules as nft does: strings end at the next quote, whatever is in
// them. It returns the text with comments, names of lanes and white space left
// out.
func shape(t testing.TB, text string) string {
	t.Helper()
	var b strings.Builder
	inString := false
	for _, r := range text {
		switch {
		case r == '"':
			inString = !inString
		case r == '\n' && inString:
			t.Errorf("a line ends inside a string:\n%s", text)
		case r != '\n' && r != '\t' && (r < ' ' || r > '~'):
			t.Errorf("%q in the rules", r)
		case !inString:
			b.WriteRune(r)
		}
	}
	if inString {
		t.Errorf("a string does not end:\n%s", text)
	}
	return b.String()
}

// TestHostileNames lets nft read the rules of Services with hostile names.
func TestHostileNames(t *testing.T) {
	ns := netlab.TestNamespace(t)
	runNFT := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.Command("nft", args...)
		var out, problem strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &problem
		if err := ns.Run(cmd); err != nil {
			t.Fatalf("nft %s: %v\n%s", strings.Join(args, " "), err, problem.String())
		}
		return out.String()
	}
	runNFT("", "add", "table", "ip", "filter")
	for _, n := range hostileNames {
		rs := named(n[0], n[1], n[2])
		runNFT(textOf(t, rs), "-f", "-")
		listing := runNFT("", "list", "ruleset")
		want := 0
		for _, table := range rs.Tables {
			for _, s := range table.Sets {
				for _, e := range s.Elements {
					if e.Comment != "" {
						want++
					}
					if c := fmt.Sprintf("comment %q", e.Comment); e.Comment != "" && !strings.Contains(listing, c) {
						t.Errorf("%q: the listing lacks %s", n, c)
					}
				}
			}
		}
		if got := strings.Count(listing, "comment "); got < want || !strings.Contains(listing, "table ip filter") {
			t.Errorf("%q: %d comments, want %d:\n%s", n, got, want, listing)
		}
	}
}
