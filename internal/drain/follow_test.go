package drain

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// 9.22: the last good content stays in force while the file is broken, and a file that is
// removed drains nothing.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drain.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("kind: Drain\nendpoints: [{endpoint: 10.0.0.2}]")
	var log bytes.Buffer
	steps := make(chan func())
	watch := func(ctx context.Context, changed func()) error {
		for step := range steps {
			step()
			changed()
		}
		return nil
	}
	f := Follow(path, watch, slog.New(slog.NewTextHandler(&log, nil)))
	if got := f.List().names(); got != "10.0.0.2" {
		t.Errorf("at the start: %s", got)
	}
	changes := 0
	ended := make(chan struct{})
	go func() {
		f.Run(context.Background(), func(names ...model.ServiceName) { changes++ })
		close(ended)
	}()
	check := func(want string, wantChanges int, problem string) func() {
		return func() {
			since, err := f.Problem()
			if got := f.List().names(); got != want || changes != wantChanges {
				t.Errorf("%s after %d changes, want %s after %d", got, changes, want, wantChanges)
			}
			if (err == nil) != (problem == "") || err != nil && (!strings.Contains(err.Error(), problem) || since.IsZero()) {
				t.Errorf("problem %v since %v, want %q", err, since, problem)
			}
		}
	}
	for _, step := range []func(){
		func() { write("kind: Drain\nendpoints: [{endpoint: 10.0.0.2}, {endpoint: 10.0.0.3}]") },
		check("10.0.0.2, 10.0.0.3", 1, ""),
		func() { write("kind: Drain\nendpoints: [{endpont: 10.0.0.2}]") },
		check("10.0.0.2, 10.0.0.3", 1, "did you mean endpoint?"),
		func() { write("# the same\nkind: Drain\nendpoints: [{endpoint: 10.0.0.2}, {endpoint: 10.0.0.3}]") },
		check("10.0.0.2, 10.0.0.3", 1, ""),
		func() { _ = os.Remove(path) },
		check("", 2, ""),
	} {
		steps <- step
	}
	close(steps)
	<-ended
	for _, want := range []string{"the drain file cannot be used", "the drain file can be used again", "added=[10.0.0.3]", "removed=\"[10.0.0.2 10.0.0.3]\""} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}

// 9.22: without a watch, the file is read at intervals.
func TestFollowWithoutWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drain.yaml")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := Follow(path, func(context.Context, func()) error { return errors.New("no watch is left") }, slog.New(slog.DiscardHandler))
		changes := make(chan struct{}, 1)
		ended := make(chan struct{})
		go func() {
			f.Run(ctx, func(...model.ServiceName) { changes <- struct{}{} })
			close(ended)
		}()
		if err := os.WriteFile(path, []byte("kind: Drain\nendpoints: [{endpoint: 10.0.0.2}]"), 0o600); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		<-changes
		if got := f.List().names(); got != "10.0.0.2" || time.Since(begun) > pollPause {
			t.Errorf("%s after %s", got, time.Since(begun))
		}
		cancel()
		<-ended
	})
}
