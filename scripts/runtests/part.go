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
	"strconv"
	"strings"
	"sync"
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
	job         job // that it comes from
}

// runParts runs the tests of all parts. When the program of a package ends early, it runs the tests that
// are left, as often as that gets further.
func runParts(ctx context.Context, c config, parts []part, r *results, show *progress) (err error) {
	dir, err := os.MkdirTemp("", "nftproxy-program-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the others end with one that cannot run
	s := &session{config: c, events: make(chan event), outcomes: make(chan outcome)}
	for i, p := range parts {
		s.running.Go(func() { s.runPart(ctx, p, filepath.Join(dir, strconv.Itoa(i))) })
	}
	if err := s.follow(cancel, r, show); err != nil {
		return err
	}
	for _, pkg := range r.endedEarly() {
		for pkg.ended.early && pkg.blame() > 0 && ctx.Err() == nil {
			fmt.Fprintf(show.out, "%s ended early: its other tests run without those that ended it\n", pkg.title())
			pkg.ended = ended{}
			rest := pkg.job
			rest.packages, rest.skip = []string{pkg.name}, pkg.settled()
			s.outcomes = make(chan outcome)
			s.running.Go(func() { s.outcomes <- s.runJob(ctx, rest) })
			if err := s.follow(cancel, r, show); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// session is commands that run side by side.
type session struct {
	config
	running  sync.WaitGroup
	events   chan event
	outcomes chan outcome
}

// runPart builds the program of a part, if it has one, in a directory of its own, and starts its jobs.
func (s *session) runPart(ctx context.Context, p part, dir string) {
	err := p.build(ctx, dir)
	var jobs []job
	if err == nil {
		jobs, err = p.jobs(ctx)
	}
	if err != nil {
		s.outcomes <- outcome{err: err}
	}
	for _, j := range jobs {
		s.running.Go(func() { s.outcomes <- s.runJob(ctx, j) })
	}
}

// follow adds up what runs, and shows progress also while it says nothing. That tests fail is no error.
func (s *session) follow(cancel func(), r *results, show *progress) (all error) {
	outcomes := s.outcomes
	go func() { s.running.Wait(); close(outcomes) }()
	ticks := time.NewTicker(quiet / 4)
	defer ticks.Stop()
	for {
		select {
		case e := <-s.events:
			r.add(e)
			show.add(e, r)
		case o, more := <-outcomes:
			if !more {
				return all
			}
			r.used += o.used
			r.goFailed = r.goFailed || o.failed // also without naming a test, such as a pattern without packages
			if o.err != nil {
				all = errors.Join(all, o.err)
				cancel()
			}
		case now := <-ticks.C:
			show.describe(now)
		}
	}
}

// outcome is how a go test ended.
type outcome struct {
	failed bool          // a test, or the command
	used   time.Duration // of processors
	err    error         // the command did not run to its end
}

// runJob runs go test, and passes on its events.
func (s *session) runJob(ctx context.Context, j job) (o outcome) {
	// A process group of its own, which is sent the signal that ends this program.
	cmd := exec.Command("go", s.arguments(j)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Env = j.part.environment()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{err: err}
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return outcome{err: fmt.Errorf("run go test: %w", err)}
	}
	release := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) })
	defer release()
	readErr := readEvents(pipe, func(e event) { e.job = j; s.events <- e })
	err = cmd.Wait()
	o.used = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	var exit *exec.ExitError
	switch {
	case readErr != nil:
		o.err = fmt.Errorf("read the events of go test: %w", readErr)
	case errors.As(err, &exit) && exit.Exited():
		o.failed = true
	case err != nil:
		o.err = fmt.Errorf("go test: %w", err)
	}
	return o
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

// build builds the program that tests start as these tests are built.
func (p *part) build(ctx context.Context, dir string) error {
	if p.program == "" {
		return nil
	}
	path := filepath.Join(dir, filepath.Base(p.program))
	args := []string{"build", "-o", path, p.program}
	if p.race {
		args = slices.Insert(args, 1, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = part{race: p.race}.environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", p.program, err, out)
	}
	p.program = path
	return nil
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
