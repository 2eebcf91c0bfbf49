package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"text/tabwriter"
	"time"
)

// job is the tests of one package.
type job struct {
	Package string   // import path below the module
	Args    []string // of the test program
	Partial bool     // only some tests are selected
}

// result says how a job went.
type result struct {
	Package string
	Kernel  string // as uname says
	Nft     string // as nft says
	Passed  int    // tests and subtests
	Failed  []string
	Said    string // by the tests that failed
	Skipped []string
	Partial bool   // only some tests were selected
	Error   string // of the test program
	Seconds float64
}

// problem returns why the result is a failure, or nothing.
func (r *result) problem() string {
	wrongly, missing := r.skips()
	switch {
	case len(r.Failed) > 0:
		return "failed: " + strings.Join(r.Failed, ", ")
	case r.Error != "":
		return r.Error
	case len(wrongly) > 0:
		return "skipped: " + strings.Join(wrongly, ", ")
	case len(missing) > 0 && !r.Partial:
		return "not skipped, though listed as lacking support: " + strings.Join(missing, ", ")
	case r.Passed == 0:
		return "no test ran"
	}
	return ""
}

// run runs a job in the source tree, and prints all output except that of
// passing tests.
func (j job) run(ctx context.Context, source, programs string, env []string, out io.Writer) result {
	r := result{Package: j.Package, Partial: j.Partial}
	began := time.Now()
	cmd := exec.CommandContext(ctx, path.Join(programs, path.Base(j.Package)+".test"), j.Args...)
	cmd.Dir = path.Join(source, j.Package)
	cmd.Env = append(append(os.Environ(), "NFTPROXY="+path.Join(programs, "nftproxy")), env...)
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	ended := make(chan error, 1)
	go func() {
		err := cmd.Run()
		write.Close()
		ended <- err
	}()
	scanErr := r.scan(read, out)
	_, _ = io.Copy(io.Discard, read)
	if err := errors.Join(<-ended, scanErr); err != nil {
		r.Error = err.Error()
	}
	r.Seconds = time.Since(began).Seconds()
	return r
}

// scan counts tests in the output of a test program that runs with -test.v.
func (r *result) scan(output io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 16<<20)
	said := make(map[string]string) // by test
	for test := ""; lines.Scan(); {
		line := lines.Text()
		words := strings.Fields(line)
		switch {
		case len(words) > 2 && words[0] == "===":
			test = words[2]
			continue
		case line == "PASS":
			continue
		case len(words) < 3 || words[0] != "---":
			said[test] += line + "\n"
		case words[1] == "PASS:":
			r.Passed++
			continue
		case words[1] == "FAIL:":
			r.Failed = append(r.Failed, words[2])
			r.Said += said[words[2]]
		case words[1] == "SKIP:":
			r.Skipped = append(r.Skipped, words[2])
		}
		fmt.Fprintln(out, line)
	}
	return lines.Err()
}

// printResults prints a table.
func printResults(out io.Writer, results []result) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "\nKERNEL\tNFT\tPACKAGE\tPASSED\tFAILED\tSKIPPED\tSECONDS")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%.1f\n",
			r.Kernel, r.Nft, r.Package, r.Passed, len(r.Failed), len(r.Skipped), r.Seconds)
	}
	w.Flush()
	printLacking(out, results)
	// Failures go last, where they are read first: the output of all tests is long.
	for _, r := range results {
		if r.Said != "" {
			fmt.Fprintf(out, "%s on %s: output of what failed:\n%s", r.Package, r.Kernel, r.Said)
		}
	}
	fmt.Fprintln(out)
}
