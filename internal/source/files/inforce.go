package files

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// InForce is a file that is not used as it is (12.82), and the content that is served in its place.
type InForce struct {
	Path string // absolute, as the process sees it
	// Sum is the SHA-256 of the content that is not used; empty: the file cannot be read.
	Sum     string
	Problem string
	// Objects is a List with the objects of the last valid content, without comments and
	// objects of other kinds. Nil: there is none, and the file is left out.
	Objects json.RawMessage
}

// noteReplaced notes which files are not used as they are. Their objects are written when they are asked for.
func (f *Reader) noteReplaced(used []*isolated) {
	out, proxyName := []InForce{}, f.ProxyName
	var texts []file // that are used instead
	for _, u := range used {
		if u.current {
			continue
		}
		in, text := InForce{Path: u.name, Sum: u.sum, Problem: u.problem}, file{name: u.name}
		if abs, err := filepath.Abs(u.name); err == nil && u.name != displayName(standardInput) {
			in.Path = abs
		}
		if u.advice == lastValid {
			text.data = u.data
		}
		out, texts = append(out, in), append(texts, text)
	}
	inForce := sync.OnceValue(func() []InForce {
		for i, text := range texts {
			if text.data != nil {
				out[i].Objects = objectsOf(proxyName, text)
			}
		}
		return out
	})
	f.Isolation.inForce.Store(&inForce)
}

// InForce returns the files that are not used as they are; not nil. Unlike the other methods, it is
// safe for concurrent use.
func (i *Isolation) InForce() []InForce {
	if inForce := i.inForce.Load(); inForce != nil {
		return (*inForce)()
	}
	return []InForce{} // nothing was read yet
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
		if given := o.rareDetails().given; given != nil {
			list.Items = append(list.Items, given)
		}
	}
	text, _ := json.Marshal(list) // of JSON
	return text
}

// inForce returns what another process serves in place of a file, or nil.
func (f *Reader) inForce(in file) *InForce {
	abs, _ := filepath.Abs(in.name) // with an error, the name decides
	var same *InForce
	sum := ""
	if len(f.InForce) > 0 && in.err == nil {
		sum = sumOf(in.data)
	}
	for i := range f.InForce {
		r := &f.InForce[i]
		if r.Sum != sum {
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

// substituteFile returns what is used in place of a file, with a warning, or the file itself; false: nothing is.
func (f *Reader) substituteFile(in file, warnings *manifest.Errors) (out file, used bool) {
	r := f.inForce(in)
	if r == nil {
		return in, true
	}
	out, used, warning := substituteInForce(r, in)
	*warnings, f.LeftOut = append(*warnings, warning), f.LeftOut || !used
	return out, used
}

// goneInForce returns the files that another process serves although they are gone from a directory
// with these files.
func (f *Reader) goneInForce(dir string, names []string, warnings *manifest.Errors) (out []content) {
	abs, err := filepath.Abs(dir)
	for i := range f.InForce {
		r := &f.InForce[i]
		name := filepath.Join(dir, filepath.Base(r.Path))
		if err != nil || filepath.Dir(r.Path) != abs || r.Sum != "" || r.Objects == nil || slices.Contains(names, name) {
			continue
		}
		in, _, warning := substituteInForce(r, file{name: name})
		out, *warnings = append(out, f.parse(in)), append(*warnings, warning)
	}
	return out
}

// substituteInForce returns what is used in place of a file, and the warning about that; false: nothing is.
func substituteInForce(r *InForce, in file) (out file, used bool, warning *manifest.Error) {
	advice := lastValid
	if r.Objects == nil {
		advice = leftOut
	}
	err := fmt.Errorf("%s (as in the running nftproxy, %s)", r.Problem, advice)
	return file{name: in.name, data: r.Objects}, r.Objects != nil, fileProblem(in.name, err)
}
