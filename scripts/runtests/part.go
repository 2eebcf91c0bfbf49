package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// event is a line of go test -json, see "go doc test2json".
type event struct {
	Action      string
	Package     string
	ImportPath  string // of the output of a build
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string
}

// runPart runs the tests of a part. When the program of a package ends early, it runs the tests that
// are left, as often as that gets further.
func runPart(ctx context.Context, c config, p part, r *results, show *progress) error {
	if p.program != "" {
		dir, err := os.MkdirTemp("", "nftproxy-program-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, filepath.Base(p.program))
		if err := buildProgram(ctx, p, path); err != nil {
			return err
		}
		p.program = path
	}
	if err := runOnce(ctx, c, p, nil, r, show); err != nil {
		return err
	}
	for _, pkg := range r.endedEarly() {
		for pkg.ended.early && pkg.blame() > 0 && ctx.Err() == nil {
			fmt.Fprintf(show.out, "%s ended early: its other tests run without those that ended it\n", pkg.name)
			pkg.ended = ended{}
			if err := runOnce(ctx, c, part{p.race, p.program, []string{pkg.name}}, pkg.settled(), r, show); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// runOnce runs go test, without some tests. That tests fail is no error.
func runOnce(ctx context.Context, c config, p part, skip []string, r *results, show *progress) error {
	// A process group of its own, which is sent the signal that ends this program.
	cmd := exec.Command("go", c.arguments(p, skip)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Env = p.environment()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run go test: %w", err)
	}
	release := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) })
	defer release()
	readErr := followEvents(pipe, r, show)
	err = cmd.Wait()
	r.used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	var exit *exec.ExitError
	switch {
	case readErr != nil:
		return fmt.Errorf("read the events of go test: %w", readErr)
	case errors.As(err, &exit) && exit.Exited():
		r.goFailed = r.goFailed || len(r.failures()) == 0 // such as a pattern without packages
		return nil
	case err != nil:
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

// environment returns that of the go command.
func (p part) environment() []string {
	env := append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if p.race {
		env = append(env, "CGO_ENABLED=1")
	}
	if p.program != "" {
		env = append(env, "NFTPROXY="+p.program)
	}
	return env
}

// buildProgram builds the program that tests start as these tests are built.
func buildProgram(ctx context.Context, p part, path string) error {
	args := []string{"build", "-o", path, p.program}
	if p.race {
		args = slices.Insert(args, 1, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = part{race: p.race}.environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", p.program, err, out)
	}
	return nil
}

// followEvents adds events to the results, and shows progress also while there are none.
func followEvents(pipe io.Reader, r *results, show *progress) (err error) {
	events, ticks := make(chan event), time.NewTicker(quiet/4)
	defer ticks.Stop()
	go func() {
		defer close(events)
		err = readEvents(pipe, func(e event) { events <- e })
	}()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return err
			}
			r.add(e)
			show.add(e, r)
		case now := <-ticks.C:
			show.describe(now)
		}
	}
}

// readEvents calls f for each event. A line that is none, such as a message of the go command, is an event
// with that output.
func readEvents(from io.Reader, f func(event)) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				e = event{Action: "output", Output: line}
			}
			f(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// exactly returns a regular expression that matches these names alone.
func exactly(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}
