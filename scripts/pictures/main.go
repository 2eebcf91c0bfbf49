// Command pictures draws the diagrams of the documentation: docs/images/*.svg. Chains,
// elements and times in them come from the renderer and from docs/performance, so
// that a test can compare the pictures with the program.
//
// Usage: pictures DIRECTORY
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// run writes the pictures of a repository.
func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: pictures DIRECTORY")
	}
	all, err := pictures(filepath.Join(args[0], "../performance"))
	if err != nil {
		return err
	}
	for name, picture := range all {
		if err := os.WriteFile(filepath.Join(args[0], name), picture, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pictures returns all pictures by file name.
func pictures(performance string) (map[string][]byte, error) {
	p, err := packets()
	if err != nil {
		return nil, err
	}
	c, err := change(performance)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"architecture.svg": architecture(), "pair.svg": pair(), "packets.svg": p, "change.svg": c}, nil
}
