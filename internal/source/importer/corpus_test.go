package importer

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
		_, text, _ := strings.Cut(got, "\n")
		valid(t, text)
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

// TestDifferencesFirst: a file begins with what is not used, and then with what differs for all of it. Each
// Balance begins with what differs for it, and what changes nothing for a Balance comes last.
func TestDifferencesFirst(t *testing.T) {
	for name, input := range corpus(t) {
		_, text, _ := strings.Cut(verdict(t, input), "\n")
		_, text, _ = strings.Cut(text, "\n") // the title
		parts := regexp.MustCompile(`(?m)^(---|#)\n`).Split(text, -1)
		rank := func(line string, first int) int {
			switch {
			case strings.HasPrefix(line, "# Not used: "):
				return first
			case strings.HasPrefix(line, "# Differs: "):
				return 1
			}
			return 2
		}
		for i, part := range parts {
			last := 0
			for line := range strings.Lines(part) {
				if i > 0 && (strings.HasPrefix(line, "# Not used: ") || !strings.HasPrefix(line, "# ")) {
					break // the Balance itself
				}
				if i > 0 && regexp.MustCompile(`^# \D.*, line \d+$`).MatchString(strings.TrimSpace(line)) {
					continue // its origin
				}
				r := rank(line, 0)
				if r < last {
					t.Errorf("%s: %q comes late", name, line)
				}
				last = r
			}
		}
	}
}

// TestStatisticsAlone: a section with HAProxy's page of statistics and nothing else is a remark, and one
// that serves clients, too, is not.
func TestStatisticsAlone(t *testing.T) {
	const served = "listen web\n bind 203.0.113.10:80\n server a 10.128.0.2:80\n"
	const page = "listen stats\n bind *:9000\n mode http\n stats enable\n"
	for text, want := range map[string]string{
		served + page: "exit code 0\n",
		served + strings.Replace(page, "listen", "frontend", 1):         "exit code 0\n",
		served + page + " server b 10.128.0.3:80\n":                     "exit code 1\n",
		served + page + " qqq\n":                                        "exit code 1\n",
		served + strings.Replace(page, "stats enable", "log global", 1): "exit code 1\n",
	} {
		if got := verdict(t, text); !strings.HasPrefix(got, want) {
			t.Errorf("%s\nwant %s, got\n%s", text, want, got)
		}
	}
}
