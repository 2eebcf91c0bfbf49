package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/debian"
)

const (
	guestCommand   = "guest"
	guestJobs      = "/jobs.json"
	guestSource    = "/src"
	guestPrograms  = "/tests"
	packageTimeout = "50m"
)

// boot runs the tests in a virtual machine.
func (s *suite) boot(ctx context.Context, sys debian.System, out io.Writer) ([]result, error) {
	jobs := s.guestJobs()
	initrd, err := s.initrd(ctx, sys, jobs)
	if err != nil {
		return nil, fmt.Errorf("make the initial file system: %w", err)
	}
	defer os.Remove(initrd)
	answers := filepath.Join(s.work, sys.Kernel+".json")
	boot := sys.Boot
	if s.counting || sys.Arch != runtime.GOARCH {
		// A start of nftproxy can take longer than tests wait if this machine is busy.
		boot = sys.BootCounting
	}
	machineErr := boot(ctx, initrd, guestCommand, answers, out)
	results, err := readResults(answers)
	if err := errors.Join(machineErr, err); err != nil {
		return results, fmt.Errorf("the virtual machine failed: %w", err)
	}
	return results, complete(sys.Release, jobs, results)
}

// complete returns an error unless there is a result of every job, from the
// kernel that was meant.
func complete(r debian.Release, jobs []job, results []result) error {
	for _, j := range jobs {
		i := slices.IndexFunc(results, func(r result) bool { return r.Package == j.Package })
		if i < 0 {
			return fmt.Errorf("the virtual machine did not report on %s: see what it printed", j.Package)
		}
		if !strings.HasPrefix(results[i].Kernel, r.Kernel+".") {
			return fmt.Errorf("the virtual machine runs kernel %s instead of %s", results[i].Kernel, r.Kernel)
		}
	}
	return nil
}

func readResults(path string) ([]result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var results []result
	for in := json.NewDecoder(f); ; {
		var r result
		switch err := in.Decode(&r); {
		case errors.Is(err, io.EOF):
			return results, nil
		case err != nil:
			return results, fmt.Errorf("read what the virtual machine reported: %w", err)
		}
		results = append(results, r)
	}
}

// guestJobs returns what runs in the virtual machine. Tests take turns, because
// many connections at once would keep each other waiting for longer there than
// tests allow.
func (s *suite) guestJobs() []job {
	var jobs []job
	for _, p := range s.packages {
		jobs = append(jobs, job{strings.TrimPrefix(p, module),
			[]string{"-test.v", "-test.parallel=1", "-test.timeout=" + packageTimeout, "-test.run=" + s.tests}, s.tests != ""})
	}
	return jobs
}

// initrd makes the initial file system: the Debian system, the repository, the
// tests, and this program.
func (s *suite) initrd(ctx context.Context, sys debian.System, jobs []job) (string, error) {
	files, err := output(exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"))
	if err != nil {
		return "", err
	}
	list, err := json.Marshal(jobs)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.work, sys.Kernel+".initrd")
	return path, debian.WriteImage(path, func(i *debian.Image) error {
		if err := errors.Join(i.AddTree(sys.Root(), "/"), i.AddTree(s.programs, guestPrograms), i.Add(s.init, "/init"),
			i.AddContent(guestJobs, 0o644, string(list))); err != nil {
			return err
		}
		// git also lists files that are deleted and not yet committed as such.
		for f := range strings.SplitSeq(strings.TrimSuffix(files, "\x00"), "\x00") {
			if err := i.Add(f, filepath.Join(guestSource, f)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	})
}
