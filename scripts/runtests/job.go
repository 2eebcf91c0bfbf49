package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// shards is how many programs run the tests of a package that is split.
const shards = 3

// job is a go test.
type job struct {
	part     part
	packages []string
	shard    string   // names the program if the tests of the one package run in several
	only     []string // tests to run, or all
	skip     []string // tests not to run
}

// jobs returns what runs the tests of a part: the programs of packages that are split, and all other packages.
func (p part) jobs(ctx context.Context) (jobs []job, err error) {
	rest := p.packages
	for _, split := range p.split {
		name, err := output(ctx, p, "list", split)
		if err != nil {
			return nil, err
		}
		name = strings.TrimSpace(name)
		others := slices.DeleteFunc(slices.Clone(rest), func(other string) bool { return other == name || other == split })
		if len(others) == len(rest) {
			return nil, fmt.Errorf("%s, which is to be split, is none of the packages", split)
		}
		tests, err := p.tests(ctx, name)
		if err != nil || len(tests) < shards { // it may not compile, which go test says again
			continue
		}
		jobs, rest = append(jobs, p.shards(name, tests)...), others
	}
	if len(rest) > 0 {
		jobs = append(jobs, job{part: p, packages: rest})
	}
	return jobs, nil
}

// shards returns the programs that run the tests of one package.
func (p part) shards(name string, tests []string) (jobs []job) {
	for i := range shards {
		j := job{part: p, packages: []string{name}, shard: fmt.Sprintf("%d of %d", i+1, shards)}
		for n := i; n < len(tests); n += shards {
			j.only = append(j.only, tests[n])
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// tests returns the names of a package's tests, and all else that go test runs like these.
func (p part) tests(ctx context.Context, name string) (tests []string, err error) {
	args := []string{"test", "-vet=off", "-list", "^(Test|Example|Fuzz)", name}
	if p.race {
		args = slices.Insert(args, 1, "-race")
	}
	text, err := output(ctx, p, args...)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); isTest.MatchString(line) {
			tests = append(tests, line)
		}
	}
	return tests, err
}

var isTest = regexp.MustCompile(`^(Test|Example|Fuzz)\w*$`)

func output(ctx context.Context, p part, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = p.environment()
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return string(text), nil
}
