// Package files reads objects from YAML and JSON files through the package manifest, and reports all of their
// problems together; [Watcher] reports changes of the files, and [Follow] makes a source of both.
//
// Files are also reviewed as a whole: objects that are valid and most likely do not
// do together what their author expects have warnings (1.37).
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
)

const standardInput = "-"

const howToFill = `write a Balance into it, as "nftproxy new" prints it, or Services and EndpointSlices, as "kubectl get services,endpointslices,nodes -A -o yaml" does`

// Reader is a source that reads Kubernetes objects from files. Its methods are not safe for concurrent use.
type Reader struct {
	// Paths are files, directories, or "-" for standard input. Of a directory the files *.yaml, *.yml and *.json
	// are read, in the order of their names. Hidden files and subdirectories are not, so that each file of a
	// mounted ConfigMap is read once.
	Paths []string
	// Stdin is the input of "-". It is read once: further calls of Load use the same content.
	Stdin io.Reader
	// ProxyName is the value of the label service.kubernetes.io/service-proxy-name
	// of the Services that Load gives; empty: those without the label (1.1, 1.2).
	ProxyName string
	// Keep has Load return the objects in [Input.Manifests].
	Keep bool
	// Isolation, if set, keeps a mistake in one file from affecting the others, and
	// makes an empty directory a valid input.
	Isolation *Isolation
	// InForce are files that another process does not use as they are, and what is used
	// here in their place. Not nil: an empty directory is a valid input.
	InForce []model.InForce
	// LeftOut reports, after a Load, that one of these has nothing in its place.
	LeftOut bool

	// Instead has the content of files that is read in place of theirs, by path.
	Instead map[string][]byte

	keepGiven bool // keep the objects that are read, as given

	stdin     []byte
	stdinRead bool

	// follows reports that Load will be called again.
	follows bool
	// inUse is what an Isolation remembers of the loads before, by the name of the file.
	inUse map[string]*inUse
	// defaulted are the directories that had defaults when the files were linked last.
	defaulted map[string]bool
}

// Input is the content of the files.
type Input struct {
	Snapshot *model.Snapshot
	// Warnings are about objects that are used, but not as their author may expect.
	Warnings manifest.Errors

	// Objects is the number of objects of each kind that is read, served or not.
	Objects map[string]int
	// Manifests are all objects that are read, in the order of the input, with the objects
	// of each Balance in its place: types of Kubernetes, or JSON as given.
	Manifests []any
	// Unused are the problems of files that are not used as they are, with an [Isolation]; nil: all are.
	Unused manifest.Errors
	// LeftOut are the files without any content in use.
	LeftOut []string

	contents contents // of all files
}

func fileProblem(file string, err error) *manifest.Error {
	return &manifest.Error{Place: manifest.Place{File: file}, Err: err}
}

type file struct {
	name string
	data []byte
	err  error // why it cannot be read
}

// Load reads all files. The error is of type [manifest.Errors] and lists all problems; the input is nil then.
// Objects may be in any order. An object that is defined twice is an error, as is a path that is given twice or
// that contains no object of a known kind: an empty file is most likely being written.
//
// Endpoints objects are used only for Services without EndpointSlices, because
// Kubernetes mirrors Endpoints into slices (2.5).
func (f *Reader) Load() (*Input, error) {
	if f.Isolation != nil {
		f.recallKept()
	}
	groups, problems, warnings := f.read()
	if f.Isolation != nil {
		f.follows = true
		if len(problems) == 0 {
			return f.loadIsolated(groups, warnings)
		}
	}
	var all contents
	for _, g := range groups {
		all = append(all, g.files...)
	}
	all, links := f.linkContents(all)
	for i := range groups {
		n := len(groups[i].files)
		groups[i].files, all = all[:n], all[n:]
	}
	return collect(append(problems, links.problems...), append(warnings, links.warnings...), groups).finishInput()
}

func (f *Reader) read() (groups []group, problems, warnings manifest.Errors) {
	if len(f.Paths) == 0 {
		return nil, manifest.Errors{fileProblem("input", errors.New("no file is given: name a file, a directory, or - for standard input"))}, nil
	}
	seen := make(map[inode]bool)
	for i, path := range f.Paths {
		name := displayName(path)
		names, inDir, err := expandPath(path, &warnings)
		if slices.Contains(f.Paths[:i], path) {
			names, err = nil, errors.New("is given twice: give each file once")
		}
		switch {
		case (f.Isolation != nil || f.InForce != nil) && errors.Is(err, errNoManifest):
			warnings = append(warnings, &manifest.Error{Place: manifest.Place{File: path}, Err: errNothing, Note: true})
		case err != nil:
			problems = append(problems, fileProblem(name, err))
		}
		files := f.parseAll(func(yield func(file) bool) {
			for _, name := range names {
				in, used := f.substituteFile(f.readFile(name, inDir, seen), &warnings)
				if used && !yield(in) {
					return
				}
			}
		})
		if inDir {
			files = append(files, f.goneInForce(path, names, &warnings)...)
		}
		groups = append(groups, group{name, files})
	}
	return groups, problems, warnings
}

func displayName(path string) string {
	if path == standardInput {
		return "standard input"
	}
	return path
}

// errNothing is a remark about an empty directory that is valid.
var errNothing = errors.New("holds no file *.yaml, *.yml or *.json: nothing is served until there is one")

var errNoManifest = errors.New("holds no file *.yaml, *.yml or *.json: put one there, or name a file")

func expandPath(path string, warnings *manifest.Errors) (names []string, dir bool, err error) {
	info, err := os.Stat(path)
	switch {
	case path == standardInput:
		return []string{path}, false, nil
	case err != nil:
		return nil, false, explainPath(err)
	case !info.IsDir():
		return []string{path}, false, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, true, explainPath(err)
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if !isHidden(name) && leadsToDirectory(e, name) {
			*warnings = append(*warnings, fileProblem(name, errors.New("is a directory inside a directory and is not read: name it, too, if it should be")))
		} else if isManifest(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, true, errNoManifest
	}
	return names, true, nil
}

func leadsToDirectory(e fs.DirEntry, name string) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// isManifest reports whether a file of a directory is read.
func isManifest(path string) bool {
	return !isHidden(path) && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
}

func isHidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }

// readFile reads a file that is not known yet under another name.
func (f *Reader) readFile(name string, inDir bool, seen map[inode]bool) file {
	in := file{name: displayName(name)}
	if name == standardInput {
		in.data, in.err = f.readStdin()
	} else if data, ok := f.Instead[name]; ok {
		in.data = data
	} else {
		in.data, in.err = f.readText(name, inDir, seen)
	}
	if in.err != nil {
		in.data, in.err = nil, explainPath(in.err)
	}
	return in
}

// readText reads a file, or a pipe. A command may get its input from one, as in -f <(program); files of a
// directory, and files that are read again, must be regular ones.
func (f *Reader) readText(name string, inDir bool, seen map[inode]bool) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	about := info.Sys().(*syscall.Stat_t)
	id := inode{about.Dev, about.Ino}
	if seen[id] {
		return nil, errors.New("is read already under another name: give each file once")
	}
	seen[id] = true
	switch {
	case info.Mode().IsRegular():
		return manifest.ReadFile(name)
	case inDir:
		return nil, fmt.Errorf("%w: move it out of the directory", atomicfile.ErrNotRegular)
	case f.follows:
		return nil, fmt.Errorf("%w, and cannot be followed: name a file or a directory", atomicfile.ErrNotRegular)
	}
	pipe, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer pipe.Close() // nothing was written
	return manifest.Read(pipe)
}

// inode identifies a file, whatever its name.
type inode struct{ device, number uint64 }

func (f *Reader) readStdin() ([]byte, error) {
	if f.stdinRead {
		return f.stdin, nil
	}
	if f.Stdin == nil {
		return nil, errors.New("is not available here: name a file")
	}
	data, err := manifest.Read(f.Stdin)
	if err != nil {
		return nil, err
	}
	f.stdin, f.stdinRead = data, true
	return f.stdin, nil
}

// explainPath adds advice to an error of the system, and removes the path from it,
// because the message begins with that.
func explainPath(err error) error {
	var pathError *fs.PathError
	switch {
	case !errors.As(err, &pathError):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read file: %w: check the path", pathError.Err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("read file: %w: check the permissions of the path", pathError.Err)
	}
	return fmt.Errorf("read file: %w", pathError.Err)
}
