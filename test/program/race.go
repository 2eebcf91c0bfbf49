//go:build race

package program

// buildFlags are those of the program: tests under the race detector look for races in it, too.
var buildFlags = []string{"-race"}
