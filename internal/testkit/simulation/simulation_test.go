package simulation

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"testing/synctest"
)

var (
	seeds   = flag.Uint64("seeds", 6, "number of simulations")
	first   = flag.Uint64("seed", 1, "seed of the first one")
	events  = flag.Int("events", 200, "number of events of each")
	shrinks = flag.Bool("shrink", true, "shrink the list of events that has led to a failure")
	repeats = flag.Int("repeats", 5, "how often a seed is repeated, to compare its transactions")
	verbose = flag.Bool("log", false, "print the log of each process")
)

// simulate runs events in a bubble.
func simulate(t *testing.T, seed uint64, events []Event) (out Result) {
	t.Helper()
	directory, err := testDirectory()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(directory)
	t.Setenv("TMPDIR", directory)
	runtime, err := os.MkdirTemp(directory, "runtime")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if *verbose {
		log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	synctest.Test(t, func(*testing.T) { out = Run(seed, events, log, runtime) })
	return out
}

// TestSimulation runs the process on models of a machine. A failure prints its seed and the events that
// are enough for it.
func TestSimulation(t *testing.T) {
	transactions := 0
	for seed := *first; seed < *first+*seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			all := Draw(seed, *events)
			r := simulate(t, seed, all)
			transactions += len(r.Trace)
			if r.Err != nil {
				t.Errorf("seed %d, event %d of %d: %v", seed, r.At, len(all), r.Err)
				if *shrinks {
					fmt.Fprintf(t.Output(), "these events are enough:\n%s", textOf(shrink(t, seed, all[:r.At+1])))
				}
			} else if r.Crashes < 3 && *events >= 200 {
				t.Errorf("seed %d: %d crashes", seed, r.Crashes)
			}
		})
	}
	fmt.Fprintf(t.Output(), "%d seeds, %d transactions\n", *seeds, transactions)
}

// TestSameTransactions: a seed always leads to the same transactions.
func TestSameTransactions(t *testing.T) {
	all := Draw(*first, 100)
	want := simulate(t, *first, all)
	for n := range *repeats {
		got := simulate(t, *first, all)
		for i := range min(len(want.Trace), len(got.Trace)) {
			if got.Trace[i] != want.Trace[i] {
				t.Fatalf("run %d: transaction %d differs from the one of the first run", n, i)
			}
		}
		if len(got.Trace) != len(want.Trace) || len(got.Trace) < 50 {
			t.Fatalf("run %d has %d transactions, the first one %d", n, len(got.Trace), len(want.Trace))
		}
	}
}

// shrink returns the events without those that make no difference to the failure.
func shrink(t *testing.T, seed uint64, all []Event) []Event {
	t.Helper()
	for size := len(all) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(all); {
			fewer := slices.Delete(slices.Clone(all), at, at+size)
			if r := simulate(t, seed, fewer); r.Err != nil {
				all = fewer[:r.At+1]
			} else {
				at += size
			}
		}
	}
	return all
}

func textOf(events []Event) string {
	var b bytes.Buffer
	for _, e := range events {
		fmt.Fprintf(&b, "{%s %d}\n", e.Kind, e.Number)
	}
	return b.String()
}
