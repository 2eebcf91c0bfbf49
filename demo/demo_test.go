package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/test/program"
)

// binary is nftproxy.
var binary string

// beDemo in the environment makes the test binary the demo.
const beDemo = "NFTPROXY_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(beDemo) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(program.Run(&binary, "../cmd/nftproxy", m.Run))
}

// play runs the demo in a directory for its files, and returns what it prints.
func play(t *testing.T, d *demo, selected string) string {
	t.Helper()
	var out strings.Builder
	d.out = &out
	t.Setenv("TMPDIR", t.TempDir())
	if err := d.play([]string{binary, "services.yaml"}, selected); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	nothingLeft(t, os.Getenv("TMPDIR"))
	return out.String()
}

func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// The whole show passes its own checks, waits between the steps, and says each step
// once, in order.
func TestDemo(t *testing.T) {
	keys := strings.NewReader(strings.Repeat("\n", len(steps)-1))
	out := play(t, &demo{paint: true, keys: bufio.NewReader(keys)}, "")
	if n := strings.Count(out, "Enter: next step"); n != len(steps)-1 || keys.Len() > 0 {
		t.Errorf("%d pauses, %d keys are left", n, keys.Len())
	}
	rest := out
	for i, s := range steps {
		heading := fmt.Sprintf("\n%s%d. %s%s\n", bold, i+1, s.title, end)
		_, after, found := strings.Cut(rest, heading)
		if !found || strings.Contains(after, heading) {
			t.Errorf("no heading %q, or more than one", heading)
		}
		rest = after
	}
	if !strings.HasSuffix(out, "\nAll checks passed.\n") {
		t.Errorf("the end is %q", out[max(0, len(out)-100):])
	}
}

// Each step works alone, by its number and its name, is short, and its numbers agree.
func TestSteps(t *testing.T) {
	for i, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			out := waiting.ReplaceAllString(play(t, &demo{}, s.name), "")
			if !strings.HasPrefix(out, fmt.Sprintf("\n%d. %s\n", i+1, s.title)) || strings.Contains(out, "Enter:") || strings.Contains(out, "\x1b") {
				t.Errorf("the step is\n%s", out)
			}
			if n := strings.Count(out, "\n"); n > 45 {
				t.Errorf("the step has %d lines", n)
			}
			sums(t, out)
		})
	}
	if out := play(t, &demo{}, "1"); !strings.Contains(out, steps[0].title) {
		t.Errorf("step 1 is\n%s", out)
	}
	for _, wrong := range []string{"0", "13", "-1", "nonsense"} {
		if err := new(demo).play([]string{binary, "services.yaml"}, wrong); err == nil || !strings.Contains(err.Error(), "balance, replace, explain") {
			t.Errorf("STEP=%s: %v", wrong, err)
		}
	}
}

var (
	// waiting matches what a step prints on a busy machine.
	waiting = regexp.MustCompile(`(?m)^\(waiting until .*\)\n`)
	stated  = regexp.MustCompile(`(?m)^(\d+) requests, 0 failed`)
	cells   = regexp.MustCompile(`(?m)^  .*?((?: +(?:\d+|-)){4})$`)
)

// sums checks that the requests of a table are those of the sentence below it, or
// those that its title says.
func sums(t *testing.T, out string) {
	t.Helper()
	sum, rows := 0, cells.FindAllStringSubmatch(out, -1)
	for _, row := range rows {
		inRow := 0
		for _, cell := range strings.Fields(row[1]) {
			n, _ := strconv.Atoi(cell) // "-" is 0
			inRow += n
		}
		sum += inRow
		if strings.Contains(out, "12 requests each") && inRow != requests {
			t.Errorf("%d requests in %q", inRow, row[0])
		}
	}
	if m := stated.FindStringSubmatch(out); m != nil && (m[1] != fmt.Sprint(sum) || sum < 2*enough) {
		t.Errorf("the table has %d requests:\n%s", sum, out)
	}
	if strings.Contains(out, "pod-3") && !strings.Contains(out, "comes later") && len(rows) != 3 {
		t.Errorf("%d rows in the table:\n%s", len(rows), out)
	}
}

// An interrupted demo leaves nothing, wherever it is.
func TestInterrupt(t *testing.T) {
	for _, at := range []string{"1. ", "5. ", "kill -9", "10. "} {
		t.Run(at, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(os.Args[0], binary, "services.yaml")
			cmd.Env = append(os.Environ(), beDemo+"=1", "TMPDIR="+dir, "STEP=")
			cmd.Stderr = t.Output()
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			for lines, sent := bufio.NewScanner(out), false; lines.Scan(); {
				if !sent && strings.Contains(lines.Text(), at) {
					sent = true
					if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
						t.Fatal(err)
					}
				}
			}
			_ = cmd.Wait() // the code says it
			if code := cmd.ProcessState.ExitCode(); code != 130 {
				t.Errorf("exit code %d", code)
			}
			nothingLeft(t, dir)
			noDaemon(t, dir)
		})
	}
}

// noDaemon checks that no nftproxy runs in a directory. A command that the demo was in ends by itself.
func noDaemon(t *testing.T, dir string) {
	t.Helper()
	await.Until(t, func() error {
		works, err := filepath.Glob("/proc/[0-9]*/cwd")
		for _, link := range works {
			if at, err := os.Readlink(link); err == nil && strings.HasPrefix(at, dir) {
				return fmt.Errorf("%s runs in %s", filepath.Dir(link), at)
			}
		}
		return err
	})
}

// A failed check is a failure of the demo.
func TestChecksFail(t *testing.T) {
	a := answers{"pod-0": 4, "pod-1": 4, "pod-3": 4}
	wanted := []host{{Name: "pod-0"}, {Name: "pod-1"}, {Name: "pod-2"}}
	if a.only(wanted...) == nil || a.all(wanted) == nil || a.inTurn(wanted) == nil {
		t.Error("answers of another pod are accepted")
	}
	if (answers{"pod-0": 9, "pod-1": 2, "pod-2": 1}).inTurn(wanted) == nil {
		t.Error("an uneven distribution is accepted")
	}
	l := &load{answers: answers{}, ask: func() (string, error) { return "", syscall.ECONNREFUSED }}
	l.start()
	l.more(enough)
	if _, err := l.finish(); err == nil {
		t.Error("a failed request is accepted")
	}
	if !protects("6.9.0") || !protects("7.0") || protects("6.8.12-x") || protects("5.13") || protects("x") {
		t.Error("wrong kernels protect tables")
	}
}
