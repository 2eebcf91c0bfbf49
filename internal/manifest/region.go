package manifest

import "bytes"

// This is about regions: parts of a file that was edited. A region begins and ends where documents of
// the file do, or items of its List, and is read without the text around it. What depends on that
// text, or is wrong, is not read that way: the caller reads the whole file.

// HasDirectives reports whether lines may be directives, on which the cuts of a whole file depend.
func HasDirectives(text []byte) bool {
	return bytes.HasPrefix(text, []byte("%")) || bytes.Contains(text, []byte("\n%"))
}

// Start returns where a document begins in its file; false: no line "---" is there.
func (d *Document) Start() (offset int, ok bool) {
	return d.start, !d.json && d.broken == nil && isMarker(d.text, "---")
}

// SplitRegion returns the documents of a region, which begins with a line "---" unless it is the
// begin of the file. Their lines count from the region.
func SplitRegion(file string, text []byte, begin bool) ([]*Document, bool) {
	if !begin && len(text) > 0 && !isMarker(text, "---") || HasDirectives(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, false
	}
	docs, err := Split(file, text)
	return docs, err == nil
}

// ItemStarts returns where the items of a List in block style begin in the file, where the last
// one ends, and how many spaces are in front of it, unless it is the only one; nil: the List
// is not in this style.
func (o *Object) ItemStarts() (starts []int, end, indent int) {
	if !o.IsCut() || len(o.chunks) == 0 {
		return nil, 0, 0
	}
	for _, c := range o.chunks {
		starts = append(starts, c.start)
		end = c.start + len(c.text)
	}
	last := o.chunks[len(o.chunks)-1].text
	return starts, end, len(last) - len(bytes.TrimLeft(last, " "))
}

// ItemsRegion returns a List that has the items of a region. Their lines and numbers count from
// the region.
func ItemsRegion(file string, text []byte, indent int) (o *Object, items int, ok bool) {
	d := &Document{Place: Place{File: file, Document: 1, Line: 1}, text: text}
	o = &Object{Place: d.Place, doc: d}
	if len(text) == 0 {
		return o, 0, true
	}
	entry := len(text) > indent+1 && string(text[indent:indent+2]) == "- " && len(bytes.Trim(text[:indent], " ")) == 0
	if !entry || hasOtherBreaks(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, 0, false
	}
	found, end := chunk{text: text, line: 1}.entries()
	o.chunks = found
	return o, len(found), end == len(text)
}
