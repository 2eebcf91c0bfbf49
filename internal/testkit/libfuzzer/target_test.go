package libfuzzer

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"testing/synctest"
)

// TestMain runs targets in processes of their own: package testing keeps the flags of a run.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "target" {
		report(os.Args[2], os.Args[3:])
		return
	}
	os.Exit(m.Run())
}

// report runs a target with inputs, and prints what came of it.
func report(name string, inputs []string) {
	Register("FuzzPair", func(f *testing.F) {
		f.Add("a", 1)
		f.Add("bc", -2)
		f.Fuzz(func(t *testing.T, s string, n int) {
			synctest.Test(t, func(t *testing.T) {
				if t.Context().Err() != nil {
					t.Fatal("the context has ended")
				}
			})
			if s == "skip" {
				t.Skip()
			}
			if s == "bad" {
				t.Errorf("found %s %d", s, n)
			}
		})
	})
	Register("FuzzNothing", func(*testing.F) {})
	Register("FuzzSkips", func(f *testing.F) { f.Skip() })
	target, err := open(name)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println(target.types, target.seeds)
	for _, i := range inputs {
		data, _ := hex.DecodeString(i)
		fmt.Printf("%s: %v\n", i, target.run(data))
	}
}

// TestOpen: a target gets inputs one by one and may use all of package testing; what it finds is
// an error.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		name   string
		inputs []string // hexadecimal
		want   string
	}{
		{"FuzzPair", []string{"01007801", "030062616407", "0400736b6970", ""}, `(?s)^PASS\n\[string int\] \[\[a 1\] \[bc -2\]\]
01007801: <nil>
030062616407: --- FAIL: FuzzPair .*
    target_test.go:\d+: found bad 7
.*
0400736b6970: <nil>
: <nil>
$`},
		{"FuzzNothing", nil, "error: start fuzz target FuzzNothing: exit code 1\n$"},
		{"FuzzSkips", nil, "error: fuzz target FuzzSkips does not call F.Fuzz\n$"},
		{"FuzzOther", nil, `^error: no fuzz target "FuzzOther" is registered`},
	} {
		out, err := exec.CommandContext(t.Context(), os.Args[0], append([]string{"target", c.name}, c.inputs...)...).CombinedOutput()
		if err != nil || !regexp.MustCompile(c.want).Match(out) {
			t.Errorf("%s: %v, %q, want %q", c.name, err, out, c.want)
		}
	}
}
