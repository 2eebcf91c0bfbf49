package netlab

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
