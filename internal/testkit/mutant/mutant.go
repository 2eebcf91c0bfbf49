// Package mutant has the functions that package mutate puts into the source of a program. The
// environment variable MUTANT is the number of the change that is in effect; no other is.
package mutant

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
)

var active = number()

func number() int {
	n, err := strconv.Atoi(os.Getenv("MUTANT"))
	if err != nil {
		return -1
	}
	return n
}

// sites is more than there are places for changes.
const sites = 1 << 14

var reached [sites]atomic.Bool

// On reports whether a change is in effect, and notes that the program has come there.
func On(n int) bool {
	reached[n].Store(true)
	return n == active
}

// Add returns a number, or the next one.
func Add(n int, v int64) int64 {
	if On(n) {
		return v + 1
	}
	return v
}

// Without returns a list, or all of it but an element.
func Without[S ~[]E, E any](n, i int, s S) S {
	if On(n) && i < len(s) {
		return append(s[:i:i], s[i+1:]...)
	}
	return s
}

// PrintReached prints the numbers of the places that the program has come to.
func PrintReached(out io.Writer) error {
	for n := range reached {
		if reached[n].Load() {
			if _, err := fmt.Fprintln(out, n); err != nil {
				return err
			}
		}
	}
	return nil
}
