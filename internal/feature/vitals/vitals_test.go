package vitals

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// fakeBalances are Balances with states that a test sets.
type fakeBalances struct {
	guard  sync.Mutex
	states map[string]State
	keeps  atomic.Bool // a part of the source cannot be read
	ran    []string    // environment of each run, without the counts
	hold   chan struct{}
	fail   error
}

func (b *fakeBalances) Assess(n model.ServiceName) (State, *model.Service) {
	b.guard.Lock()
	defer b.guard.Unlock()
	s, ok := b.states[n.Name]
	if !ok {
		return s, nil
	}
	return s, &model.Service{Name: n, Balance: true, Extras: &model.Extras{Announce: "eth0"}}
}

func (b *fakeBalances) Kept() bool { return b.keeps.Load() }

func (b *fakeBalances) Run(ctx context.Context, _ string, env []string) error {
	b.guard.Lock()
	b.ran = append(b.ran, strings.TrimPrefix(env[0], "NFTPROXY_SERVICE=default/")+" "+strings.TrimPrefix(env[1], "NFTPROXY_STATE="))
	hold := b.hold
	b.guard.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	return b.fail
}

// noted is the machine of a node, where the directory is noted.
type noted struct{ feature.Machine }

func (noted) NoteHealthDirectory(string) {}

// actorOn returns an actor with files in a directory.
func actorOn(dir, program string, b *fakeBalances, log io.Writer) *Actor {
	n := &feature.Node{Config: new(config.Config), Machine: noted{}, Log: slog.New(slog.NewTextHandler(log, nil))}
	n.Config.Own.HealthDirectory, n.Config.Own.OnChange = dir, program
	return newActor(n, b, newMachine())
}

// actorLab is an actor with such Balances.
type actorLab struct {
	*testing.T
	*Actor
	fakeBalances
	log bytes.Buffer
}

func nameOf(text string) model.ServiceName {
	return model.ServiceName{Namespace: "default", Name: text}
}

func start(t *testing.T, dir string, states map[string]State) (l *actorLab, stop func()) {
	t.Helper()
	l = &actorLab{T: t}
	l.states = states
	l.Actor = actorOn(dir, "/bin/true", &l.fakeBalances, &l.log)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { l.Actor.Run(ctx) })
	return l, func() { cancel(); all.Wait() }
}

// sync sets a state, and tells the actor as a sync does.
func (l *actorLab) sync(name string, s *State) {
	l.guard.Lock()
	if s == nil {
		delete(l.states, name)
	} else {
		l.states[name] = *s
	}
	l.guard.Unlock()
	l.Note(nameOf(name))
	l.Synced()
}

func (l *actorLab) runs() []string {
	l.guard.Lock()
	defer l.guard.Unlock()
	return slices.Clone(l.ran)
}

// has checks that the files have these contents when the actor has nothing more to do, and that the
// program has run so often.
func (l *actorLab) has(files string, runs int) {
	l.Helper()
	synctest.Wait()
	var got []string
	entries, _ := os.ReadDir(l.directory)
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join(l.directory, e.Name()))
		got = append(got, e.Name()+"="+strings.TrimSpace(string(text)))
	}
	if s := strings.Join(got, " "); s != files || len(l.runs()) != runs {
		l.Fatalf("%s; %q, want %s; %d runs", s, l.runs(), files, runs)
	}
}

// TestActor: 10.31, 10.32. Each gain and loss of the last usable server writes the file and runs the
// program, and no other change does.
func TestActor(t *testing.T) { synctest.Test(t, testActor) }

func testActor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "health")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"default_old", "other"} {
		if err := os.WriteFile(filepath.Join(dir, old), []byte("0\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, stop := start(t, dir, map[string]State{"web": {Usable: 2, Servers: 2}})
	l.Note(nameOf("web"))
	if len(l.runs()) > 0 {
		t.Error("it acts before the rules are there")
	}
	l.Note(nameOf("db")) // a Service
	l.request(true)
	l.has("default_web=0 other=0", 1)
	l.sync("web", &State{Usable: 1, Servers: 2})
	l.sync("web", &State{Usable: 0, Servers: 2})
	l.has("default_web=1 other=0", 2)
	l.sync("web", &State{Usable: 1, Servers: 2})
	l.has("default_web=0 other=0", 3)
	l.sync("dns", &State{Usable: 0, Servers: 1})
	l.has("default_dns=1 default_web=0 other=0", 4)
	l.sync("dns", nil)
	l.has("default_web=0 other=0", 4)
	stop()
	if want := []string{"web usable", "web unusable", "web usable", "dns unusable"}; !slices.Equal(l.ran, want) {
		t.Errorf("the program ran for %q, want %q", l.ran, want)
	}
}

// TestPrograms: one program runs for a Balance at a time, and the last state counts; a failure is
// logged, and the end of the process ends a program.
func TestPrograms(t *testing.T) { synctest.Test(t, testPrograms) }

func testPrograms(t *testing.T) {
	l, stop := start(t, "", map[string]State{"web": {Usable: 1, Servers: 1}})
	l.guard.Lock()
	l.hold, l.fail = make(chan struct{}), errors.New("exit code 3")
	l.guard.Unlock()
	l.Synced(nameOf("web"))
	l.has("", 1)
	for range 10 {
		l.sync("web", &State{Usable: 0, Servers: 1})
		l.sync("web", &State{Usable: 1, Servers: 1})
	}
	l.sync("web", &State{Usable: 0, Servers: 1})
	l.has("", 1)
	l.hold <- struct{}{}
	l.has("", 2)
	stop()
	if got := l.runs(); got[1] != "web unusable" || !strings.Contains(l.log.String(), "exit code 3") {
		t.Errorf("%q; log: %s", got, &l.log)
	}
}

// TestFilesAgain: 10.31. A file that could not be written is written later, without another change.
func TestFilesAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "health")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // in the way
		t.Fatal(err)
	}
	var log bytes.Buffer
	a := actorOn(dir, "", &fakeBalances{states: map[string]State{"web": {Usable: 1, Servers: 1}}}, &log)
	a.act(t.Context(), nameOf("web"))
	a.retry()
	if n := strings.Count(log.String(), "cannot be written"); a.again() == nil || n != 1 {
		t.Fatalf("not tried again, or logged %d times: %s", n, &log)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	a.retry()
	if text, err := os.ReadFile(filepath.Join(dir, "default_web")); string(text) != "0\n" || err != nil || a.again() != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// TestSweepKeepsOthers: 10.31. In a directory that has other files, those stay.
func TestSweepKeepsOthers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"default_gone": "1\n", "ssh_config": "Host *\n", "a_b": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := actorOn(dir, "", new(fakeBalances), io.Discard)
	a.sweep()
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
		t.Errorf("%q are left", left)
	}
}
