package files

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// nobody is a user without rights.
const nobody = 65534

// programFiles are a file with a check of type exec, by a link in a directory, and its program.
type programFiles struct{ dir, file, link, program, other string }

// Where the check is: in the Balance, in the defaults of its directory, or in its servers.
const (
	inBalance = iota
	inDefaults
	inServers
)

func newProgramFiles(t *testing.T, where int) (p programFiles, f *followed) {
	t.Helper()
	p.dir = filepath.Join(t.TempDir(), "conf.d")
	real := filepath.Join(filepath.Dir(p.dir), "real")
	check(t, os.Mkdir(p.dir, 0o755))
	check(t, os.Mkdir(real, 0o755))
	p.file, p.link, p.program = filepath.Join(real, "web.yaml"), filepath.Join(p.dir, "web.yaml"), filepath.Join(real, "program")
	balance, backends := "kind: Balance\nname: web\nlisten: 192.0.2.1:80/tcp\n", "backends: [192.0.2.2:80]\n"
	program, other := "check: {exec: ["+p.program+"]}\n", "kind: Defaults\nscheduler: random\n"
	switch where {
	case inBalance:
		balance += backends + program
	case inDefaults:
		balance, other = balance+backends, "kind: Defaults\n"+program
	case inServers:
		balance, other = balance+"backends: {servers: farm}\n", "kind: Servers\nname: farm\nservers: [192.0.2.2:80]\n"+program
	}
	p.other = filepath.Join(p.dir, "other.yaml")
	check(t, os.WriteFile(p.other, []byte(other), 0o644))
	check(t, os.WriteFile(p.file, []byte(balance), 0o644))
	check(t, os.Symlink(p.file, p.link))
	check(t, os.WriteFile(p.program, nil, 0o755))
	return p, &followed{files: &Reader{Paths: []string{p.dir}, follows: true}, log: slog.New(slog.DiscardHandler)}
}

// TestPrograms: 3.73, a check of type exec runs no program that users other than root and the one of
// the process can choose or change. The Service is served without the check, a warning names the file and
// the remedy, and the check is back when the file is safe, without an edit.
func TestPrograms(t *testing.T) {
	cases := []struct {
		name   string
		where  int
		change func(t *testing.T, p programFiles) error
		undo   func(t *testing.T, p programFiles) error
		want   func(p programFiles) string // what the warning names; nil: no warning
	}{
		{"file of another user", inBalance,
			func(_ *testing.T, p programFiles) error { return os.Chown(p.file, nobody, nobody) },
			func(_ *testing.T, p programFiles) error { return os.Chown(p.file, 0, 0) },
			func(p programFiles) string { return p.file }},
		{"link of another user", inBalance,
			func(_ *testing.T, p programFiles) error { return os.Lchown(p.link, nobody, nobody) },
			func(_ *testing.T, p programFiles) error { return os.Lchown(p.link, 0, 0) },
			func(p programFiles) string { return p.link }},
		{"file that a group can write", inBalance,
			func(_ *testing.T, p programFiles) error { return os.Chmod(p.file, 0o664) },
			func(_ *testing.T, p programFiles) error { return os.Chmod(p.file, 0o644) },
			func(p programFiles) string { return p.file }},
		{"directory that all can write", inBalance,
			func(_ *testing.T, p programFiles) error { return os.Chmod(p.dir, 0o777) },
			func(_ *testing.T, p programFiles) error { return os.Chmod(p.dir, 0o755) },
			func(p programFiles) string { return p.dir }},
		{"directory of the linked file", inBalance,
			func(_ *testing.T, p programFiles) error { return os.Chmod(filepath.Dir(p.file), 0o777) },
			func(_ *testing.T, p programFiles) error { return os.Chmod(filepath.Dir(p.file), 0o755) },
			func(p programFiles) string { return filepath.Dir(p.file) }},
		{"program of another user", inBalance,
			func(_ *testing.T, p programFiles) error { return os.Chown(p.program, nobody, nobody) },
			func(_ *testing.T, p programFiles) error { return os.Chown(p.program, 0, 0) },
			func(p programFiles) string { return p.program }},
		{"program that others can create", inBalance,
			func(_ *testing.T, p programFiles) error {
				check(t, os.Chmod(filepath.Dir(p.program), 0o777|os.ModeSticky))
				return os.Remove(p.program)
			},
			func(_ *testing.T, p programFiles) error { return os.WriteFile(p.program, nil, 0o755) },
			func(p programFiles) string { return p.program }},
		{"defaults of another user", inDefaults,
			func(_ *testing.T, p programFiles) error { return os.Chown(p.other, nobody, nobody) },
			func(_ *testing.T, p programFiles) error { return os.Chown(p.other, 0, 0) },
			func(p programFiles) string { return p.other }},
		{"servers of another user", inServers,
			func(_ *testing.T, p programFiles) error { return os.Chown(p.other, nobody, nobody) },
			func(_ *testing.T, p programFiles) error { return os.Chown(p.other, 0, 0) },
			func(p programFiles) string { return p.other }},
		{"directory with the sticky bit", inBalance,
			func(_ *testing.T, p programFiles) error { return os.Chmod(p.dir, 0o777|os.ModeSticky) },
			func(_ *testing.T, p programFiles) error { return nil }, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, f := newProgramFiles(t, c.where)
			loadPrograms(t, f, "")
			check(t, c.change(t, p))
			want := ""
			if c.want != nil {
				want = c.want(p)
			}
			loadPrograms(t, f, want)
			check(t, c.undo(t, p))
			loadPrograms(t, f, "")
		})
	}
}

// loadPrograms loads files, whose Service is to have its check, or a warning that names a file.
func loadPrograms(t *testing.T, f *followed, warned string) {
	t.Helper()
	if _, err := f.Load(); err != nil {
		t.Fatal(err)
	}
	states := f.Lookup(nil)
	if len(states) != 1 {
		t.Fatalf("%d Services, want 1", len(states))
	}
	var checked *model.Check
	for _, s := range states {
		checked = s.Service.Check
	}
	warnings := strings.Join(f.State().Warnings, "\n")
	if (checked == nil) != (warned != "") || (warnings == "") != (warned == "") || !strings.Contains(warnings, warned) {
		t.Errorf("check %v, warnings %q; want a warning that names %q", checked, warnings, warned)
	}
}

// TestProgramsOfEdit: 3.73 also holds for a check that an edit adds.
func TestProgramsOfEdit(t *testing.T) {
	p, f := newProgramFiles(t, inBalance)
	text, err := os.ReadFile(p.file)
	check(t, err)
	plain, _, _ := strings.Cut(string(text), "check:")
	check(t, os.WriteFile(p.file, []byte(plain), 0o644))
	check(t, os.Chmod(p.file, 0o666))
	if _, err := f.Load(); err != nil || len(f.State().Warnings) > 0 {
		t.Fatalf("without a check: %v, %q", err, f.State().Warnings)
	}
	check(t, os.WriteFile(p.file, text, 0o644))
	loadPrograms(t, f, p.file)
}
