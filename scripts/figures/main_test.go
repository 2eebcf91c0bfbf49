package main

import (
	"slices"
	"testing"
)

// TestCode: names that Go uses itself are free, and each name of a field counts.
func TestCode(t *testing.T) {
	var c code
	if err := c.addFile("x.go", []byte(`package x

type s struct {
	now, later func() int
	other      int
	func1      interface{ f() }
}

func (s) Run()      {}
func (s) Elements() {}
func (s) IPs()      {}
func (s) take()     {}
func (s) takeAll()  {}
func close()        {}
func of6()          {}
`)); err != nil {
		t.Fatal(err)
	}
	if want := (code{functions: 7, private: 2, public: 1, funcsFields: 2}); c.functions != want.functions || c.private != want.private ||
		c.public != want.public || c.funcsFields != want.funcsFields {
		t.Errorf("%+v, want %+v", c, want)
	}
}

// TestLimits: a figure may fall without a word; one that rises, or is new, needs a reason.
func TestLimits(t *testing.T) {
	limits, err := parseLimits(header + "lines 10\nlines of a 5 # two ways\nlines of b 5 # because\n")
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]int{"lines": 9, "lines of a": 5, "lines of b": 6, "lines of c": 1}
	if got, want := exceeded(figures, limits), []string{"lines of b: 6, limit 5", "lines of c: 1, limit 0"}; !slices.Equal(got, want) {
		t.Errorf("exceeded %q, want %q", got, want)
	}
	if err := writeLimits(figures, limits, ""); err == nil {
		t.Error("limits rose without a reason")
	}
	written, err := parseLimits(formatLimits(figures, limits, "new"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]limit{"lines": {9, ""}, "lines of a": {5, "two ways"}, "lines of b": {6, "new"}, "lines of c": {1, "new"}} {
		if written[name] != want {
			t.Errorf("%s: %v, want %v", name, written[name], want)
		}
	}
}

// TestParseLimits: a line without a number is an error.
func TestParseLimits(t *testing.T) {
	for _, text := range []string{"lines", "lines ten", "10"} {
		if limits, err := parseLimits(text); err == nil {
			t.Errorf("%q: %v", text, limits)
		}
	}
}
