package golden

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// sandbox is a network namespace with an applier in it.
type sandbox struct {
	ns      *netlab.Namespace
	kernel  *kernel.Conn
	applier *apply.Applier
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	s := &sandbox{ns: netlab.TestNamespace(t)}
	if err := s.ns.Do(func() (err error) { s.kernel, err = kernel.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	s.applier = apply.New(s.kernel, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	t.Cleanup(func() {
		if err := s.kernel.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// nft runs the command in the namespace.
func (s *sandbox) nft(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	var out, problem bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &problem
	if err := s.ns.Run(cmd); err != nil {
		t.Fatalf("nft %s: %v\n%s", strings.Join(args, " "), err, problem.String())
	}
	return out.String()
}

// list returns the listing of all rules.
func (s *sandbox) list(t *testing.T, options ...string) string {
	t.Helper()
	return netlab.Listing(func(args ...string) string { return s.nft(t, "", args...) }, append(options, "list", "ruleset")...)
}

// apply commits a ruleset and proves that the kernel has it then.
func (s *sandbox) apply(t *testing.T, rs *nft.Ruleset) *plan.Plan {
	t.Helper()
	p, err := s.applier.Apply(nft.FromNothing(rs))
	if err != nil {
		t.Fatal(err)
	}
	_, before, err := s.kernel.Read()
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.applier.Apply(nft.FromNothing(rs))
	if err != nil {
		t.Fatal(err)
	}
	current, after, err := s.kernel.Read()
	if err != nil {
		t.Fatal(err)
	}
	if !again.Empty() || before != after {
		t.Errorf("second apply: %d changes, generation %d after %d", len(again.Changes), after, before)
	}
	if got, want := text(t, current), text(t, plan.Settle(current, rs)); !sameLines(got, want) {
		t.Errorf("kernel differs from what was applied (-want +got):\n%s", cmp.Diff(want, got))
	}
	return p
}

// sameLines compares texts except for the order of chains: the kernel appends new
// ones at the end.
func sameLines(a, b string) bool {
	count := make(map[string]int)
	for line := range strings.Lines(a) {
		count[line]++
	}
	for line := range strings.Lines(b) {
		count[line]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// TestKernel takes each case to the kernel by both ways: as text that nft
// loads, and as our transaction. Both listings must be equal, and load again.
func TestKernel(t *testing.T) {
	forEachGolden(t, func(t *testing.T, c *testCase) {
		rs := c.phases[0].rules
		byNetlink := newSandbox(t)
		byNetlink.apply(t, rs)
		listing := byNetlink.list(t)
		if !loads(t, byNetlink, rs) {
			return
		}

		byText := newSandbox(t)
		byText.nft(t, text(t, rs), "-c", "-f", "-")
		byText.nft(t, text(t, rs), "-f", "-")
		if got := byText.list(t); got != listing {
			t.Errorf("listing of what netlink wrote differs from that of what nft loaded (-nft +netlink):\n%s", cmp.Diff(got, listing))
		}
		byText.nft(t, text(t, rs), "-f", "-") // loading again replaces

		p, _, err := byText.applier.Plan(rs)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Changes {
			t.Errorf("plan after nft loaded the text: %s", p.Changes[i].Text())
		}
		reloaded := newSandbox(t)
		reloaded.nft(t, listing, "-f", "-")
		if got := reloaded.list(t); got != listing {
			t.Errorf("the listing, loaded again, lists differently:\n%s", cmp.Diff(listing, got))
		}
	})
}

// loads reports whether this version of nft can load a ruleset. nft 1.0.6 aborts
// on "update" with a key of more than 16 bytes, as for affinity over IPv6; it
// lists it, and nft 1.1.3 loads it.
func loads(t *testing.T, s *sandbox, rs *nft.Ruleset) bool {
	t.Helper()
	ip6 := rs.Table(model.IPv6)
	return ip6 == nil || ip6.Chain(nft.RememberChain) == nil || !strings.Contains(s.nft(t, "", "--version"), "v1.0.6 ")
}

// TestJSON compares our JSON with that of nft.
func TestJSON(t *testing.T) {
	forEachGolden(t, func(t *testing.T, c *testCase) {
		rs := c.phases[0].rules
		s := newSandbox(t)
		s.apply(t, rs)
		var own bytes.Buffer
		if err := rs.JSON(&own); err != nil {
			t.Fatal(err)
		}
		want := normalize(t, []byte(s.list(t, "-j")))
		if diff := cmp.Diff(want, normalize(t, own.Bytes())); diff != "" {
			t.Errorf("JSON differs from that of nft (-nft +ours):\n%s", diff)
		}
	})
}

// bindChain is the name of a chain that notes connections, or writes bindings of clients.
var bindChain = regexp.MustCompile(`^(node-)?(local-|shared-)?(recall|bind-[a-z]+-[0-9]+)$`)

// normalize decodes nft's JSON and removes what a renderer cannot know: the
// version of nft, handles, counters, and the order in which the kernel lists
// objects and elements.
func normalize(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var list struct {
		Nftables []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	out := make(map[string]any)
	for _, o := range list.Nftables {
		for kind, body := range o {
			// nft 1.0.6 has no JSON for "update" and "delete" of a map.
			if kind == "metainfo" || kind == "rule" && bindChain.MatchString(fmt.Sprint(body["chain"])) {
				continue
			}
			delete(body, "handle")
			if flags, ok := body["flags"].([]any); ok { // nor a flag "dynamic"
				if body["flags"] = slices.DeleteFunc(flags, func(f any) bool { return f == "dynamic" }); len(flags) == 1 && flags[0] == nil {
					delete(body, "flags")
				}
			}
			normalizeTypes(body)
			if elements, ok := body["elem"].([]any); ok {
				body["elem"] = byText(t, elements)
			}
			key := fmt.Sprintln(kind, body["family"], body["name"], body["chain"])
			list, _ := out[key].([]any)
			out[key] = append(list, body)
		}
	}
	return out
}

// normalizeTypes makes one of two ways to write the types of a map: nft 1.1 has
// data of several fields as a list, and keys with an integer as expressions.
func normalizeTypes(body map[string]any) {
	if fields, ok := body["map"].([]any); ok {
		body["map"] = strings.Trim(strings.ReplaceAll(fmt.Sprint(fields), " ", " . "), "[]")
	}
	key, _ := body["type"].([]any)
	if _, ok := body["type"].(map[string]any); ok || slices.Contains(key, any("integer")) {
		delete(body, "type")
	}
}

func byText(t *testing.T, elements []any) map[string]bool {
	t.Helper()
	out := make(map[string]bool)
	for _, e := range elements {
		b, err := json.Marshal(withoutCounter(e))
		if err != nil {
			t.Fatal(err)
		}
		out[string(b)] = true
	}
	return out
}

// withoutCounter removes the counter from an element of a map or a set.
func withoutCounter(e any) any {
	if pair, ok := e.([]any); ok {
		pair[0] = withoutCounter(pair[0])
		return pair
	}
	outer, _ := e.(map[string]any)
	if elem, ok := outer["elem"].(map[string]any); ok {
		if delete(elem, "counter"); len(elem) == 1 {
			return elem["val"]
		}
	}
	return e
}

// TestChange takes each case with several phases from phase to phase in the
// kernel, and back to the first one.
func TestChange(t *testing.T) {
	forEachGolden(t, func(t *testing.T, c *testCase) {
		if len(c.phases) == 1 {
			return
		}
		s := newSandbox(t)
		s.apply(t, c.phases[0].rules)
		for _, p := range c.phases[1:] {
			want, _ := p.result("plan")
			if diff := cmp.Diff(want, printed(t, s.apply(t, p.rules))); diff != "" && !*update {
				t.Errorf("what was committed differs from the plan (-want +got):\n%s", diff)
			}
		}
		s.apply(t, c.phases[0].rules)
		s.apply(t, &nft.Ruleset{})
		if rest := s.list(t); rest != "" {
			t.Errorf("an empty ruleset leaves:\n%s", rest)
		}
	})
}
