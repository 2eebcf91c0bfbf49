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
	"slices"
	"strings"
	"time"
)

const (
	guestCommand   = "guest"
	guestJobs      = "/jobs.json"
	guestSource    = "/src"
	guestPrograms  = "/tests"
	machineTimeout = time.Hour
	packageTimeout = "30m"
)

// boot runs the tests in a virtual machine.
func (s *suite) boot(ctx context.Context, sys system, out io.Writer) ([]result, error) {
	jobs := s.guestJobs()
	initrd, err := s.initrd(ctx, sys, jobs)
	if err != nil {
		return nil, fmt.Errorf("make the initial file system: %w", err)
	}
	defer os.Remove(initrd)
	answers := filepath.Join(s.work, sys.kernel+".json")
	ctx, cancel := context.WithTimeout(ctx, machineTimeout)
	defer cancel()
	// Software emulation, also where the processor could do it: the same
	// everywhere. The processors take turns in one thread: with a thread each,
	// one can meet a breakpoint that another has long removed from the code of
	// the kernel, and the kernel panics (qemu 7.2, once in an hour).
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "tcg,thread=single", "-smp", "2", "-m", "3G",
		"-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-serial", "file:"+answers,
		"-kernel", filepath.Join(sys.dir, "vmlinuz"), "-initrd", initrd,
		"-append", "console=ttyS0 loglevel=4 panic=-1 -- "+guestCommand)
	cmd.Stdout, cmd.Stderr = out, out
	fmt.Fprintf(out, "booting the kernel of Debian %s\n", sys.codename)
	machineErr := errors.Join(cmd.Run(), ctx.Err())
	results, err := readResults(answers)
	if err := errors.Join(machineErr, err); err != nil {
		return results, fmt.Errorf("the virtual machine failed: %w", err)
	}
	return results, complete(sys.release, jobs, results)
}

// complete returns an error unless there is a result of every job, from the
// kernel that was meant.
func complete(r release, jobs []job, results []result) error {
	for _, j := range jobs {
		i := slices.IndexFunc(results, func(r result) bool { return r.Package == j.Package })
		if i < 0 {
			return fmt.Errorf("the virtual machine did not report on %s: see what it printed", j.Package)
		}
		if !strings.HasPrefix(results[i].Kernel, r.kernel+".") {
			return fmt.Errorf("the virtual machine runs kernel %s instead of %s", results[i].Kernel, r.kernel)
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
func (s *suite) initrd(ctx context.Context, sys system, jobs []job) (string, error) {
	files, err := output(exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"))
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	list, err := json.Marshal(jobs)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.work, sys.kernel+".initrd")
	return path, writeImage(path, func(i *image) error {
		if err := errors.Join(i.addTree(sys.root(), "/"), i.addTree(s.programs, guestPrograms), i.add(self, "/init"),
			i.entry(guestJobs, 0o100644, len(list), strings.NewReader(string(list)))); err != nil {
			return err
		}
		// git also lists files that are deleted and not yet committed as such.
		for f := range strings.SplitSeq(strings.TrimSuffix(files, "\x00"), "\x00") {
			if err := i.add(f, filepath.Join(guestSource, f)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	})
}
