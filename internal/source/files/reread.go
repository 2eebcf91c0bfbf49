package files

import (
	"bytes"
	"errors"
	"os"
	"slices"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
)

// blockSize returns about how many bytes a block has: an edit costs a sum of each block, and the
// objects of the blocks between the first change and the last one.
func (f *Reader) blockSize() int {
	if f.blocks > 0 {
		return f.blocks
	}
	return 32 << 10
}

// layout is how a file is made of blocks: each has documents, or items of the one List that the
// file is. Without blocks, the file is always read as a whole.
type layout struct {
	list   *parts // nil: blocks have documents
	blocks []block
	// end is the line after the last block, as lines of parts count.
	end int32
	// ended reports that the last line ends with a line feed.
	ended bool
	// whole reports that the file is always read as a whole: its block is there for the text.
	whole bool
}

// block is a part of a file: it ends where the next one begins. In a layout of a List, the first and
// the last one have no items.
type block struct {
	sum   manifest.Sum
	size  int32
	line  int32  // where it begins, as lines of parts count
	first int32  // the number of its first part
	text  []byte // packed; nil: it is not kept
}

// cutter cuts a text into the blocks of a layout.
type cutter struct {
	layout
	pack *packer // nil: texts are not kept
}

// edit is what has changed in a file since it was read before.
type edit struct{ removed, added []*object }

// layoutOf returns the layout of a file that was read as a whole.
func (f *Reader) layoutOf(in file, docs []*manifest.Document, read *parts) layout {
	c := cutter{pack: f.Isolation.packer()}
	if in.path == "" && c.pack == nil {
		return layout{}
	}
	c.ended = bytes.HasSuffix(in.data, []byte("\n"))
	list := read.all[0].list
	switch {
	case manifest.HasDirectives(in.data), len(docs) == 1 && list != nil && !f.cutList(&c, in.data, list):
		if c.whole = true; c.pack != nil {
			c.add(in.data, 0)
		}
	case len(docs) > 1 || list == nil:
		c.end = 1
		c.cutDocuments(f.blockSize(), docs, in.data, 0)
	}
	return c.layout
}

// cutDocuments adds blocks of documents, which are parts from a number on.
func (c *cutter) cutDocuments(size int, docs []*manifest.Document, data []byte, first int) {
	start, from := 0, 0
	for i, d := range docs {
		if at, ok := d.Start(); ok && at-start >= size {
			c.add(data[start:at], first+from)
			start, from = at, i
		}
	}
	c.add(data[start:], first+from)
}

func (c *cutter) add(text []byte, first int) {
	c.blocks = append(c.blocks, block{manifest.SumOf(text), int32(len(text)), c.end, int32(first), c.pack.pack(text)})
	c.end += int32(bytes.Count(text, []byte("\n")))
}

// sameText reports whether blocks have the same texts.
func sameText(a, b []block) bool {
	return slices.EqualFunc(a, b, func(a, b block) bool { return a.sum == b.sum })
}

// cutList adds the blocks of a file that is a List, or returns false.
func (f *Reader) cutList(c *cutter, data []byte, list *parts) bool {
	starts, end := list.of.starts, list.of.end
	if list.of.starts = nil; len(starts) < 2 || list.head != nil {
		return false
	}
	c.list, c.end = list, int32(1-list.of.line)
	c.add(data[:starts[0]], 0)
	c.cutItems(f.blockSize(), data[:end], starts, 0)
	c.add(data[end:], len(starts))
	return true
}

// cutItems adds blocks of items, which begin at offsets and are parts from a number on.
func (c *cutter) cutItems(size int, data []byte, starts []int, first int) {
	if len(starts) == 0 {
		return
	}
	start, from := starts[0], 0
	for i, at := range starts {
		if at-start >= size {
			c.add(data[start:at], first+from)
			start, from = at, i
		}
	}
	c.add(data[start:], first+from)
}

// reread reads a file of which most is as it was. It returns false if the whole file must be read:
// also for each problem, which only then has the right place and words.
func (f *Reader) reread(in file) (out content, ok bool) {
	if in.path == "" || in.err != nil {
		return out, false
	}
	k := f.known.of(in.name)
	if k.layout.whole || len(k.layout.blocks) == 0 {
		return out, false
	}
	r, err := k.layout.compare(in.path)
	if err != nil {
		return out, false
	}
	defer r.file.Close()
	c, ok := f.renew(k, in.name, r)
	if !ok {
		return out, false
	}
	out.edit = differences(k.parts().all[c.from:c.to], c.parts)
	if back := k.apply(c); !sameText(back.blocks, c.blocks) {
		k.back = back
	}
	f.known.keep(in.name, k)
	out.file, out.docs = in, k.docs
	return out, true
}

// region is the part of a file that differs.
type region struct {
	file *os.File
	// The blocks from first on, without last, are replaced by the text from begin to end.
	first, last int
	begin, end  int64
}

// errNotReread is why a file is read as a whole, which has the message about it.
var errNotReread = errors.New("is read as a whole")

// compare compares the blocks with a file: from its begin, then from its end. Only the first block
// need not begin with a line "---" or an item, so what comes before it is not a region.
func (l *layout) compare(path string) (*region, error) {
	file, info, err := atomicfile.Open(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > budget.FileSize {
		return nil, errors.Join(file.Close(), errNotReread)
	}
	r := &region{file: file, last: len(l.blocks), end: info.Size()}
	var text []byte
	is := func(b block, at int64) bool {
		text = slices.Grow(text[:0], int(b.size))[:b.size]
		_, err := file.ReadAt(text, at)
		return err == nil && manifest.SumOf(text) == b.sum
	}
	most := len(l.blocks)
	if l.list != nil { // what follows the items ends the file
		most--
	}
	for r.first < most && r.begin+int64(l.blocks[r.first].size) <= r.end && is(l.blocks[r.first], r.begin) {
		r.begin += int64(l.blocks[r.first].size)
		r.first++
	}
	for r.last > max(r.first, 1) {
		b := l.blocks[r.last-1]
		if at := r.end - int64(b.size); at < r.begin || !is(b, at) {
			break
		}
		r.end -= int64(b.size)
		r.last--
	}
	return r, nil
}

// parts returns the parts that the blocks have: documents, or the items of the List.
func (k *known) parts() *parts {
	if k.layout.list != nil {
		return k.layout.list
	}
	return &k.docs
}

// renew reads a region in place of what was there; false: the whole file must be read.
func (f *Reader) renew(k *known, name string, r *region) (*change, bool) {
	l := &k.layout
	if l.list != nil && (r.first == 0 || r.last == len(l.blocks)) {
		return nil, false // around the items
	}
	c, ok := f.region(k, name, r)
	if back := r.first - 1; !ok && back >= 0 && (back > 0 || l.list == nil) {
		r.first, r.begin = back, r.begin-int64(l.blocks[back].size) // the last part before it may go on
		c, ok = f.region(k, name, r)
	}
	left := len(k.parts().all) - (c.to - c.from) + len(c.parts)
	return c, ok && left > 0 && left <= budget.FileObjects
}

// change replaces blocks of a file, and the parts in them.
type change struct {
	first, last int // the blocks from first on, without last
	blocks      []block
	from, to    int // the parts
	parts       []part
	lines       int32 // more than before
	ended       bool  // see [layout], of a change at the end
}

// apply makes a change, and returns the one that undoes it.
func (k *known) apply(c *change) *change {
	l, all := &k.layout, &k.parts().all
	back := &change{
		first: c.first, last: c.first + len(c.blocks), blocks: slices.Clone(l.blocks[c.first:c.last]),
		from: c.from, to: c.from + len(c.parts), parts: slices.Clone((*all)[c.from:c.to]),
		lines: -c.lines, ended: l.ended,
	}
	more := int32(len(c.parts) - (c.to - c.from))
	for i := c.last; i < len(l.blocks); i++ {
		l.blocks[i].first += more
		l.blocks[i].line += c.lines
	}
	if l.end += c.lines; c.last == len(l.blocks) {
		l.ended = c.ended
	}
	l.blocks = slices.Replace(l.blocks, c.first, c.last, c.blocks...)
	*all = slices.Replace(*all, c.from, c.to, c.parts...)
	for i := back.to; i < len(*all) && c.lines != 0; i++ {
		(*all)[i].line += c.lines
	}
	if l.list != nil {
		k.docs.all[0].sum = manifest.Sum{}
	}
	return back
}

// region reads the text of a region; false: it cannot be read alone.
func (f *Reader) region(k *known, name string, r *region) (out *change, ok bool) {
	l, before := &k.layout, k.parts().all
	out = &change{first: r.first, last: r.last, from: l.partOf(r.first, len(before)), to: l.partOf(r.last, len(before))}
	text := make([]byte, r.end-r.begin)
	if _, err := r.file.ReadAt(text, r.begin); err != nil {
		return out, false
	}
	out.ended = len(text) == 0 || text[len(text)-1] == '\n'
	if r.first == len(l.blocks) && !l.ended || r.last < len(l.blocks) && !out.ended {
		return out, false
	}
	cut := cutter{layout{end: l.lineOf(r.first)}, f.Isolation.packer()}
	if l.list != nil {
		ok = f.itemsOf(out, &cut, l.list, name, text)
	} else {
		ok = f.documentsOf(out, &cut, before, name, text)
	}
	out.blocks = cut.blocks
	out.lines = int32(bytes.Count(text, []byte("\n"))) - (l.lineOf(r.last) - l.lineOf(r.first))
	return out, ok && !slices.ContainsFunc(out.parts, func(p part) bool { return p.sum == manifest.Sum{} })
}

// partOf returns the first part of a block, or after the last block the number of parts.
func (l *layout) partOf(block, parts int) int {
	if block == len(l.blocks) {
		return parts
	}
	return int(l.blocks[block].first)
}

// lineOf returns the line of a block, or after the last block the end.
func (l *layout) lineOf(block int) int32 {
	if block == len(l.blocks) {
		return l.end
	}
	return l.blocks[block].line
}

// itemsOf reads a region of a List, and cuts it from the line on where it begins.
func (f *Reader) itemsOf(to *change, cut *cutter, list *parts, name string, text []byte) bool {
	m, n, ok := manifest.ItemsRegion(name, text, list.of.indent)
	if !ok {
		return false
	}
	of := *list.of
	of.line = 1 - int(cut.end) // lines of the region begin at 1
	read := f.items(m, n, of, &parts{all: list.all[to.from:to.to]})
	if read == nil {
		return false
	}
	starts, _, _ := m.ItemStarts()
	cut.cutItems(f.blockSize(), text, starts, to.from)
	to.parts = read.all
	return true
}

// documentsOf is itemsOf for documents. Of a List, the items are known only if the whole file is
// read.
func (f *Reader) documentsOf(to *change, cut *cutter, before []part, name string, text []byte) bool {
	isList := func(p part) bool { return p.list != nil }
	docs, ok := manifest.SplitRegion(name, text, cut.end == 1)
	if !ok || slices.ContainsFunc(before[to.from:to.to], isList) {
		return false
	}
	read := parts{all: make([]part, len(docs))}
	for i, d := range docs {
		read.all[i].sum, read.all[i].line = d.Sum(), cut.end+int32(d.Line)-1
	}
	read.fill(&parts{all: before[to.from:to.to]}, func(p *part, i int) { f.document(p, docs[i], new(parts)) })
	if len(text) > 0 {
		cut.cutDocuments(f.blockSize(), docs, text, to.from)
	}
	to.parts = read.all
	return !slices.ContainsFunc(read.all, isList)
}

// differences returns the objects that are not in both of two lists of parts; all of them, if the
// order of the others has changed.
func differences(before, now []part) *edit {
	removed, kept := separate(before, now)
	added, still := separate(now, before)
	if !slices.Equal(kept, still) {
		return &edit{slices.Concat(removed, kept), slices.Concat(added, still)}
	}
	return &edit{removed, added}
}

// separate returns the objects of parts that others do not have, and those that they have.
func separate(all, others []part) (only, both []*object) {
	in := make(map[*object]struct{}, len(others))
	for i := range others {
		in[others[i].only] = struct{}{}
	}
	for i := range all {
		o := all[i].only
		if _, ok := in[o]; ok && o != nil {
			both = append(both, o)
		} else if o != nil {
			only = append(only, o)
		}
	}
	return only, both
}
