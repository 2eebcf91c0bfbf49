package files

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// Isolation makes each file of the input independent: a file with a mistake is used
// with its last valid content, or left out if there was none. Except for
// [Isolation.InForce], it is not safe for concurrent use.
type Isolation struct {
	valid map[string][]byte // by name of the file
	kept  *Kept             // nil: not over restarts
	// unkept is why the last valid content may be lost with the process.
	unkept error
	// replaced are the files that the last input does not use as they are.
	replaced atomic.Pointer[replaced]
}

// NewIsolation returns an isolation that begins with files kept by an earlier process.
// kept may be nil.
func NewIsolation(kept *Kept) *Isolation {
	i := &Isolation{valid: make(map[string][]byte), kept: kept}
	if kept != nil {
		i.unkept = kept.read(i.valid)
	}
	return i
}

// isolated is a file and the content that is served for it.
type isolated struct {
	content
	current bool   // content is the present one of the file
	found   file   // as it is
	problem string // the first one with it, unless content is current
	advice  string // the remedy that was taken
}

// isolate loads files. Each may have mistakes.
func (f *Reader) isolate(args []argument, warnings manifest.Errors) (*loaded, error) {
	var files []file
	for _, a := range args {
		files = append(files, a.files...)
	}
	used := make([]*isolated, len(files))
	for i, c := range f.parseAll(files) {
		used[i] = &isolated{content: c, current: true, found: c.file}
	}
	var unused manifest.Errors
	for {
		// Of two files with the same object, the one that had it before is used.
		slices.SortStableFunc(used, func(a, b *isolated) int { return f.Isolation.novelty(a) - f.Isolation.novelty(b) })
		groups, links := f.linkIsolated(used)
		if more, found := f.blame(used, links.broken); len(found) > 0 {
			if len(more) == len(used) { // files that have changed
				found = f.replace(used, found)
			}
			used, unused = more, append(unused, found...)
			continue
		}
		c := collect(links.problems, slices.Concat(warnings, links.warnings), groups)
		in, err := c.finish()
		if err == nil {
			in.Unused, in.LeftOut = unused, leftOutOf(used)
			f.Isolation.keep(used)
			f.noteReplaced(used)
			in.Warnings = append(in.Warnings, f.Isolation.warning()...)
			return in, nil
		}
		found := f.replace(used, c.problems)
		if len(found) == 0 { // of no single file
			return nil, err
		}
		unused = append(unused, found...)
	}
}

// linkIsolated returns the content of the files that are used, one group for each.
func (f *Reader) linkIsolated(used []*isolated) (groups []group, links *linker) {
	var contents []content
	var of []*isolated
	for _, u := range used {
		if u.advice != leftOut {
			contents, of = append(contents, u.content), append(of, u)
		}
	}
	links = f.link(contents)
	for i, c := range contents {
		of[i].content = c // it may have been read again
		groups = append(groups, group{argument{c.name, []file{c.file}}, contents[i : i+1]})
	}
	return groups, links
}

// leftOutOf returns the names of the files that are left out.
func leftOutOf(used []*isolated) (names []string) {
	for _, u := range used {
		if u.advice == leftOut {
			names = append(names, u.name)
		}
	}
	return names
}

// novelty returns 0 for content that was valid before, 1 for other content.
func (i *Isolation) novelty(u *isolated) int {
	if before, known := i.valid[u.name]; known && u.err == nil && bytes.Equal(before, u.data) {
		return 0
	}
	return 1
}

const (
	lastValid = "its last valid content stays in use"
	leftOut   = "the file is left out"
)

// replace takes other content in place of that with problems. It returns the problems
// of the files as they are.
func (f *Reader) replace(used []*isolated, problems manifest.Errors) (found manifest.Errors) {
	byFile := make(map[string]manifest.Errors)
	for _, p := range problems {
		byFile[p.File] = append(byFile[p.File], p)
	}
	for _, u := range used {
		mine := byFile[u.name]
		if len(mine) == 0 || u.advice == leftOut {
			continue
		}
		before, known := f.Isolation.valid[u.name]
		known = known && u.current && (u.err != nil || !bytes.Equal(before, u.data))
		if known {
			u.content, u.advice = f.parse(file{name: u.name, data: before}), lastValid
		} else {
			u.advice = leftOut
		}
		if u.current {
			u.current, u.problem = false, strings.TrimPrefix(mine[0].Error(), u.name+": ")
		}
		first := *mine[0]
		first.Err = &replacedError{first.Err, u.advice}
		found = append(append(found, &first), mine[1:]...)
	}
	return found
}

// replacedError is a problem and the remedy that was taken.
type replacedError struct {
	error
	advice string
}

func (e *replacedError) Error() string { return fmt.Sprintf("%v (%s)", e.error, e.advice) }
func (e *replacedError) Unwrap() error { return e.error }

// noteReplaced notes which files are not used as they are.
func (f *Reader) noteReplaced(used []*isolated) {
	r := &replaced{of: f}
	for _, u := range used {
		if !u.current {
			r.files = append(r.files, u)
		}
	}
	f.Isolation.replaced.Store(r)
}

// keep notes which content is valid, and forgets files that no longer exist.
func (i *Isolation) keep(used []*isolated) {
	valid := make(map[string][]byte, len(used))
	for _, u := range used {
		switch before, known := i.valid[u.name]; {
		case u.current:
			valid[u.name] = u.data
		case known:
			valid[u.name] = before
		}
	}
	same := maps.EqualFunc(i.valid, valid, bytes.Equal)
	before := i.valid
	i.valid = valid
	if i.kept != nil && (!same || i.unkept != nil) {
		i.unkept = i.kept.write(before, valid, i.unkept != nil)
	}
}

// warning returns the problem that the last valid content does not outlast the
// process, or nothing.
func (i *Isolation) warning() manifest.Errors {
	if i == nil || i.unkept == nil {
		return nil
	}
	return manifest.Errors{&manifest.Error{Err: errors.Join(errors.New("the last valid content of files is not kept for the next start"), i.unkept)}}
}
