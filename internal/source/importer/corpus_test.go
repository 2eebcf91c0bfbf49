package importer

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// corpusOptions have the hosts file that the corpus is read with.
var corpusOptions = Options{Hosts: map[string]netip.Addr{"rabbit1": netip.MustParseAddr("10.128.0.21")}}

// corpus returns the files of the corpus by name.
func corpus(t *testing.T) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for _, pattern := range []string{"*.cfg", "*.conf", "*.save"} {
		names, err := filepath.Glob(filepath.Join("testdata/corpus", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(text)
		}
	}
	if len(out) < 40 {
		t.Fatalf("the corpus has %d files", len(out))
	}
	return out
}

// verdict is the text of an import, after its exit code.
func verdict(t *testing.T, input string) string {
	t.Helper()
	c, err := Parse(input, corpusOptions)
	if err != nil {
		return "exit code 2: " + err.Error() + "\n"
	}
	text, err := c.Text("it")
	if err != nil {
		t.Fatal(err)
	}
	valid(t, text)
	code := 0
	if slices.ContainsFunc(c.Balances, func(b *Balance) bool { return b.Problem != "" }) {
		code = 1
	}
	return fmt.Sprintf("exit code %d\n%s", code, text)
}

// TestCorpus: configurations of the shapes that people run have the expected verdict beside them.
func TestCorpus(t *testing.T) {
	for name, input := range corpus(t) {
		got := verdict(t, input)
		if *update {
			if err := os.WriteFile(name+".golden", []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(name + ".golden"); err != nil || got != string(want) {
			t.Errorf("%s: %v, got\n%s", name, err, got)
		}
	}
}

// noTrace are words that may change without a trace in the output, by their line in short.
var noTrace = map[string]string{
	"server 1":      "names of servers have no place in a Balance",
	"option 2":      "a check without a method asks with GET, too",
	"stick-table 5": "nopurge: the one entry stays, as the first server of priorities does",
}

// TestEveryWordCounts: each word of each line of the corpus that is left out, or replaced by a word
// that nothing knows, changes the output.
func TestEveryWordCounts(t *testing.T) {
	for name, input := range corpus(t) {
		want := verdict(t, input)
		if !strings.HasPrefix(want, "exit code 0\n") {
			continue // a Balance that is not used serves no client
		}
		lines := strings.SplitAfter(input, "\n")
		reported := "" // of a section that is one remark as a whole
		for n, line := range lines {
			words := strings.Fields(line)
			if len(words) > 0 && line[0] != ' ' {
				reported = ""
				if strings.HasSuffix(name, ".cfg") && (slices.Contains([]string{"global", "resolvers", "defaults"}, words[0]) || slices.Contains(words, "stats")) {
					reported = words[0]
				}
			}
			for i, word := range words {
				if reported != "" || noTrace[words[0]+" "+strconv.Itoa(i)] != "" || strings.ContainsAny(word, "{}") {
					continue
				}
				for _, other := range []string{"", "qqq"} {
					changed := slices.Clone(words)
					changed[i] = other
					text := slices.Clone(lines)
					text[n] = " " + strings.Join(changed, " ") + "\n"
					if line[0] != ' ' {
						text[n] = text[n][1:]
					}
					if verdict(t, strings.Join(text, "")) == want {
						t.Errorf("%s:%d: %q in place of %q in %q changes nothing", name, n+1, other, word, strings.TrimSpace(line))
					}
				}
			}
		}
	}
}
