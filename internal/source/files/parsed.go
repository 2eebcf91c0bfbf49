package files

import (
	"iter"
	"sync"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// documents keeps what was read from the documents of files, and from the items of Lists, so
// that a change of a file costs the objects that it concerns. It keeps sums in place of texts.
// Its zero value keeps nothing.
type documents struct {
	mu    sync.Mutex
	files map[string]*known // by name, as the load before has left them
	read  map[string]*known // by the load that runs; nil: there is none
}

// known is what was read of a file.
type known struct {
	docs   parts
	layout layout
	back   *change // undoes what the load that runs has changed; nil: nothing
	use    use
	saved  bool // for the next process, as it is without that change
}

// use says what loads have made of a file:
//
//	fresh -> inUse   the load that has read it uses it
//	fresh -> tried   it does not
//	tried -> fresh   it was read again
//	inUse            stays, whatever loads that do not use the file find in its place
//
// A file that is gone is forgotten, unless it is inUse and the load fails: a program may be writing
// it at this moment. A tried one is not, or other files could come and go without end.
type use int8

const (
	fresh use = iota
	tried
	inUse
)

// begin begins a load.
func (d *documents) begin() { d.read = make(map[string]*known, len(d.files)) }

// end ends a load. One that has failed uses no file.
func (d *documents) end(failed bool) {
	if failed {
		for file := range d.files {
			d.reject(file)
		}
	}
	for _, k := range d.read {
		switch k.back = nil; {
		case k.use == fresh && failed:
			k.use = tried
		case k.use == fresh:
			k.use = inUse
		}
	}
	d.files, d.read = d.read, nil
}

// reject says that the load does not use a file as it is, and returns what was in use before; nil:
// nothing was.
func (d *documents) reject(file string) *known {
	k := d.last(file)
	if k == nil {
		if now := d.read[file]; now != nil {
			now.use = tried
		}
		return nil
	}
	if k.back != nil {
		k.apply(k.back)
		k.back = nil
	}
	d.read[file] = k
	return k
}

// last returns what the load before has used of a file, with the changes of the load that runs; nil:
// nothing.
func (d *documents) last(file string) *known {
	if k := d.files[file]; k != nil && k.use == inUse {
		return k
	}
	return nil
}

// of returns what the load before has read of a file. Like keep, it is safe for concurrent use.
func (d *documents) of(file string) *known {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k := d.files[file]; k != nil {
		return k
	}
	return new(known)
}

// keep notes what was read of a file.
func (d *documents) keep(file string, k *known) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read == nil || len(k.docs.all) == 0 {
		return
	}
	if k.use == tried {
		k.use = fresh
	}
	d.read[file] = k
}

// changed reports whether a file is not as the load before has used it.
func (d *documents) changed(file string) bool {
	before, now := d.last(file), d.read[file]
	if before == nil || now == nil {
		return true
	}
	return now.back != nil || now != before && !sameText(before.layout.blocks, now.layout.blocks)
}

// parts are the documents of a file, or the items of a List. Sums are only compared between
// parts of one file or List: at worst, the author of a file confuses texts of his own.
type parts struct {
	of   *items  // nil: documents
	head *object // has the problems of the List itself; nil: there are none
	all  []part
}

// part is a document, or an item. Nearly all have one object.
type part struct {
	sum  manifest.Sum // zero: the part is not known again
	only *object
	list *parts // the items, if it is a List
	// line is where it begins: in the file, or after the line of the document that is the List.
	line int32
}

// items returns the items of the document with a number, if it is a List.
func (p *parts) items(document int) *parts {
	if i := document - 1; i < len(p.all) && p.all[i].list != nil {
		return p.all[i].list
	}
	return new(parts)
}

// fill gives parts whose sums and lines are known their objects: the ones of the last load where
// the text is the same, otherwise the ones that read finds, which is called on all processors.
func (p *parts) fill(before *parts, read func(to *part, i int)) {
	same := match(before.all, p.all)
	parallel.Spread(len(p.all), packAtOnce, func(first, end int) {
		fresh := make([]*part, 0, end-first)
		for i := first; i < end; i++ {
			to := &p.all[i]
			if j := same[i]; j >= 0 {
				to.only, to.list = before.all[j].only, before.all[j].list
				continue
			}
			if read(to, i); to.hasProblems() {
				to.sum = manifest.Sum{}
			}
			fresh = append(fresh, to)
		}
		pack(fresh)
	})
}

// hasProblems reports whether an object of a part has one.
func (p *part) hasProblems() bool {
	if p.list == nil {
		return p.only != nil && p.only.hasProblems()
	}
	for i := range p.list.all {
		if p.list.all[i].hasProblems() {
			return true
		}
	}
	return p.list.head != nil
}

// match returns for each part the one with the same text before, or -1. Nearly always there is
// one place between them where something was inserted, removed or changed.
func match(before, now []part) []int {
	same := make([]int, len(now))
	first, last := 0, 0 // how many are the same at the begin, and at the end
	for first < min(len(before), len(now)) && before[first].is(now[first].sum) {
		same[first] = first
		first++
	}
	for last < min(len(before), len(now))-first && before[len(before)-1-last].is(now[len(now)-1-last].sum) {
		last++
		same[len(now)-last] = len(before) - last
	}
	between := make(map[manifest.Sum]int)
	for j := first; j < len(before)-last; j++ {
		between[before[j].sum] = j
	}
	for i := first; i < len(now)-last; i++ {
		same[i] = -1
		if j, ok := between[now[i].sum]; ok && before[j].is(now[i].sum) {
			same[i] = j
		}
	}
	return same
}

func (p *part) is(sum manifest.Sum) bool { return p.sum == sum && sum != manifest.Sum{} }

// each calls do with each object, and the place of its part.
func (c *content) each(do func(o *object, at manifest.Place)) {
	c.docs.each(manifest.Place{File: c.name}, do)
}

// each is [content.each] for the documents of a file, or for the items of the List at a place.
func (p *parts) each(around manifest.Place, f func(o *object, at manifest.Place)) {
	if p.head != nil {
		f(p.head, around)
	}
	for one, at := range p.placed(around) {
		switch {
		case one.only != nil:
			f(one.only, at)
		case one.list != nil:
			one.list.each(at, f)
		}
	}
}

// placed has each part with its place.
func (p *parts) placed(around manifest.Place) iter.Seq2[*part, manifest.Place] {
	return func(yield func(*part, manifest.Place) bool) {
		at := around
		for i := range p.all {
			one := &p.all[i]
			if at.Line = around.Line + int(one.line); p.of != nil {
				at.Item = i + 1
			} else {
				at.Document = i + 1
			}
			if !yield(one, at) {
				return
			}
		}
	}
}
