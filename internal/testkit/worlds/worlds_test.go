package worlds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/source/files"
)

// story returns all that a seed leads to.
func story(t *testing.T, seed uint64) string {
	t.Helper()
	w := New(seed)
	var out strings.Builder
	for range 5 {
		texts, err := w.Files()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			fmt.Fprintf(&out, "%s %s\n", name, texts[name])
			_, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(string(texts[name]))}).Load()
			if err != nil {
				t.Fatalf("seed %d: %s: %v\n%s", seed, name, err, texts[name])
			}
		}
		fmt.Fprintln(&out, w.Flags, w.Questions(8), w.Next())
	}
	return out.String()
}

// TestSeedsReplay: a seed leads to the same world, steps and questions each time, all files are
// valid, and everything that a world can have comes up in some.
func TestSeedsReplay(t *testing.T) {
	var all strings.Builder
	for seed := range uint64(40) {
		first := story(t, seed)
		if story(t, seed) != first {
			t.Errorf("seed %d leads to two worlds", seed)
		}
		all.WriteString(first)
	}
	want := []string{`"relay":true`, `"backup":true`, `"priority":`, `"drain":true`, `"listen":[":`, `"listen":["uplink:`, "9005-9010", "icmpv6 ",
		"terminated", "killed", "frozen", "nft flush ruleset", "nftproxy set ", "nftproxy undo", "--no-table-owner", "--detect-local-mode",
		absent.IPv4.String(), `"forNodes"`, `"sessionAffinity":"ClientIP"`, "loadBalancerSourceRanges", `"check":{`, `"limits":{`, `"clients":[`}
	for _, s := range slices.Concat(common, serviceSettings) {
		want = append(want, prefix+s.name)
	}
	for name := range fieldNames {
		want = append(want, `"`+fieldNames[name]+`":`)
	}
	for _, text := range want {
		if !strings.Contains(all.String(), text) {
			t.Errorf("no world has %s", text)
		}
	}
}
