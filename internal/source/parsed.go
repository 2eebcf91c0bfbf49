package source

import (
	"crypto/sha256"
	"slices"
)

// parsed is what was read from a file last.
type parsed struct {
	sum [sha256.Size]byte // of its data
	content
}

// parseAll parses files. Of several, those that have not changed since the last call
// are not parsed again: a change costs the files that it concerns.
func (f *Files) parseAll(files []file) []content {
	out := make([]content, len(files))
	if len(files) < 2 {
		parallel(len(files), func(i int) { out[i] = f.parse(files[i]) })
		return out
	}
	now := make([]parsed, len(files))
	parallel(len(files), func(i int) {
		sum := sha256.Sum256(files[i].data)
		p, known := f.before[files[i].name]
		if !known || p.sum != sum || p.err != nil || files[i].err != nil {
			p = parsed{sum, f.parse(files[i])}
		}
		out[i] = p.again(files[i])
		p.data = nil
		now[i] = p
	})
	for _, p := range now {
		f.parsed[p.name] = p
	}
	return out
}

// again returns the content with objects of its own, which get warnings of their own;
// what was converted is shared.
func (p *parsed) again(in file) content {
	c := p.content
	c.file, c.objects = in, make([]*object, len(p.objects))
	for i, o := range p.objects {
		own := *o
		own.warnings = slices.Clone(o.warnings)
		c.objects[i] = &own
	}
	return c
}
