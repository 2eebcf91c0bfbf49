// Package rewrite changes the servers of a Balance in the text of its file. Everything else in
// the file, with comments, order and layout, stays byte for byte.
package rewrite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Change is a change of one server of a Balance.
type Change struct {
	Balance model.ServiceName
	Address netip.Addr
	Port    uint16 // zero: any
	Weight  *int   // nil: as it is, or 1 for a new server
	Remove  bool
	Add     bool // if there is no such server
	JSON    bool // quote names and texts, as JSON does
}

// ErrNotFound means that a file does not have the Balance.
var ErrNotFound = errors.New("the Balance is in none of the files")

// File returns the content of a file after a change. It is the content itself if that has
// nothing to change.
func File(text []byte, c Change) ([]byte, error) {
	documents, err := parse(text)
	if err != nil {
		return nil, err
	}
	n := c.findBalance(documents)
	if n == nil {
		return nil, ErrNotFound
	}
	if err := checkLines(text); err != nil {
		return nil, err
	}
	e := newEditor(c, text)
	want, err := e.editBalance(n)
	if err != nil {
		return nil, err
	}
	out := e.applySplices()
	if err := c.verifyText(documents, out, want); err != nil {
		return nil, fmt.Errorf("cannot be changed without changing the rest of the file (%w): edit it by hand", err)
	}
	return out, nil
}

// checkLines returns an error if YAML counts the lines or characters of a text in another way than
// the editor does: an offset would be another one.
func checkLines(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("is not in UTF-8: edit it by hand")
	}
	for i, c := range string(text) {
		switch {
		case c == '\r' && (i+1 == len(text) || text[i+1] != '\n'), c == '\u0085', c == '\u2028', c == '\u2029':
			return fmt.Errorf("has line breaks that are %s, not \\n: edit it by hand", strconv.QuoteRuneToASCII(c))
		}
	}
	return nil
}

func parse(text []byte) (out []*yaml.Node, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		n := new(yaml.Node)
		if err := d.Decode(n); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if len(n.Content) > 0 {
			out = append(out, n.Content[0])
		}
	}
}

// findBalance returns the mapping of the Balance, which may be an item of a List; nil: there is none.
func (c *Change) findBalance(documents []*yaml.Node) *yaml.Node {
	for _, n := range documents {
		if scalarOf(n, "kind") == "Balance" && scalarOf(n, "name") == c.Balance.Name {
			namespace := scalarOf(n, "namespace")
			if namespace == "" {
				namespace = "default"
			}
			if namespace == c.Balance.Namespace {
				return n
			}
		}
		if _, items := valueOf(n, "items"); items != nil && items.Kind == yaml.SequenceNode {
			if found := c.findBalance(items.Content); found != nil {
				return found
			}
		}
	}
	return nil
}

// valueOf returns the key and the value of a field of a mapping, or nil.
func valueOf(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

func scalarOf(n *yaml.Node, name string) string {
	if _, v := valueOf(n, name); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// server is an entry of the field backends.
type server struct {
	address netip.Addr
	port    uint16 // zero: none, or several
	weight  int
}

// serverOf reads an entry; false: it is none.
func serverOf(n *yaml.Node) (s server, ok bool) {
	s.weight = 1
	text := n.Value
	if n.Kind == yaml.MappingNode {
		text = scalarOf(n, "address")
		if w := scalarOf(n, "weight"); w != "" {
			s.weight, _ = strconv.Atoi(w) // a wrong one is a mistake that others report
		}
		if scalarOf(n, "drain") == "true" {
			s.weight = 0
		}
	} else if n.Kind != yaml.ScalarNode {
		return s, false
	}
	t, err := drain.ParseServer(text)
	if i := strings.LastIndexByte(text, ':'); err != nil && i > 0 { // a range of ports
		t, err = drain.ParseServer(text[:i])
	}
	if err != nil {
		return s, false
	}
	s.address, s.port = t.Address, t.Port
	if port, err := strconv.ParseUint(scalarOf(n, "port"), 10, 16); err == nil {
		s.port = uint16(port)
	}
	return s, true
}

// poolOf returns the name of the first entry that stands for the servers of a pool; empty: none
// does.
func poolOf(entries []*yaml.Node) string {
	for _, n := range entries {
		if name := scalarOf(n, "servers"); name != "" {
			return name
		}
	}
	return ""
}

func serversOf(backends *yaml.Node) (entries []*yaml.Node, servers []server) {
	switch {
	case backends == nil || backends.Tag == "!!null":
		return nil, nil
	case backends.Kind == yaml.SequenceNode:
		entries = backends.Content
	default:
		entries = []*yaml.Node{backends}
	}
	for _, n := range entries {
		s, _ := serverOf(n)
		servers = append(servers, s)
	}
	return entries, servers
}

// matchingServers returns the indices of the servers that a change names. A server without a port has
// the ports of clients.
func (c *Change) matchingServers(all []server) (out []int) {
	for _, exact := range []bool{true, false} {
		for i, s := range all {
			same := s.port == c.Port || c.Port == 0 || !exact && s.port == 0
			if s.address == c.Address && same {
				out = append(out, i)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// verifyText returns an error unless a text differs from documents in these servers only.
func (c *Change) verifyText(before []*yaml.Node, text []byte, want []server) error {
	after, err := parse(text)
	if err != nil {
		return err
	}
	n := c.findBalance(after)
	if n == nil || len(after) != len(before) {
		return errors.New("the Balance would be lost")
	}
	_, backends := valueOf(n, "backends")
	if _, got := serversOf(backends); !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		return fmt.Errorf("the servers would be %v", got)
	}
	if !reflect.DeepEqual(c.valuesWithout(before), c.valuesWithout(after)) {
		return errors.New("other values would change")
	}
	return nil
}

func (c *Change) valuesWithout(documents []*yaml.Node) (out []any) {
	n := c.findBalance(documents)
	_, backends := valueOf(n, "backends")
	if backends != nil {
		kept := *backends
		*backends = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		defer func() { *backends = kept }()
	}
	for _, d := range documents {
		var v any
		if d.Decode(&v) != nil {
			v = nil
		}
		out = append(out, v)
	}
	return out
}

// Write makes a change in the one of some files and directories that has the Balance, and returns
// its path and whether the content has changed. check is asked about the new content before it is
// written. The file keeps its owner and permissions.
func Write(paths []string, c Change, check func(path string, content []byte) error) (path string, changed bool, err error) {
	for _, p := range paths {
		files, err := expandPath(p)
		if err != nil {
			return "", false, err
		}
		for _, path := range files {
			changed, err := c.write(path, check)
			if !errors.Is(err, ErrNotFound) {
				return path, changed, err
			}
		}
	}
	return "", false, fmt.Errorf("%w: %s", ErrNotFound, strings.Join(paths, ", "))
}

// expandPath returns the files for which a path stands, as nftproxy reads them.
func expandPath(path string) (out []string, err error) {
	about, err := os.Stat(path)
	if err != nil || !about.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		kind := filepath.Ext(e.Name())
		if !strings.HasPrefix(e.Name(), ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, kind) {
			out = append(out, filepath.Join(path, e.Name()))
		}
	}
	return out, err
}

func (c Change) write(path string, check func(string, []byte) error) (changed bool, err error) {
	target, err := filepath.EvalSymlinks(path) // the link stays
	if err != nil {
		return false, err
	}
	unlock, err := lock(filepath.Dir(target))
	if err != nil {
		return false, err
	}
	defer unlock()
	text, err := atomicfile.Read(target)
	if err != nil {
		return false, err
	}
	c.JSON = filepath.Ext(path) == ".json"
	after, err := File(text, c)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, err
	case err != nil:
		return false, fmt.Errorf("%s: Balance %s: %w", path, c.Balance, err)
	case bytes.Equal(text, after):
		return false, nil
	}
	if err := check(path, after); err != nil {
		return false, fmt.Errorf("the file would be invalid, and is not changed: %w", err)
	}
	if err := atomicfile.Replace(target, after); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: run this as root", err)
		}
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, nil
}

// lockPatience is the time for other commands, each of which checks and writes one file.
const lockPatience = 30 * time.Second

// lock keeps other commands from changing files of a directory at the same time. It ends with
// the process.
func lock(folder string) (unlock func(), err error) {
	d, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := atomicfile.Lock(d, lockPatience); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return func() { _ = d.Close() }, nil
}
