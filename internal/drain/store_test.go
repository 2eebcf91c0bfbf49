package drain

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Files as version 0.2 writes them.
const (
	drainOf02 = `# Endpoints that take no new connections on this machine. "nftproxy drain" and
# "nftproxy undrain" write this file and replace other comments; it may also be edited.
kind: Drain
endpoints:
- endpoint: 10.0.0.2
  since: "2026-01-31T12:00:00Z"
- endpoint: 10.0.0.3:80
  service: shop/web
  since: "2026-01-31T12:00:00Z"
`
	changesOf02 = `# Changes of servers by "nftproxy set", "add" and "remove". nftproxy writes this file;
# "nftproxy undo" ends them.
kind: RuntimeChanges
changes:
- balance: default/web
  server: 10.1.1.2:8080
  weight: 3
  fileWeight: 1
  since: "2026-01-31T12:00:00Z"
  by: uid 0, pid 4711
- balance: default/web
  server: 10.1.1.3:8080
  fileWeight: 1
  since: "2026-01-31T12:00:00Z"
  by: uid 0, pid 4711
- balance: shop/db
  server: "[fd00::2]:5432"
  weight: 1
  since: "2026-01-31T12:00:00Z"
  by: uid 0, pid 4711
`
	texts02 = "default/web 10.1.1.2:8080: weight 3, in the file 1; default/web 10.1.1.3:8080: removed, in the file weight 1; shop/db [fd00::2]:5432: added with weight 1"
)

// files02 makes the files of version 0.2 in a directory; an empty text: there is none.
func files02(t *testing.T, drains, changes string) File {
	t.Helper()
	folder := t.TempDir()
	f := File{Path: filepath.Join(folder, "drain.yaml"), Older: filepath.Join(folder, "changes.yaml")}
	for path, text := range map[string]string{f.Path: drains, f.Older: changes} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func openStore(f File) *Store { return NewStore(start(f), slog.New(slog.DiscardHandler)) }

// checkContent checks what a start finds, and that a later one finds the same.
func checkContent(t *testing.T, f File, drained, changed string) {
	t.Helper()
	for _, when := range []string{"at the first start", "at the next start"} {
		s := openStore(f)
		if got := s.List().names(); got != drained {
			t.Errorf("%s, %q is drained, want %q", when, got, drained)
		}
		if got := strings.Join(s.Changes().Texts(), "; "); got != changed {
			t.Errorf("%s, the changes are %q, want %q", when, got, changed)
		}
	}
}

const drained02 = "10.0.0.2, 10.0.0.3:80 of Service shop/web"

// TestUpgrade: 9.37. The first start takes over the changes of version 0.2, and leaves one file. Drained endpoints stay.
func TestUpgrade(t *testing.T) {
	for name, c := range map[string]struct{ drains, changes, drained, changed string }{
		"both":       {drainOf02, changesOf02, drained02, texts02},
		"drains":     {drainOf02, "", drained02, ""},
		"changes":    {"", changesOf02, "", texts02},
		"none":       {"", "", "", ""},
		"no changes": {drainOf02, "kind: RuntimeChanges\nchanges: []\n", drained02, ""},
		// killed after the first file was written and before the other one was removed
		"killed": {drainOf02 + strings.Replace(changesOf02[strings.Index(changesOf02, "changes:"):], "weight: 3", "weight: 4", 1), changesOf02, drained02, strings.Replace(texts02, "weight 3", "weight 4", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			f := files02(t, c.drains, c.changes)
			if got, err := ReadChanges(f.Path, f.Older); err != nil || strings.Join(got.Texts(), "; ") != c.changed {
				t.Errorf("without a daemon: %v, %v", got.Texts(), err)
			}
			checkContent(t, f, c.drained, c.changed)
			if _, err := os.Stat(f.Older); err == nil {
				t.Error("the older file is still there")
			}
		})
	}
}

// TestUpgradeOfDamagedFiles: 9.37. One of the two files with a mistake keeps nothing from the other one, and its entries
// count once it is corrected.
func TestUpgradeOfDamagedFiles(t *testing.T) {
	f := files02(t, drainOf02, changesOf02+"- {{{\n")
	checkContent(t, f, drained02, "")
	if err := os.WriteFile(f.Older, []byte(changesOf02), 0o600); err != nil {
		t.Fatal(err)
	}
	checkContent(t, f, drained02, texts02)

	f = files02(t, "kind: Drain\nendpoints: [{", changesOf02)
	if err := os.WriteFile(f.Copy(), []byte(drainOf02), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openStore(f)
	if s.Problem() == nil || s.List().names() != drained02 {
		t.Errorf("%+v, %q is drained", s.Problem(), s.List().names())
	}
	if err := os.WriteFile(f.Path, []byte(drainOf02), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Reread()
	if got := strings.Join(s.Changes().Texts(), "; "); got != texts02 || s.Problem() != nil {
		t.Errorf("once the file is corrected: %q, %+v", got, s.Problem())
	}
	f = files02(t, "", "kind: Balance\n")
	if _, err := openStore(f).UndoAll(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(f.Older); err == nil {
		t.Error("undo --all leaves a file that cannot be taken over")
	}
}

// TestDowngrade: 9.37. Without changes of servers the file is as version 0.2 writes it. With changes, that version cannot
// use it, and drains what the copy has.
func TestDowngrade(t *testing.T) {
	f := files02(t, drainOf02, changesOf02)
	s := openStore(f)
	if got, err := os.ReadFile(f.Copy()); err != nil || string(got) != drainOf02 {
		t.Errorf("the copy is %s, %v", got, err)
	}
	if ended, err := s.UndoAll(); err != nil || strings.Join(ended.Texts(), "; ") != texts02 {
		t.Errorf("%v, %v", ended.Texts(), err)
	}
	for _, path := range []string{f.Path, f.Copy()} {
		if got, err := os.ReadFile(path); err != nil || string(got) != drainOf02 {
			t.Errorf("%s is %s, %v", path, got, err)
		}
	}
}

// TestCommandsTogether: drains of other processes and changes of servers at the same time are all kept.
func TestCommandsTogether(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "drain.yaml")}
	r := newReader(t, f.Path, balance(8080, []uint16{80}, "10.1.1.2", "10.1.1.3"))
	var all sync.WaitGroup
	for _, server := range []string{"10.1.1.4:8080", "10.1.1.5:8080", "10.1.1.6:8080"} {
		all.Go(func() {
			if got := r.do(t, "add "+server); !strings.Contains(got, server) {
				t.Errorf("add %s: %s", server, got)
			}
		})
		all.Go(func() {
			if _, err := f.Update(func(l List) (List, error) { return l.With(noon, target(t, server)), nil }); err != nil {
				t.Error(err)
			}
		})
		all.Go(r.Reread)
	}
	all.Wait()
	r.Reread()
	c, err := f.ReadAll()
	if got := c.Drained.names(); err != nil || got != "10.1.1.4:8080, 10.1.1.5:8080, 10.1.1.6:8080" || len(c.Changes[web]) != 3 {
		t.Errorf("%s, %v, %v", got, c.Changes.Texts(), err)
	}
	if now := r.current(); !reflect.DeepEqual(now, c) {
		t.Errorf("in force is %v, and the file has %v", now, c)
	}
	if before, err := f.Clear(); err != nil || len(before) != 3 {
		t.Errorf("undrain --all: %v, %v", before, err)
	}
	if c, err := f.ReadAll(); err != nil || len(c.Drained) != 0 || len(c.Changes[web]) != 3 {
		t.Errorf("after undrain --all: %v, %v", c, err)
	}
}

// TestFollowChanges: the file may be edited: changes in it hold, those that it loses end, and a mistake changes nothing.
func TestFollowChanges(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "drain.yaml")}
	s := openStore(f)
	var announced []model.ServiceName
	s.Follower.changed = func(names ...model.ServiceName) { announced = append(announced, names...) }
	for _, step := range []struct{ text, want string }{
		{drainOf02 + changesOf02[strings.Index(changesOf02, "changes:"):], texts02},
		{drainOf02 + "changes: [{", texts02},
		{drainOf02, ""},
	} {
		if err := os.WriteFile(f.Path, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Reread()
		if got := strings.Join(s.Changes().Texts(), "; "); got != step.want {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
	if len(announced) != 2 { // the first one was of any Service
		t.Errorf("announced %v", announced)
	}
}
