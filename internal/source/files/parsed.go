package files

import (
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// maxKept is how many documents are kept at most: each takes some 400 bytes, and more of
// them are parsed again with every change.
const maxKept = 100_000

// documents keeps what was read from documents, so that a change of a file costs the
// documents that it concerns. Its zero value keeps nothing.
type documents struct {
	mu          sync.Mutex
	before, now map[documentKey][]*object // by the last load, and by this one
}

// documentKey identifies the content of a document and its place, which is part of what
// is read from it.
type documentKey struct {
	file           string
	document, line int
	sum            [sha256.Size]byte
}

// begin begins a load, and forgets the objects of the load before the last one.
func (d *documents) begin() { d.before, d.now = d.now, make(map[documentKey][]*object, len(d.now)) }

// objects returns the objects of a document: the ones of the last load if it has not
// changed, otherwise the result of read. It is safe for concurrent use.
func (d *documents) objects(m *manifest.Document, read func(*manifest.Document) []*object) []*object {
	if d.now == nil {
		return read(m)
	}
	key := documentKey{m.File, m.Document, m.Line, m.Sum()}
	objects, known := d.before[key]
	if !known {
		objects = read(m)
	}
	if slices.ContainsFunc(objects, func(o *object) bool { return len(o.problems) > 0 }) {
		return objects // they are not used
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.now) < maxKept {
		d.now[key] = objects
	}
	return copies(objects)
}

// copies returns objects that get warnings of their own; what was converted is shared.
func copies(objects []*object) []*object {
	out := make([]*object, len(objects))
	for i, o := range objects {
		own := *o
		own.warnings = slices.Clone(o.warnings)
		out[i] = &own
	}
	return out
}
