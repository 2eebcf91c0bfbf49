package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type section struct {
	statement  // its first line
	statements []statement
	defaults   *section // whose statements come first
}

func (s *section) kindWord() string { return s.peekWord(0) }
func (s *section) nameWord() string { return s.peekWord(1) }

// sectionNames begin a section (HAProxy's configuration manual, section 2.1).
var sectionNames = []string{
	"frontend", "backend", "listen", "defaults", "global", "resolvers", "peers", "userlist", "cache", "ring", "mailers", "program",
	"http-errors", "fcgi-app", "log-forward", "crt-store", "traces", "acme", "log-profile",
}

type sectionReader struct {
	out      []*section
	notes    []Note
	defaults *section // the last one
	named    map[string]*section
	depth    int // of .if
	// before is the section that has the lines after the first .if, unless a section begins there.
	before *section
}

func readSections(text string) ([]*section, []Note, error) {
	r := sectionReader{named: make(map[string]*section)}
	n := 0
	for line := range strings.Lines(text) {
		n++
		words, variable, err := splitWords(line)
		if err == nil && len(words) > 0 {
			s := statement{line: n, text: withoutSecrets(strings.TrimSpace(line)), words: words}
			if variable {
				s.problem = s.problemf("environment variables have no value here: write it in place of the $ in double quotes")
			}
			err = r.add(s)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return r.out, r.notes, nil
}

// secrets are words before a password, of HAProxy and keepalived.
var secrets = []string{"auth", "password", "insecure-password", "auth_pass", "key"}

// withoutSecrets returns the text of a line without its password: files with Balances are shared.
func withoutSecrets(text string) string {
	words := strings.Fields(text)
	if i := slices.IndexFunc(words, func(w string) bool { return slices.Contains(secrets, w) }); i >= 0 && i+1 < len(words) {
		return strings.Join(words[:i+1], " ") + " ..."
	}
	return text
}

func (r *sectionReader) add(s statement) error {
	switch {
	case strings.HasPrefix(s.peekWord(0), "."):
		return r.readDirective(s)
	case slices.Contains(sectionNames, s.peekWord(0)):
		if r.depth == 0 {
			r.before = nil
		}
		r.beginSection(s)
	case len(r.out) == 0:
		return fmt.Errorf("%q is before the first section", s.words[0])
	default:
		last := r.out[len(r.out)-1]
		last.statements = append(last.statements, s)
	}
	if last := r.out[len(r.out)-1]; r.depth > 0 || r.before != nil {
		last.refuseCondition(s.line)
		if r.before != nil && last.line != s.line {
			r.before.refuseCondition(s.line)
		}
	}
	return nil
}

// refuseCondition says that a line of the section depends on a condition.
func (s *section) refuseCondition(line int) {
	s.problem = cmp.Or(s.problem, fmt.Sprintf("line %d: it depends on the condition of an .if, which has no value here: write the lines that are true", line))
}

// readDirective reads a line for HAProxy's own reader (its manual, section 2.4).
func (r *sectionReader) readDirective(s statement) error {
	why := "conditions have no value here"
	switch s.peekWord(0) {
	case ".if":
		if r.depth++; r.depth == 1 && len(r.out) > 0 {
			r.before = r.out[len(r.out)-1]
		}
	case ".elif", ".else", ".endif":
		if r.depth == 0 {
			return fmt.Errorf("%s is after no .if", s.peekWord(0))
		}
		if s.peekWord(0) == ".endif" {
			r.depth--
		}
		if r.depth == 0 && r.before != nil && r.before == r.out[len(r.out)-1] {
			r.before = nil
		}
	case ".notice", ".warning", ".alert", ".diag":
		why = "a message of HAProxy"
	default:
		return fmt.Errorf("%s is no directive of HAProxy", s.peekWord(0))
	}
	r.notes = append(r.notes, s.note(why))
	return nil
}

func (r *sectionReader) beginSection(s statement) {
	next := &section{statement: s}
	next.readWord(0)
	next.readWord(1)
	if next.kindWord() != "defaults" {
		next.defaults = r.defaults
	}
	if next.peekWord(2) == "from" {
		next.readWord(2)
		if next.defaults = r.named[next.readWord(3)]; next.defaults == nil {
			next.problem = s.problemf("no defaults before have the name %q", next.peekWord(3))
		}
	}
	if rest := next.takeUnread(); len(rest) > 0 {
		next.problem = cmp.Or(next.problem, s.problemf("%s: not known in this place", strings.Join(rest, ", ")))
	}
	if next.kindWord() == "defaults" {
		r.defaults, r.named[next.nameWord()] = next, next
	}
	r.out = append(r.out, next)
}

// splitWords splits a line as HAProxy does (its manual, section 2.2): a comment begins
// with #, and quotes and backslashes keep spaces. In double quotes, $ begins an environment
// variable (section 2.3).
func splitWords(line string) (words []string, variable bool, err error) {
	var word strings.Builder
	var quote byte
	inside := false
	end := func() {
		if inside {
			words = append(words, word.String())
		}
		word.Reset()
		inside = false
	}
	if i := strings.IndexAny(line, "\r\n"); i >= 0 {
		line = line[:i]
	}
	for i := 0; i < len(line); i++ {
		switch r := line[i]; {
		case r == '\\' && quote != '\'':
			text, length, err := unescapeText(line[i+1:], quote == '"')
			if err != nil {
				return nil, false, err
			}
			word.WriteString(text)
			inside = true
			i += length
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			variable = variable || r == '$' && quote == '"'
			word.WriteByte(r)
		case r == '"' || r == '\'':
			quote, inside = r, true
		case r == '#':
			end()
			return words, variable, nil
		case strings.IndexByte(" \t\v\f", r) >= 0:
			end()
		default:
			word.WriteByte(r)
			inside = true
		}
	}
	if quote != 0 {
		return nil, false, fmt.Errorf("a text in %c has no end", quote)
	}
	end()
	return words, variable, nil
}

// unescapeText returns what a backslash and the text after it are, and the length of this text. Before
// other characters a backslash is one.
func unescapeText(text string, quoted bool) (string, int, error) {
	if text == "" {
		return `\`, 0, nil
	}
	switch c := text[0]; {
	case c == 'x':
		n, err := strconv.ParseUint(text[1:min(3, len(text))], 16, 8)
		if err != nil || len(text) < 3 {
			return "", 0, fmt.Errorf("\\%.3s is no character in hexadecimal", text)
		}
		return string([]byte{byte(n)}), 3, nil
	case strings.IndexByte("rnt", c) >= 0:
		return map[byte]string{'r': "\r", 'n': "\n", 't': "\t"}[c], 1, nil
	case strings.IndexByte(` \#'"`, c) >= 0, c == '$' && quoted:
		return text[:1], 1, nil
	}
	return `\`, 0, nil
}
