package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
)

// manyServers are Services with endpoints that need not answer: shop/many has 24 of them,
// shop/pair two.
func manyServers() string {
	var b strings.Builder
	for i, s := range []struct {
		name      string
		endpoints int
	}{{"many", 24}, {"pair", 2}} {
		fmt.Fprintf(&b, "kind: Balance\nname: %s\nnamespace: shop\nlisten: 203.0.113.%d:80\nbackends:\n", s.name, i+1)
		for n := range s.endpoints {
			fmt.Fprintf(&b, "- 10.60.%d.%d:8080\n", i, n+1)
		}
		b.WriteString("---\n")
	}
	return b.String()
}

// startMany runs nftproxy with manyServers.
func startMany(t *testing.T) *drainLab {
	t.Helper()
	l := newDrainLab(t)
	l.startWith(manyServers())
	return l
}

// at runs commands at the same time and returns their results.
func (l *drainLab) at(commands ...string) []result {
	results := make([]result, len(commands))
	var all sync.WaitGroup
	for i, c := range commands {
		all.Go(func() { results[i] = l.run(strings.Fields(c)...) })
	}
	all.Wait()
	return results
}

// 9.22, 9.24: drains of different endpoints that run at the same time all succeed, also
// beside the end of other drains.
func TestDrainsAtTheSameTime(t *testing.T) {
	l := startMany(t)
	for round := range 2 {
		var drains, both []string
		for i := range 8 {
			drains = append(drains, fmt.Sprintf("drain 10.60.0.%d", i+1))
			both = append(both, fmt.Sprintf("undrain 10.60.0.%d", i+1), fmt.Sprintf("drain 10.60.0.%d", i+11))
		}
		for _, commands := range [][]string{drains, both} {
			for i, r := range l.at(commands...) {
				if r.code != 0 || r.stderr != "" {
					t.Errorf("round %d, %s: exit code %d\n%s%s", round, commands[i], r.code, r.stdout, r.stderr)
				}
			}
		}
		if out := l.succeeds("drain"); strings.Count(out, "10.60.0.1") != 8 || strings.Contains(out, "10.60.0.10") {
			t.Errorf("round %d: want 10.60.0.11 to 10.60.0.18:\n%s", round, out)
		}
		l.succeeds("undrain", "--all")
	}
}

// 9.23: of two drains that together would stop a Service, one is refused, also if both run
// at the same time.
func TestDrainsOfTheLastEndpoints(t *testing.T) {
	l := startMany(t)
	for round := range 3 {
		refused := 0
		for _, r := range l.at("drain 10.60.1.1", "drain 10.60.1.2") {
			switch {
			case r.code == 0 && r.stderr == "":
			case r.code == cli.CodeError && strings.Contains(r.stderr, "Balance shop/pair would have no other server"):
				refused++
			default:
				t.Errorf("round %d: exit code %d\n%s%s", round, r.code, r.stdout, r.stderr)
			}
		}
		if out := l.succeeds("drain"); refused != 1 || strings.Count(out, "10.60.1.") != 1 {
			t.Errorf("round %d: %d of 2 are refused, and drained is:\n%s", round, refused, out)
		}
		l.succeeds("undrain", "--all")
	}
}

// A drain that another command ends before it is in force is no success: its user may stop
// the server next.
func TestDrainThatIsEnded(t *testing.T) {
	l := startMany(t)
	for round := range 3 {
		results := l.at("drain 10.60.0.1", "undrain --all")
		drained := strings.Contains(l.succeeds("drain"), "10.60.0.1")
		switch r := results[0]; {
		case r.code == 0 && strings.Contains(r.stdout, "10.60.0.1 is drained: no new connections"): // first, or not ended
		case r.code == cli.CodeError && strings.Contains(r.stderr, "10.60.0.1: another command has put it back into service") && !drained:
		default:
			t.Errorf("round %d: drained: %v; exit code %d: %s%s", round, drained, r.code, r.stdout, r.stderr)
		}
		want := "no server is drained\n"
		if drained && results[1].stdout != want { // it came first, and saw the drain
			want = "all drains are ended; since then, another command has drained 1 server\n"
		}
		if r := results[1]; r.code != 0 || r.stdout != want {
			t.Errorf("round %d: undrain --all: %d: %s%s", round, r.code, r.stdout, r.stderr)
		}
		l.succeeds("undrain", "--all")
	}
}
