package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// withoutTrace are words that may change without a trace, by the first word of their line and
// their place there, with the reason.
var withoutTrace = map[string]string{
	"server 1":      "names of servers have no place in a Balance",
	"defaults 1":    "no section names these defaults",
	"option 2":      "a check without a method asks with GET, too",
	"stick-table 5": "nopurge: the one entry stays, as the first server of priorities does",
}

// TestEveryWord: each word of each line that is left out, replaced by one that nothing knows, or by
// another number, is used (the Balances change, or whether they are used), or named (a remark has
// the line with its number), or belongs to a section that is not used.
func TestEveryWord(t *testing.T) {
	inputs := corpus(t)
	for _, name := range []string{"haproxy.cfg", "keepalived.conf", "ipvsadm.save"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		inputs[name] = string(text)
	}
	counts := make(map[string]int)
	for name, input := range inputs {
		base := verdict(t, input)
		lines := strings.SplitAfter(input, "\n")
		for n, line := range lines {
			words := strings.Fields(line)
			if i := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w[:1], "#!") }); i >= 0 {
				words = words[:i]
			}
			for i, word := range words {
				if i > 1 && slices.Contains(secrets, words[i-1]) || withoutTrace[fmt.Sprint(words[0], " ", i)] != "" || strings.ContainsAny(word, "{}") {
					continue
				}
				for _, other := range mutations(word) {
					text := slices.Clone(lines)
					text[n] = replaceWord(line, words, i, other)
					got := fateOf(base, verdict(t, strings.Join(text, "")), n+1, i == 0 && slices.Contains(sectionNames, word), sectionsOf(lines, n))
					if counts[got]++; got == "" {
						t.Errorf("%s:%d: %q in place of %q in %q changes nothing", name, n+1, other, word, strings.TrimSpace(line))
					}
				}
			}
		}
	}
	fmt.Fprintf(t.Output(), "mutations: %v\n", counts)
	for _, kind := range []string{"used", "named", "of a section that is not used"} {
		if counts[kind] < 100 {
			t.Errorf("only %d mutations are %s", counts[kind], kind)
		}
	}
}

var digit = regexp.MustCompile(`[0-8]([^0-9]*)$`)

// mutations are what may stand in the place of a word.
func mutations(word string) []string {
	out := []string{"", "qqq"}
	if at := digit.FindStringIndex(word); at != nil {
		out = append(out, word[:at[0]]+string(word[at[0]]+1)+word[at[0]+1:])
	}
	return out
}

func replaceWord(line string, words []string, i int, other string) string {
	changed := slices.Clone(words)
	changed[i] = other
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	return indent + strings.TrimSpace(strings.Join(changed, " ")) + "\n"
}

// sectionsOf returns the first lines of the section of a line, which is not indented, and of
// sections that it is a part of.
func sectionsOf(lines []string, n int) (out []string) {
	for n > 0 && (strings.TrimSpace(lines[n]) == "" || strings.ContainsAny(lines[n][:1], " \t}#.")) {
		n--
	}
	words := strings.Fields(lines[n])
	if len(words) > 3 && strings.HasPrefix(words[0], "-") { // of ipvsadm
		words = words[1:3]
	} else if slices.Contains(sectionNames, words[0]) {
		words = words[:min(2, len(words))]
	}
	out = append(out, strings.Trim(strings.Join(words, " "), "{ "))
	if len(words) < 2 || words[0] != "backend" && words[0] != "virtual_server_group" {
		return out
	}
	out = nil
	for i, line := range lines {
		if user := strings.Fields(line); len(user) > 1 && (user[0] == "default_backend" && user[1] == words[1] ||
			user[0] == "virtual_server" && slices.Contains(user, words[1])) {
			out = append(out, sectionsOf(lines, i)...)
		}
	}
	return out
}

// fateOf returns what shows that a word was changed; empty: nothing.
func fateOf(base, got string, line int, isSection bool, sections []string) string {
	served := func(text string) string {
		return regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllStringFunc(text, func(c string) string {
			if strings.HasPrefix(c, "# Not used: ") {
				return c
			}
			return ""
		})
	}
	remarks := func(text string) []string {
		return regexp.MustCompile(fmt.Sprintf(`(?m)^# (Differs: )?%d: .*$`, line)).FindAllString(text, -1)
	}
	switch {
	case served(base) != served(got):
		return "used"
	case !slices.Equal(remarks(base), remarks(got)), isSection && base != got:
		return "named"
	case !strings.Contains(base, "\nkind: "), areUnused(base, sections):
		return "of a section that is not used"
	}
	return ""
}

// areUnused reports whether sections are only comments.
func areUnused(base string, sections []string) bool {
	return len(sections) > 0 && !slices.ContainsFunc(sections, func(s string) bool {
		return !strings.Contains(base, "\n# Not used: "+s+", line ")
	})
}
