//go:build libfuzzer && cgo

package libfuzzer

// #include <stddef.h>
// #include <stdint.h>
//
// // The program that is linked from the archive says which target of which package it runs.
// extern const char fuzz_target[] __attribute__((weak));
// extern const char fuzz_package[] __attribute__((weak));
// static const char *target(void) { return fuzz_target; }
// static const char *directory(void) { return fuzz_package; }
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"
)

var opened *target

// LLVMFuzzerInitialize prepares the target. With FUZZ_SEEDS, a directory, it writes the seeds
// of the target there instead, each into a file, and ends the program.
//
//export LLVMFuzzerInitialize
func LLVMFuzzerInitialize(*C.int, ***C.char) C.int {
	err := openInSource(C.GoString(C.directory()), C.GoString(C.target()))
	if directory := os.Getenv("FUZZ_SEEDS"); err == nil && directory != "" {
		if err = writeSeeds(directory, opened.seeds); err == nil {
			os.Exit(0)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return 0
}

// openInSource prepares a target in the directory that stands for its package, where it
// finds the files that are its seeds: in "source", beside the program.
func openInSource(directory, name string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	before, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.Chdir(filepath.Join(filepath.Dir(program), "source", directory)); err != nil {
		return err
	}
	opened, err = open(name)
	return errors.Join(err, os.Chdir(before))
}

func writeSeeds(directory string, seeds [][]any) error {
	for i, values := range seeds {
		data, err := encode(values)
		if err != nil {
			return fmt.Errorf("seed %d: %w", i, err)
		}
		if err := os.WriteFile(filepath.Join(directory, fmt.Sprintf("seed-%03d", i)), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// LLVMFuzzerTestOneInput runs the target. A failure aborts the program, as a panic in the target
// does: the runtime of Go does so in an archive.
//
//export LLVMFuzzerTestOneInput
func LLVMFuzzerTestOneInput(data *C.uint8_t, size C.size_t) C.int {
	if err := opened.run(unsafe.Slice((*byte)(data), size)); err != nil {
		panic(err)
	}
	return 0
}
