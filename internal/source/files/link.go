package files

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// A Balance may have servers of pools (kind Servers), and values from the defaults of its directory
// (kind Defaults), which are other objects of the input. Such a Balance waits until all files are
// read, and is resolved then: its object is replaced by one with what it stands for.

type waiting struct {
	balance *balance.Unresolved
	source  *manifest.Object
}

type linker struct {
	reader   *Reader
	pools    map[balance.PoolName]*balance.Pool
	places   map[balance.PoolName]*object
	used     map[balance.PoolName]bool
	defaults map[string]*object // by directory
	// What follows is the result.
	problems manifest.Errors // about defaults
	warnings manifest.Errors
	broken   []*object // Balances with problems
}

// directoryOf returns the directory whose defaults the objects of a file have.
func directoryOf(file string) string {
	if file == displayName(standardInput) {
		return file
	}
	return filepath.Dir(file)
}

// linkContents resolves the Balances of all files. It returns new contents, in the order of the given ones.
func (f *Reader) linkContents(all contents) (contents, *linker) {
	all = slices.Clone(all)
	l := f.newLinker(all)
	if f.readAgain(all, l) {
		l = f.newLinker(all)
	}
	for i := range all {
		c := &all[i]
		objects := make([]*object, len(c.objects))
		for j, o := range c.objects {
			objects[j] = l.resolveBalance(o)
		}
		c.objects = objects
	}
	l.warnOfUnused()
	return all, l
}

func (f *Reader) newLinker(all contents) *linker {
	l := &linker{
		reader: f, pools: make(map[balance.PoolName]*balance.Pool), places: make(map[balance.PoolName]*object),
		used: make(map[balance.PoolName]bool), defaults: make(map[string]*object),
	}
	for o := range all.all() {
		l.noteObject(o)
	}
	return l
}

func (l *linker) noteObject(o *object) {
	switch d := o.rareDetails(); {
	case d.pool != nil:
		if id := d.pool.ID(); l.pools[id] == nil { // another one is an error of its own
			l.pools[id], l.places[id] = d.pool, o
		}
	case d.defaults != nil:
		directory := directoryOf(o.File)
		if first, twice := l.defaults[directory]; twice {
			l.problems = append(l.problems, &manifest.Error{Place: o.Place, Object: balance.DefaultsKind,
				Err: fmt.Errorf("are given twice for this directory, first in %s: join them", first.Place)})
			return
		}
		l.defaults[directory] = o
	}
}

// readAgain reads files whose Balances do not wait, although their directory has defaults. In later loads they do.
func (f *Reader) readAgain(all contents, l *linker) (done bool) {
	f.defaulted = make(map[string]bool, len(l.defaults))
	for directory := range l.defaults {
		f.defaulted[directory] = true
	}
	for i := range all {
		c := &all[i]
		if f.defaulted[directoryOf(c.name)] && slices.ContainsFunc(c.objects, (*object).isReady) {
			*c, done = f.parse(c.file), true
		}
	}
	return done
}

func (o *object) isReady() bool { return o.is(balance.Kind) && o.rareDetails().waiting == nil }

// resolveBalance returns the object of a Balance with what it depends on; another object as it is.
func (l *linker) resolveBalance(o *object) *object {
	waiting := o.rareDetails().waiting
	if waiting == nil {
		return o
	}
	var with []*object
	for _, name := range waiting.balance.Pools() {
		if of := l.places[name]; of != nil {
			l.used[name], with = true, append(with, of)
		}
	}
	var defaults *balance.Defaults
	if of := l.defaults[directoryOf(o.File)]; of != nil {
		defaults, with = of.rareDetails().defaults, append(with, of)
	}
	if slices.ContainsFunc(with, func(o *object) bool { return len(o.rareDetails().problems) > 0 }) { // which are reported where they are
		return o
	}
	c := waiting.balance.Resolve(l.pools, defaults, l.reader.ProxyName)
	out := &object{Place: o.Place, id: o.id, kind: o.kind, service: c.Service, slices: c.Slices}
	out.rare = &details{given: o.rareDetails().given, waiting: waiting, with: with, problems: slices.Clone(c.Problems)}
	if l.reader.Keep {
		out.rare.manifests = c.Objects
	}
	if out.addFindings(waiting.source, c.Findings); len(out.rare.problems) > 0 {
		l.broken = append(l.broken, out)
	}
	return out
}

func (l *linker) warnOfUnused() {
	for id, o := range l.places {
		if !l.used[id] && len(o.rareDetails().problems) == 0 {
			l.warnings = append(l.warnings, &manifest.Error{Place: o.Place, Object: o.id.String(),
				Err: errors.New("is used by no Balance: name it in one, like \"backends: {servers: " + id.Name + "}\", or remove it")})
		}
	}
	slices.SortFunc(l.warnings, func(a, b *manifest.Error) int { return strings.Compare(a.Error(), b.Error()) })
}
