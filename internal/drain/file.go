package drain

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/yamltext"
)

// kind is the kind of the object in the file.
const kind = "Drain"

// header begins every file that this package writes.
const header = `# Endpoints that take no new connections on this machine. "nftproxy drain" and
# "nftproxy undrain" write this file and replace other comments; it may also be edited.
`

// document is the content of the file.
type document struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Endpoints  []item `json:"endpoints"`
}

type item struct {
	Endpoint string `json:"endpoint"`
	Service  string `json:"service,omitempty"`
	Since    string `json:"since,omitempty"`
}

// File is a drain file. A copy of its last list outlasts a restart at which the file cannot
// be used.
type File struct {
	Path string // absolute
	// State is the directory of the copy. Empty: the directory of the file.
	State string
	// Followed reports that a daemon follows the file: it writes the copy.
	Followed bool
}

// Copy returns where the copy is. It is a drain file itself.
func (f File) Copy() string {
	if f.State == "" || f.State == filepath.Dir(f.Path) {
		return f.Path + ".last"
	}
	sum := sha256.Sum256([]byte(f.Path)) // of several files of this name, only one is here
	return filepath.Join(f.State, fmt.Sprintf("%s.%x.last", filepath.Base(f.Path), sum[:4]))
}

// Read reads the list. A file that does not exist is an empty list, unless its last list has
// endpoints: they would be put back into service by mistake.
func (f File) Read() (List, error) {
	l, err := read(f.Path)
	if !errors.Is(err, fs.ErrNotExist) {
		return l, err
	}
	switch last, err := f.last(); {
	case err != nil:
		return nil, fmt.Errorf("%s does not exist, and its copy cannot be used: %w", f.Path, err)
	case len(last) == 0:
		return nil, nil
	}
	if l, err = read(f.Path); errors.Is(err, fs.ErrNotExist) { // else both were written in between
		err = f.gone()
	}
	return l, err
}

// gone returns the problem that a file with drained endpoints does not exist any more.
func (f File) gone() error {
	return fmt.Errorf("%s %w: restore it from %s, or end all drains with \"nftproxy undrain --all\"", f.Path, errGone, f.Copy())
}

var errGone = errors.New("does not exist any more")

// last returns the last list, or none if it is empty or not known.
func (f File) last() (List, error) {
	l, err := read(f.Copy())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return l, err
}

// keep makes a list the last one.
func (f File) keep(l List) error {
	if len(l) == 0 {
		return atomicfile.Remove(f.Copy())
	}
	if last, err := f.last(); err == nil && last.Equal(l) {
		return nil
	}
	return atomicfile.Write(f.Copy(), []byte(l.text()), filePermissions)
}

func read(path string) (List, error) {
	data, err := atomicfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read drain file: %w", err)
	}
	l, problems := parse(path, data)
	if len(problems) > 0 {
		return nil, problems
	}
	return l, nil
}

// errEmpty is the problem of a file that someone is writing, or that a full disk has cut off.
var errEmpty = errors.New("has no list: it is most likely being written; if no endpoint is drained, it has \"kind: " + kind + "\" and \"endpoints: []\"")

// parse reads the content of a file. It returns all problems of it.
func parse(path string, data []byte) (List, manifest.Errors) {
	documents, err := manifest.Split(path, data)
	switch {
	case err != nil:
		return nil, manifest.Errors{{Place: manifest.Place{File: path}, Err: err}}
	case len(documents) == 0:
		return nil, manifest.Errors{{Place: manifest.Place{File: path}, Err: errEmpty}}
	case len(documents) > 1:
		return nil, manifest.Errors{{Place: documents[1].Place, Err: errors.New("is a second document: a drain file has one")}}
	}
	o, problem := documents[0].Parse()
	switch {
	case problem != nil:
		return nil, manifest.Errors{problem}
	case o == nil:
		return nil, manifest.Errors{{Place: documents[0].Place, Err: errEmpty}}
	}
	if found, version := o.Type(); found != kind || version != "" && version != apiVersion {
		return nil, manifest.Errors{o.Error(&manifest.FieldError{Problem: "is not a drain file: it begins with \"kind: " + kind + "\", without apiVersion or with " + apiVersion})}
	}
	var d document
	if problems := o.Decode(&d); len(problems) > 0 {
		return nil, problems
	}
	if d.Endpoints == nil { // the rest may be still to come
		return nil, manifest.Errors{o.Error(&manifest.FieldError{Field: "endpoints", Problem: "missing: if no endpoint is drained, write []"})}
	}
	return d.list(o)
}

// apiVersion may be given.
const apiVersion = "nftproxy.dev/v1alpha1"

func (d *document) list(o *manifest.Object) (l List, problems manifest.Errors) {
	for i, it := range d.Endpoints {
		e, field, err := it.entry()
		if err == nil && l.Includes(e.Target) {
			field, err = "endpoint", errors.New("is drained already by an entry above: remove one of them")
		}
		if err != nil {
			problems = append(problems, o.Error(&manifest.FieldError{Field: fmt.Sprintf("endpoints[%d].%s", i, field), Problem: err.Error()}))
			continue
		}
		l = append(l, e)
	}
	l.sort()
	return l, problems
}

// entry returns the entry, or an error with the name of the field.
func (i item) entry() (e Entry, field string, err error) {
	if e.Target, err = ParseEndpoint(i.Endpoint); err != nil {
		return e, "endpoint", err
	}
	if i.Service != "" {
		if e.Service, err = ParseService(i.Service); err != nil {
			return e, "service", err
		}
	}
	if i.Since != "" {
		if e.Since, err = time.Parse(time.RFC3339, i.Since); err != nil {
			return e, "since", fmt.Errorf("%s is not a time: write it like 2026-01-31T12:00:00Z, or omit it", strconv.Quote(i.Since))
		}
	}
	return e, "", nil
}

// text returns the content of the file.
func (l List) text() string {
	var b strings.Builder
	b.WriteString(header + "kind: " + kind + "\nendpoints:")
	if len(l) == 0 {
		b.WriteString(" []")
	}
	b.WriteString("\n")
	for _, e := range l {
		fmt.Fprintf(&b, "- endpoint: %s\n", yamltext.Quote(e.Endpoint()))
		if e.Service != (model.ServiceName{}) {
			fmt.Fprintf(&b, "  service: %s\n", yamltext.Quote(e.Service.String()))
		}
		if !e.Since.IsZero() {
			fmt.Fprintf(&b, "  since: %s\n", yamltext.Quote(e.Since.UTC().Format(time.RFC3339)))
		}
	}
	return b.String()
}

const (
	filePermissions      = 0o644
	directoryPermissions = 0o755
	lockPermissions      = 0o600 // who can open the file can lock it
	// lockTimeout is the time for other writers, each of which may ask the daemon about the
	// effect of its change.
	lockTimeout = 30 * time.Second
)

// Update replaces the list by the result of change, and returns the new list. No other update
// runs at the same time, also not while change does, and readers see the content before or
// after it, also if the machine loses power. A file that cannot be used is not replaced, and
// neither is one with an equal list.
func (f File) Update(change func(List) (List, error)) (List, error) {
	return f.update(func(path string) (List, error) {
		before, err := f.Read()
		switch {
		case errors.Is(err, errGone):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%w; \"nftproxy undrain --all\" replaces it by an empty list", err)
		}
		after, err := change(before)
		if err != nil || after.text() == before.text() {
			return after, err
		}
		return after, f.write(path, after)
	})
}

// Clear replaces the list by an empty one, also if the file cannot be used or does not
// exist. It returns the list before, as far as that is known. A file of another kind stays, unless
// its copy shows that it was a list.
func (f File) Clear() (before List, err error) {
	return f.update(func(path string) (List, error) {
		last, _ := f.last()
		if err := checkKind(path); err != nil && len(last) == 0 {
			return nil, err
		}
		before, err := f.Read()
		if err != nil {
			before = last
		}
		return before, f.write(path, nil)
	})
}

// kindLine is the line by which a drain file that has mistakes is known.
var kindLine = regexp.MustCompile(`(?m)^[\s{]*["']?kind["']?[ \t]*:[ \t]*["']?` + kind + `\b`)

// maxKind is where the line must be, in bytes.
const maxKind = 64 << 10

// checkKind returns an error if a file exists that has something other than drained endpoints: not even
// the header or the kind of a list with mistakes.
func checkKind(path string) error {
	about, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("read drain file: %w", err)
	case !about.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file, and stays as it is", path)
	}
	f, _, err := atomicfile.Open(path)
	if err != nil {
		return fmt.Errorf("read drain file: %w", err)
	}
	defer f.Close()
	begin, err := io.ReadAll(io.LimitReader(f, maxKind))
	if err != nil {
		return fmt.Errorf("read drain file: %w", err)
	}
	first, _, _ := strings.Cut(header, "\n")
	if len(bytes.TrimSpace(begin)) > 0 && !bytes.HasPrefix(begin, []byte(first)) && !kindLine.Match(begin) {
		return fmt.Errorf("%s is not a drain file, and stays as it is: name another one with --drain-file, or remove it", path)
	}
	return nil
}

func (f File) update(locked func(path string) (List, error)) (List, error) {
	l, err := f.locked(locked)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: run this as root, or name a file that you may write with --drain-file", err)
	}
	return l, atomicfile.ReadOnly(err, "--drain-file")
}

// locked calls a function with the path of the file behind links, which stay, while no other
// process does so.
func (f File) locked(call func(path string) (List, error)) (List, error) {
	path := f.Path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, directoryPermissions); err != nil {
		return nil, fmt.Errorf("write drain file: %w", err)
	}
	unlock, err := lock(filepath.Join(folder, "."+filepath.Base(path)+".lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	return call(path)
}

// write writes the list and its copy.
func (f File) write(path string, l List) error {
	if err := atomicfile.Write(path, []byte(l.text()), filePermissions); err != nil {
		return fmt.Errorf("write drain file: %w", err)
	}
	if f.Followed {
		return nil
	}
	if err := f.keep(l); err != nil {
		return fmt.Errorf("write copy of the drain file: %w", err)
	}
	return nil
}

// lock locks a file against other updates, and creates it if needed. The lock ends with the
// process. The file stays: if it were removed, two processes could lock two files of its name.
func lock(path string) (unlock func(), err error) {
	f, err := atomicfile.OpenLock(path, lockPermissions)
	if err != nil {
		return nil, fmt.Errorf("lock drain file: %w", err)
	}
	if err := atomicfile.Lock(f, lockTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("lock drain file: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
