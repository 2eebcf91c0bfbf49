package files

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// A Balance may have servers of pools (kind Servers), and values from the defaults of its directory
// (kind Defaults), which are other objects of the input. Such a Balance waits until all files are
// read, and is resolved then: its object is replaced by one with what it stands for. An edit of a
// pool replaces the objects of its users, as if they had been edited, too.

// waiting is a Balance that depends on other objects.
type waiting struct {
	balance *balance.Unresolved
	source  *manifest.Object
	at      manifest.Place // of its part when it was read
}

// uses are the objects that a Balance was resolved with.
type uses struct {
	pools    []*balance.Pool // nil for one that is not there
	defaults *balance.Defaults
}

func (u *uses) equal(o *uses) bool {
	return o != nil && u.defaults == o.defaults && slices.Equal(u.pools, o.pools)
}

// linker resolves the Balances of an input.
type linker struct {
	reader   *Reader
	pools    map[balance.PoolName]*balance.Pool
	places   map[balance.PoolName]located
	used     map[balance.PoolName]bool
	defaults map[string]located // by directory
	found    bool               // a Balance that waits, a pool or defaults
	// What follows is the result.
	problems manifest.Errors // about defaults
	warnings manifest.Errors
	broken   []located // Balances with problems
}

// directoryOf returns the directory whose defaults the objects of a file have.
func directoryOf(file string) string {
	if file == displayName(standardInput) {
		return file
	}
	return filepath.Dir(file)
}

// link resolves the Balances of all files. It replaces objects in the contents.
func (f *Reader) link(contents []content) *linker {
	l := f.linker(contents)
	if !l.found {
		f.defaulted = nil
		return l
	}
	if l.readAgain(contents) {
		l = f.linker(contents)
	}
	for i := range contents {
		c := &contents[i]
		directory := directoryOf(c.name)
		c.docs.replace(manifest.Place{File: c.name}, func(o *object, at manifest.Place) *object {
			return l.resolve(located{o, at}, directory, c.edit)
		})
	}
	l.unused()
	return l
}

// linker returns a linker that has noted the objects of all files.
func (f *Reader) linker(contents []content) *linker {
	l := &linker{reader: f}
	for i := range contents {
		contents[i].each(func(o *object, at manifest.Place) { l.note(located{o, at}) })
	}
	return l
}

// note notes pools and defaults.
func (l *linker) note(o located) {
	if o.rare == nil {
		return
	}
	switch {
	case o.rare.waiting != nil:
		l.found = true
	case o.rare.pool != nil:
		if l.found = true; l.pools == nil {
			l.pools, l.places, l.used = make(map[balance.PoolName]*balance.Pool), make(map[balance.PoolName]located), make(map[balance.PoolName]bool)
		}
		if id := o.rare.pool.ID(); l.pools[id] == nil { // another one is an error of its own
			l.pools[id], l.places[id] = o.rare.pool, o
		}
	case o.rare.defaults != nil:
		if l.found = true; l.defaults == nil {
			l.defaults = make(map[string]located)
		}
		directory := directoryOf(o.at.File)
		if first, twice := l.defaults[directory]; twice {
			l.problems = append(l.problems, &manifest.Error{Place: o.place(), Object: balance.DefaultsKind,
				Err: fmt.Errorf("are given twice for this directory, first in %s: join them", first.place())})
			return
		}
		l.defaults[directory] = o
	}
}

// readAgain reads files whose Balances do not wait, although their directory has defaults now. In
// later loads they do.
func (l *linker) readAgain(contents []content) (done bool) {
	f := l.reader
	f.defaulted = make(map[string]bool, len(l.defaults))
	for directory := range l.defaults {
		f.defaulted[directory] = true
	}
	for i := range contents {
		if c := &contents[i]; f.defaulted[directoryOf(c.name)] && c.hasReady() {
			in := c.file
			if c.last {
				in.data = unpacked(f.known.read[c.name].layout.texts())
			}
			*c, done = f.parseWhole(in, new(known)), true
			c.last = in.data != nil
		}
	}
	return done
}

// hasReady reports whether a Balance of a file does not wait for others.
func (c *content) hasReady() (has bool) {
	c.each(func(o *object, _ manifest.Place) {
		has = has || o.is(balance.Kind) && (o.rare == nil || o.rare.waiting == nil)
	})
	return has
}

// resolve returns the object of a Balance with what it depends on, which is the one that is given
// unless something of that has changed.
func (l *linker) resolve(o located, directory string, e *edit) *object {
	if o.rare == nil || o.rare.waiting == nil {
		return o.object
	}
	w, now := o.rare.waiting, new(uses)
	wrong := false
	for _, name := range w.balance.Pools() {
		if now.pools = append(now.pools, l.pools[name]); l.pools[name] != nil {
			l.used[name] = true
			wrong = wrong || l.places[name].hasProblems()
		}
	}
	if d, ok := l.defaults[directory]; ok {
		now.defaults, wrong = d.rare.defaults, wrong || d.hasProblems()
	}
	if wrong { // the mistake is reported once, where it is
		return w.unresolved(o.object)
	}
	if !now.equal(o.rare.with) || o.hasProblems() { // which may name other pools
		fresh := w.resolved(l, now)
		fresh.rare.given = o.rare.given
		if e != nil {
			e.exchange(o.object, fresh)
		}
		o.object = fresh
	}
	if o.hasProblems() {
		l.broken = append(l.broken, o)
	}
	return o.object
}

// unresolved returns the object of a Balance without what an earlier load has resolved it with.
func (w *waiting) unresolved(o *object) *object {
	if o.rare.with == nil {
		return o
	}
	return (&draft{Place: w.source.Place, id: o.id(), given: o.rare.given, waiting: w}).object(w.at)
}

// resolved returns an object with what a Balance stands for.
func (w *waiting) resolved(l *linker, with *uses) *object {
	c := w.balance.Resolve(l.pools, with.defaults, l.reader.ProxyName)
	d := &draft{Place: w.source.Place, service: c.Service, slices: c.Slices, problems: slices.Clone(c.Problems)}
	d.id = ownObject(balance.Kind, c.Meta)
	if l.reader.Keep {
		d.manifests = c.Objects
	}
	d.waiting, d.with = w, with
	d.report(w.source, c.Findings)
	return d.object(w.at)
}

// unused warns of pools that no Balance has.
func (l *linker) unused() {
	for id, o := range l.places {
		if !l.used[id] && !o.hasProblems() {
			l.warnings = append(l.warnings, &manifest.Error{Place: o.place(), Object: o.id().String(),
				Err: errors.New("is used by no Balance: name it in one, like \"backends: {servers: " + id.Name + "}\", or remove it")})
		}
	}
	slices.SortFunc(l.warnings, func(a, b *manifest.Error) int { return strings.Compare(a.Error(), b.Error()) })
}

// exchange puts another object in the place of one that is new in an edit, or was there before.
func (e *edit) exchange(old, now *object) {
	if i := slices.Index(e.added, old); i >= 0 {
		e.added[i] = now
		return
	}
	e.removed, e.added = append(e.removed, old), append(e.added, now)
}

// replace replaces each object by what f returns.
func (p *parts) replace(around manifest.Place, f func(o *object, at manifest.Place) *object) {
	for one, at := range p.placed(around) {
		switch {
		case one.only != nil:
			one.only = f(one.only, at)
		case one.list != nil:
			one.list.replace(at, f)
		}
	}
}

// needs is what the Balances with problems need from other files.
type needs struct {
	pools       map[balance.PoolName]bool
	directories map[string]bool // with defaults
	by          located         // the first one of them
}

// has reports whether parts of a file have anything of that.
func (n *needs) has(file string, all *parts) (has bool) {
	all.each(manifest.Place{File: file}, func(o *object, at manifest.Place) {
		switch {
		case o.rare == nil:
		case o.rare.pool != nil:
			has = has || n.pools[o.rare.pool.ID()]
		case o.rare.defaults != nil:
			has = has || n.directories[directoryOf(at.File)]
		}
	})
	return has
}

// needed returns what Balances with problems need that are in files whose content was valid before:
// another file has made them invalid. Nil: there are none.
func needed(used []*isolated, broken []located) *needs {
	var out *needs
	for _, o := range broken {
		at := slices.IndexFunc(used, func(u *isolated) bool { return u.name == o.at.File && u.advice != leftOut })
		if at < 0 || used[at].novelty() != 0 {
			continue
		}
		if out == nil {
			out = &needs{make(map[balance.PoolName]bool), make(map[string]bool), o}
		}
		for _, name := range o.rare.waiting.balance.Pools() {
			out.pools[name] = true
		}
		out.directories[directoryOf(o.at.File)] = true
	}
	return out
}

// blame returns a problem for each file whose change has made Balances of other files invalid, and
// adds files that are gone and have what such a Balance needs: their last valid content stays.
func (f *Reader) blame(used []*isolated, broken []located) (_ []*isolated, problems manifest.Errors) {
	n := needed(used, broken)
	if n == nil {
		return used, nil
	}
	why := fmt.Errorf("has changed what %s in %s needs: %w", n.by.id(), n.by.place(), n.by.rare.problems[0].Err)
	present := make(map[string]bool, len(used))
	for _, u := range used {
		present[u.name] = true
		if u.novelty() > 0 && u.advice != leftOut && (n.had(u.name, f.known.last(u.name)) || n.has(u.name, &u.docs)) {
			problems = append(problems, problem(u.name, why))
		}
	}
	if len(problems) > 0 {
		return used, problems
	}
	for _, name := range slices.Sorted(maps.Keys(f.known.files)) {
		if last := f.known.last(name); !present[name] && n.had(name, last) {
			gone := fmt.Errorf("is gone, and %s in %s needs it: put it back, or change that first", n.by.id(), n.by.place())
			used = append(used, &isolated{content: lastOf(name, f.known.reject(name)), problem: gone.Error(), advice: lastValid})
			problems = append(problems, problem(name, &replacedError{gone, lastValid}))
		}
	}
	return used, problems
}

// had reports whether what was in use of a file had anything of that, before the load that runs.
func (n *needs) had(name string, last *known) bool {
	return last != nil && (n.has(name, &last.docs) || last.back != nil && n.has(name, &parts{all: last.back.parts}))
}
