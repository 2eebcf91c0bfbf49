// Package bundle writes an archive for a support case: texts with a bounded size, without secrets.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
)

// Limits are sizes in bytes before compression. What exceeds one is cut, and the archive says
// so.
type Limits struct {
	File  int // of each file
	Group int // of all files of a group, which is a node
	Whole int // of all files
}

// DefaultLimits suffice for the documents of a hundred nodes.
var DefaultLimits = Limits{File: 8 << 20, Group: 16 << 20, Whole: 512 << 20}

// Archive is a tar.gz that is being written. Its methods are not safe for concurrent use.
type Archive struct {
	limits Limits
	root   string
	gz     *gzip.Writer
	tar    *tar.Writer
	now    time.Time
	err    error // of the first write that failed

	groups map[string]int // bytes
	whole  int
	index  strings.Builder
	about  string
	// Cut and Missing count the files that are incomplete, and those that could not be had.
	Cut, Missing int
}

// New returns an archive in which all files are below a directory, root. about is a text for
// its first lines of contents.txt.
func New(w io.Writer, root, about string, limits Limits) *Archive {
	a := &Archive{limits: limits, root: root, about: about, now: time.Now(), groups: make(map[string]int)}
	a.gz = gzip.NewWriter(w)
	a.tar = tar.NewWriter(a.gz)
	return a
}

// errOutside is why a file is not in the archive: nodes choose names, and programs that unpack it would
// write elsewhere.
var errOutside = errors.New("refused: its name is not a path below its directory")

// Add adds a text, without its secrets. The name is relative to the group, a directory; files
// whose name ends with ".json" are JSON, and logs begin with "log": of one that is too long the end
// stays, of other files the beginning. A name that leads elsewhere is refused. With an error, the file is missing.
func (a *Archive) Add(group, name string, content []byte, err error) {
	if err != nil {
		a.Lack(group, name, err)
		return
	}
	if !fs.ValidPath(group+"/"+name) || name == "." {
		a.Lack(group, strconv.Quote(name), errOutside)
		return
	}
	filter := WithoutSecrets
	if strings.HasSuffix(name, ".json") {
		filter = WithoutSecretsJSON
	}
	text := filter(string(content))
	room := min(a.limits.File, a.limits.Group-a.groups[group], a.limits.Whole-a.whole)
	full, isLog := len(text), strings.HasPrefix(name, "log")
	note := ""
	if full > room {
		text = cut(text, max(room, 0), isLog)
		a.Cut++
		note = fmt.Sprintf("  cut: %s %d of %d bytes", map[bool]string{false: "the first", true: "the last"}[isLog], len(text), full)
	}
	name = WithoutSecrets(path.Join(group, name))
	if len(text) > 0 || full == 0 {
		a.write(name, text)
	}
	a.groups[group] += len(text)
	a.whole += len(text)
	fmt.Fprintf(&a.index, "%9d  %s%s\n", len(text), name, note)
}

// Full reports whether nothing can be added any more.
func (a *Archive) Full() bool { return a.whole >= a.limits.Whole }

// Lack notes that a file could not be had.
func (a *Archive) Lack(group, name string, err error) {
	a.Missing++
	fmt.Fprintf(&a.index, "        -  %s  missing: %s\n", WithoutSecrets(path.Join(group, name)), WithoutSecrets(strings.ReplaceAll(err.Error(), "\n", "; ")))
}

// Close writes the list of contents and ends the archive. It does not close its writer.
func (a *Archive) Close() error {
	text := WithoutSecrets(a.about) + "\n"
	text += fmt.Sprintf("Limits before compression: %d bytes a file, %d a node, %d in all. %d files are cut, %d are missing.\n\n    bytes  file\n",
		a.limits.File, a.limits.Group, a.limits.Whole, a.Cut, a.Missing)
	a.write("contents.txt", text+a.index.String())
	if err := a.tar.Close(); a.err == nil {
		a.err = err
	}
	if err := a.gz.Close(); a.err == nil {
		a.err = err
	}
	return a.err
}

func (a *Archive) write(name, text string) {
	if a.err != nil {
		return
	}
	a.err = a.tar.WriteHeader(&tar.Header{Name: path.Join(a.root, name), Mode: 0o600, Size: int64(len(text)), ModTime: a.now, Format: tar.FormatPAX})
	if a.err == nil {
		_, a.err = io.WriteString(a.tar, text)
	}
}

// cut returns at most n bytes of whole lines, if there are several.
func cut(text string, n int, isLog bool) string {
	if isLog {
		text = text[len(text)-n:]
		if i := strings.IndexByte(text, '\n'); i >= 0 && i < len(text)-1 {
			text = text[i+1:]
		}
		return strings.ToValidUTF8(text, "")
	}
	text = text[:n]
	if i := strings.LastIndexByte(text, '\n'); i > 0 {
		text = text[:i+1]
	}
	return strings.ToValidUTF8(text, "")
}
