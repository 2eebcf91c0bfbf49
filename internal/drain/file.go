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

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
)

// kind is the kind of the object in the file.
const kind = "Drain"

const header = `# Endpoints that take no new connections on this machine. "nftproxy drain" and
# "nftproxy undrain" write this file and replace other comments; it may also be edited.
`

const changesHeader = "# Changes of servers by \"nftproxy set\", \"add\" and \"remove\". \"nftproxy undo\" ends them.\n"

// changesKind is the kind of the object in the file with changes alone that version 0.2 has.
const changesKind = "RuntimeChanges"

type document struct {
	APIVersion string        `json:"apiVersion,omitempty" yaml:"-"`
	Kind       string        `json:"kind"`
	Endpoints  []item        `json:"endpoints"`
	Changes    []changesItem `json:"changes,omitempty" yaml:"-"`
}

// Content is what operators have changed at run time. A content that is in use does not change.
type Content struct {
	Drained List
	Changes Changes
}

type item struct {
	Endpoint string `json:"endpoint"`
	Service  string `json:"service,omitempty" yaml:",omitempty"`
	Since    string `json:"since,omitempty" yaml:",omitempty"`
}

// File is a drain file. It also has the changes of servers. A copy of its last list of drained
// endpoints outlasts a restart at which the file cannot be used.
type File struct {
	Path string // absolute
	// State is the directory of the copy. Empty: the directory of the file.
	State string
	// Older is the file in which version 0.2 has changes of servers. A daemon takes them over. Empty: there is none.
	Older string
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

// Read reads the list of drained endpoints, as [File.ReadAll] does.
func (f File) Read() (List, error) {
	c, err := f.ReadAll()
	return c.Drained, err
}

// ReadAll reads the file. One that does not exist is empty, unless its last list has
// endpoints: they would be put back into service by mistake.
func (f File) ReadAll() (Content, error) {
	c, err := read(f.Path)
	if !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	switch last, err := f.last(); {
	case err != nil:
		return Content{}, fmt.Errorf("%s does not exist, and its copy cannot be used: %w", f.Path, err)
	case len(last) == 0:
		return Content{}, nil
	}
	if c, err = read(f.Path); errors.Is(err, fs.ErrNotExist) { // else both were written in between
		err = f.gone()
	}
	return c, err
}

// ReadChanges returns the changes of servers that a drain file has, and those of a file of version 0.2, if there is
// one that no daemon has taken over yet. Either path may be empty.
func ReadChanges(path, older string) (Changes, error) {
	var both [2]Content
	for i, p := range []string{older, path} {
		var err error
		if both[i], err = read(p); err != nil && p != "" && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return both[0].Changes.with(both[1].Changes), nil
}

// gone returns the problem that a file with drained endpoints does not exist any more.
func (f File) gone() error {
	return fmt.Errorf("%s %w: restore it from %s, or end all drains with \"nftproxy undrain --all\"", f.Path, errGone, f.Copy())
}

var errGone = errors.New("does not exist any more")

// last returns the last list, or none if it is empty or not known.
func (f File) last() (List, error) {
	c, err := read(f.Copy())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return c.Drained, err
}

// keep makes a list the last one.
func (f File) keep(l List) error {
	if len(l) == 0 {
		return atomicfile.Remove(f.Copy())
	}
	if last, err := f.last(); err == nil && last.Equal(l) {
		return nil
	}
	return atomicfile.Write(f.Copy(), []byte(Content{Drained: l}.text()), filePermissions)
}

func read(path string) (Content, error) {
	data, err := atomicfile.Read(path)
	if err != nil {
		return Content{}, fmt.Errorf("read drain file: %w", err)
	}
	c, problems := parse(path, data)
	if len(problems) > 0 {
		return Content{}, problems
	}
	return c, nil
}

// errEmpty is the problem of a file that someone is writing, or that a full disk has cut off.
var errEmpty = errors.New("has no list: it is most likely being written; if no endpoint is drained, it has \"kind: " + kind + "\" and \"endpoints: []\"")

// parse reads the content of a file. It returns all problems of it.
func parse(path string, data []byte) (c Content, _ manifest.Errors) {
	documents, err := manifest.Split(path, data)
	switch {
	case err != nil:
		return c, manifest.Errors{{Place: manifest.Place{File: path}, Err: err}}
	case len(documents) == 0:
		return c, manifest.Errors{{Place: manifest.Place{File: path}, Err: errEmpty}}
	case len(documents) > 1:
		return c, manifest.Errors{{Place: documents[1].Place, Err: errors.New("is a second document: a drain file has one")}}
	}
	o, problem := documents[0].Parse()
	switch {
	case problem != nil:
		return c, manifest.Errors{problem}
	case o == nil:
		return c, manifest.Errors{{Place: documents[0].Place, Err: errEmpty}}
	}
	found, version := o.Type()
	if found != changesKind && found != kind || version != "" && version != apiVersion {
		return c, manifest.Errors{o.Error(&manifest.FieldError{Problem: "is not a drain file: it begins with \"kind: " + kind + "\", without apiVersion or with " + apiVersion})}
	}
	var d document
	if problems := o.Decode(&d); len(problems) > 0 {
		return c, problems
	}
	if d.Endpoints == nil && found == kind { // the rest may be still to come
		return c, manifest.Errors{o.Error(&manifest.FieldError{Field: "endpoints", Problem: "missing: if no endpoint is drained, write []"})}
	}
	return d.content(o)
}

// apiVersion may be given.
const apiVersion = "nftproxy.dev/v1alpha1"

func (d *document) content(o *manifest.Object) (c Content, problems manifest.Errors) {
	c.Changes = make(Changes)
	note := func(list string, i int, field string, err error) {
		if err != nil {
			problems = append(problems, o.Error(&manifest.FieldError{Field: fmt.Sprintf("%s[%d].%s", list, i, field), Problem: err.Error()}))
		}
	}
	for i, it := range d.Endpoints {
		field, err := c.Drained.addItem(it)
		note("endpoints", i, field, err)
	}
	for i, it := range d.Changes {
		field, err := c.Changes.addItem(it)
		note("changes", i, field, err)
	}
	c.Drained.sort()
	return c, problems
}

// addItem adds an entry at the end. The error is about a field.
func (l *List) addItem(it item) (field string, err error) {
	var e Entry
	if e.Target, err = ParseEndpoint(it.Endpoint); err != nil {
		return "endpoint", err
	}
	if it.Service != "" {
		if e.Service, err = ParseService(it.Service); err != nil {
			return "service", err
		}
	}
	if e.Since, err = parseSince(it.Since); err != nil {
		return "since", err
	}
	if l.Includes(e.Target) {
		return "endpoint", errors.New("is drained already by an entry above: remove one of them")
	}
	*l = append(*l, e)
	return "", nil
}

// parseSince parses a time; zero: there is none.
func parseSince(text string) (since time.Time, err error) {
	if text == "" {
		return since, nil
	}
	if since, err = time.Parse(time.RFC3339, text); err != nil {
		return since, fmt.Errorf("%s is not a time: write it like 2026-01-31T12:00:00Z, or omit it", strconv.Quote(text))
	}
	return since, nil
}

// text returns the content of the file. Without changes, every version can read it.
func (c Content) text() string {
	d := document{Kind: kind, Endpoints: []item{}}
	for _, e := range c.Drained {
		it := item{Endpoint: e.Endpoint(), Since: sinceText(e.Since)}
		if e.Service != (model.ServiceName{}) {
			it.Service = e.Service.String()
		}
		d.Endpoints = append(d.Endpoints, it)
	}
	text := header + block(d)
	if c.Changes.Len() > 0 {
		text += changesHeader + block(struct{ Changes []changesItem }{c.Changes.items()})
	}
	return text
}

func block(v any) string {
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	_ = e.Encode(v) // texts in UTF-8 are always possible
	return b.String()
}

func sinceText(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return since.UTC().Format(time.RFC3339)
}

const (
	filePermissions      = 0o644
	directoryPermissions = 0o755
	lockPermissions      = 0o600 // who can open the file can lock it
	// lockTimeout is the time for other writers, each of which may ask the daemon about the
	// effect of its change.
	lockTimeout = 30 * time.Second
)

// Update replaces the list of drained endpoints by the result of change, and returns the new list, as
// [File.UpdateAll] does.
func (f File) Update(change func(List) (List, error)) (List, error) {
	c, err := f.UpdateAll(func(c Content) (_ Content, err error) {
		c.Drained, err = change(c.Drained)
		return c, err
	})
	return c.Drained, err
}

// UpdateAll replaces the content by the result of change, and returns the new content. No other update
// runs at the same time, also not while change does, and readers see the content before or
// after it, also if the machine loses power. A file that cannot be used is not replaced, and
// neither is one with an equal content.
func (f File) UpdateAll(change func(Content) (Content, error)) (Content, error) {
	return f.update(func(path string) (Content, error) {
		before, err := f.ReadAll()
		switch {
		case errors.Is(err, errGone):
			return Content{}, err
		case err != nil:
			return Content{}, fmt.Errorf("%w; \"nftproxy undrain --all\" replaces it by an empty list", err)
		}
		after, err := change(before)
		if err != nil || after.text() == before.text() {
			return after, err
		}
		return after, f.write(path, after)
	})
}

// adopt takes over the changes of servers of the older file, and removes that. Servers that the file itself
// changes stay as they are. It returns the number of changes.
func (f File) adopt() (n int, err error) {
	from, err := read(f.Older)
	if errors.Is(err, fs.ErrNotExist) || err == nil && isSame(f.Path, f.Older) {
		return 0, nil
	}
	if err == nil {
		_, err = f.UpdateAll(func(c Content) (Content, error) {
			c.Changes = from.Changes.with(c.Changes)
			return c, nil
		})
	}
	if err != nil {
		return 0, err
	}
	return from.Changes.Len(), atomicfile.Remove(f.Older)
}

func isSame(a, b string) bool {
	one, errA := os.Stat(a)
	other, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(one, other)
}

// Clear replaces the list of drained endpoints by an empty one, also if the file cannot be used or does not
// exist. It returns the list before, as far as that is known. A file of another kind stays, unless
// its copy shows that it was a list. Changes of servers stay if they can be read.
func (f File) Clear() (before List, err error) {
	last, _ := f.last()
	_, err = f.replace(last, func(c Content) Content {
		before, c.Drained = c.Drained, nil
		return c
	})
	return before, err
}

// ClearChanges ends all changes of servers, as Clear does with drained endpoints. If the file cannot be used, it gets the
// drained endpoints that are in force.
func (f File) ClearChanges(inForce List) error {
	_, err := f.replace(inForce, func(c Content) Content { return Content{Drained: c.Drained} })
	return err
}

// replace replaces the content by the result of change. If the file cannot be used, the content has a last list of
// drained endpoints, and no changes.
func (f File) replace(last List, change func(Content) Content) (Content, error) {
	return f.update(func(path string) (Content, error) {
		if err := checkKind(path); err != nil && len(last) == 0 {
			return Content{}, err
		}
		before, err := f.ReadAll()
		if err != nil {
			before = Content{Drained: last}
		}
		after := change(before)
		return after, f.write(path, after)
	})
}

// kindLine is the line by which a drain file that has mistakes is known.
var kindLine = regexp.MustCompile(`(?m)^[\s{]*["']?kind["']?[ \t]*:[ \t]*["']?(` + kind + `|` + changesKind + `)\b`)

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

// update calls a function with the path of the file behind links, which stay, while no other
// process does so.
func (f File) update(change func(path string) (Content, error)) (c Content, err error) {
	path := f.Path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	folder := filepath.Dir(path)
	if err = os.MkdirAll(folder, directoryPermissions); err != nil {
		err = fmt.Errorf("write drain file: %w", err)
	} else if unlock, locked := lock(filepath.Join(folder, "."+filepath.Base(path)+".lock")); locked != nil {
		err = locked
	} else {
		c, err = change(path)
		unlock()
	}
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: run this as root, or name a file that you may write with --drain-file", err)
	}
	return c, atomicfile.ReadOnly(err, "--drain-file")
}

// write writes the content, and the copy of its drained endpoints.
func (f File) write(path string, c Content) error {
	if err := atomicfile.Write(path, []byte(c.text()), filePermissions); err != nil {
		return fmt.Errorf("write drain file: %w", err)
	}
	if f.Followed {
		return nil
	}
	if err := f.keep(c.Drained); err != nil {
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
