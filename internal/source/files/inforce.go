package files

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// InForce is a file that is not used as it is (12.82), and what is served in its place. The
// names of the JSON fields are stable.
type InForce struct {
	Path string `json:"path"` // absolute, as the process sees it
	// Sum is the SHA-256 of the content that is not used; empty: the file cannot be read.
	Sum     string `json:"sum,omitempty"`
	Problem string `json:"problem"`
	// Objects is a List with the objects of the last valid content, without what is not
	// read: comments, and objects of other kinds. Nil: there is none, and the file is left out.
	Objects json.RawMessage `json:"objects,omitempty"`
}

// replaced are the files of one load that are not used as they are. Their objects are
// written when they are asked for.
type replaced struct {
	of    *Reader
	files []*isolated
	once  sync.Once
	texts []InForce
}

// InForce returns the files that are not used as they are; not nil. Unlike the other methods, it is
// safe for concurrent use.
func (i *Isolation) InForce() []InForce {
	r := i.replaced.Load()
	if r == nil { // nothing was read yet
		return []InForce{}
	}
	r.once.Do(func() {
		r.texts = []InForce{}
		for _, u := range r.files {
			in := InForce{Path: u.name, Problem: u.problem}
			if abs, err := filepath.Abs(u.name); err == nil && u.name != displayName(standardInput) {
				in.Path = abs
			}
			if u.found.err == nil {
				in.Sum = sumOf(u.found.data)
			}
			if u.advice != leftOut {
				in.Objects = objectsOf(r.of.ProxyName, u.content.file)
			}
			r.texts = append(r.texts, in)
		}
	})
	return r.texts
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// objectsOf returns the objects of a valid file that are read, as a List.
func objectsOf(proxyName string, in file) json.RawMessage {
	list := struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}{"v1", "List", []json.RawMessage{}}
	for _, o := range (&Reader{ProxyName: proxyName, keepGiven: true}).parse(in).objects {
		if o.given != nil {
			list.Items = append(list.Items, o.given)
		}
	}
	text, _ := json.Marshal(list) // of JSON
	return text
}

// inForce returns what another process serves in place of a file, or nil.
func (f *Reader) inForce(in file) *InForce {
	abs, _ := filepath.Abs(in.name) // with an error, the name decides
	var same *InForce
	for i := range f.InForce {
		r := &f.InForce[i]
		if (r.Sum == "") != (in.err != nil) || in.err == nil && r.Sum != sumOf(in.data) {
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

// substitute returns what is used in place of a file, and the warning about that; false:
// nothing is.
func (r *InForce) substitute(in file) (out file, used bool, warning *manifest.Error) {
	advice := lastValid
	if r.Objects == nil {
		advice = leftOut
	}
	err := &replacedError{errors.New(r.Problem), fmt.Sprintf("as in the running nftproxy, %s", advice)}
	return file{name: in.name, data: r.Objects}, r.Objects != nil, problem(in.name, err)
}
