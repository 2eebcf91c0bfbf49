package drain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/yamltext"
)

// changesKind is the kind of the object in the file of changes.
const changesKind = "RuntimeChanges"

// changesHeader begins the file.
const changesHeader = `# Changes of servers by "nftproxy set", "add" and "remove". nftproxy writes this file;
# "nftproxy undo" ends them.
`

const changesPermissions = 0o600

// changesDocument is the content of the file.
type changesDocument struct {
	APIVersion string        `json:"apiVersion,omitempty"`
	Kind       string        `json:"kind"`
	Changes    []changesItem `json:"changes"`
}

type changesItem struct {
	Balance    string `json:"balance"`
	Server     string `json:"server"`
	Weight     *int   `json:"weight,omitempty"`
	FileWeight *int   `json:"fileWeight,omitempty"`
	Since      string `json:"since,omitempty"`
	By         string `json:"by,omitempty"`
}

// ReadChanges reads a file of changes. One that does not exist has none.
func ReadChanges(path string) (Changes, error) {
	data, err := atomicfile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Changes{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read runtime changes: %w", err)
	}
	l, problems := parseChanges(path, data)
	if len(problems) > 0 {
		return nil, problems
	}
	return l, nil
}

func parseChanges(path string, data []byte) (Changes, manifest.Errors) {
	whole := func(problem string) manifest.Errors {
		return manifest.Errors{{Place: manifest.Place{File: path}, Err: errors.New(problem)}}
	}
	documents, err := manifest.Split(path, data)
	if err != nil {
		return nil, whole(err.Error())
	}
	if len(documents) != 1 {
		return nil, whole("is not a file of runtime changes: it has one document")
	}
	o, problem := documents[0].Parse()
	if problem != nil {
		return nil, manifest.Errors{problem}
	}
	if o == nil {
		return nil, whole("has no list: it ends too early")
	}
	if found, _ := o.Type(); found != changesKind {
		return nil, manifest.Errors{o.Error(&manifest.FieldError{Problem: "is not a file of runtime changes: it begins with \"kind: " + changesKind + "\""})}
	}
	var d changesDocument
	if problems := o.Decode(&d); len(problems) > 0 {
		return nil, problems
	}
	return d.list(o)
}

func (d *changesDocument) list(o *manifest.Object) (Changes, manifest.Errors) {
	l := make(Changes)
	var problems manifest.Errors
	for i, it := range d.Changes {
		field, err := l.addItem(&it)
		if err != nil {
			problems = append(problems, o.Error(&manifest.FieldError{Field: fmt.Sprintf("changes[%d].%s", i, field), Problem: err.Error()}))
		}
	}
	return l, problems
}

func (l Changes) addItem(it *changesItem) (field string, err error) {
	r := api.RuntimeChange{Balance: it.Balance, Server: it.Server, Weight: it.Weight, FileWeight: it.FileWeight, By: it.By}
	if it.Since != "" {
		if r.Since, err = time.Parse(time.RFC3339, it.Since); err != nil {
			return "since", fmt.Errorf("%q is not a time: write it like 2026-01-31T12:00:00Z, or omit it", it.Since)
		}
	}
	return l.add(&r)
}

// text returns the content of the file.
func (l Changes) text() string {
	var b strings.Builder
	b.WriteString(changesHeader + "kind: " + changesKind + "\nchanges:")
	if l.Len() == 0 {
		b.WriteString(" []")
	}
	b.WriteString("\n")
	for _, name := range l.Names() {
		for _, c := range l[name] {
			fmt.Fprintf(&b, "- balance: %s\n  server: %s\n", yamltext.Quote(name.String()), yamltext.Quote(c.Server.String()))
			if c.Weight != absent {
				fmt.Fprintf(&b, "  weight: %d\n", c.Weight)
			}
			if c.File != absent {
				fmt.Fprintf(&b, "  fileWeight: %d\n", c.File)
			}
			if !c.Since.IsZero() {
				fmt.Fprintf(&b, "  since: %s\n", yamltext.Quote(c.Since.UTC().Format(time.RFC3339)))
			}
			if c.By != "" {
				fmt.Fprintf(&b, "  by: %s\n", yamltext.Quote(c.By))
			}
		}
	}
	return b.String()
}

// write writes the file.
func (l Changes) write(path string) error {
	err := os.MkdirAll(filepath.Dir(path), directoryPermissions)
	if err == nil {
		err = atomicfile.Write(path, []byte(l.text()), changesPermissions)
	}
	if err != nil {
		return fmt.Errorf("write runtime changes: %w", atomicfile.ReadOnly(err, "--changes-file"))
	}
	return nil
}
