package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module makes a module with a file of tests for each package, and makes it the current directory.
func module(t *testing.T, packages map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "off")
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module m\n")
	for name, tests := range packages {
		write(filepath.Join(name, "a_test.go"), "package "+name+"\nimport (\"os\"; \"testing\")\nvar _ = os.Exit\n"+tests)
	}
}

// summary runs the command, and returns what it prints after the list of packages.
func summary(t *testing.T, args ...string) (passed bool, list, end string) {
	t.Helper()
	var out strings.Builder
	passed, err := run(t.Context(), append([]string{"-shuffle", "off", "-timeout", "1m"}, args...), &out)
	if err != nil {
		t.Fatal(err)
	}
	list, end, _ = strings.Cut(out.String(), "\n\n")
	return passed, list, end
}

func wantIn(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}

const passes = "func TestFirst(t *testing.T) {}\nfunc TestLast(t *testing.T) {}\n"

func TestAllPass(t *testing.T) {
	module(t, map[string]string{"a": passes, "b": passes})
	passed, list, end := summary(t, "./a", "--", "./b")
	if !passed {
		t.Error("the command fails")
	}
	wantIn(t, list, "pass  m/a", "pass  m/b")
	wantIn(t, list+end, "2 packages and 4 tests in ", " s of processors): 0 failures, 0 skipped\n")
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "nftproxy-tests-*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// A part runs beside one that fails, and the end names what failed in all parts, with what it said.
func TestAllPartsRun(t *testing.T) {
	module(t, map[string]string{
		"a": passes + `func TestFails(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("seven is not eight") }) }`,
		"b": passes + `func TestSkipped(t *testing.T) { t.Skip("no kernel here") }`,
		"c": "func TestBroken(t *testing.T) { undefined() }",
		"d": passes,
	})
	passed, list, end := summary(t, "./a", "./c", "--", "./b", "./d")
	if passed {
		t.Error("the command passes")
	}
	wantIn(t, list, "fail  m/a", "fail  m/c", "pass  m/b", "pass  m/d")
	wantIn(t, end, "FAIL m/a TestFails/sub (", "    a_test.go:6: seven is not eight\n", "FAIL m/c (", "does not compile", "undefined: undefined",
		"SKIP m/b TestSkipped\n", "no kernel here", "4 packages and 8 tests", ": 2 failures, 1 skipped; SHUFFLE=off repeats the order; all output: ")
	_, log, _ := strings.Cut(strings.TrimSpace(end), "all output: ")
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	wantIn(t, string(text), "--- FAIL: TestFails/sub", "--- PASS: TestLast")
}

// Tests that end the program fail, one by one, and the others of their package run.
func TestProgramEndsEarly(t *testing.T) {
	for name, ends := range map[string]struct{ test, says string }{
		"a panic":                 {`panic("out of range")`, "panic: out of range"},
		"a panic of a goroutine":  {`go panic("in the back"); select {}`, "panic: in the back"},
		"an exit":                 {"os.Exit(3)", "the program of tests ended while this test ran"},
		"a panic beside the rest": {`t.Cleanup(func() { panic("late") })`, "panic: late"},
	} {
		t.Run(name, func(t *testing.T) {
			module(t, map[string]string{"a": "func TestFirst(t *testing.T) { t.Parallel() }\nfunc TestEnds(t *testing.T) { " + ends.test +
				" }\nfunc TestEndsToo(t *testing.T) { " + ends.test + " }\nfunc TestLast(t *testing.T) {}", "b": passes})
			passed, list, end := summary(t, "./a", "./b")
			if passed {
				t.Error("the command passes")
			}
			wantIn(t, list, "m/a ended early", "pass  m/b")
			wantIn(t, end, "FAIL m/a TestEnds (", "FAIL m/a TestEndsToo (", ends.says, "2 packages and 6 tests", "2 failures")
		})
	}
}

// A test that hangs fails at the timeout, and the others of its package run.
func TestTimeout(t *testing.T) {
	module(t, map[string]string{"a": "func TestHangs(t *testing.T) { select {} }\nfunc TestLast(t *testing.T) {}"})
	passed, _, end := summary(t, "-timeout", "1s", "./a")
	if passed {
		t.Error("the command passes")
	}
	wantIn(t, end, "FAIL m/a TestHangs (", "1 package and 2 tests", "1 failure")
}

// What ends the program outside of tests is a failure of the package.
func TestMainFails(t *testing.T) {
	module(t, map[string]string{"a": passes + "func TestMain(m *testing.M) { m.Run(); println(\"files are left\"); os.Exit(1) }",
		"b": passes + `func TestMain(m *testing.M) { panic("no network") }`})
	passed, _, end := summary(t)
	if passed {
		t.Error("the command passes")
	}
	wantIn(t, end, "FAIL m/a (", "files are left", "FAIL m/b (", "panic: no network", "2 failures")
}

func TestSkippedIsFailure(t *testing.T) {
	module(t, map[string]string{"a": `func TestSkipped(t *testing.T) { t.Skip("no kernel here") }`})
	for _, noSkip := range []bool{false, true} {
		args := []string{"./a"}
		if noSkip {
			args = []string{"-no-skip", "./a"}
		}
		passed, _, end := summary(t, args...)
		if passed == noSkip {
			t.Errorf("with -no-skip=%v it passes: %v", noSkip, passed)
		}
		wantIn(t, end, "SKIP m/a TestSkipped", "no kernel here", "1 skipped")
	}
}

// A package that does not exist fails.
func TestUnknownPackage(t *testing.T) {
	module(t, map[string]string{"a": passes})
	passed, _, end := summary(t, "./nowhere")
	if passed {
		t.Error("the command passes")
	}
	wantIn(t, end, "FAIL", "nowhere")
}

// A program is built once for the tests of a part that start it.
func TestProgram(t *testing.T) {
	module(t, map[string]string{"a": `func TestProgram(t *testing.T) { if _, err := os.Stat(os.Getenv("NFTPROXY")); err != nil { t.Error(err) } }`})
	for name, text := range map[string]string{"p/main.go": "package main\n\nfunc main() {}\n", "q/main.go": "package main\n\nfunc main() { undefined() }\n"} {
		if err := os.Mkdir(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if passed, list, end := summary(t, "-program", "./p", "./a"); !passed {
		t.Error(list, end)
	}
	_, err := run(t.Context(), []string{"-program", "./q", "./a"}, t.Output())
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("the error of the compiler is %v", err)
	}
}

// The tests of a package that is split run in several programs: each test in one of them, also beside one that ends
// its program.
func TestSplit(t *testing.T) {
	const many = "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) {}\nfunc TestC(t *testing.T) {}\nfunc FuzzD(f *testing.F) { f.Fuzz(func(*testing.T, int) {}) }\n"
	module(t, map[string]string{"a": many, "b": passes})
	passed, list, end := summary(t, "-split", "./a", "./a", "./b")
	if !passed {
		t.Error("the command fails")
	}
	wantIn(t, list+end, "pass  m/a (1 of 3)", "pass  m/a (2 of 3)", "pass  m/a (3 of 3)", "pass  m/b", "2 packages and 6 tests")
	passed, list, end = summary(t, "-split", "./a", "m/a")
	if !passed || strings.Contains(list, "(4 of") {
		t.Error(list, end)
	}

	module(t, map[string]string{"a": many, "b": passes, "c": many, "d": passes})
	passed, list, end = summary(t, "-split", "./a", "-split", "m/c", "./a", "./b", "m/c", "--", "./d")
	if !passed {
		t.Error(list, end)
	}
	wantIn(t, list+end, "pass  m/a (3 of 3)", "pass  m/c (1 of 3)", "pass  m/c (3 of 3)", "pass  m/b", "pass  m/d", "4 packages and 12 tests")

	module(t, map[string]string{"a": many + `func TestE(t *testing.T) { panic("out of range") }`, "b": passes})
	passed, list, end = summary(t, "-split", "./a", "m/a", "m/b")
	if passed {
		t.Error("the command passes")
	}
	wantIn(t, list, "m/a (1 of 3) ended early")
	wantIn(t, end, "FAIL m/a (1 of 3) TestE (", "panic: out of range", "2 packages and 7 tests", "1 failure")

	module(t, map[string]string{"a": many + "func TestE(t *testing.T) { undefined() }", "b": passes})
	_, list, end = summary(t, "-split", "./a", "./a", "./b")
	wantIn(t, list, "pass  m/b")
	wantIn(t, end, "FAIL m/a (", "does not compile", "1 failure")

	if _, err := run(t.Context(), []string{"-split", "./a", "./b"}, t.Output()); err == nil || !strings.Contains(err.Error(), "none of the packages") {
		t.Errorf("without the package: %v", err)
	}
}

func TestParts(t *testing.T) {
	c, parts, err := parse([]string{"-parallel", "2", "-race", "a", "b", "--", "c", "--", "-race", "d"})
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) != 3 || !parts[0].race || parts[1].race || !parts[2].race || !slices.Equal(parts[0].packages, []string{"a", "b"}) {
		t.Errorf("the parts are %+v", parts)
	}
	args := strings.Join(c.arguments(job{part: parts[2], packages: parts[2].packages, skip: []string{"TestA", "TestB"}}), " ")
	wantIn(t, args, "-p 2", "-race", "-skip ^(TestA|TestB)$ d")
	for _, wrong := range [][]string{{"a", "--"}, {"a", "--", "-race"}, {"-race", "--", "a"}, {"-nonsense"}} {
		if _, _, err := parse(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
