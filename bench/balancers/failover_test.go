package main

import (
	"slices"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	failed := time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC)
	at := func(after time.Duration, server int, err string) reply {
		return reply{At: failed.Add(after), Took: 0.01, Server: server, Error: err}
	}
	before := []reply{at(-3*time.Second, 0, ""), at(-3*time.Second, 1, ""), at(-3*time.Second, 2, "")}
	o, err := judge(append(slices.Clone(before), at(-time.Millisecond, -1, "no answer"),
		at(10*time.Millisecond, -1, "refused"), at(150*time.Millisecond, -1, "refused"), at(time.Second, 0, "")), failed)
	if err != nil {
		t.Fatal(err)
	}
	if o.requests != 3 || o.failed != 2 || o.last != 150*time.Millisecond || o.errors["refused"] != 2 {
		t.Errorf("got %+v", o)
	}
	if o.curve[0] != 1 || o.curve[1] != 2 || o.curve[len(o.curve)-1] != 2 {
		t.Errorf("curve is %v", o.curve)
	}
	for name, replies := range map[string][]reply{
		"a failure before":       append(slices.Clone(before), at(-time.Second, -1, "refused"), at(time.Second, 0, "")),
		"a server without share": append(slices.Clone(before[:2]), at(time.Second, 0, "")),
		"no request after":       before,
	} {
		if _, err := judge(replies, failed); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}

// Balancers are selected by their names.
func TestSelect(t *testing.T) {
	if _, err := selectBalancers("nothing"); err == nil {
		t.Error("an unknown balancer is no error")
	}
	b, err := selectBalancers("none")
	if err != nil || len(b) != 1 || b[0] != (direct{}) {
		t.Errorf("got %v, %v", b, err)
	}
}
