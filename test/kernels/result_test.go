package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/debian"
)

// What a test program prints is counted, and what did not pass is printed.
func TestScan(t *testing.T) {
	const printed = `=== RUN   TestGood
=== RUN   TestGood/part
    good_test.go:7: noise
--- PASS: TestGood (0.00s)
    --- PASS: TestGood/part (0.00s)
=== RUN   TestBad
    bad_test.go:7: why
--- FAIL: TestBad (1.00s)
--- SKIP: TestLater (0.00s)
FAIL
`
	var r result
	var out strings.Builder
	if err := r.scan(strings.NewReader(printed), &out); err != nil {
		t.Fatal(err)
	}
	if r.Passed != 2 || len(r.Failed) != 1 || r.Failed[0] != "TestBad" || len(r.Skipped) != 1 || r.Skipped[0] != "TestLater" {
		t.Errorf("got %+v", r)
	}
	if r.Said != "    bad_test.go:7: why\n" {
		t.Errorf("what failed has said %q", r.Said)
	}
	if want := "    good_test.go:7: noise\n    bad_test.go:7: why\n--- FAIL: TestBad (1.00s)\n--- SKIP: TestLater (0.00s)\nFAIL\n"; out.String() != want {
		t.Errorf("printed:\n%s", out.String())
	}
}

// Only tests that ran and passed are good, and skipped ones where that is known.
func TestJudge(t *testing.T) {
	lack := result{Package: "test", Kernel: "6.1.0-56", Passed: 1, Skipped: lacking[0].tests["test"]}
	on := func(kernel string) result { r := lack; r.Kernel = kernel; return r }
	more, less := lack, lack
	more.Skipped = append([]string{"TestX"}, lack.Skipped...)
	less.Skipped = lack.Skipped[1:]
	some := less
	some.Partial = true
	for _, c := range []struct {
		name string
		result
		want string // part of the error
	}{
		{"passed", result{Passed: 1}, ""},
		{"failed", result{Passed: 1, Failed: []string{"TestX"}, Error: "exit status 1"}, "failed: TestX"},
		{"crashed", result{Passed: 1, Error: "exit status 2"}, "exit status 2"},
		{"skipped", result{Passed: 1, Skipped: []string{"TestX"}}, "skipped: TestX"},
		{"nothing ran", result{}, "no test ran"},
		{"lacking", lack, ""},
		{"lacking on another kernel", on("6.12.1"), "skipped: " + lack.Skipped[0]},
		{"lacking, and more", more, "skipped: TestX"},
		{"not selected", some, ""},
		{"not lacking any more", less, "not skipped, though listed as lacking support: " + lack.Skipped[0]},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := judge([]result{{Passed: 1}, c.result})
			if c.want == "" && err == nil {
				return
			}
			if c.want == "" || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if judge(nil) == nil {
		t.Error("nothing at all is good")
	}
}

// A machine that ended early, or was another one, did not pass.
func TestComplete(t *testing.T) {
	jobs := []job{{Package: "a"}, {Package: "b"}}
	r := debian.Release{Kernel: "6.1", Codename: "bookworm"}
	for _, c := range []struct{ name, reported, want string }{
		{"all", `{"Package":"a","Kernel":"6.1.0-56-cloud"}{"Package":"b","Kernel":"6.1.0-56-cloud"}`, ""},
		{"nothing", ``, "did not report on a"},
		{"a part", `{"Package":"a","Kernel":"6.1.0-56-cloud"}`, "did not report on b"},
		{"cut off", `{"Package":"a","Kernel":"6.1.0-56-cloud"}{"Package":`, "unexpected EOF"},
		{"another kernel", `{"Package":"a","Kernel":"6.12.1"}{"Package":"b","Kernel":"6.12.1"}`, "6.12.1 instead of 6.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "report")
			if err := os.WriteFile(path, []byte(c.reported), 0o644); err != nil {
				t.Fatal(err)
			}
			results, err := readResults(path)
			if err == nil {
				err = complete(r, jobs, results)
			}
			if c.want == "" && err == nil {
				return
			}
			if c.want == "" || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
