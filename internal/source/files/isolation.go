package files

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// Isolation makes each file of the input independent: a file with a mistake is used with its last valid content, or
// left out if there was none. Except for [Isolation.InForce], it is not safe for concurrent use.
type Isolation struct {
	kept *Kept // nil: not over restarts
	read bool  // kept was
	// unkept is why the last valid content may be lost with the process.
	unkept error
	// inForce returns the files that the last input does not use as they are.
	inForce atomic.Pointer[func() []InForce]
}

// NewIsolation returns an isolation that begins with files kept by an earlier process. kept may be nil.
func NewIsolation(kept *Kept) *Isolation { return &Isolation{kept: kept} }

// inUse is the valid content of a file that the last load has used, or loads before it.
type inUse struct {
	sum   string // of the text
	text  []byte // nil: it is saved
	saved bool   // for the next process
}

// recallKept makes the files known that an earlier process has kept, as if a load had used them.
func (f *Reader) recallKept() {
	i := f.Isolation
	if i.read || i.kept == nil {
		return
	}
	i.read = true
	f.inUse = make(map[string]*inUse)
	i.unkept = i.kept.all(func(name string, text []byte, packed bool) {
		known := &inUse{sum: sumOf(text), saved: !packed}
		if f.inUse[name] = known; packed { // it is saved again
			known.text = text
		}
	})
}

// lastOf returns the content of a file that was in use before; without objects: none, or one that is
// invalid for this version.
func (f *Reader) lastOf(name string) content {
	if known := f.inUse[name]; known != nil {
		text := known.text
		if text == nil {
			text = f.Isolation.kept.read(name)
		}
		if c := f.parse(file{name: name, data: text}); sumOf(text) == known.sum && !c.broken {
			c.data = text
			return c
		}
	}
	return content{file: file{name: name}}
}

type isolated struct {
	content
	changed bool   // it is not as it was in use before
	current bool   // content is the present one of the file
	sum     string // SHA-256 of the present text; empty: the file cannot be read
	problem string // the first one with it, unless content is current
	advice  string // the remedy that was taken
}

func (f *Reader) loadIsolated(groups []group, warnings manifest.Errors) (*Input, error) {
	var used []*isolated
	for _, g := range groups {
		for _, c := range g.files {
			known := f.inUse[c.name]
			used = append(used, &isolated{content: c, sum: c.sum, changed: known == nil || known.sum != c.sum, current: true})
		}
	}
	var problems manifest.Errors // that files have by themselves
	for _, u := range used {
		if u.broken {
			problems = append(problems, collect(nil, nil, []group{{u.name, contents{u.content}}}).problems...)
		}
	}
	unused := f.replaceInvalid(used, problems)
	in, problems := f.joinIsolated(used, warnings)
	for len(problems) > 0 {
		more, found := f.settleProblems(used)
		if len(found) == 0 { // of no single file
			return nil, problems
		}
		used, unused = more, append(unused, found...)
		in, problems = f.joinIsolated(used, warnings)
	}
	in.Unused = unused
	for _, u := range used {
		if u.advice == leftOut {
			in.LeftOut = append(in.LeftOut, u.name)
		}
	}
	f.keepInUse(used)
	f.noteReplaced(used)
	if err := f.Isolation.unkept; err != nil {
		in.Warnings = append(in.Warnings, &manifest.Error{Err: errors.Join(errors.New("the last valid content of files is not kept for the next start"), err)})
	}
	return in, nil
}

func (f *Reader) joinIsolated(used []*isolated, warnings manifest.Errors) (*Input, manifest.Errors) {
	groups, links := f.linkIsolated(used)
	c := collect(links.problems, slices.Concat(warnings, links.warnings), groups)
	in, err := c.finishInput()
	if err != nil {
		return nil, c.problems
	}
	return in, nil
}

// settleProblems takes other content in place of some with problems. It returns the problems of the files as
// they are, and adds files that are gone and still needed.
func (f *Reader) settleProblems(used []*isolated) ([]*isolated, manifest.Errors) {
	// Of two files with the same object, the one that had it before is used.
	order := slices.Clone(used)
	slices.SortStableFunc(order, func(a, b *isolated) int { return a.noveltyRank() - b.noveltyRank() })
	groups, links := f.linkIsolated(order)
	more, found := f.blameChanges(used, links.broken)
	switch {
	case len(found) == 0:
		return used, f.replaceInvalid(used, collect(links.problems, nil, groups).problems)
	case len(more) == len(used): // files that have changed
		return used, f.replaceInvalid(used, found)
	}
	return more, found
}

// linkIsolated returns the content of the files that are used, one group for each.
func (f *Reader) linkIsolated(used []*isolated) (groups []group, links *linker) {
	var all contents
	for _, u := range used {
		if u.advice != leftOut {
			all = append(all, u.content)
		}
	}
	all, links = f.linkContents(all)
	for _, c := range all {
		groups = append(groups, group{c.name, contents{c}})
	}
	return groups, links
}

// noveltyRank returns 0 for content that was in use before, 1 for other content.
func (u *isolated) noveltyRank() int {
	if u.current && u.changed {
		return 1
	}
	return 0
}

const (
	lastValid = "its last valid content stays in use"
	leftOut   = "the file is left out"
)

// replaceInvalid takes other content in place of that with problems. It returns the problems
// of the files as they are.
func (f *Reader) replaceInvalid(used []*isolated, problems manifest.Errors) (found manifest.Errors) {
	byFile := make(map[string]manifest.Errors)
	for _, p := range problems {
		byFile[p.File] = append(byFile[p.File], p)
	}
	for _, u := range used {
		mine := byFile[u.name]
		if len(mine) == 0 || u.advice == leftOut {
			continue
		}
		first := *mine[0]
		f.replaceOne(u, strings.TrimPrefix(first.Error(), u.name+": "))
		first.Err = fmt.Errorf("%w (%s)", first.Err, u.advice)
		found = append(append(found, &first), mine[1:]...)
	}
	return found
}

// replaceOne takes the last valid content of a file, or leaves the file out.
func (f *Reader) replaceOne(u *isolated, problem string) {
	if !u.current {
		u.advice = leftOut
		return
	}
	u.current, u.problem, u.advice = false, problem, leftOut
	if !u.changed {
		return
	}
	if last := f.lastOf(u.name); len(last.objects) > 0 {
		u.content, u.advice = last, lastValid
	}
}

// keepInUse notes the content that is in use now, saves it for the next process, and forgets files that no
// longer exist.
func (f *Reader) keepInUse(used []*isolated) {
	i, before := f.Isolation, f.inUse
	f.inUse = make(map[string]*inUse, len(used))
	var errs []error
	for _, u := range used {
		known := before[u.name]
		if u.current && (known == nil || known.sum != u.sum) {
			known = &inUse{sum: u.sum, text: u.data}
		}
		if known == nil {
			continue
		}
		if f.inUse[u.name] = known; i.kept != nil && !known.saved {
			err := i.kept.write(u.name, known.text)
			errs = append(errs, err)
			if known.saved = err == nil; known.saved {
				known.text = nil
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if f.inUse[name] == nil && i.kept != nil {
			errs = append(errs, i.kept.remove(name))
		}
	}
	i.unkept = errors.Join(errs...)
}

// InForce is a file that is not used as it is (12.82), and the content that is served in its place.
type InForce struct {
	Path string // absolute, as the process sees it
	// Sum is the SHA-256 of the content that is not used; empty: the file cannot be read.
	Sum     string
	Problem string
	// Objects is a List with the objects of the last valid content, without comments and
	// objects of other kinds. Nil: there is none, and the file is left out.
	Objects json.RawMessage
}

// noteReplaced notes which files are not used as they are. Their objects are written when they are asked for.
func (f *Reader) noteReplaced(used []*isolated) {
	out, proxyName := []InForce{}, f.ProxyName
	var texts []file // that are used instead
	for _, u := range used {
		if u.current {
			continue
		}
		in, text := InForce{Path: u.name, Sum: u.sum, Problem: u.problem}, file{name: u.name}
		if abs, err := filepath.Abs(u.name); err == nil && u.name != displayName(standardInput) {
			in.Path = abs
		}
		if u.advice == lastValid {
			text.data = u.data
		}
		out, texts = append(out, in), append(texts, text)
	}
	inForce := sync.OnceValue(func() []InForce {
		for i, text := range texts {
			if text.data != nil {
				out[i].Objects = objectsOf(proxyName, text)
			}
		}
		return out
	})
	f.Isolation.inForce.Store(&inForce)
}

// InForce returns the files that are not used as they are; not nil. Unlike the other methods, it is
// safe for concurrent use.
func (i *Isolation) InForce() []InForce {
	if inForce := i.inForce.Load(); inForce != nil {
		return (*inForce)()
	}
	return []InForce{} // nothing was read yet
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func objectsOf(proxyName string, in file) json.RawMessage {
	list := struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}{"v1", "List", []json.RawMessage{}}
	for _, o := range (&Reader{ProxyName: proxyName, keepGiven: true}).parse(in).objects {
		if given := o.rareDetails().given; given != nil {
			list.Items = append(list.Items, given)
		}
	}
	text, _ := json.Marshal(list) // of JSON
	return text
}

// inForce returns what another process serves in place of a file, or nil.
func (f *Reader) inForce(in file) *InForce {
	abs, _ := filepath.Abs(in.name) // with an error, the name decides
	var same *InForce
	sum := ""
	if len(f.InForce) > 0 && in.err == nil {
		sum = sumOf(in.data)
	}
	for i := range f.InForce {
		r := &f.InForce[i]
		if r.Sum != sum {
			continue
		}
		switch {
		case r.Path == abs || r.Path == in.name:
			return r
		case r.Sum != "" && filepath.Base(r.Path) == filepath.Base(in.name): // a copy, or another root
			same = cmp.Or(same, r)
		}
	}
	return same
}

// substituteFile returns what is used in place of a file, with a warning, or the file itself; false: nothing is.
func (f *Reader) substituteFile(in file, warnings *manifest.Errors) (out file, used bool) {
	r := f.inForce(in)
	if r == nil {
		return in, true
	}
	out, used, warning := substituteInForce(r, in)
	*warnings, f.LeftOut = append(*warnings, warning), f.LeftOut || !used
	return out, used
}

// goneInForce returns the files that another process serves although they are gone from a directory
// with these files.
func (f *Reader) goneInForce(dir string, names []string, warnings *manifest.Errors) (out []content) {
	abs, err := filepath.Abs(dir)
	for i := range f.InForce {
		r := &f.InForce[i]
		name := filepath.Join(dir, filepath.Base(r.Path))
		if err != nil || filepath.Dir(r.Path) != abs || r.Sum != "" || r.Objects == nil || slices.Contains(names, name) {
			continue
		}
		in, _, warning := substituteInForce(r, file{name: name})
		out, *warnings = append(out, f.parse(in)), append(*warnings, warning)
	}
	return out
}

func substituteInForce(r *InForce, in file) (out file, used bool, warning *manifest.Error) {
	advice := lastValid
	if r.Objects == nil {
		advice = leftOut
	}
	err := fmt.Errorf("%s (as in the running nftproxy, %s)", r.Problem, advice)
	return file{name: in.name, data: r.Objects}, r.Objects != nil, fileProblem(in.name, err)
}
