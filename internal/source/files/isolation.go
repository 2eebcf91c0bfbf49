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
	"github.com/nftproxy/nftproxy/internal/model"
)

// Isolation makes each file of the input independent: a file with a mistake is used with its last valid content, or
// left out if there was none. Except for [Isolation.InForce], it is not safe for concurrent use.
type Isolation struct {
	kept *Kept // nil: not over restarts
	read bool  // kept was
	// unkept is why the last valid content may be lost with the process.
	unkept error
	// inForce returns the files that the last input does not use as they are.
	inForce atomic.Pointer[func() []model.InForce]
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

// lastOf returns the content of a file that was in use before; nil: none, or one that is invalid for this version.
func (f *Reader) lastOf(name string) *content {
	known := f.inUse[name]
	if known == nil {
		return nil
	}
	text := known.text
	if text == nil {
		text = f.Isolation.kept.read(name)
	}
	c := f.parse(file{name: name, data: text})
	if c.data = text; sumOf(text) != known.sum || c.broken {
		return nil
	}
	return &c
}

// isolated is a file of the input, or one that is gone and that others need.
type isolated struct {
	name     string
	now      *content        // nil: the file is gone
	used     *content        // this one, or the one that was in use before; nil: none
	trying   bool            // its content is not known to fit to the others
	problems manifest.Errors // why now is not used
}

func (u *isolated) advice() string {
	if u.used == nil {
		return leftOut
	}
	return lastValid
}

const (
	lastValid = "its last valid content stays in use"
	leftOut   = "the file is left out"
)

func (f *Reader) loadIsolated(groups []group, warnings manifest.Errors) (*Input, error) {
	var all []*isolated
	for _, g := range groups {
		for i := range g.files {
			u := &isolated{name: g.files[i].name, now: &g.files[i]}
			if u.used = u.now; u.now.broken { // by itself
				u.used, u.problems = f.lastOf(u.name), collect(nil, nil, []group{{u.name, contents{*u.now}}}).problems
			}
			all = append(all, u)
		}
	}
	in, problems, _ := f.joinIsolated(all, warnings)
	if len(problems) > 0 {
		all = f.useFitting(all)
		if in, problems, _ = f.joinIsolated(all, warnings); len(problems) > 0 {
			return nil, problems
		}
	}
	for _, u := range all {
		if u.used == u.now {
			continue
		}
		first := *u.problems[0]
		first.Err = fmt.Errorf("%w (%s)", first.Err, u.advice())
		in.Unused = append(append(in.Unused, &first), u.problems[1:]...)
		if u.used == nil {
			in.LeftOut = append(in.LeftOut, u.name)
		}
	}
	f.keepInUse(all)
	f.noteReplaced(all)
	if err := f.Isolation.unkept; err != nil {
		in.Warnings = append(in.Warnings, &manifest.Error{Err: errors.Join(errors.New("the last valid content of files is not kept for the next start"), err)})
	}
	return in, nil
}

// joinIsolated returns the input of the contents that are used, or the problems with it, and the Balances that other
// files make invalid. Contents on trial come last: of two files with the same object, these have the problem.
func (f *Reader) joinIsolated(all []*isolated, warnings manifest.Errors) (*Input, manifest.Errors, []*object) {
	var used contents
	for _, trying := range []bool{false, true} {
		for _, u := range all {
			if u.used != nil && u.trying == trying {
				used = append(used, *u.used)
			}
		}
	}
	used, links := f.linkContents(used)
	var groups []group
	for _, c := range used {
		groups = append(groups, group{c.name, contents{c}})
	}
	c := collect(links.problems, slices.Concat(warnings, links.warnings), groups)
	in, _ := c.finishInput()
	return in, c.problems, links.broken
}

// useFitting begins with the contents that were in use before, and uses each change that fits to the others. It
// adds the files that are gone and still needed.
func (f *Reader) useFitting(all []*isolated) []*isolated {
	var same, changes []*isolated
	present := make(map[string]bool)
	for _, u := range all {
		known := f.inUse[u.name]
		switch present[u.name] = true; {
		case u.used != u.now:
		case known != nil && known.sum == u.now.sum:
			same = append(same, u)
		default:
			changes, u.used = append(changes, u), f.lastOf(u.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.inUse)) {
		if present[name] {
			continue
		}
		if u := (&isolated{name: name, used: f.lastOf(name)}); u.used != nil {
			all, changes = append(all, u), append(changes, u)
		}
	}
	if _, problems, _ := f.joinIsolated(all, nil); len(problems) > 0 { // of an earlier version, for example
		changes = append(same, changes...)
		for _, u := range all {
			u.used = nil
		}
	}
	for before := len(changes) + 1; 0 < len(changes) && len(changes) < before; { // one may need another
		before, changes = len(changes), f.tryChanges(all, changes)
	}
	return slices.DeleteFunc(all, func(u *isolated) bool { return u.now == nil && u.used == nil })
}

// tryChanges uses changes that fit to the others, if possible all together, and returns the other ones.
func (f *Reader) tryChanges(all, changes []*isolated) (left []*isolated) {
	before := make([]*content, len(changes))
	for i, u := range changes {
		before[i], u.used, u.trying = u.used, u.now, true
	}
	_, problems, broken := f.joinIsolated(all, nil)
	for i, u := range changes {
		if u.trying = false; len(problems) > 0 {
			u.used = before[i]
		} else {
			u.problems = nil
		}
	}
	own := make(map[string]manifest.Errors)
	for _, p := range problems {
		own[p.File] = append(own[p.File], p)
	}
	var bad, rest []*isolated
	for _, u := range changes {
		if len(own[u.name]) > 0 {
			bad = append(bad, u)
		} else {
			rest = append(rest, u)
		}
	}
	switch half := len(changes) / 2; {
	case len(problems) == 0:
		return nil
	case half > 0 && len(bad) > 0 && len(rest) > 0:
		return append(f.tryChanges(all, rest), f.tryChanges(all, bad)...)
	case half > 0 && len(bad) <= maxTried:
		return append(f.tryChanges(all, changes[:half]), f.tryChanges(all, changes[half:])...)
	case half == 0:
		changes[0].problems = changes[0].explain(own[changes[0].name], broken)
		return changes
	}
	for _, u := range changes {
		u.problems = own[u.name]
	}
	return changes
}

// maxTried is how many files with problems are tried one by one: some may be valid without the others.
const maxTried = 16

// explain returns the problems of a change: its own, or the one with a Balance of another file.
func (u *isolated) explain(own manifest.Errors, broken []*object) manifest.Errors {
	i := slices.IndexFunc(broken, func(o *object) bool { return o.File != u.name })
	switch {
	case i >= 0 && u.now == nil:
		return manifest.Errors{fileProblem(u.name, fmt.Errorf("is gone, and %s in %s needs it: put it back, or change that first", broken[i].id, broken[i].Place))}
	case i >= 0:
		return manifest.Errors{fileProblem(u.name, fmt.Errorf("has changed what %s in %s needs: %w", broken[i].id, broken[i].Place, broken[i].rare.problems[0].Err))}
	}
	return own
}

// keepInUse notes the content that is in use now, saves it for the next process, and forgets files that no
// longer exist.
func (f *Reader) keepInUse(all []*isolated) {
	i, before := f.Isolation, f.inUse
	f.inUse = make(map[string]*inUse, len(all))
	var errs []error
	for _, u := range all {
		known := before[u.name]
		if u.used == u.now && (known == nil || known.sum != u.now.sum) {
			known = &inUse{sum: u.now.sum, text: u.now.data}
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

// noteReplaced notes which files are not used as they are. Their objects are written when they are asked for.
func (f *Reader) noteReplaced(all []*isolated) {
	out, proxyName := []model.InForce{}, f.ProxyName
	var texts []file // that are used instead
	for _, u := range all {
		if u.used == u.now {
			continue
		}
		in, text := model.InForce{Path: u.name, Problem: strings.TrimPrefix(u.problems[0].Error(), u.name+": ")}, file{name: u.name}
		if u.now != nil {
			in.Sum = u.now.sum
		}
		if abs, err := filepath.Abs(u.name); err == nil && u.name != displayName(standardInput) {
			in.Path = abs
		}
		if u.used != nil {
			text.data = u.used.data
		}
		out, texts = append(out, in), append(texts, text)
	}
	inForce := sync.OnceValue(func() []model.InForce {
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
func (i *Isolation) InForce() []model.InForce {
	if inForce := i.inForce.Load(); inForce != nil {
		return (*inForce)()
	}
	return []model.InForce{} // nothing was read yet
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
func (f *Reader) inForce(in file) *model.InForce {
	abs, _ := filepath.Abs(in.name) // with an error, the name decides
	var same *model.InForce
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

func substituteInForce(r *model.InForce, in file) (out file, used bool, warning *manifest.Error) {
	advice := lastValid
	if r.Objects == nil {
		advice = leftOut
	}
	err := fmt.Errorf("%s (as in the running nftproxy, %s)", r.Problem, advice)
	return file{name: in.name, data: r.Objects}, r.Objects != nil, fileProblem(in.name, err)
}
