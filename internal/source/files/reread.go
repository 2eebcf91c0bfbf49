package files

import (
	"bytes"
	"errors"
	"os"
	"slices"

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
// file is. The zero value is the layout of a file that is always read as a whole.
type layout struct {
	list   *parts // nil: blocks have documents
	blocks []block
	// end is the line after the last block, as lines of parts count.
	end int32
	// ended reports that the last line ends with a line feed.
	ended bool
}

// block is a part of a file: it ends where the next one begins. In a layout of a List, the first and
// the last one have no items.
type block struct {
	sum   manifest.Sum
	size  int32
	line  int32 // where it begins, as lines of parts count
	first int32 // the number of its first part
}

// edit is what has changed in a file since it was read before.
type edit struct{ removed, added []*object }

// layoutOf returns the layout of a file that was read as a whole.
func (f *Reader) layoutOf(data []byte, docs []*manifest.Document, read *parts) (l layout) {
	if manifest.HasDirectives(data) || len(docs) == 0 {
		return layout{}
	}
	l.ended = bytes.HasSuffix(data, []byte("\n"))
	if list := read.all[0].list; len(docs) == 1 && list != nil {
		return f.layoutOfList(l, data, list)
	}
	l.end = 1
	l.cutDocuments(f.blockSize(), docs, data, 0)
	return l
}

// cutDocuments adds blocks of documents, which are parts from a number on.
func (l *layout) cutDocuments(size int, docs []*manifest.Document, data []byte, first int) {
	start, from := 0, 0
	for i, d := range docs {
		if at, ok := d.Start(); ok && at-start >= size {
			l.add(data[start:at], first+from)
			start, from = at, i
		}
	}
	l.add(data[start:], first+from)
}

func (l *layout) add(text []byte, first int) {
	l.blocks = append(l.blocks, block{manifest.SumOf(text), int32(len(text)), l.end, int32(first)})
	l.end += int32(bytes.Count(text, []byte("\n")))
}

// layoutOfList returns the layout of a file that is a List.
func (f *Reader) layoutOfList(l layout, data []byte, list *parts) layout {
	starts, end := list.of.starts, list.of.end
	if list.of.starts = nil; len(starts) < 2 || list.head != nil {
		return layout{}
	}
	l.list, l.end = list, int32(1-list.of.line)
	l.add(data[:starts[0]], 0)
	l.cutItems(f.blockSize(), data[:end], starts, 0)
	l.add(data[end:], len(starts))
	return l
}

// cutItems adds blocks of items, which begin at offsets and are parts from a number on.
func (l *layout) cutItems(size int, data []byte, starts []int, first int) {
	if len(starts) == 0 {
		return
	}
	start, from := starts[0], 0
	for i, at := range starts {
		if at-start >= size {
			l.add(data[start:at], first+from)
			start, from = at, i
		}
	}
	l.add(data[start:], first+from)
}

// reread reads a file of which most is as it was. It returns false if the whole file must be read:
// also for each problem, which only then has the right place and words.
func (f *Reader) reread(in file) (out content, ok bool) {
	if in.path == "" || in.err != nil {
		return out, false
	}
	k := f.known.of(in.name)
	if len(k.layout.blocks) == 0 {
		return out, false
	}
	r, err := k.layout.compare(in.path)
	if err != nil {
		return out, false
	}
	defer r.file.Close()
	if out.edit, ok = f.renew(k, in.name, r); !ok {
		return out, false
	}
	k.edited = len(out.edit.removed)+len(out.edit.added) > 0
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
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > budget.FileSize {
		return nil, errors.Join(err, file.Close(), errNotReread)
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

// renew reads a region in place of what was there; false: the whole file must be read.
func (f *Reader) renew(k *known, name string, r *region) (*edit, bool) {
	l := &k.layout
	if l.list != nil && (r.first == 0 || r.last == len(l.blocks)) {
		return nil, false // around the items
	}
	fresh, ok := f.region(k, name, r)
	if back := r.first - 1; !ok && back >= 0 && (back > 0 || l.list == nil) {
		r.first, r.begin = back, r.begin-int64(l.blocks[back].size) // the last part before it may go on
		fresh, ok = f.region(k, name, r)
	}
	if !ok {
		return nil, false
	}
	all := &k.docs.all
	if l.list != nil {
		all = &l.list.all
		k.docs.all[0].sum = manifest.Sum{}
	}
	if left := len(*all) - (fresh.to - fresh.from) + len(fresh.parts); left == 0 || left > budget.FileObjects {
		return nil, false
	}
	e := differences((*all)[fresh.from:fresh.to], fresh.parts)
	l.replace(r, fresh)
	*all = slices.Replace(*all, fresh.from, fresh.to, fresh.parts...)
	for i := fresh.from + len(fresh.parts); i < len(*all) && fresh.lines != 0; i++ {
		(*all)[i].line += fresh.lines
	}
	return e, true
}

// fresh are the parts that a region has, in place of those between two numbers.
type fresh struct {
	parts    []part
	blocks   []block
	from, to int
	lines    int32 // more than before
	ended    bool  // see [layout]
}

// region reads the text of a region; false: it cannot be read alone.
func (f *Reader) region(k *known, name string, r *region) (out fresh, ok bool) {
	l, before := &k.layout, k.docs.all
	if l.list != nil {
		before = l.list.all
	}
	text := make([]byte, r.end-r.begin)
	if _, err := r.file.ReadAt(text, r.begin); err != nil {
		return out, false
	}
	out.from, out.to = l.partOf(r.first, len(before)), l.partOf(r.last, len(before))
	out.ended = len(text) == 0 || text[len(text)-1] == '\n'
	if r.first == len(l.blocks) && !l.ended || r.last < len(l.blocks) && !out.ended {
		return out, false
	}
	begin := l.lineOf(r.first)
	if l.list != nil {
		ok = f.itemsOf(&out, l.list, name, text, begin)
	} else {
		ok = f.documentsOf(&out, before, name, text, begin)
	}
	out.lines = int32(bytes.Count(text, []byte("\n"))) - (l.lineOf(r.last) - begin)
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

// itemsOf reads a region of a List that begins at a line.
func (f *Reader) itemsOf(to *fresh, list *parts, name string, text []byte, begin int32) bool {
	m, n, ok := manifest.ItemsRegion(name, text, list.of.indent)
	if !ok {
		return false
	}
	of := *list.of
	of.line = 1 - int(begin) // lines of the region begin at 1
	read := f.items(m, n, of, &parts{all: list.all[to.from:to.to]})
	if read == nil {
		return false
	}
	starts, _, _ := m.ItemStarts()
	l := layout{end: begin}
	l.cutItems(f.blockSize(), text, starts, to.from)
	to.parts, to.blocks = read.all, l.blocks
	return true
}

// documentsOf reads a region of documents that begins at a line. Of a List, the items are known
// only if the whole file is read.
func (f *Reader) documentsOf(to *fresh, before []part, name string, text []byte, begin int32) bool {
	isList := func(p part) bool { return p.list != nil }
	docs, ok := manifest.SplitRegion(name, text, begin == 1)
	if !ok || slices.ContainsFunc(before[to.from:to.to], isList) {
		return false
	}
	read := parts{all: make([]part, len(docs))}
	for i, d := range docs {
		read.all[i].sum, read.all[i].line = d.Sum(), begin+int32(d.Line)-1
	}
	read.fill(&parts{all: before[to.from:to.to]}, func(p *part, i int) { f.document(p, docs[i], new(parts)) })
	l := layout{end: begin}
	if len(text) > 0 {
		l.cutDocuments(f.blockSize(), docs, text, to.from)
	}
	to.parts, to.blocks = read.all, l.blocks
	return !slices.ContainsFunc(read.all, isList)
}

// replace puts the blocks of a region in the place of others.
func (l *layout) replace(r *region, by fresh) {
	more := int32(len(by.parts) - (by.to - by.from))
	for i := r.last; i < len(l.blocks); i++ {
		l.blocks[i].first += more
		l.blocks[i].line += by.lines
	}
	if l.end += by.lines; r.last == len(l.blocks) {
		l.ended = by.ended
	}
	l.blocks = slices.Replace(l.blocks, r.first, r.last, by.blocks...)
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
