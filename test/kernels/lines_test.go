package main

import (
	"strings"
	"sync"
	"testing"
)

func TestLines(t *testing.T) {
	var out strings.Builder
	var shared sync.Mutex
	a := &lines{prefix: "a: ", out: &out, shared: &shared}
	b := &lines{prefix: "b: ", out: &out, shared: &shared}
	for _, s := range []struct {
		to   *lines
		text string
	}{{a, "on"}, {b, "x\ny\n"}, {a, "e\ntwo\n"}} {
		if n, err := s.to.Write([]byte(s.text)); n != len(s.text) || err != nil {
			t.Fatal(n, err)
		}
	}
	if want := "b: x\nb: y\na: one\na: two\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
