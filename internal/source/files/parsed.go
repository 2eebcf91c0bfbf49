package files

import (
	"slices"
	"sync"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// maxKept is how many documents and items are kept at most: each takes some 300 bytes, and the
// others of the input are parsed again with every change.
const maxKept = 100_000

// documents keeps what was read from the documents of files, and from the items of Lists, so
// that a change of a file costs the objects that it concerns. It keeps sums in place of texts.
// Its zero value keeps nothing.
type documents struct {
	mu          sync.Mutex
	before, now map[listKey][]part // by the last load, and by this one
	kept        int                // parts in now
}

// listKey identifies the documents of a file, or the items of a List in it. Sums are only
// compared below one key: at worst, the author of a file confuses texts of his own.
type listKey struct {
	file     string
	document int // the List; zero: the documents
}

// part is a document, or an item.
type part struct {
	sum     manifest.Sum // zero: the part is not known again
	place   manifest.Place
	objects []*object
}

// begin begins a load.
func (d *documents) begin() {
	d.before, d.now, d.kept = d.now, make(map[listKey][]part, len(d.now)), 0
}

// end ends it, and forgets what it did not use.
func (d *documents) end() { d.before = nil }

// objects returns the objects of parts whose sums and places are known: the ones of the last
// load where the text is the same, otherwise the result of read. It is safe for concurrent use.
func (d *documents) objects(key listKey, parts []part, read func(i int) []*object) []*object {
	d.mu.Lock()
	before, keeps := d.before[key], d.now != nil
	d.mu.Unlock()
	same := match(before, parts)
	parallel(len(parts), func(i int) {
		if j := same[i]; j >= 0 {
			parts[i].objects = before[j].objectsAt(parts[i].place)
			return
		}
		parts[i].objects = read(i)
	})
	total := 0
	for i := range parts {
		total += len(parts[i].objects)
	}
	out := make([]*object, 0, total)
	for i := range parts {
		out = append(out, parts[i].objects...)
		unused := func(o *object) bool { return o == nil || len(o.problems) > 0 }
		if parts[i].sum == (manifest.Sum{}) || slices.ContainsFunc(parts[i].objects, unused) {
			parts[i] = part{}
		}
	}
	if keeps {
		d.keep(key, parts)
		d.carry(key, before, parts, same)
	}
	return out
}

// keep notes parts for the next load.
func (d *documents) keep(key listKey, parts []part) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if parts = parts[:min(len(parts), max(0, maxKept-d.kept))]; len(parts) > 0 {
		d.now[key] = parts
		d.kept += len(parts)
	}
}

// carry notes the items of Lists that are the same.
func (d *documents) carry(key listKey, before, parts []part, same []int) {
	for i, j := range same {
		if key.document > 0 || j < 0 || len(parts[i].objects) < 2 {
			continue
		}
		d.mu.Lock()
		items := d.before[listKey{key.file, before[j].place.Document}]
		d.mu.Unlock()
		if items != nil {
			d.keep(listKey{key.file, parts[i].place.Document}, moved(items, before[j].place, parts[i].place))
		}
	}
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

// objectsAt returns the objects of a part that may be elsewhere now: what they hold of their place
// is copied and changed. Warnings that the last review has added are gone.
func (p *part) objectsAt(place manifest.Place) []*object {
	for _, o := range p.objects {
		o.warnings = o.warnings[:o.found:o.found]
	}
	if p.place == place {
		return p.objects
	}
	out := make([]*object, len(p.objects))
	for i, o := range p.objects {
		out[i] = o.moved(p.place, place)
	}
	return out
}

// moved returns an object of a part that was at from and is at to.
func (o *object) moved(from, to manifest.Place) *object {
	own := *o
	own.Place = movedPlace(o.Place, from, to)
	own.warnings = slices.Clone(o.warnings)
	for i, w := range own.warnings {
		copied := *w
		copied.Place = movedPlace(w.Place, from, to)
		own.warnings[i] = &copied
	}
	own.portLines = slices.Clone(o.portLines)
	for i := range own.portLines {
		own.portLines[i] += to.Line - from.Line
	}
	if own.linkLine > 0 {
		own.linkLine += to.Line - from.Line
	}
	return &own
}

func movedPlace(p, from, to manifest.Place) manifest.Place {
	p.Document = to.Document
	p.Item += to.Item - from.Item
	p.Line += to.Line - from.Line
	return p
}

// moved returns the items of a List that was at from and is at to.
func moved(items []part, from, to manifest.Place) []part {
	if from == to {
		return items
	}
	out := slices.Clone(items)
	for i := range out {
		if out[i].objects != nil {
			place := movedPlace(out[i].place, from, to)
			out[i].objects, out[i].place = out[i].objectsAt(place), place
		}
	}
	return out
}
