package netlab

import (
	"fmt"
	"time"
)

// Test is what a laboratory needs of a test or a benchmark.
type Test interface {
	Helper()
	Fatal(args ...any)
	Error(args ...any)
	Cleanup(f func())
}

// TestLab makes a laboratory that ends with the test.
func TestLab(t Test, pods int) *Lab {
	t.Helper()
	l, err := New(pods)
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, l.Close)
	return l
}

// TestNamespace makes a namespace that ends with the test.
func TestNamespace(t Test) *Namespace {
	t.Helper()
	ns, err := NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, ns.Close)
	return ns
}

func endWith(t Test, end func() error) {
	t.Cleanup(func() {
		t.Helper()
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// Eventually waits until f returns nil, and ends the test when that takes longer
// than patience.
func Eventually(t Test, patience time.Duration, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for err := f(); err != nil; err = f() {
		if time.Now().After(deadline) {
			t.Fatal(fmt.Sprintf("after %v: %v", patience, err))
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

// TestGeneration returns [Namespace.Generation].
func (n *Namespace) TestGeneration(t Test) uint32 {
	t.Helper()
	g, err := n.Generation()
	if err != nil {
		t.Fatal(err)
	}
	return g
}
