// Command catch proves the rules of stories, in a file of JSON, and ends with status 1 and an example
// at the first packet that does not experience what it must. With a second argument it writes there
// which changes of package mutant it has come to. The kernel ends it after 30 s of processor time: then a
// mutant loops.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/prove"
	"github.com/nftproxy/nftproxy/internal/testkit/mutant"
	"github.com/nftproxy/nftproxy/internal/testkit/proof"
)

// patience is in seconds of processor time.
const patience = 30

func main() {
	if err := syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: patience, Max: patience}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	wrong, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if wrong != nil {
		fmt.Printf("%s: must: %s; does: %s\n", wrong.Class, wrong.Want, wrong.Got)
		os.Exit(1)
	}
}

func run(args []string) (*prove.Example, error) {
	data, err := os.ReadFile(args[0])
	if err != nil {
		return nil, err
	}
	var stories []proof.Story
	if err := json.Unmarshal(data, &stories); err != nil {
		return nil, err
	}
	for _, s := range stories {
		k := proof.Kernel{Between: s.Between, Follows: s.Follows}
		for _, p := range s.Phases {
			r, err := k.Become(p)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			if r.Wrong > 0 {
				return &r.Examples[0], nil
			}
		}
	}
	if len(args) < 2 {
		return nil, nil
	}
	out, err := os.Create(args[1])
	if err != nil {
		return nil, err
	}
	if err := mutant.PrintReached(out); err != nil {
		return nil, err
	}
	return nil, out.Close()
}
