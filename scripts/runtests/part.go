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
	shard       string // which program of the package's tests
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
	jobs, err := p.jobs(ctx)
	if err != nil {
		return err
	}
	if len(jobs) > 1 && show.total > 0 {
		show.total += shards - 1
	}
	if err := runJobs(ctx, c, p, jobs, r, show); err != nil {
		return err
	}
	for _, pkg := range r.endedEarly() {
		for pkg.ended.early && pkg.blame() > 0 && ctx.Err() == nil {
			fmt.Fprintf(show.out, "%s ended early: its other tests run without those that ended it\n", pkg.title())
			pkg.ended = ended{}
			rest := job{packages: []string{pkg.name}, only: pkg.only, shard: pkg.shard, skip: pkg.settled()}
			if err := runJobs(ctx, c, p, []job{rest}, r, show); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// runJobs runs commands side by side, and shows progress also while they say nothing. That tests fail is no error.
func runJobs(ctx context.Context, c config, p part, jobs []job, r *results, show *progress) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the others end with one that cannot run
	events, ended := make(chan event), make(chan outcome)
	for _, j := range jobs {
		r.expect(j)
		go func() { ended <- runJob(ctx, c, p, j, func(e event) { events <- e }) }()
	}
	ticks := time.NewTicker(quiet / 4)
	defer ticks.Stop()
	var all error
	for left := len(jobs); left > 0; {
		select {
		case e := <-events:
			r.add(e)
			show.add(e, r)
		case o := <-ended:
			left--
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
	return all
}

// outcome is how a go test ended.
type outcome struct {
	failed bool          // a test, or the command
	used   time.Duration // of processors
	err    error         // the command did not run to its end
}

// runJob runs go test, and calls f for each event.
func runJob(ctx context.Context, c config, p part, j job, f func(event)) (o outcome) {
	// A process group of its own, which is sent the signal that ends this program.
	cmd := exec.Command("go", c.arguments(p, j)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Env = p.environment()
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
	readErr := readEvents(pipe, func(e event) { e.shard = j.shard; f(e) })
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
