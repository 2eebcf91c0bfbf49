package importer

import (
	"fmt"
	"strconv"
	"strings"
)

// statement is a line of a configuration. It records which of its words are read, so that the
// others are reported without help of what reads the line.
type statement struct {
	line  int
	text  string
	words []string
	read  []bool // by the index of a word
	// problem is why the line may be another one, or none; empty: it is as it stands there.
	problem string
}

// peekWord returns a word without reading it; empty: the line is shorter.
func (s *statement) peekWord(i int) string {
	if i < len(s.words) {
		return s.words[i]
	}
	return ""
}

// readWord reads a word; empty: the line is shorter.
func (s *statement) readWord(i int) string {
	if i < len(s.words) {
		if s.read == nil {
			s.read = make([]bool, len(s.words))
		}
		s.read[i] = true
	}
	return s.peekWord(i)
}

// readRest reads the words from one on.
func (s *statement) readRest(i int) []string {
	for j := i; j < len(s.words); j++ {
		s.readWord(j)
	}
	return s.words[min(i, len(s.words)):]
}

// takeUnread returns the words that nothing has read since the last call.
func (s *statement) takeUnread() (out []string) {
	for i, word := range s.words {
		if s.read == nil || !s.read[i] {
			out = append(out, word)
		}
	}
	s.read = nil
	return out
}

// note is the remark that a line has no equivalent.
func (s *statement) note(why string) Note { return Note{Line: s.line, Text: s.text, Why: why} }

// problemf returns a problem with the line.
func (s *statement) problemf(format string, args ...any) string {
	return fmt.Sprintf("line %d: "+format, append([]any{s.line}, args...)...)
}

// Note is a line without an equivalent.
type Note struct {
	Line int
	Text string // the line; empty: the remark is about the Balance
	Why  string // empty if the line before has the same reason
	// Differs: connections or checks are not what the line says.
	Differs bool
}

// remarks are what an import says about a Balance.
type remarks struct {
	Notes   []Note
	Problem string // why it is only a comment in the text; empty: it is not
	silent  bool   // what is read belongs to another section, which has the notes
}

// addNote says why a line has no equivalent.
func (r *remarks) addNote(s *statement, format string, args ...any) {
	if !r.silent {
		r.Notes = append(r.Notes, s.note(fmt.Sprintf(format, args...)))
	}
}

// noteChange says how connections or checks differ from what a line says; nil: the Balance.
func (r *remarks) noteChange(s *statement, format string, args ...any) {
	if s == nil {
		s = new(statement)
	}
	if r.addNote(s, format, args...); !r.silent {
		r.Notes[len(r.Notes)-1].Differs = true
	}
}

// refuse says why the Balance cannot be used, because of a line; nil: it is no single one. The first reason counts.
func (r *remarks) refuse(s *statement, format string, args ...any) {
	switch {
	case r.Problem != "":
	case s == nil:
		r.Problem = fmt.Sprintf(format, args...)
	default:
		r.Problem = s.problemf(format, args...)
	}
}

func (r *remarks) readNumber(s *statement, i int) int {
	n, err := strconv.ParseInt(s.readWord(i), 10, 32)
	if err != nil || n < 0 {
		r.refuse(s, "%s: is no number", strings.TrimSpace(s.peekWord(i-1)+" "+s.peekWord(i)))
	}
	return int(max(n, 0))
}
