package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// session is one run of the command.
type session struct {
	options
	book    *book
	out     io.Writer
	dir     string // for programs
	commit  string
	program string // nftproxy, for tests that start it

	mu   sync.Mutex // of out and what follows
	left []suite    // packages with runs that are missing
}

// timeout is that of one run.
const timeout = time.Hour

// runAll makes all runs that are missing, some packages at a time, beside busy processes.
func (s *session) runAll(ctx context.Context, all []suite) (err error) {
	if s.commit, err = s.describeCommit(ctx); err != nil {
		return err
	}
	for _, p := range all {
		if s.book.missing(p) > 0 && s.only.MatchString(p.name) {
			s.left = append(s.left, p)
		}
	}
	s.sortByCost()
	fmt.Fprintf(s.out, "%d of %d packages have changed or lack runs; %d busy processes beside them; about %s\n", len(s.left), len(all), s.load, s.estimate())
	if err := s.buildProgram(ctx); err != nil {
		return err
	}
	end, err := startLoad(s.load)
	if err != nil {
		return err
	}
	defer end()
	queue := make(chan suite, len(s.left))
	for _, p := range s.left {
		queue <- p
	}
	close(queue)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	for range s.parallel {
		workers.Go(func() {
			for p := range queue {
				if err := s.repeat(ctx, p); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// sortByCost puts first what takes least time, so that an interrupted command has results of most packages. Of
// packages that have never run, those with fewer files come first: the arguments have them last.
func (s *session) sortByCost() {
	slices.Reverse(s.left)
	cost := func(p suite) float64 { return s.book.secondsEach(p) * float64(s.book.missing(p)) }
	slices.SortStableFunc(s.left, func(a, b suite) int { return cmp.Compare(cost(a), cost(b)) })
}

// describeCommit names the commit whose files are here, and marks changes other than those of the results.
func (o options) describeCommit(ctx context.Context) (string, error) {
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("git rev-parse: %w", err)
	}
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude)"+o.results).Output()
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	if len(changed) > 0 {
		return strings.TrimSpace(string(commit)) + "-dirty", nil
	}
	return strings.TrimSpace(string(commit)), nil
}

// buildProgram builds nftproxy once for all suites that would build it for each run.
func (s *session) buildProgram(ctx context.Context) error {
	for _, p := range s.left {
		if p.starts {
			s.program = filepath.Join(s.dir, "nftproxy")
			return compile(ctx, false, "build", "-o", s.program, "./cmd/nftproxy")
		}
	}
	return nil
}

func compile(ctx context.Context, race bool, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	if race {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// repeat compiles the tests of a package, and makes the runs that it lacks.
func (s *session) repeat(ctx context.Context, p suite) error {
	binary := filepath.Join(s.dir, strings.ReplaceAll(p.name, "/", "-")+".test")
	args := []string{"test", "-c", "-vet=off", "-o", binary, p.path}
	if p.race {
		args = append(args[:2:2], append([]string{"-race"}, args[2:]...)...)
	}
	if err := compile(ctx, p.race, args...); err != nil {
		return err
	}
	defer os.Remove(binary)
	if now, err := p.rehash(); err != nil || now != p.built {
		return errors.Join(fmt.Errorf("%s has changed since this command began", p.name), err)
	}
	for s.book.missing(p) > 0 {
		if err := s.runOnce(ctx, p, binary); err != nil {
			return err
		}
	}
	return nil
}

// runOnce runs the tests of a package, and counts the run unless it is interrupted.
func (s *session) runOnce(ctx context.Context, p suite, binary string) error {
	seed := rand.Uint32()
	cmd := exec.Command(binary, "-test.v", fmt.Sprintf("-test.shuffle=%d", seed), "-test.timeout="+timeout.String())
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if s.program != "" {
		cmd.Env = append(cmd.Env, "NFTPROXY="+s.program)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	log := filepath.Join(s.outputs, fmt.Sprintf("%s-%d.log", strings.ReplaceAll(p.name, "/", "-"), seed))
	file, err := os.Create(log)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	release := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	failed := cmd.Wait() != nil
	if !release() || !failed {
		err = os.Remove(log)
	}
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	if err := errors.Join(err, s.book.add(p, s.commit, s.load, failed, time.Since(begin).Seconds())); err != nil {
		return err
	}
	s.show(p, seed, failed, time.Since(begin), log)
	return nil
}

// show prints a run, and how long the rest may take.
func (s *session) show(p suite, seed uint32, failed bool, took time.Duration, log string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := ""
	if failed {
		what = ", FAILED: " + log
	}
	fmt.Fprintf(s.out, "%s  run %d of %d, %.1f s, -shuffle=%d%s; %s left\n", p.name, p.wanted-s.book.missing(p), p.wanted, took.Seconds(), seed, what, s.estimate())
}

// estimate returns how long the missing runs take if they are like earlier ones.
func (s *session) estimate() time.Duration {
	var known, runs, unknown, seconds float64
	for _, p := range s.left {
		missing := float64(s.book.missing(p))
		each := s.book.secondsEach(p)
		if each == 0 {
			unknown += missing
			continue
		}
		seconds += missing * each
		known += each
		runs++
	}
	if runs > 0 {
		seconds += unknown * known / runs
	}
	return (time.Duration(seconds/float64(s.parallel)) * time.Second).Round(time.Second)
}
